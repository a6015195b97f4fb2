"""A real vLLM server on loopback with the embedded model. Without vLLM nothing here is collected."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]

CONTEXT = 4096


@dataclass
class VllmServer:
    """`vllm serve` as a user would start it on a machine without a GPU."""

    log: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        from agl.policies.embedded import smollm2_folder
        from agl.policies.vllm_engine import CPU_ENVIRONMENT

        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        flags = (
            f"--served-model-name smollm2 --host 127.0.0.1 --port {self.port} --max-model-len {CONTEXT} "
            "--dtype float32 --enforce-eager --distributed-executor-backend uni --max-num-seqs 32 "
            "--logprobs-mode processed_logprobs --enable-auto-tool-choice --tool-call-parser hermes"
        )
        command = [str(Path(sys.executable).parent / "vllm"), "serve", str(smollm2_folder()), *flags.split()]
        environment = {**os.environ, **CPU_ENVIRONMENT, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment["VLLM_SERVER_DEV_MODE"] = "1"  # TRL asks how the server was started
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        self.kill()
        pytest.fail(f"vllm serve did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def kill(self) -> None:
        if self.process is not None:
            # The engine is a child process that would outlive its server.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(tmp_path_factory.mktemp("vllm") / "serve.log")
    server.start()
    yield server
    server.kill()

"""`agl doctor`, and what the shell completes."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import agl.doctor as agl_doctor
from agl.cli import MOUNTS, build
from agl.doctor import Check, examine
from agl.packages import Package, extra_of, extras, packages
from tests.agl_process import agl, agl_here, environment
from tests.test_cli import HEAVY

Probes = Callable[..., dict[str, Check]]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Probes:
    """The checks of models alone."""
    monkeypatch.setattr("agl.doctor._CHECKS", {})
    return lambda *models: {check.name: check for check in examine(models)}


def hidden(folder: Path, module: str, error: str) -> dict[str, str]:
    """Settings under which importing `module` ends in `error`."""
    (folder / f"{module}.py").write_text(f"raise {error}\n")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"}


def test_this_installation_is_fit_and_says_so(tmp_path: Path) -> None:
    done = agl_here("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)
    found = {check["name"]: check for check in told["checks"]}
    assert told["ok"] is True
    assert found["packages"]["state"] == found["episode"]["state"] == found["env grit"]["state"] == "ok"
    assert "vote" in found["env reagan"]["found"]
    assert "built with" in found["torch"]["found"]
    assert "trl 1." in found["[train]"]["found"]
    assert {"python", "agl", "[local]", "machine", "smollm2", "minilm", "cache", "runs", "settings"} <= found.keys()
    embedded = ("smollm2", "minilm")
    assert all(one["remedy"] for one in told["checks"] if one["state"] == "absent" and one["name"] not in embedded)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", ["OSError", "RuntimeError"])
def test_what_is_broken_is_told_apart_without_a_traceback(tmp_path: Path, error: str) -> None:
    settings = hidden(tmp_path, "torch", f"{error}('libcudart.so.13: cannot open shared object file')")
    hidden(tmp_path, "networkx", "ModuleNotFoundError(\"No module named 'networkx'\", name='networkx')")
    done = agl("doctor", cwd=tmp_path, settings=settings)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "absent", "warning", "error", "errors:"}
    assert "No module named 'networkx'" in next(line for line in lines if line.startswith("error    env grit"))
    told = next(line for line in lines if line.startswith("warning  accelerators"))
    assert "libcudart" in told
    assert told.endswith("reinstall torch")
    assert "Traceback" not in done.stderr


def test_folders_that_cannot_be_written_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("agl.doctor._CHECKS", {"folders": agl_doctor._CHECKS["folders"]})
    cache, runs = examine()
    assert (cache.name, cache.state, runs.state) == ("cache", "error", "ok")
    assert "cannot be written to" in cache.found
    assert "AGL_CACHE" in cache.remedy


def test_a_version_that_does_not_fit_is_told_with_the_one_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Package("numpy", ">=99", None), Package("no-such-package", ">=1", None)]
    monkeypatch.setattr("agl.doctor.packages", lambda: wanted)
    monkeypatch.setattr("agl.doctor._CHECKS", {"packages": agl_doctor._CHECKS["packages"]})
    found = [check for check in examine() if check.name == "packages"]
    assert [check.state for check in found] == ["error", "error"]
    assert found[0].remedy == "pip install 'numpy>=99'"
    assert "no-such-package is not installed" in found[1].found


def test_requirements_come_from_the_metadata_of_agl() -> None:
    base = {package.name: package for package in packages() if package.extra is None}
    assert {"numpy", "networkx", "typer", "python-sat"} <= base.keys()
    assert base["python-sat"].module == "pysat"
    assert all(package.fits for package in base.values())
    assert (extra_of("torch"), extra_of("trl"), extra_of("faiss")) == ("local", "train", "graphs")
    assert extra_of("no_such_module") is None
    assert "dev" not in extras()


_THINKING = (
    "{% for message in messages %}{% set text = message['content'] %}"
    "{% if message['role'] == 'assistant' and not loop.last %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<|' + message['role'] + '|>' + text + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders without weights: `good`, `thinking` (its template drops earlier thoughts), `base` (no template)."""
    from transformers import Qwen3Config

    from tests.tiny_model import byte_tokenizer

    folder = tmp_path_factory.mktemp("models")
    templates = {"good": byte_tokenizer().chat_template, "thinking": _THINKING, "base": None}
    for name, template in templates.items():
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder / name)
        Qwen3Config(vocab_size=len(tokenizer), max_position_embeddings=1024).save_pretrained(folder / name)
    return folder


def test_a_template_is_probed_without_weights(models: Path, probes: Probes) -> None:
    found = probes(*(str(models / name) for name in ("good", "thinking", "base")))
    good, thinking, base = (found[f"model {models / name}"] for name in ("good", "thinking", "base"))
    assert (good.state, thinking.state, base.state) == ("ok", "error", "error")
    assert "context 1,024 tokens" in good.found
    assert "rewrites earlier turns" in thinking.found
    assert "no chat template" in base.found


def test_a_model_that_is_not_here_is_not_downloaded(tmp_path: Path, models: Path, probes: Probes) -> None:
    words = ["--model", "owner/no-such-model", "--model", f"hf:{models / 'good'}"]
    done = agl_here("doctor", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "owner/no-such-model is not on this machine: run `hf download owner/no-such-model`" in done.stdout
    assert "Retrying" not in done.stderr
    assert done.stdout.splitlines()[-1] == "errors: 1"


def test_the_embedded_model_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probes: Probes) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "cache"))
    found = probes("smollm2")["model smollm2"]
    assert "unpacked at first use" in found.found or "not installed" in found.found
    assert not (tmp_path / "cache").exists()


class _Chat(http.server.BaseHTTPRequestHandler):
    """An API that can neither tokenise nor complete token ids."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Chat) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/v1"
        running.shutdown()


def test_a_server_is_asked(server: str, probes: Probes) -> None:
    found = probes(f"openai:m@{server}", "openai:m@http://127.0.0.1:9/v1")
    assert found[f"model openai:m@{server}"].state == "ok"
    assert "no token record" in found[f"model openai:m@{server}"].found
    assert found["model openai:m@http://127.0.0.1:9/v1"].state == "error"
    assert "no server answers" in found["model openai:m@http://127.0.0.1:9/v1"].found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("agl do", ["doctor"]),
        ("agl eval gr", ["grit"]),
        ("agl eval toy --policy or", ["oracle"]),
        ("agl eval reagan --policy v", ["vote", "vllm:"]),
        ("agl eval --policy=oracle agentgl-l", ["agentgl-lp"]),
        ("agl eval --polic", ["--policy"]),
        ("agl grit bu", ["build"]),
    ],
)
@pytest.mark.usefixtures("toy")
def test_the_shell_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, wanted: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_AGL_COMPLETE": "complete_bash"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    done = agl_here(cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == wanted


def test_completion_loads_no_model_library() -> None:
    code = (
        "import os, sys\nos.environ.update(COMP_WORDS='agl eval gr', COMP_CWORD='2', _AGL_COMPLETE='complete_bash')\n"
        "from agl.cli import _run\ntry: _run([])\nexcept SystemExit: pass\n"
        f"heavy = {set(HEAVY)} & set(sys.modules)\nsys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["grit"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_can_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = agl_here("--show-completion", shell, cwd=tmp_path)
    assert done.returncode == 0
    assert "_AGL_COMPLETE=complete_" in done.stdout


def leaves(found: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(found, "commands", None)
    if inner is None:
        yield path, found
        return
    for name, one in inner.items():
        yield from leaves(one, (*path, name))


@pytest.mark.parametrize("name", ["envs", *MOUNTS])
def test_every_command_has_json(name: str) -> None:
    root: Any = get_command(build(name))
    found = list(leaves(root.commands[name], (name,)))
    assert found
    assert [path for path, one in found if not any("--json" in option.opts for option in one.params)] == []

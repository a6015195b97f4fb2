"""A server that completes token ids as vLLM's does, with a transformers model behind it, and with faults on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from agl.policies.decoding import generate

Fault = Literal["error", "hang"] | None


class CompletionsServer:
    """`/v1/completions` and `/detokenize` on loopback.

    Args:
        model: completes; `take` gives it other weights.
        tokenizer: of the model.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.fault: Callable[[str, int], Fault] = lambda prompt, seed: None
        """What goes wrong with a request, by the text of its prompt and its seed."""
        self.answered = 0
        self.failed = 0
        self.hung = 0
        self.transfers = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def die(self) -> None:
        """Stop listening; the port answers nobody afterwards."""
        if not self._ended.is_set():
            self._ended.set()
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()

    def take(self, weights: Any) -> None:
        """Other weights, as a state dict.

        Raises:
            ConnectionError: the server is dead.
        """
        if self._ended.is_set():
            raise ConnectionError("connection refused")
        with self._lock:
            self.model.load_state_dict(weights)
            self.transfers += 1

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            (made,) = generate(
                self.model,
                self.tokenizer,
                [body["prompt"]],
                stops=body.get("stop") or [],
                max_tokens=body["max_tokens"],
                temperature=body["temperature"],
                seeds=[body["seed"]],
            )
            self.answered += 1
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(made.ids),
            "finish_reason": "length" if made.finish == "length" else "stop",
            "stop_reason": made.text if made.finish == "stop" else None,
            "token_ids": made.ids,
            "logprobs": {"token_logprobs": made.logprobs, "tokens": [], "top_logprobs": None, "text_offset": []},
        }
        return {"id": "x", "object": "text_completion", "created": 0, "model": "tiny", "choices": [choice]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/detokenize":
                    self.answer(200, {"prompt": server.tokenizer.decode(body["tokens"])})
                    return
                fault = server.fault(server.tokenizer.decode(body["prompt"]), body["seed"])
                if fault == "error":
                    with server._lock:
                        server.failed += 1
                    self.answer(500, {"error": {"message": "CUDA out of memory", "type": "error", "code": 500}})
                elif fault == "hang":
                    with server._lock:
                        server.hung += 1
                    server._ended.wait(60)
                else:
                    self.answer(200, server.complete(body))

            def answer(self, status: int, answer: Any) -> None:
                data = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the caller has gone

        return Handler


@contextmanager
def completions_server(model: Any, tokenizer: Any) -> Iterator[CompletionsServer]:
    server = CompletionsServer(model, tokenizer)
    try:
        yield server
    finally:
        server.die()

"""The real library, whichever line is installed; its encoders speak to a fake Ollama."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LIBRARY = find_spec("semantic_router") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # 0.x turns its routes into dicts by a method that pydantic 2 has renamed
            item.add_marker(pytest.mark.filterwarnings("ignore:The `dict` method is deprecated"))
            # its encoders never close their clients
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


class Ollama:
    """Answers `POST /api/embed` with our vectors and `POST /v1/systemone` with the first choice
    whose text shares a word with the question; `delay` seconds late."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.asked: list[str] = []
        ollama = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                time.sleep(ollama.delay)
                answer = json.dumps(ollama.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/v1/systemone":
            words = set(str(body["state"]).lower().split())
            criteria = body["questions"]["route"]["criteria"]
            shares = {n: len(words & set(t.lower().split())) + 0.01 for n, t in criteria.items()}
            total = sum(shares.values())
            probabilities = {name: share / total for name, share in shares.items()}
            best = max(probabilities, key=probabilities.__getitem__)
            said = {"type": "choice", "choice": best, "probabilities": probabilities}
            return {"answers": {"route": {**said, "confidence": probabilities[best]}}}
        from tier_router.semantic.encoder import vector_of

        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        self.asked += texts
        return {"model": body["model"], "embeddings": [vector_of(text).tolist() for text in texts]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ollama]:
    """The server that files with `ollama` as encoder find through the environment."""
    if find_spec("ollama") is None:
        pytest.skip("needs pip install ollama")
    server = Ollama()
    monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
    yield server
    gc.collect()
    server.close()

"""A host of OpenAI's API that is not vLLM: a gateway with a base path, keys, prices and fallbacks.

It knows nothing of vLLM's paths, headers and fields, and notes each that it is sent.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from tests.sidecar.scripted import HEAD, LAST, Asked, chunk, json_answer

KEY = "sk-mega-test"

CARD = {
    "id": "deepseek-ai/deepseek-v3.1",
    "object": "model",
    "owned_by": "deepseek-ai",
    "type": "chat",
    "context_length": 65_536,
    "max_output_tokens": 8_192,
    "capabilities": {
        "supports_function_calling": True,
        "supports_vision": False,
        "supports_streaming": True,
        "supports_structured_output": False,
    },
    "pricing": {
        "input_tokens_cost_per_million": 0.27,
        "output_tokens_cost_per_million": 1.1,
        "currency": "USD",
    },
}


class OpenAIHost:
    """Answers below `base`; what vLLM alone would understand is collected in `strange`."""

    def __init__(self, base: str = "/v1") -> None:
        self.base = base
        self.strange: list[str] = []
        self.bodies: list[Any] = []
        self.limited = False

    async def __call__(self, asked: Asked) -> AsyncIterator[bytes]:
        """The answer to one request."""
        self._look(asked)
        path = asked.target.removeprefix(self.base)
        if not asked.target.startswith(self.base):
            yield json_answer(b'{"error":{"message":"not found"}}', b"404 Not Found")
        elif asked.headers.get("authorization") != f"Bearer {KEY}":
            yield _error(401, "invalid_request_error", "invalid_api_key", "Incorrect API key")
        elif (asked.method, path) == ("GET", "/models"):
            yield json_answer(json.dumps({"object": "list", "data": [CARD]}).encode())
        elif (asked.method, path) == ("POST", "/chat/completions"):
            async for piece in self._chat(json.loads(asked.body)):
                yield piece
        elif (asked.method, path) == ("POST", "/embeddings"):
            yield json_answer(b'{"object":"list","data":[],"model":"far"}')
        else:
            yield json_answer(b'{"error":{"message":"not found"}}', b"404 Not Found")

    def _look(self, asked: Asked) -> None:
        ours = ("x-vllm-", "endpoint-load-metrics", "x-tier-router")
        self.strange += [name for name in asked.headers if name.startswith(ours)]
        path = asked.target.removeprefix(self.base)
        if path in ("/load", "/metrics", "/version", "/health") or asked.target == path:
            self.strange.append(asked.target)

    async def _chat(self, body: Any) -> AsyncIterator[bytes]:
        self.bodies.append(body)
        if self.limited:
            more = b"retry-after: 3\r\n"
            yield _error(429, "rate_limit_error", "rate_limit_exceeded", "Too many", more)
        elif body.get("model") != CARD["id"]:
            text = f"The model `{body.get('model')}` does not exist"
            yield _error(404, "invalid_request_error", "model_not_found", text)
        elif body.get("stream"):
            yield HEAD + chunk(b": PROCESSING\n\n")
            yield chunk(_event({"role": "assistant", "content": ""}, None))
            yield chunk(_event({"content": "four"}, None)) + chunk(_event({}, "stop"))
            yield chunk(b"data: [DONE]\n\n") + LAST
        else:
            message = {"role": "assistant", "content": "four", "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
            whole = {**_head("chat.completion"), "choices": [choice], "usage": usage}
            yield json_answer(json.dumps(whole).encode())


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": CARD["id"]}


def _event(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        f"data: {json.dumps({**_head('chat.completion.chunk'), 'choices': [choice]})}\n\n".encode()
    )


def _error(status: int, kind: str, code: str, text: str, more: bytes = b"") -> bytes:
    error = {"message": text, "type": kind, "param": None, "code": code}
    return json_answer(json.dumps({"error": error}).encode(), b"%d Error" % status, more)

"""The answers of vLLM's pooling runner: embeddings, ranks, scores; alike texts are alike there."""

from __future__ import annotations

import base64
import math
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from tier_router.testing import problems, tokens

SIZE = 8
"""Numbers of a vector: enough to tell texts apart."""

PATHS = frozenset({"/v1/embeddings", "/v1/rerank", "/rerank", "/v1/score", "/score"})


def pooled(route: str, body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The answer to one of `PATHS`, or `Refused`."""
    if route.endswith("/embeddings"):
        return _embeddings(body, model)
    if route.endswith("/rerank"):
        return _ranks(body, model)
    return _scores(body, model)


def vector(text: str) -> list[float]:
    """A vector of length 1 that sums over the words of `text`."""
    sums = [0.0] * SIZE
    for word in text.lower().split() or [""]:
        seed = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        for place in range(SIZE):
            sums[place] += ((seed >> (place * 4)) & 15) - 7.5
    length = math.sqrt(sum(value * value for value in sums)) or 1.0
    return [value / length for value in sums]


def _embeddings(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    texts = _texts(body, "input")
    data = [
        {"index": index, "object": "embedding", "embedding": _written(body, vector(text))}
        for index, text in enumerate(texts)
    ]
    return {
        "id": f"embd-{uuid4().hex[:16]}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": data,
        "usage": _usage(texts),
    }


def _written(body: Mapping[str, Any], values: Sequence[float]) -> list[float] | str:
    """A vector as numbers or, as OpenAI's Python client asks for it, in base64."""
    if body.get("encoding_format") != "base64":
        return list(values)
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def _ranks(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    query, texts = _texts(body, "query")[0], _texts(body, "documents")
    results = [
        {"index": index, "document": {"text": text, "multi_modal": None},
         "relevance_score": _likeness(query, text)}
        for index, text in enumerate(texts)
    ]  # fmt: skip
    results.sort(key=lambda result: -float(str(result["relevance_score"])))
    usage = {"prompt_tokens": _usage([query, *texts])["prompt_tokens"]}
    usage["total_tokens"] = usage["prompt_tokens"]
    ranked = results[: body.get("top_n") or None]
    return {"id": f"score-{uuid4().hex[:16]}", "model": model, "usage": usage, "results": ranked}


def _scores(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    left, right = _texts(body, "text_1"), _texts(body, "text_2")
    if len(left) not in (1, len(right)):
        raise problems.bad_prompt(left, "text_1")
    pairs = zip(left * len(right) if len(left) == 1 else left, right, strict=True)
    return {
        "id": f"score-{uuid4().hex[:16]}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"index": index, "object": "score", "score": _likeness(*pair)}
            for index, pair in enumerate(pairs)
        ],
        "usage": _usage([*left, *right]),
    }


def _likeness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(vector(one), vector(other), strict=True))


def _texts(body: Mapping[str, Any], name: str) -> list[str]:
    """One text or several; lists of token numbers count as the text of their numbers."""
    given = body.get(name)
    if given is None:
        raise problems.missing(name, body)
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise problems.bad_prompt(given, name)
    if all(isinstance(each, int) for each in given):
        return [" ".join(map(str, given))]
    if not all(isinstance(each, str | list) for each in given):
        raise problems.bad_prompt(given, name)
    return [each if isinstance(each, str) else " ".join(map(str, each)) for each in given]


def _usage(texts: Sequence[str]) -> dict[str, Any]:
    count = sum(map(tokens.count, texts))
    return {
        "prompt_tokens": count,
        "total_tokens": count,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }

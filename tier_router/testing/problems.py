"""The errors of vLLM 0.32, in its words; and which requests earn them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Headers = Sequence[tuple[str, str]]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, content: Any, headers: Headers = ()) -> None:
        super().__init__(f"{status}: {content}")
        self.status = status
        self.content = content
        self.headers = tuple(headers)


def problem(status: int, type: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The usual error object."""
    return {"error": {"message": message, "type": type, "param": param, "code": status}}


BUSY = problem(
    503,
    "Service Unavailable",
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance.",
)
DEAD = problem(
    500,
    "InternalServerError",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
)
DRAINING = problem(500, "InternalServerError", "cannot schedule new futures after shutdown")
NOT_FOUND = {"detail": "Not Found"}
NOT_ALLOWED = {"detail": "Method Not Allowed"}
UNAUTHORIZED = {"error": "Unauthorized"}


def unknown_model(model: str, names: Sequence[str]) -> Refused:
    """404: no such model here."""
    message = f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}."
    return Refused(404, problem(404, "NotFoundError", message, "model"))


def missing(field: str, body: Mapping[str, Any]) -> Refused:
    """400: a field that has to be there."""
    return _invalid("missing", f"body.{field}", "Field required", f"<dict of {len(body)} items>")


def no_response(name: str) -> Refused:
    """404: no such response is stored here."""
    message = f"Response with id '{name}' not found."
    return Refused(404, problem(404, "invalid_request_error", message, "response_id"))


def no_store() -> Refused:
    """400: a background response where none are stored."""
    return Refused(
        400,
        problem(
            400,
            "invalid_request_error",
            "This vLLM engine does not support `store=True` and therefore does not support the "
            "background mode. To enable these features, set the environment variable "
            "`VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server.",
            "background",
        ),
    )


def not_cancelled() -> Refused:
    """400: the response is there in full already."""
    text = "Cannot cancel a synchronous response."
    return Refused(400, problem(400, "invalid_request_error", text, "response_id"))


def in_anthropics_shape(refused: Refused) -> Refused:
    """The error as `/v1/messages` spells it; complaints of validation stay in OpenAI's shape."""
    error = refused.content.get("error") if isinstance(refused.content, dict) else None
    if not isinstance(error, dict) or error["type"] == "Bad Request":
        return refused
    told = {"type": error["type"], "message": error["message"]}
    return Refused(refused.status, {"type": "error", "error": told}, refused.headers)


def too_long(limit: int) -> Refused:
    """400: the prompt does not fit.  The count given is the limit plus one, whatever it was."""
    seen = limit + 1
    return _bad(
        f"This model's maximum context length is {limit} tokens. However, your prompt contains at "
        f"least {seen} input tokens, which exceeds this limit even without any output tokens. "
        "Please reduce the length of the input prompt. "
        f"(parameter=input_tokens, value={seen})",
        "input_tokens",
    )


def parse(raw: bytes, body: Any, content_type: str | None) -> dict[str, Any]:
    """`body`, which is `raw` decoded, if it is an object; else `Refused` in FastAPI's words."""
    if not raw:
        raise _invalid("missing", "body", "Field required", "None")
    kind = (content_type or "application/json").split(";")[0].strip().lower()
    if kind != "application/json":
        raise _validation(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
            None,
        )
    if body is None:
        raise _undecodable(raw)
    if not isinstance(body, dict):
        shown = f"<list of {len(body)} items>" if isinstance(body, list) else body
        text = "Input should be a valid dictionary or object to extract fields from"
        raise _invalid("model_attributes_type", "body", text, shown)
    return body


def _undecodable(raw: bytes) -> Refused:
    try:
        body = json.loads(raw)
    except json.JSONDecodeError as error:
        where, context = f"body.{error.pos}", {"error": error.msg}
        shown = "<dict of 0 items>"
        return _invalid("json_invalid", where, "JSON decode error", shown, context)
    except (UnicodeDecodeError, RecursionError):
        return Refused(400, {"detail": "There was an error parsing the body"})
    return _invalid("missing", "body", "Field required", body)


def check(body: Mapping[str, Any], *, chat: bool, limit: int) -> dict[str, Any]:
    """The body with its numbers as such, or `Refused`: types are looked at first, then values."""
    for refused in _types(body, chat):
        raise refused
    numbers = {name: int(body[name]) for name in _WHOLE if body.get(name) is not None}
    body = {**body, **numbers}
    for refused in _values(body, limit):
        raise refused
    return body


MAX_CHOICES = 16_384
"""vLLM's VLLM_MAX_N_SEQUENCES."""

_WHOLE = ("max_tokens", "max_completion_tokens", "n", "priority", "min_tokens")


def _types(body: Mapping[str, Any], chat: bool) -> Iterator[Refused]:
    field = "messages" if chat else "prompt"
    if body.get(field) is None:
        yield missing(field, body)
    if not isinstance(body.get("model"), str | None):
        text = "Input should be a valid string"
        yield _invalid("string_type", "body.model", text, body["model"])
    for name in ("messages", "tools") if chat else ():
        value = body.get(name)
        if value is not None and not isinstance(value, list):
            yield _invalid("list_type", f"body.{name}", "Input should be a valid list", value)
        for place, entry in enumerate(value or ()):
            if not isinstance(entry, dict):
                text = "Input should be a valid dictionary"
                yield _invalid("dict_type", f"body.{name}.{place}", text, entry)
    if not isinstance(body.get("stream_options") or {}, dict):
        text = "Input should be a valid dictionary"
        yield _invalid("dict_type", "body.stream_options", text, body["stream_options"])
    for name in _WHOLE:
        value = body.get(name)
        if value is not None and not _is_int(value):
            text = "Input should be a valid integer, unable to parse string as an integer"
            yield _invalid("int_parsing", f"body.{name}", text, value)
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None and not isinstance(value, int | float):
            text = "Input should be a valid number, unable to parse string as a number"
            yield _invalid("float_parsing", f"body.{name}", text, value)


def _values(body: Mapping[str, Any], limit: int) -> Iterator[Refused]:
    if body.get("messages") == []:
        yield _bad(
            "Cannot apply chat template to an empty conversation. Provide at least one message."
        )
    if body.get("stream_options") and not body.get("stream"):
        text = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        yield _bad(text, "stream_options")
    if body.get("tool_choice") not in (None, "none") and not body.get("tools"):
        text = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"
        yield _bad(text, "tool_choice")
    if body.get("cache_salt") == "":
        text = "Parameter 'cache_salt' must be a non-empty string if provided. "
        yield _bad(text + "(parameter=cache_salt)", "cache_salt")
    if (n := body.get("n")) is not None and n < 1:
        yield _bad(f"n must be at least 1, got {n}.")
    if n is not None and n > MAX_CHOICES:
        yield _bad(f"n must be at most {MAX_CHOICES}, got {n}.")
    if (heat := body.get("temperature")) is not None and not 0 <= heat <= 2:
        rule = "non-negative" if heat < 0 else "in [0, 2]"
        yield _value("temperature", f"temperature must be {rule}, got {float(heat)}.", float(heat))
    if (top := body.get("top_p")) is not None and not 0 < top <= 1:
        yield _value("top_p", f"top_p must be in (0, 1], got {float(top)}.", float(top))
    if (wanted := output_limit(body)) is not None and wanted < 1:
        yield _value("max_tokens", f"max_tokens must be at least 1, got {wanted}.", wanted)
    if wanted is not None and wanted > limit:
        text = f"max_tokens={wanted} cannot be greater than max_model_len={limit}. "
        yield _value("max_tokens", text + "Please request fewer output tokens.", wanted)


def output_limit(body: Mapping[str, Any]) -> int | None:
    """The client's own limit on output tokens; the newer name wins where both are given."""
    for name in ("max_completion_tokens", "max_tokens"):
        if body.get(name) is not None:
            return int(body[name])
    return None


def bad_prompt(prompt: Any, name: str = "prompt") -> Refused:
    """400: a prompt that is neither text nor tokens."""
    text = "Input should be a valid string or a list of token ids"
    return _invalid("string_type", f"body.{name}", text, prompt)


def not_multimodal(model: str) -> Refused:
    """400: an image or a sound for a model of texts."""
    return _bad(f"{model} is not a multimodal model")


def no_tool_parser() -> Refused:
    """400: the choice of a tool is the model's, and nobody can read which one it chose."""
    return _bad(
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    )


def _bad(message: str, param: str | None = None) -> Refused:
    return Refused(400, problem(400, "BadRequestError", message, param))


def _value(param: str, message: str, value: Any) -> Refused:
    return _bad(f"{message} (parameter={param}, value={value})", param)


def _validation(message: str, param: str | None) -> Refused:
    return Refused(400, problem(400, "Bad Request", message, param))


def _invalid(
    type: str, where: str, text: str, given: Any, context: Mapping[str, Any] | None = None
) -> Refused:
    """pydantic's complaint, which vLLM prints as a Python dict."""
    detail = {"type": type, "loc": where, "msg": text, "input": given}
    if context is not None:
        detail["ctx"] = context
    return _validation(f"1 validation error:\n  {detail}", where)


def _is_int(value: Any) -> bool:
    """What pydantic takes for a whole number."""
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, str):
        return value.strip().lstrip("+-").isdigit()
    return isinstance(value, int)

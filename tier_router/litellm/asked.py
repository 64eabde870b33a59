"""What a request is, as LiteLLM hands it to routing: body, headers, the name that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

BUCKETS = ("litellm_metadata", "metadata")
"""Where LiteLLM keeps a request's own notes; responses and messages have the first one, and then
the second is the client's."""

_BODY = frozenset({
    "messages", "input", "prompt", "system", "instructions", "tools", "functions", "tool_choice",
    "max_completion_tokens", "max_tokens", "max_output_tokens", "stream", "n", "response_format",
    "structured_outputs", "guided_json", "text", "logprobs", "prompt_logprobs", "reasoning",
    "reasoning_effort", "thinking", "chat_template_kwargs", "modalities",
})  # fmt: skip
"""The fields that `view_of` reads."""
_PRUNED = frozenset({
    "stop", "min_tokens", "thinking_token_budget", "thinking_budget", "include_reasoning",
    "guided_regex", "guided_grammar", "guided_choice",
})  # fmt: skip
"""Further fields that pruning goes by."""
_SHAPES = frozenset({"messages", "input", "prompt"})


def bucket_of(kwargs: Mapping[str, Any]) -> MutableMapping[str, Any] | None:
    """The live notes of a request, the same in all of its attempts."""
    for name in BUCKETS:
        bucket = kwargs.get(name)
        if isinstance(bucket, MutableMapping):
            return bucket
    return None


def pruned_body_of(messages: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """As `body_of`, with all that pruning looks at."""
    return body_of(messages, kwargs, _BODY | _PRUNED)


def body_of(
    messages: Any, kwargs: Mapping[str, Any], fields: frozenset[str] = _BODY
) -> dict[str, Any]:
    """The body of the request, without the model: that name is LiteLLM's affair."""
    body = {name: kwargs[name] for name in fields & kwargs.keys() if kwargs[name] is not None}
    extra = kwargs.get("extra_body")
    if isinstance(extra, Mapping):
        body.update({name: extra[name] for name in fields & extra.keys() if name not in body})
    if messages is not None:
        body["messages"] = messages
    if "prompt" not in body:
        prompt = _wrapped_prompt(messages)
        if prompt is not None:
            body["prompt"] = prompt
    for shape in ("prompt", "messages", "input"):
        if shape in body:
            return {name: body[name] for name in body.keys() - _SHAPES | {shape}}
    return body


def _wrapped_prompt(messages: Any) -> Any:
    """The prompt of a text completion that LiteLLM has made a message of, where it is a list."""
    if not isinstance(messages, list) or len(messages) != 1 or not isinstance(messages[0], Mapping):
        return None
    content = messages[0].get("content")
    if not isinstance(content, list) or any(isinstance(item, Mapping) for item in content):
        return None
    return content or None


def headers_of(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The client's headers with lower-case names.

    Behind the proxy they are those of its HTTP request, and nothing in a body can add to them; in
    process they are `extra_headers`.
    """
    request = kwargs.get("proxy_server_request")
    if isinstance(request, Mapping):
        found = request.get("headers")
    else:
        found = kwargs.get("extra_headers") or kwargs.get("headers")
    if not isinstance(found, Mapping):
        return {}
    return {str(name).lower(): str(value) for name, value in found.items()}


def named(group: str, bucket: Mapping[str, Any] | None) -> str:
    """The model name that the client used: LiteLLM has resolved its aliases before it asks us."""
    alias = None if bucket is None else bucket.get("model_group_alias")
    return alias if isinstance(alias, str) and alias else group


def is_embedding(messages: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether there is nothing to answer: neither messages, nor a prompt, nor a response's input.

    Embeddings and their like come without messages, and without the notes of a responses call.
    """
    return (
        messages is None
        and not kwargs.get("prompt")
        and not (isinstance(kwargs.get("litellm_metadata"), Mapping) and "input" in kwargs)
    )

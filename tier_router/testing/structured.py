"""Answers of a prescribed form: tool calls, and JSON that fits a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]


def tool_call(body: Body) -> tuple[str, str] | None:
    """Name and arguments of the tool to call; None where a text is wanted.

    After a tool's result the answer is a text, or else an agent would never end."""
    choice = body.get("tool_choice", "auto")
    functions = [
        tool["function"]
        for tool in body.get("tools") or ()
        if isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping)
    ]
    if not functions or choice == "none":
        return None
    messages = body.get("messages") or [{}]
    if choice == "auto" and messages[-1].get("role") == "tool":
        return None
    wanted = choice.get("function", {}).get("name") if isinstance(choice, Mapping) else None
    chosen = next((one for one in functions if one.get("name") == wanted), functions[0])
    arguments = example(chosen.get("parameters") or {"type": "object"})
    return str(chosen.get("name")), json.dumps(arguments, ensure_ascii=False)


def prescribed(body: Body) -> str | None:
    """The answer where its form is prescribed, else None."""
    wanted = body.get("structured_outputs")
    if isinstance(wanted, Mapping):
        if wanted.get("choice"):
            return str(wanted["choice"][0])
        if isinstance(wanted.get("json"), Mapping):
            return json.dumps(example(wanted["json"]), ensure_ascii=False)
    form = body.get("response_format")
    if not isinstance(form, Mapping) or form.get("type") not in ("json_object", "json_schema"):
        return None
    schema = (form.get("json_schema") or {}).get("schema") or {"type": "object"}
    return json.dumps(example(schema), ensure_ascii=False)


def example(schema: Any, root: Any = None) -> Any:
    """A value that fits a JSON schema of the usual kind: the first choice, all properties."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return schema["const"]
    for first_of in ("enum", "examples"):
        if schema.get(first_of):
            return schema[first_of][0]
    for among in ("anyOf", "oneOf", "allOf"):
        if schema.get(among):
            return example(schema[among][0], root)
    if "$ref" in schema:
        return example(_referred(schema["$ref"], root), root)
    return _by_type(schema, root)


def _by_type(schema: Mapping[str, Any], root: Any) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        inner = schema.get("properties") or {}
        wanted = set(schema.get("required", inner))  # a schema that refers to itself needs an end
        return {key: example(value, root) for key, value in inner.items() if key in wanted}
    if kind == "array":
        return [example(schema.get("items"), root)] * max(1, int(schema.get("minItems", 1)))
    low = schema.get("minimum", 1)
    plain: dict[str, Any] = {"integer": int(low), "number": float(low), "boolean": True}
    return plain.get(kind, "text" if kind == "string" else None)


def _referred(path: str, root: Any) -> Any:
    for key in path.removeprefix("#/").split("/"):
        root = root.get(key, {}) if isinstance(root, Mapping) else {}
    return root

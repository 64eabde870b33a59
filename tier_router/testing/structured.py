"""Answers of a prescribed form: tool calls, and JSON that fits a schema.

Values come from the question where it names any: its numbers, and its texts in quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?![\w.]*\w)|(?<=\()-?\d{1,9}(?=[,)])")
_QUOTED = re.compile(r"""(?<!\w)(?:'([^'\n]{1,200})'|"([^"\n]{1,200})")""")


@dataclass(frozen=True, slots=True)
class Hints:
    """What the question names; each value goes to the properties in turn."""

    numbers: Sequence[int] = ()
    texts: Sequence[str] = ()

    @classmethod
    def of(cls, question: str) -> Hints:
        """The numbers and quoted texts of `question`, its first 20,000 characters."""
        text = question[:20_000]
        quoted = [one or other for one, other in _QUOTED.findall(text)]
        return cls([int(number) for number in _NUMBER.findall(text)], quoted)


def tool_call(body: Body, question: str = "") -> tuple[str, str] | None:
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
    arguments = example(chosen.get("parameters") or {"type": "object"}, hints=Hints.of(question))
    return str(chosen.get("name")), json.dumps(arguments, ensure_ascii=False)


def prescribed(body: Body, question: str = "") -> str | None:
    """The answer where its form is prescribed, else None."""
    hints = Hints.of(question)
    wanted = body.get("structured_outputs")
    if isinstance(wanted, Mapping):
        if wanted.get("choice"):
            return str(wanted["choice"][0])
        if isinstance(wanted.get("json"), Mapping):
            return json.dumps(example(wanted["json"], hints=hints), ensure_ascii=False)
    form = body.get("response_format")
    if not isinstance(form, Mapping) or form.get("type") not in ("json_object", "json_schema"):
        return None
    schema = (form.get("json_schema") or {}).get("schema")
    if not schema:  # any object will do: the keys that the question names
        return json.dumps(dict.fromkeys(hints.texts, "text"), ensure_ascii=False)
    return json.dumps(example(schema, hints=hints), ensure_ascii=False)


def example(schema: Any, root: Any = None, hints: Hints = Hints()) -> Any:
    """A value that fits a JSON schema of the usual kind: the first choice, all properties."""
    return _Example(schema if root is None else root, hints).of(schema)


class _Example:
    """One value for one schema; hints are used up from the first on."""

    def __init__(self, root: Any, hints: Hints) -> None:
        self._root = root
        self._numbers, self._texts = list(hints.numbers), list(hints.texts)

    def of(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return None
        if "const" in schema:
            return schema["const"]
        for first_of in ("enum", "examples"):
            if schema.get(first_of):
                return schema[first_of][0]
        for among in ("anyOf", "oneOf", "allOf"):
            if schema.get(among):
                return self.of(schema[among][0])
        if "$ref" in schema:
            return self.of(_referred(schema["$ref"], self._root))
        kind = schema.get("type", "object" if "properties" in schema else "string")
        return self._by_type(kind[0] if isinstance(kind, list) else kind, schema)

    def _by_type(self, kind: str, schema: Mapping[str, Any]) -> Any:
        if kind == "object":
            inner = schema.get("properties") or {}
            wanted = set(schema.get("required", inner))  # one that refers to itself needs an end
            return {key: self.of(value) for key, value in inner.items() if key in wanted}
        if kind == "array":
            least = max(1, int(schema.get("minItems", 1)))
            return [self.of(schema.get("items")) for _ in range(least)]
        if kind in ("integer", "number"):
            number = self._number(schema)
            return number if kind == "integer" else float(number)
        if kind == "string":
            return self._texts.pop(0) if self._texts else "text"
        return True if kind == "boolean" else None

    def _number(self, schema: Mapping[str, Any]) -> int:
        low, high = schema.get("minimum", -(10**9)), schema.get("maximum", 10**9)
        while self._numbers:
            number = self._numbers.pop(0)
            if low <= number <= high:
                return number
        return int(schema.get("minimum", 1))


def _referred(path: str, root: Any) -> Any:
    for key in path.removeprefix("#/").split("/"):
        root = root.get(key, {}) if isinstance(root, Mapping) else {}
    return root

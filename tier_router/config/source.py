"""YAML with line numbers and `${ENV}`: what a `ConfigError` needs to point at the bad line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tier_router.errors import ConfigError

Key = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class Source:
    """A parsed file: its data, and the line of each key path."""

    name: str
    data: Any
    lines: Mapping[Key, int]

    def error(self, message: str, key: Key = ()) -> ConfigError:
        """A ConfigError at the line of `key`, or of the nearest parent that has one."""
        at = key
        while at and at not in self.lines:
            at = at[:-1]
        return ConfigError(message, file=self.name, line=self.lines.get(at), key=dotted(key))


def dotted(key: Key) -> str:
    """`("tiers", 0, "name")` as `tiers[0].name`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read(path: Path, env: Mapping[str, str] | None = None) -> Source:
    """The parsed file; `${NAME}` is expanded from `env` where one is given.

    Raises ConfigError for a file that cannot be read or is not YAML (JSON is), for a key given
    twice, and for a variable that is not set.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text: {error.reason}", file=str(path)) from None
    return parse_text(text, str(path), env)


def parse_text(text: str, name: str, env: Mapping[str, str] | None = None) -> Source:
    """As `read`, from a text; `name` is what errors call it."""
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Source(name, None, {})
        reader = _Nodes(name, loader, env)
        reader.walk(root, ())
        return Source(name, loader.construct_document(root), reader.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError(f"not YAML: {error.problem}", file=name, line=line) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", file=name) from None
    finally:
        loader.dispose()


class _Nodes:
    """One walk over the node tree: lines, duplicate keys, variables."""

    def __init__(self, name: str, loader: yaml.SafeLoader, env: Mapping[str, str] | None) -> None:
        self.name, self.loader, self.env = name, loader, env
        self.lines: dict[Key, int] = {}

    def walk(self, node: yaml.Node, key: Key) -> None:
        self.lines.setdefault(key, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, key)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.walk(item, (*key, index))
        elif isinstance(node, yaml.ScalarNode) and self.env is not None:
            self._expand(node, key)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> None:
        seen: set[str] = set()
        for name, value in node.value:
            at = (*key, str(name.value))
            line = name.start_mark.line + 1
            if name.value in seen:
                raise ConfigError("given twice", file=self.name, line=line, key=dotted(at))
            seen.add(name.value)
            self.lines[at] = line
            self.walk(value, at)

    def _expand(self, node: yaml.ScalarNode, key: Key) -> None:
        if "$" not in node.value:
            return

        def value(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            found = (self.env or {}).get(match[1])
            if found or (found is not None and match[2] is None):
                return found
            if match[2] is None:
                line = node.start_mark.line + 1
                message = f"the environment variable {match[1]} is not set"
                raise ConfigError(message, file=self.name, line=line, key=dotted(key))
            return match[2]

        node.value = _VARIABLE.sub(value, node.value)
        if node.style is None:  # a plain scalar: 8080 is a number again, nothing is null
            node.tag = self.loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]

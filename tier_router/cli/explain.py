"""`tier-router explain`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from tier_router.cli.source import chat
from tier_router.config import load
from tier_router.decide import Decision
from tier_router.errors import RequestError
from tier_router.explain import record, sentence, signals
from tier_router.request import View
from tier_router.router import TierRouter
from tier_router_proxy.body import read


def run(path: Path, given: str | None, as_json: bool) -> None:
    """Prints the decision for a prompt or a request body, under no load."""
    body = _body(given)
    router = TierRouter(load(path))
    view = router.view(body)
    decision = router.decide(view)
    found = signals(router.signals(view))
    if as_json:
        told = record(decision) | {"signals": [{"speaks": way, "of": what} for way, what in found]}
        print(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
    else:
        _show(view, decision, found)


def _body(given: str | None) -> Mapping[str, Any]:
    """The body to explain: that of a file or of standard input, or a prompt made into one."""
    if given is None or given == "-":
        if given is None and sys.stdin.isatty():
            raise RequestError("give a prompt, a file, or `-` for standard input")
        return _read(sys.stdin.buffer.read())
    if len(given) < 4096 and "\n" not in given and Path(given).is_file():
        return _read(Path(given).read_bytes())
    return chat(given)


def _read(raw: bytes) -> Mapping[str, Any]:
    """A request body, or else plain text as a prompt."""
    text = raw.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        return chat(text.strip())
    return read(raw)


def _show(view: View, decision: Decision, found: list[tuple[str, str]]) -> None:
    console = Console(highlight=False)
    console.print(Text(decision.tier, style="bold").append(f"  {decision.model}", style="dim"))
    why = sentence(decision).partition(": ")[2]
    console.print(f"  because    {why}")
    if found:
        up = ", ".join(what for way, what in found if way == "up")
        down = ", ".join(what for way, what in found if way == "down")
        if up:
            console.print(f"  speaks up  {up}")
        if down:
            console.print(f"  and down   {down}")
    if decision.intent:
        near = f', nearest example "{decision.nearest}"' if decision.nearest else ""
        console.print(f"  intent     {decision.intent}{near}")
    needs = ", ".join(sorted(view.needs)) or "nothing special"
    console.print(f"  request    about {view.tokens} prompt tokens, needs {needs}")
    console.print(f"  replica    {decision.replica} ({decision.url})")

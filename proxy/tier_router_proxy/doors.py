"""The paths that are routed and relayed, and what each needs to know of its bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tier_router.errors import RequestError
from tier_router.request import View
from tier_router.view import bare_view, pooling_view, view_of

Look = Callable[[Mapping[str, Any], Mapping[str, str]], View]


@dataclass(frozen=True, slots=True)
class Door:
    """One path; `fields` are those of which its body must have one."""

    fields: tuple[str, ...]
    look: Look = view_of
    generates: bool = True
    """Whether a model writes the answer: then it gets the tier's defaults, and teaches its pace."""
    judged: bool = True
    """Whether the text is classified, and so worth waiting for a classifier that asks others."""
    stored: bool = False
    """Whether replicas keep the answers for requests that go on from them."""
    prunes: bool = False
    """Whether pruning understands its bodies."""
    named: bool = False
    """Whether the body means something to one model only, which it then has to name."""

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises RequestError where a field is missing."""
        for name in self.fields:
            if name in body:
                return
        if self.fields:
            names = " or ".join(f"`{name}`" for name in self.fields)
            raise RequestError(f"the request must have {names}", param=self.fields[0])


def _tokens_view(body: Mapping[str, Any], headers: Mapping[str, str]) -> View:
    tokens = body.get("tokens")
    return bare_view(body, headers, len(tokens) if isinstance(tokens, list) else 0)


CHAT = Door(("messages",))
RESPONSES = Door(("input",), stored=True)
STORED = Door((), bare_view, generates=False, judged=False)
"""What is asked of a response that a replica keeps."""
_POOLING = Door((), pooling_view, generates=False, judged=False)

DOORS: Mapping[bytes, Door] = {
    b"/v1/chat/completions": Door(("messages",), prunes=True),
    b"/v1/completions": Door(("prompt",)),
    b"/v1/responses": RESPONSES,
    b"/v1/messages": CHAT,
    b"/v1/messages/count_tokens": Door(("messages",), generates=False),
    b"/v1/embeddings": Door(("input", "messages"), pooling_view, generates=False, judged=False),
    b"/v1/rerank": Door(("query",), pooling_view, generates=False, judged=False),
    b"/rerank": Door(("query",), pooling_view, generates=False, judged=False),
    b"/v1/score": _POOLING,
    b"/score": _POOLING,
    b"/tokenize": Door(("prompt", "messages"), generates=False),
    b"/detokenize": Door(("tokens",), _tokens_view, generates=False, judged=False, named=True),
}
"""Every path that takes a body and is relayed under its own name."""

"""What pruning makes of a call: messages and options that go to the model, and its answer read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from tier_router.decide import Decision
from tier_router.langchain.body import body_of_messages
from tier_router.prune.audit import Answer, answer_of
from tier_router.pruner import Pruned, Trimming
from tier_router.request import View
from tier_router.router import TierRouter

LISTS = frozenset({"messages", "tools"})
"""Fields that any chat model is given; the others are vLLM's."""


class Cuts:
    """The pruning of one call, for each model that it is sent to."""

    def __init__(
        self,
        trimming: Trimming,
        messages: Sequence[BaseMessage],
        body: Mapping[str, Any],
    ) -> None:
        self.trimming = trimming
        self._messages, self._body = messages, body
        self.sent: Pruned | None = None
        """What went out last."""
        self._text: list[str] = []
        self._calls: dict[Any, dict[str, str]] = {}

    @classmethod
    def of(
        cls,
        router: TierRouter,
        view: View,
        messages: Sequence[BaseMessage],
        options: Mapping[str, Any],
    ) -> Cuts | None:
        """None where pruning is off, or where messages are not one to one what is sent."""
        if not router.pruner.active:
            return None
        body = body_of_messages(messages, options)
        trimming = router.trimming(view, body)
        same = len(body["messages"]) == len(messages)
        return cls(trimming, messages, body) if trimming is not None and same else None

    def to(
        self, decision: Decision, options: dict[str, Any], *, vllm: bool
    ) -> tuple[list[BaseMessage], dict[str, Any]]:
        """The messages and options for the decision's model; what only `vllm` understands is left
        out for others."""
        pruned = self.trimming.to(decision)
        messages = self._pruned_messages(pruned)
        foreign = not vllm and not pruned.changes.keys() <= LISTS
        if messages is None or foreign:
            pruned = self.trimming.to(decision, whole=True)
            messages = list(self._messages)
        self.sent = pruned
        changes = {name: value for name, value in pruned.changes.items() if name != "messages"}
        if "tools" in changes:
            options = {**options, "tools": changes.pop("tools")}
        if changes:
            options = {**options, "extra_body": {**(options.get("extra_body") or {}), **changes}}
        return messages, options

    def _pruned_messages(self, pruned: Pruned) -> list[BaseMessage] | None:
        """The messages as they are sent; None where a change has no place in LangChain's own."""
        new = pruned.changes.get("messages")
        if new is None:
            return list(self._messages)
        gone = pruned.plan.turns
        kept = [at for at in range(len(self._messages)) if at not in gone]
        out: list[BaseMessage] = []
        for at, body in zip(kept, new, strict=True):
            message = self._messages[at]
            if body is not self._body["messages"][at]:
                content = _content(message.content, body["content"])
                if content is None:
                    return None
                message = message.model_copy(update={"content": content})
            out.append(message)
        return out

    # ---- the answer

    def heard(self, message: BaseMessage) -> None:
        """Keeps an answer, or a piece of one, where it is to be audited."""
        if self.sent is None or not self.sent.audited:
            return
        self._text.append(str(message.text))
        if isinstance(message, AIMessageChunk):
            for piece in message.tool_call_chunks:
                call = self._calls.setdefault(piece.get("index"), {"name": "", "arguments": ""})
                call["name"] += piece.get("name") or ""
                call["arguments"] += piece.get("args") or ""
        elif isinstance(message, AIMessage):
            for made in message.tool_calls:
                call = {"name": made["name"], "arguments": str(made["args"])}
                self._calls[len(self._calls)] = call

    def answer(self) -> Answer:
        """What was heard."""
        calls = [{"function": call} for call in self._calls.values()]
        message = {"content": "".join(self._text), "tool_calls": calls}
        return answer_of({"choices": [{"message": message}]})


def _content(old: Any, new: Any) -> Any:
    """A message's content with the texts of `new`, its pruned body's; None where the two are not
    alike.  Blocks of nothing but text were one text in the body, and stay one."""
    if isinstance(new, str):
        return new
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    blocks: list[Any] = []
    for block, part in zip(old, new, strict=True):
        text = part.get("text") if isinstance(part, Mapping) else None
        if text is None:
            blocks.append(block)
        elif isinstance(block, str):
            blocks.append(text)
        elif isinstance(block, Mapping) and isinstance(block.get("text"), str):
            blocks.append({**block, "text": text})
        else:
            return None
    return blocks

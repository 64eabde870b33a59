"""What pruning makes of a call's parameters; chat completions only."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from tier_router.litellm import asked
from tier_router.litellm.groups import Group
from tier_router.prune.audit import Answer, answer_of
from tier_router.pruner import Pruned, Trimming
from tier_router.request import View
from tier_router.router import TierRouter

OWN = frozenset({"messages", "tools", "max_completion_tokens"})
"""Fields that LiteLLM knows; vLLM's others go into `extra_body`."""


def trimming_of(
    router: TierRouter, group: Group, view: View, messages: Any, kwargs: Mapping[str, Any]
) -> Trimming | None:
    """What is taken out of a call; None where pruning is off, or where it is no chat completion
    (responses and Anthropic's messages have notes of their own)."""
    if not router.pruner.active or isinstance(kwargs.get(asked.BUCKETS[0]), Mapping):
        return None
    body = asked.pruned_body_of(messages, kwargs)
    if "messages" not in body:
        return None
    tiers = group.config.tiers
    ladder = group.config.ladder
    return Trimming(
        router.pruner, body, view, lambda name: tiers[ladder[name]], router.changes
    )  # fmt: skip


def put(kwargs: MutableMapping[str, Any], pruned: Pruned) -> None:
    """Sets in a call's parameters what is sent otherwise than the caller wrote it."""
    extra = {name: value for name, value in pruned.changes.items() if name not in OWN}
    kwargs.update({name: value for name, value in pruned.changes.items() if name in OWN})
    if extra:
        given = kwargs.get("extra_body")
        kwargs["extra_body"] = {**(given if isinstance(given, Mapping) else {}), **extra}


def answer_to(response: Any) -> Answer | None:
    """What an audit reads of LiteLLM's answer; None where it is none."""
    dump = getattr(response, "model_dump", None)
    body = dump() if callable(dump) else response
    return answer_of(body) if isinstance(body, Mapping) and body.get("choices") else None

"""What the log says of one request, version 1.

    {"v": 1, "at": 1767225600.1, "id": "req-1", "door": "sidecar", "tier": "light",
     "replica": "light-0", "model": "Qwen/Qwen3-8B", "reasons": ["easy"], "outcome": "done", ...}

Fields that have nothing to say, or what the schema gives as their default, are left out.  A field
is never given another meaning within a version; new ones may come, and readers skip what they do
not know.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tier_router.decide import Decision
from tier_router.pace import Usage
from tier_router.request import View

VERSION = 1


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the replica counted them; `cached` ones of the prompt cost no prefill."""

    prompt: int
    completion: int
    cached: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request: what was asked, where it went and why, and what came of it."""

    v: Annotated[int, Meta(description="Version of this schema.")]
    at: Annotated[float, Meta(description="When it arrived, Unix seconds.")]
    id: Annotated[str, Meta(description="The request's id, as in `x-request-id`.")]
    door: Annotated[str, Meta(description="sidecar, langchain or litellm.")]
    tier: Annotated[str, Meta(description="Where it went last; empty where nowhere.")] = ""
    replica: Annotated[str, Meta(description="The replica's name.")] = ""
    model: Annotated[str, Meta(description="The model name that was sent upstream.")] = ""
    reasons: Annotated[tuple[str, ...], Meta(description="Reason codes, in order.")] = ()
    asked: Annotated[
        str | None, Meta(description="The model, alias or tier that the client named.")
    ] = None
    kind: Annotated[str, Meta(description="human, tool, housekeeping or none.")] = "human"
    needs: Annotated[tuple[str, ...], Meta(description="Abilities it needs, sorted.")] = ()
    stream: bool = False
    difficulty: Annotated[
        float | None, Meta(description="The difficulty that decided, 0 to 1; else the turn's.")
    ] = None
    threshold: Annotated[
        float | None, Meta(description="The first threshold, where a difficulty decided.")
    ] = None
    intent: str | None = None
    confidence: Annotated[float, Meta(description="That of the intent, 0 to 1.")] = 0.0
    abstain: Annotated[str | None, Meta(description="Why nothing could be judged.")] = None
    pressures: Annotated[
        dict[str, float | None], Meta(description="Least pressure of each tier; null is down.")
    ] = {}
    priority: Annotated[int, Meta(description="What vLLM's queue was told.")] = 0
    attempts: Annotated[int, Meta(description="Replicas that it was sent to.")] = 1
    failed: Annotated[tuple[str, ...], Meta(description="Replicas that failed it.")] = ()
    status: Annotated[int | None, Meta(description="HTTP status that the client saw.")] = None
    outcome: Annotated[
        str, Meta(description="done, failed, abandoned, or an error's code; empty: unknown.")
    ] = ""
    ttft: Annotated[float | None, Meta(description="Seconds to the first token.")] = None
    latency: Annotated[float | None, Meta(description="Seconds to the last token.")] = None
    usage: Tokens | None = None
    tokens: Annotated[int, Meta(description="Our estimate of the prompt's tokens.")] = 0
    max_tokens: Annotated[int | None, Meta(description="The client's output limit.")] = None
    conversation: Annotated[
        str | None, Meta(description="Keyed hash of the conversation, 16 hex digits.")
    ] = None
    pruning: Annotated[
        dict[str, Any] | None,
        Meta(description="What pruning took out or would have, its estimates and its audit."),
    ] = None
    text: Annotated[str | None, Meta(description="The judged text, only with `log.prompts`.")] = (
        None
    )


def schema() -> dict[str, Any]:
    """The JSON schema of a line."""
    return msgspec.json.schema(Record)


def record_of(
    decision: Decision | None,
    view: View,
    *,
    at: float,
    id: str,
    door: str,
    outcome: str,
    status: int | None = None,
    failed: tuple[str, ...] = (),
    attempts: int | None = None,
    ttft: float | None = None,
    latency: float | None = None,
    usage: Usage | None = None,
    pruning: dict[str, Any] | None = None,
    salt: bytes = b"",
    prompts: bool = False,
) -> Record:
    """The record of a request that has ended; `decision` is the last one, None where there was
    none.  `attempts` is by default one more than have `failed`."""
    known = {} if decision is None else _of(decision)
    return Record(
        v=VERSION,
        at=round(at, 3),
        id=id,
        door=door,
        asked=view.header or view.model,
        kind=view.kind.value,
        needs=tuple(sorted(view.needs)),
        stream=view.stream,
        attempts=len(failed) + (decision is not None) if attempts is None else attempts,
        failed=failed,
        status=status,
        outcome=outcome,
        ttft=None if ttft is None else round(ttft, 4),
        latency=None if latency is None else round(latency, 4),
        usage=None if usage is None else Tokens(usage.prompt, usage.completion, usage.cached),
        tokens=round(view.tokens),
        max_tokens=view.max_tokens,
        conversation=hashed(view.key, salt),
        pruning=pruning,
        text=view.turn.text if prompts else None,
        **known,
    )


def _of(decision: Decision) -> dict[str, Any]:
    return {
        "tier": decision.tier,
        "replica": decision.replica,
        "model": decision.model,
        "reasons": tuple(reason.value for reason in decision.reasons),
        "difficulty": _rounded(decision.difficulty),
        "threshold": _rounded(decision.threshold),
        "intent": decision.intent,
        "confidence": round(decision.confidence, 4),
        "abstain": decision.abstain,
        "pressures": {
            name: round(load, 3) if math.isfinite(load) else None
            for name, load in decision.pressures.items()
        },
        "priority": decision.priority,
    }


def hashed(key: int, salt: bytes) -> str:
    """A conversation's key as the log has it: without `salt` nobody can tell whose it is."""
    raw = (key & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
    return blake2b(raw, digest_size=8, key=salt[:64]).hexdigest()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)

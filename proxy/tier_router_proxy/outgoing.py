"""What goes to a replica, and which headers of its answer come back to the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tier_router.config import Config, Tier
from tier_router.config.pruning import HEADER as PRUNING
from tier_router.decide import Decision
from tier_router.prune.report import HEADER as PRUNED
from tier_router.router import TierRouter
from tier_router.scrape.header import ASK, REPORT
from tier_router.view import PRIORITY_HEADER
from tier_router_proxy.body import readdressed, rewritten
from tier_router_proxy.http.messages import (
    Head,
    Headers,
    Request,
    client_headers,
    upstream_headers,
)
from tier_router_proxy.keepers import stamp
from tier_router_proxy.upstreams import Incoming

TAGS = (
    b"x-request-id",
    b"x-tier-router-tier",
    b"x-tier-router-replica",
    b"x-tier-router-reason",
    b"x-tier-router-difficulty",
    PRUNED.encode(),
)
PRIORITY = PRIORITY_HEADER.encode()
ASK_LOAD = (ASK[0].encode(), ASK[1].encode())
LOAD_REPORT = REPORT.encode()
NOT_UPSTREAM = (
    b"x-request-id",
    b"x-tier-router-tier",
    PRUNING.encode(),
    PRIORITY,
    b"content-encoding",
)
"""Headers of a client that the sidecar answers for itself; bodies go on decompressed."""
CREDENTIALS = (b"authorization", b"x-api-key")
KEYLESS = (*NOT_UPSTREAM, *CREDENTIALS)
NOT_BACK = (
    *TAGS,
    *CREDENTIALS,
    b"access-control-allow-origin",
    b"access-control-allow-credentials",
    b"access-control-allow-headers",
    b"access-control-allow-methods",
    b"access-control-expose-headers",
    b"access-control-max-age",
)
"""Headers of a replica that no client sees: whose pages may call is the sidecar's to say."""


def body_for(
    router: TierRouter,
    incoming: Incoming,
    decision: Decision,
    tier: Tier,
    pruned: Mapping[str, Any],
) -> bytes | None:
    """The client's body with what routing sets in it, and what pruning makes of its fields."""
    if not incoming.raw:
        return incoming.raw
    door, changes = incoming.door, {"model": decision.model}
    if door.generates:
        changes = router.changes(decision, incoming.fields)
    if door.stored and tier.kind == "vllm":
        changes.update(stamp(decision.replica, incoming.fields))
    if pruned:
        return rewritten(incoming.raw, incoming.fields, {**changes, **pruned})
    return readdressed(incoming.raw, changes)


def headers_for(
    config: Config, request: Request, incoming: Incoming, decision: Decision, tier: Tier
) -> Headers:
    """The client's headers without our keys, and with what replicas are told."""
    own = tier.api_key is not None or bool(config.server.api_keys)
    drop = KEYLESS if own else NOT_UPSTREAM
    headers = upstream_headers(
        request.headers, drop if tier.kind == "vllm" else (*drop, ASK_LOAD[0])
    )
    headers.append((b"x-request-id", incoming.id.encode()))
    if decision.priority:
        headers.append((PRIORITY, b"%d" % decision.priority))
    if asks_for_load(config, request, incoming, tier):
        headers.append(ASK_LOAD)
    if tier.api_key is not None:
        headers.append((b"authorization", b"Bearer " + _secret(tier)))
    elif not own and request.header(CREDENTIALS[0]) is None:
        given = request.header(CREDENTIALS[1])  # Anthropic's clients; vLLM reads it nowhere
        if given is not None:
            headers.append((b"authorization", b"Bearer " + given))
    return headers


def headers_back(head: Head, tier: Tier, *, told_of_load: bool) -> Headers:
    """A replica's headers that the client sees; `told_of_load` where the sidecar asked for the
    load, which then is no business of the client's."""
    headers = client_headers(head, (*NOT_BACK, LOAD_REPORT) if told_of_load else NOT_BACK)
    if tier.api_key is not None:
        secret = _secret(tier)
        headers = [each for each in headers if secret not in each[1]]
    return headers


def asks_for_load(config: Config, request: Request, incoming: Incoming, tier: Tier) -> bool:
    """Whether the answer is to say how loaded its replica is: a stream cannot, and a client that
    asks itself gets its own."""
    return (
        tier.kind == "vllm"
        and incoming.door.generates
        and not incoming.view.stream
        and bool(config.load.poll.metrics)
        and request.header(ASK_LOAD[0]) is None
    )


def tags_of(decision: Decision) -> Headers:
    """The response headers that say where a request went, and why."""
    tags: Headers = [
        (b"x-tier-router-tier", decision.tier.encode()),
        (b"x-tier-router-replica", decision.replica.encode()),
        (b"x-tier-router-reason", ",".join(decision.reasons).encode()),
    ]
    if decision.difficulty is not None:
        tags.append((b"x-tier-router-difficulty", b"%.3f" % decision.difficulty))
    return tags


def _secret(tier: Tier) -> bytes:
    assert tier.api_key is not None
    return tier.api_key.get_secret_value().encode()

"""Which replica keeps which response: a response that vLLM stores is in one server's memory alone.

Three ways lead there.  An id that this sidecar gave out names its replica, so that every sidecar
with the same replica names knows it, after a restart too; an id that a replica made up is
remembered when the answer passes; of any other, all replicas are asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache

from tier_router.config import Config, Replica, Tier
from tier_router.errors import NoReplica, RequestError
from tier_router_proxy.fetch import ask
from tier_router_proxy.http.messages import Headers
from tier_router_proxy.pools import Pools

KEPT = 50_000
"""Ids that are remembered: 15 MB or so."""

LASTS = 86_400.0
"""Seconds for which they are; vLLM keeps responses until it ends, and an older one is asked for."""

ASKED_SECONDS = 2.0
"""How long a replica may take to say whether it keeps a response: it only looks into a dict."""

AT_ONCE = 32
"""Replicas that are asked at the same time."""

ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_OURS = re.compile(r"resp_[0-9a-f]{32}_([0-9a-f]{8})")
_WHOLE = re.compile(rb'\s*\{\s*"id"\s*:\s*"([A-Za-z0-9_.:-]{1,200})"')
_IN_EVENT = re.compile(rb'"response"\s*:\s*\{\s*"id"\s*:\s*"([A-Za-z0-9_.:-]{1,200})"')


class UnknownResponse(RequestError):
    """No replica keeps this response."""

    status = 404
    code = "response_not_found"


class Keepers:
    """What is known of responses; bounded in number and in time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Keepers of {len(self._known)} responses>"

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, response_id: str, replica: str) -> None:
        """Notes that `replica` keeps it."""
        self._known[response_id] = replica, self._now() + LASTS
        self._known.move_to_end(response_id)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def learn_from(self, answer: bytes, replica: str) -> None:
        """Notes the id that the first bytes of an answer, or of a stream of events, tell."""
        found = _WHOLE.match(answer) or _IN_EVENT.search(answer)
        if found is not None:
            response_id = found[1].decode()
            if _OURS.fullmatch(response_id) is None:  # those tell it themselves
                self.learn(response_id, replica)

    def of(self, response_id: str, config: Config) -> str | None:
        """The name of the replica that keeps it; None where that is not known."""
        names = {name for tier in config.tiers for name in tier.names}
        replica, until = self._known.get(response_id, ("", 0.0))
        if replica in names and self._now() < until:
            return replica
        ours = _OURS.fullmatch(response_id)
        return next((name for name in names if ours and _tag(name) == ours[1]), None)

    async def find(
        self, response_id: str, config: Config, pools: Pools, credentials: Headers
    ) -> str:
        """The replica that says it keeps the response.

        `credentials` are sent to tiers without a key of their own.  Raises UnknownResponse where
        all say no, NoReplica where one of them did not answer.
        """
        replicas = [
            (tier, replica) for tier in config.tiers[: config.rungs] for replica in tier.replicas
        ]
        gate = asyncio.Semaphore(AT_ONCE)

        async def keeps(tier: Tier, replica: Replica) -> bool | None:
            headers = credentials if tier.api_key is None else [_bearer(tier)]
            target = b"/responses/" + response_id.encode()
            if tier.kind == "vllm":
                target = b"/v1" + target
            try:
                async with gate, asyncio.timeout(ASKED_SECONDS):
                    status, _ = await ask(pools.of(replica.url), b"GET", target, headers)
            except OSError:
                return None
            return status == 200 if status < 500 else None

        said = await asyncio.gather(*(keeps(*each) for each in replicas))
        silent = []
        for (_, replica), kept in zip(replicas, said, strict=True):
            name = replica.name or replica.url
            if kept:
                self.learn(response_id, name)
                return name
            if kept is None:
                silent.append(name)
        if silent:
            raise NoReplica(
                f"no replica that answers keeps the response `{response_id}`, and these do not "
                f"answer: {', '.join(silent)}"
            )
        raise UnknownResponse(f"no replica keeps the response `{response_id}`")


def id_for(replica: str) -> str:
    """A new response id that tells which replica keeps the response."""
    return f"resp_{uuid.uuid4().hex}_{_tag(replica)}"


def stamp(replica: str, fields: Mapping[str, object]) -> dict[str, str]:
    """The field by which vLLM takes over an id of ours, where the client gave none."""
    return {} if fields.get("request_id") is not None else {"request_id": id_for(replica)}


@lru_cache(maxsize=4096)
def _tag(replica: str) -> str:
    return hashlib.blake2b(replica.encode(), digest_size=4).hexdigest()


def _bearer(tier: Tier) -> tuple[bytes, bytes]:
    assert tier.api_key is not None
    return (b"authorization", b"Bearer " + tier.api_key.get_secret_value().encode())

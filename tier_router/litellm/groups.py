"""LiteLLM's deployments as a ladder that `decide` understands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tier_router.config import Config, Intent, Replica, Rule, Tier
from tier_router.config.model import AUTO

Deployment = Mapping[str, Any]
_Named = TypeVar("_Named", Intent, Rule)

TIER_KEY = "gpu_tier"
"""The key of `model_info` that names a deployment's tier; `tier` is LiteLLM's own."""

MOST = 4_096
"""Deployments that are remembered as read."""


@dataclass(frozen=True, slots=True)
class Member:
    """One deployment as routing sees it: `replica` is the server, which several may share."""

    id: str
    tier: str
    replica: str
    url: str
    context: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A model group of LiteLLM: its members by deployment id, and the ladder they make."""

    members: Mapping[str, Member]
    config: Config
    thresholds: tuple[float, ...]


class Servers:
    """Which server of a configuration a deployment is."""

    def __init__(self, config: Config) -> None:
        self._names = {
            (tier.name, replica.url): replica.name or replica.url
            for tier in config.tiers
            for replica in tier.replicas
        }
        self._members: dict[tuple[Any, ...], Member] = {}

    def member(self, deployment: Deployment) -> Member:
        """The deployment; its replica is the configured one at its address, else its id."""
        info = deployment.get("model_info") or {}
        params = deployment.get("litellm_params") or {}
        said = (info.get("id"), info.get(TIER_KEY), params.get("api_base"),
                info.get("max_input_tokens"))  # fmt: skip
        found = self._members.get(said)
        if found is None:
            if len(self._members) >= MOST:
                self._members.clear()
            found = self._members[said] = self._made(*said)
        return found

    def _made(self, id: Any, tier: Any, base: Any, context: Any) -> Member:
        url = str(base or "").rstrip("/").removesuffix("/v1")
        return Member(
            id=str(id),
            tier=str(tier),
            replica=self._names.get((str(tier), url), str(id)),
            url=url,
            context=context if isinstance(context, int) and context > 0 else None,
        )


def is_tiered(deployment: Deployment) -> bool:
    """Whether the deployment says which tier it belongs to."""
    return bool((deployment.get("model_info") or {}).get(TIER_KEY))


def group_of(
    members: Iterable[Member], config: Config, thresholds: Sequence[float]
) -> Group | None:
    """The ladder that `members` make of `config`; None where none is of one of its tiers.

    Tiers without a member are left out: what was meant for one goes to the next above it, or
    where there is none to the highest.
    """
    known = {member.id: member for member in members if member.tier in config.ladder}
    by_tier: dict[str, list[Member]] = {}
    for member in known.values():
        by_tier.setdefault(member.tier, []).append(member)
    places = [place for place, tier in enumerate(config.tiers) if tier.name in by_tier]
    if not places:
        return None
    tiers = tuple(_tier(config.tiers[place], by_tier[config.tiers[place].name]) for place in places)
    ladder = Config(
        tiers=tiers,
        intents={name: _moved(intent, config, places) for name, intent in config.intents.items()},
        rules=tuple(_moved(rule, config, places) for rule in config.rules),
        aliases={
            name: target
            for name, target in config.aliases.items()
            if target == AUTO or target in by_tier
        },
        load=config.load,
        server=config.server,
    )
    steps = tuple(thresholds[place] for place in places[:-1])
    return Group(known, ladder, steps or tuple(thresholds[:1]))


def fleet_of(config: Config, members: Iterable[Member]) -> Config:
    """`config` with the servers that only LiteLLM knows added to its tiers."""
    added: dict[str, dict[str, Replica]] = {}
    names = {replica.name for tier in config.tiers for replica in tier.replicas}
    for member in members:
        if member.tier in config.ladder and member.replica not in names:
            added.setdefault(member.tier, {})[member.replica] = _replica(member)
    tiers = tuple(
        tier.model_copy(update={"replicas": (*tier.replicas, *added[tier.name].values())})
        if tier.name in added
        else tier
        for tier in config.tiers
    )
    return Config(tiers=tiers, load=config.load, server=config.server)


def mismatch(config: Config, members: Iterable[Member], group: str) -> str:
    """What to say where no deployment is of a configured tier: both sides by name."""
    said = sorted({member.tier for member in members if member.tier})
    return (
        f"no deployment of `{group}` is of a tier of the configuration: the configuration has the "
        f"tiers {', '.join(config.ladder)}; model_info.{TIER_KEY} of the deployments says "
        f"{', '.join(said) or 'nothing'}"
    )


def strangers(config: Config, members: Iterable[Member], group: str) -> str | None:
    """What to say of deployments whose tier the configuration does not have."""
    said = sorted({member.tier for member in members} - config.ladder.keys())
    if not said:
        return None
    return (
        f"deployments of `{group}` that say {TIER_KEY} {', '.join(said)} get no requests: the "
        f"configuration has the tiers {', '.join(config.ladder)}"
    )


def _tier(tier: Tier, members: Sequence[Member]) -> Tier:
    weights = {replica.name: replica.weight for replica in tier.replicas}
    replicas = {
        member.replica: _replica(member, weights.get(member.replica, 1.0)) for member in members
    }
    contexts = [member.context for member in members] + [tier.context]
    context = min((size for size in contexts if size is not None), default=None)
    return tier.model_copy(update={"replicas": tuple(replicas.values()), "context": context})


def _replica(member: Member, weight: float = 1.0) -> Replica:
    """A replica for `decide`; a deployment's id and address need not be what a config allows."""
    return Replica.model_construct(
        url=member.url or member.replica, weight=weight, name=member.replica
    )


def _moved(entry: _Named, config: Config, places: Sequence[int]) -> _Named:
    """`entry` with a tier that is there."""
    if entry.tier is None or config.ladder[entry.tier] in places:
        return entry
    wanted = config.ladder[entry.tier]
    place = next((place for place in places if place > wanted), places[-1])
    return entry.model_copy(update={"tier": config.tiers[place].name})

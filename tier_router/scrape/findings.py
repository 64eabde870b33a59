"""What was learned of replicas, and the configuration that follows from it.

What people wrote and what was found stay apart: `effective` joins them anew each time, so that a
reload keeps the findings, and a finding never outlives the replica that it was made on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tier_router.config import Config, Cost, Tier
from tier_router.request import Need
from tier_router.scrape.pages import Card


@dataclass(frozen=True, slots=True)
class Found:
    """What one replica was found to be."""

    models: Mapping[str, Card] | None = None
    """What it serves; None where it does not say."""
    version: str | None = None
    can: Mapping[Need, bool] = field(default_factory=dict)
    """Abilities that were asked for, and whether it has them."""


def effective(config: Config, found: Mapping[str, Found]) -> Config:
    """`config` with the contexts, abilities and prices that it leaves to the replicas, as far as
    `found` (by replica name) has them; `config` itself where it has none.

    A tier is what all of its replicas are: the least context, the abilities they share, the
    highest price.
    """
    tiers = tuple(_found_tier(tier, found) for tier in config.tiers)
    if all(new is old for new, old in zip(tiers, config.tiers, strict=True)):
        return config
    return config.model_copy(update={"tiers": tiers})


def _found_tier(tier: Tier, found: Mapping[str, Found]) -> Tier:
    own = [found[name] for replica in tier.replicas if (name := replica.name or "") in found]
    changes: dict[str, object] = {}
    if tier.context is None:
        contexts = [context for each in own if (context := context_of(each, tier.model))]
        if contexts:
            changes["context"] = min(contexts)
    if tier.asks:
        asked = {need for each in own for need in each.can}
        able = {need for need in asked if all(each.can.get(need, True) for each in own)}
        if asked:
            changes["can"] = (tier.can - asked) | able
    if tier.cost is None:
        cards = [(each.models or {}).get(tier.model) for each in own]
        prices = [card.price for card in cards if card is not None and card.price is not None]
        if prices:
            dearest = max(prices)
            changes["cost"] = Cost(gpu_hour=None, gpus=1, input=dearest[0], output=dearest[1])
    return tier.model_copy(update=changes) if changes else tier


def context_of(found: Found, model: str) -> int | None:
    """The context that a replica gives `model`; None where it does not say."""
    card = (found.models or {}).get(model)
    return card.context if card else None


def serves_another(found: Found, model: str) -> str | None:
    """Why a replica cannot be one of a tier of `model`, where that is so, in plain words."""
    if found.models is None or model in found.models:
        return None
    names = ", ".join(f"`{name}`" for name in found.models) or "nothing"
    return f"does not serve the tier's model `{model}` but {names}"

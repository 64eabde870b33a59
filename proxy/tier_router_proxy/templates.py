"""Finds out what each tier's chat template does with the thinking switch, by its tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tier_router.config import Config, Tier
from tier_router.config.pruning import Mode, Step, Template
from tier_router.prune.steps.reasoning import template_of
from tier_router.router import TierRouter
from tier_router.scrape import Fetch
from tier_router.scrape.pages import json_object

log = logging.getLogger("tier_router_proxy")

PAUSE = 10.0
"""Seconds until a tier is asked again of which no replica told."""

SECONDS = 5.0
"""How long one answer may take."""

ASKED = "Say in one sentence what the weather is like where you are, and then stop. " * 4
"""A prompt that is long beside a switch: a template that puts it at the end keeps 95 % of it."""


TOLD = {
    Template.NONE: "ignores the thinking switch",
    Template.TAIL: "has the thinking switch at the end of the prompt",
    Template.HEAD: "has the thinking switch at the start of the prompt",
}


class Templates:
    """Asks `/tokenize` of one replica of each tier, until one has told."""

    def __init__(self, fetch: Fetch, router: TierRouter) -> None:
        self._fetch, self._router = fetch, router
        self._asking: asyncio.Task[None] | None = None

    def adopt(self, config: Config, dialled: Mapping[str, str]) -> None:
        """Asks the tiers of `config` from now on; `dialled` is {URL: URL to dial}."""
        if self._asking is not None:
            self._asking.cancel()
        open_tiers = [tier for tier in config.tiers[: config.rungs] if _asks(config, tier)]
        if open_tiers:
            self._asking = asyncio.get_running_loop().create_task(self._run(open_tiers, dialled))

    async def stop(self) -> None:
        """Asks no more."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _run(self, tiers: list[Tier], dialled: Mapping[str, str]) -> None:
        while tiers:
            tiers = [tier for tier in tiers if not await self._told(tier, dialled)]
            if tiers:
                await asyncio.sleep(PAUSE)

    async def _told(self, tier: Tier, dialled: Mapping[str, str]) -> bool:
        """Whether a replica told; the router knows it then."""
        for replica in tier.replicas:
            url = dialled.get(replica.url, replica.url)
            try:
                on, off, plain = [
                    await self._tokens(tier, url, more)
                    for more in ({"enable_thinking": True}, {"enable_thinking": False}, {})
                ]
            except (OSError, ValueError) as error:
                log.debug("%s does not tell of its template: %s", replica.name, error)
                continue
            template = template_of(on, off)
            thinks = template is not Template.NONE and plain == on
            self._router.pruner.probed(tier.name, template, thinks)
            log.info("tier %s: its template %s", tier.name, TOLD[template])
            return True
        return False

    async def _tokens(self, tier: Tier, url: str, switch: Mapping[str, bool]) -> list[int]:
        """The tokens of a prompt; raises OSError or ValueError where there are none."""
        body: dict[str, Any] = {
            "model": tier.model,
            "messages": [{"role": "user", "content": ASKED}],
            "chat_template_kwargs": dict(switch),
        }
        headers = {"content-type": "application/json"}
        if tier.api_key is not None:
            headers["authorization"] = f"Bearer {tier.api_key.get_secret_value()}"
        async with asyncio.timeout(SECONDS):
            status, content = await self._fetch(
                f"{url}/tokenize", headers, msgspec.json.encode(body)
            )
        tokens = json_object(content).get("tokens") if status == 200 else None
        if not isinstance(tokens, list) or not tokens:
            raise ValueError(f"status {status} on /tokenize")
        return tokens


def _asks(config: Config, tier: Tier) -> bool:
    """Whether the switch may be used on a tier, and nobody has said where it is."""
    pruning = config.pruning
    used = pruning.modes(tier.name)[Step.REASONING] is not Mode.OFF
    return used and tier.kind == "vllm" and pruning.of_tier(tier.name).template is None

"""A classifier that asks others: the event loop goes on, and nobody waits beyond its deadline."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from tier_router.classify import Verdict
from tier_router.config import Config
from tier_router.request import Turn
from tier_router.testing import FixedClassifier
from tier_router_proxy.sidecar import Sidecar


class Asking(FixedClassifier):
    """Knows a turn's intent only after it has asked for it."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.known: set[str] = set()

    def classify(self, turn: Turn) -> Verdict:
        return Verdict(0.9 if turn.text in self.known else 0.1)

    async def ahead(self, turns: Sequence[Turn]) -> None:
        await asyncio.sleep(0.2)
        self.known.update(turn.text for turn in turns)


async def test_requests_wait_side_by_side(stage: Any) -> None:
    http = await stage.serve()

    def asking(config: Config) -> Asking:
        return Asking()

    choice = stage.sidecar.router.config.classifier.model_copy(update={"engine": "semantic-router"})
    config = stage.config().model_copy(update={"classifier": choice})
    async with Sidecar(config, asking) as sidecar:
        start = time.monotonic()
        answers = await asyncio.gather(
            *(
                http.post(
                    f"{sidecar.url}/v1/chat/completions",
                    json={"messages": [{"role": "user", "content": f"question {n}"}]},
                )
                for n in range(20)
            )
        )
        assert time.monotonic() - start < 2, "20 waits of 0.2 s at once"
        assert {answer.headers["x-tier-router-tier"] for answer in answers} == {"heavy"}
        bad = await http.post(
            f"{sidecar.url}/v1/chat/completions",
            json={"model": "nope", "messages": [{"role": "user", "content": "x"}]},
        )
        assert bad.status_code == 404

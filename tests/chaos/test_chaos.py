"""The harshest troubles of `scenarios.py`, with fewer streams; the whole list is a script."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.scenarios import CUTS, play
from tests.chaos.stage import Stage
from tests.conftest import RedisServer

pytest.importorskip("httptools", reason="the extra `proxy` is not installed")

STREAMS = 40
TRIED = (
    "replica killed (-9), back after 3 s",
    "replica answers garbage",
    "error as first event of a 200 stream",
    "Redis killed for 5 s",
    "configuration reloaded ten times",
)


@pytest.fixture
async def stage(redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Stage(tmp_path, redis_server) as running:
        yield running


@pytest.mark.parametrize("name", TRIED)
async def test_nothing_is_lost_and_nothing_is_answered_twice(stage: Stage, name: str) -> None:
    result = await play(stage, name, STREAMS)
    told = {kind: count for kind, count in result.kinds.items() if kind != "answered"}
    assert result.kinds["answered"] > 2 * STREAMS
    assert set(told) <= ({"cut"} if name in CUTS else set()), (told, result)
    assert result.leases == 0

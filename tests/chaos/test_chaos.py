"""The harshest troubles of `scenarios.py`, with fewer streams; the whole list is a script."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    redis_binary: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """The processes, for all scenarios: each leaves them as it found them."""
    redis = RedisServer(redis_binary, tmp_path_factory.mktemp("r"))
    redis.start()
    try:
        async with Stage(tmp_path_factory.mktemp("chaos"), redis) as running:
            yield running
    finally:
        redis.stop()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TRIED)
async def test_nothing_is_lost_and_nothing_is_answered_twice(stage: Stage, name: str) -> None:
    result = await play(stage, name, STREAMS)
    told = {kind: count for kind, count in result.kinds.items() if kind != "answered"}
    assert result.kinds["answered"] > 2 * STREAMS
    assert set(told) <= ({"cut"} if name in CUTS else set()), (told, result)
    assert result.leases == 0

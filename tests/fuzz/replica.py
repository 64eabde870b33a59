"""One replica as a process: `python -m tests.fuzz.replica MODEL PORT [pooling]`."""

import asyncio
import logging
import signal
import sys

from tier_router.testing import FakeVllm, Speed, problems
from tier_router.testing.exchange import Exchange
from tier_router.testing.plan import Fault

SPEED = Speed(slots=256, prefill=1_000_000.0, step=0.002, batched_tokens=4096)
"""So that an answer of some tokens takes a hundredth of a second, and the sidecar has the work."""


class Picky(FakeVllm):
    """A fake that refuses what it cannot handle, as vLLM's pydantic does, where the fake's own
    checks let it through and it would fail."""

    async def _route(self, exchange: Exchange, fault: Fault) -> None:
        try:
            await super()._route(exchange, fault)
        except (
            TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError
        ) as error:  # fmt: skip
            text = f"1 validation error: {type(error).__name__}"
            raise problems.Refused(400, problems.problem(400, "Bad Request", text)) from None


async def main(model: str, port: int, pooling: bool) -> None:
    """Serves until SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with Picky(model, port=port, speed=SPEED, record=False, multimodal=True, pooling=pooling):
        print("ready", flush=True)
        await over.wait()


if __name__ == "__main__":
    # asyncio's warnings of writes to clients that have gone, of which there are many here
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), "pooling" in sys.argv[3:]))

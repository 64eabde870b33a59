"""One replica as a process: `python replica.py NAME PORT`; its faults are set by lines on stdin."""

import asyncio
import signal
import sys
from collections.abc import Callable

from tier_router.testing import FakeVllm, Speed, faults
from tier_router.testing.plan import Fault

SPEED = Speed(slots=256, prefill=100_000, step=0.06, batched_tokens=4096)
FAULTS: dict[str, Callable[[], Fault]] = {
    "slow": lambda: faults.SlowFirstToken(1.5),
    "stall": lambda: faults.SlowChunks(30.0),
    "hang": faults.Hang,
    "reset": lambda: faults.Reset(after_chunks=0),
    "reset later": lambda: faults.Reset(after_chunks=6),
    "garbage": faults.Garbage,
    "half-close": faults.CloseBeforeAnswer,
    "truncate": lambda: faults.TruncatedBody(missing=5),
    "busy": lambda: faults.BUSY,
    "drain": lambda: faults.DRAINING,
    "dead": lambda: faults.DEAD,
    "error in stream": faults.ErrorInStream,
}
"""What can go wrong with each request, by the word that a scenario says."""


async def main(name: str, port: int) -> None:
    """Serves until SIGTERM or the end of stdin."""
    fake = FakeVllm("m", port=port, speed=SPEED, record=False, answer=lambda body: f"{name} " * 20)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)

    def told() -> None:
        line = sys.stdin.readline()
        fake.faults.clear()
        if not line:
            over.set()
        elif line.strip() in FAULTS:
            fake.faults.add(FAULTS[line.strip()](), times=None)

    loop.add_reader(sys.stdin, told)
    async with fake:
        print("ready", flush=True)
        await over.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

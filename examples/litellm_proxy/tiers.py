"""Runs a command with LIGHT_URL and HEAVY_URL; where they are not set, two fake vLLM servers.

python tiers.py litellm --config litellm.yaml
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack

from tier_router.testing import FakeVllm


async def main() -> int:
    async with AsyncExitStack() as stack:
        for name in ("light", "heavy"):
            variable = f"{name.upper()}_URL"
            if variable not in os.environ:
                words = f"This is the {name} model."
                fake = FakeVllm(f"{name}-model", answer=lambda _, words=words: words)
                await stack.enter_async_context(fake)
                os.environ[variable] = f"{fake.url}/v1"
        child = await asyncio.create_subprocess_exec(*sys.argv[1:])
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, child.send_signal, number)
        return await child.wait()


sys.exit(asyncio.run(main()))

"""LiteLLM's own Router with tiers: one call installs the strategy.

pip install 'tier-router[litellm]'
python examples/litellm_router.py                two fake vLLM servers, started here
python examples/litellm_router.py config.yaml    yours

What is my balance?
  light-0: easy
Derive the closed form of the Fibonacci numbers and prove it by induction.
  heavy-0: hard
Tell me more. (asked of `heavy`)
  heavy-0: pinned
"""

import asyncio
import sys
from contextlib import AsyncExitStack

import litellm

from tier_router import Config, load, parse
from tier_router.cli.litellm_config import document
from tier_router.litellm import install
from tier_router.testing import FakeVllm

QUESTIONS = (
    ("auto", "What is my balance?"),
    ("auto", "Derive the closed form of the Fibonacci numbers and prove it by induction."),
    ("heavy", "Tell me more."),
)


async def fake_tiers(stack: AsyncExitStack) -> Config:
    light = await stack.enter_async_context(FakeVllm("Qwen/Qwen3-8B"))
    heavy = await stack.enter_async_context(FakeVllm("meta-llama/Llama-3.1-405B-Instruct"))
    return parse(f"""
tiers:
  - {{name: light, model: {light.model}, replicas: ["{light.url}"]}}
  - {{name: heavy, model: {heavy.model}, replicas: ["{heavy.url}"]}}
""")


async def main() -> None:
    async with AsyncExitStack() as stack:
        config = load(sys.argv[1]) if sys.argv[1:] else await fake_tiers(stack)
        made = document(config)
        router = litellm.Router(model_list=made["model_list"], **made["router_settings"])
        strategy = install(router, config)
        for model, question in QUESTIONS:
            metadata: dict[str, object] = {}
            await router.acompletion(
                model=model,
                messages=[{"role": "user", "content": question}],
                metadata=metadata,
            )
            decision = strategy.decision({"metadata": metadata})
            assert decision is not None
            print(question if model == "auto" else f"{question} (asked of `{model}`)")
            print(f"  {decision.replica}: {','.join(decision.reasons)}")


asyncio.run(main())

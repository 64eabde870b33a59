"""An agent with a tool: each model call goes to the tier that its turn needs.

pip install langchain && python examples/langchain_agent.py

human: What is 3 plus 4? Use the tool.
ai:   calls add({'a': 3, 'b': 4}) on light
tool: 7
ai:   answers on light
"""

import os
from contextlib import ExitStack

from langchain.agents import create_agent
from langchain_core.tools import tool

from tier_router import load, parse
from tier_router.langchain import ChatTierRouter
from tier_router.testing import FakeVllm, running


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


with ExitStack() as stack:
    if path := os.environ.get("TIER_ROUTER_CONFIG"):
        config = load(path)
    else:
        light, heavy = stack.enter_context(
            running(FakeVllm("Qwen3-8B"), FakeVllm("Llama-3.1-405B"))
        )
        config = parse(f"""
        tiers:
          - {{name: light, model: Qwen3-8B, replicas: [{light.url}]}}
          - {{name: heavy, model: Llama-3.1-405B, replicas: [{heavy.url}]}}
        """)

    agent = create_agent(ChatTierRouter(config=config), tools=[add])
    for message in agent.invoke({"messages": [("user", "What is 3 plus 4? Use the tool.")]})[
        "messages"
    ]:
        if message.type != "ai":
            print(f"{message.type + ':':5} {message.content}")
            continue
        tier = message.response_metadata["tier_router"]["tier"]
        calls = [f"calls {call['name']}({call['args']})" for call in message.tool_calls]
        print(f"ai:   {', '.join(calls) or 'answers'} on {tier}")

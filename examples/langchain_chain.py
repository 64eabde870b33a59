"""An LCEL chain over tiers; TIER_ROUTER_CONFIG names a configuration, else the tiers are fakes.

python examples/langchain_chain.py

translate 'good morning' into French -> light (Qwen3-8B)
prove that every prime above 3 is of the form 6n+1 or 6n-1 -> heavy (Llama-3.1-405B)
"""

import os
from contextlib import ExitStack

from langchain_core.prompts import ChatPromptTemplate

from tier_router import load, parse
from tier_router.langchain import ChatTierRouter
from tier_router.testing import FakeVllm, running

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

    prompt = ChatPromptTemplate.from_messages(
        [("system", "You are a careful assistant."), ("user", "{task}")]
    )
    chain = prompt | ChatTierRouter(config=config)
    for task in (
        "translate 'good morning' into French",
        "prove that every prime above 3 is of the form 6n+1 or 6n-1",
    ):
        answer = chain.invoke({"task": task})
        decision = answer.response_metadata["tier_router"]
        print(f"{task} -> {decision['tier']} ({answer.response_metadata['model_name']})")

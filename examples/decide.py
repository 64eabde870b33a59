"""The decision alone, in process: no server, no network.

python examples/decide.py
"""

from tier_router import TierRouter, parse
from tier_router.explain import sentence

router = TierRouter(
    parse("""
tiers:
  - {name: light, model: Qwen/Qwen3-8B, replicas: [http://vllm-light:8000]}
  - {name: heavy, model: meta-llama/Llama-3.1-405B-Instruct, replicas: [http://vllm-heavy:8000]}
intents:
  opening_hours: {tier: light, utterances: [when do you open, what are your opening hours]}
""")
)

for question in (
    "Until when are you open today?",
    "Derive the closed form of the Fibonacci numbers and prove it by induction.",
):
    view = router.view({"messages": [{"role": "user", "content": question}]})
    print(f"{question}\n  {sentence(router.decide(view))}")

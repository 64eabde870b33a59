"""Any OpenAI client works: point it at the sidecar, and leave the model to it.

sh examples/sidecar/run.sh python examples/sidecar/client.py    simulated tiers, started for it
TIER_ROUTER_URL=http://... python examples/sidecar/client.py     yours

What is my balance?
  tier:   light
  reason: intent
Prove that the square root of 3 is irrational.
  tier:   heavy
  reason: hard
"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("TIER_ROUTER_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("TIER_ROUTER_KEY", "none"),
)

for question in ("What is my balance?", "Prove that the square root of 3 is irrational."):
    answer = client.chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": question}]
    )
    print(question)
    print("  tier:  ", answer.headers["x-tier-router-tier"])
    print("  reason:", answer.headers["x-tier-router-reason"])
    print("  answer:", (answer.parse().choices[0].message.content or "")[:60])

print("and streamed, on a tier of your own choice:")
stream = client.chat.completions.create(
    model="heavy", messages=[{"role": "user", "content": "Tell me more."}], stream=True
)
print(" ", "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)[:60])

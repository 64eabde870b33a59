"""Intents by semantic-router itself (0.x or 1.x), and its files from ours: no server, no network.

pip install 'tier-router[semantic]' && python examples/semantic_routes.py

    Until when are you open on Sunday? -> light: hours
    Is this clause of the contract enforceable? -> heavy: contract
    Write a haiku about the sea. -> light: no intent
    routes.yaml (1.x): router_type, encoder, index, routes
    routes.json (0.x): encoder_type, encoder_name, routes
    read back: contract heavy, hours light
"""

import tempfile
from pathlib import Path

import yaml

from tier_router import TierRouter, load, parse
from tier_router.semantic import save

TIERS = """
tiers:
  - {name: light, model: Qwen/Qwen3-8B, replicas: [http://vllm-light:8000]}
  - {name: heavy, model: meta-llama/Llama-3.1-405B-Instruct, replicas: [http://vllm-heavy:8000]}
"""
ENGINE = """
classifier: {engine: semantic-router}
intents:
  hours: {tier: light, utterances: [when do you open, are you open on Sunday]}
  contract: {tier: heavy, utterances: [review this contract, is this clause enforceable]}
"""

config = parse(TIERS + ENGINE)
router = TierRouter(config)
for question in (
    "Until when are you open on Sunday?",
    "Is this clause of the contract enforceable?",
    "Write a haiku about the sea.",
):
    decision = router.decide(router.view({"messages": [{"role": "user", "content": question}]}))
    print(f"{question} -> {decision.tier}: {decision.intent or 'no intent'}")

with tempfile.TemporaryDirectory() as folder:
    for name, line in (("routes.yaml", "1.x"), ("routes.json", "0.x")):
        path = Path(folder, name)
        save(config.intents, path, line=line, encoder=("ollama", "nomic-embed-text"))
        print(f"{name} ({line}): {', '.join(yaml.safe_load(path.read_text()))}")
    Path(folder, "config.yaml").write_text(TIERS + "intent_files: [routes.yaml]\n")
    read = load(Path(folder, "config.yaml")).intents
    print("read back:", ", ".join(f"{name} {intent.tier}" for name, intent in sorted(read.items())))

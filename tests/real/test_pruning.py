"""What pruning saves, in the prompt tokens that a real server says its cache did not have."""

import json
from typing import Any

import httpx

from tests.real.test_sidecar import CHAT, config, fixed
from tier_router_proxy.sidecar import Sidecar

RESULT = {
    "reservation": {"id": "ABC123", "seats": ["12A", "12B"], "paid": 310.5, "insured": False},
    "flights": [
        {"number": f"HAT{number}", "from": "SFO", "to": "JFK", "date": "2024-05-16"}
        for number in range(4)
    ],
}


def talk(name: str, turns: int) -> list[dict[str, Any]]:
    """A talk with a call of one tool in each turn, whose result is the same each time."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"You help with {name}."}]
    for turn in range(turns):
        call = {"name": "get_reservation", "arguments": json.dumps({"id": "ABC123"})}
        messages += [
            {"role": "user", "content": f"And what about seat {turn}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"call_{turn}",
                "content": json.dumps(RESULT, indent=4),
            },
        ]
    return messages


async def uncached(url: str, name: str, pruning: str) -> list[int]:
    """Prompt tokens of each turn that the server had not cached."""
    found = []
    async with (
        Sidecar(config(url, more=f"pruning: {{mode: {pruning}, holdout: 0}}\n"), fixed) as sidecar,
        httpx.AsyncClient(base_url=sidecar.url, timeout=60, trust_env=False) as http,
    ):
        for turns in range(1, 5):
            body = {"model": "auto", "messages": talk(name, turns), "max_tokens": 2}
            answer = await http.post(CHAT, json=body)
            assert answer.status_code == 200, answer.text
            usage = answer.json()["usage"]
            found.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
    return found


async def test_less_goes_through_prefill_and_no_prefix_is_lost(flagged: Any) -> None:
    whole = await uncached(flagged.url, "flights", "off")
    pruned = await uncached(flagged.url, "journeys", "on")
    print(f"uncached prompt tokens of each turn: {whole} whole, {pruned} pruned")
    assert sum(pruned) < 0.9 * sum(whole)
    assert all(less <= more + 16 for less, more in zip(pruned, whole, strict=True))

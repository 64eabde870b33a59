"""Real requests, judged by what ships: the tier and the reason for each."""

from typing import Any

import pytest

from tier_router.config import parse
from tier_router.router import TierRouter

ROUTER = TierRouter(
    parse("""
tiers:
  - {name: light, model: m8, replicas: [http://a], context: 32000}
  - {name: heavy, model: m70, replicas: [http://b], context: 128000,
     can: [tools, json, vision, reasoning, logprobs]}
""")
)
HARD = "Prove that a continuous function on a compact set is uniformly continuous."
LOG = "\n".join(
    f"2026-11-30 10:{n // 60 % 60:02}:{n % 60:02},123 ERROR [worker-{n % 8}] lost quorum, "
    f"deadlock in lock manager, proof of inclusion failed for block {n}"
    for n in range(1_600)
)
CODE = (
    "```python\n" + "def prove(theorem, lemma):\n    return derive(theorem, lemma)\n" * 40 + "```"
)
DATA_URL = "data:image/png;base64," + "iVBORw0KGgo" * 400_000
IMAGE = {
    "type": "image_url",
    "image_url": {"url": DATA_URL},
}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = "Done.") -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def route(*messages: dict[str, Any], **more: Any) -> tuple[str, list[str]]:
    decision = ROUTER.decide(ROUTER.view({"messages": list(messages), **more}))
    return decision.tier, [reason.value for reason in decision.reasons]


@pytest.mark.parametrize(
    ("messages", "tier", "reason"),
    [
        ([user("hi")], "light", "easy"),
        ([user([{"type": "text", "text": "hi"}])], "light", "easy"),
        ([user([{"type": "input_text", "text": "what's the weather like?"}])], "light", "easy"),
        ([user(HARD)], "heavy", "hard"),
        ([user([{"type": "input_text", "text": HARD}])], "heavy", "hard"),
        # nothing that could be judged goes up
        ([user(None)], "heavy", "unsure"),
        ([user("")], "heavy", "unsure"),
        ([{"role": "system", "content": HARD}], "heavy", "unsure"),
        ([{"role": "developer", "content": "Be kind."}], "heavy", "unsure"),
        # an image alone, and one with a question
        ([user(HARD), assistant(), user([IMAGE])], "heavy", "media"),
        ([user([{"type": "text", "text": "what colour is it?"}, IMAGE])], "heavy", "easy"),
        # the system prompt is not the question
        ([{"role": "system", "content": f"You prove theorems. {CODE}" * 5}, user("hi")], "light",
         "easy"),
        ([{"role": "developer", "content": HARD}, user("thanks!")], "light", "easy"),
        # harness noise is not the question
        ([user(f"<system-reminder>{HARD * 30}</system-reminder>\nhello")], "light", "easy"),
        ([user(f"<system-reminder>Be nice.</system-reminder>\n{HARD}")], "heavy", "hard"),
        # conversations
        ([user(HARD), assistant("Shall I go on?"), user("yes, do it")], "heavy", "continues"),
        ([user("hi"), assistant(), user("yes, do it")], "light", "continues"),
        ([user(HARD), assistant(), user("thanks!")], "light", "easy"),
        ([user("hi"), assistant(), user(HARD)], "heavy", "hard"),
        # tools
        ([user(HARD), assistant(None) | {"tool_calls": [{"id": "1", "type": "function",
          "function": {"name": "f", "arguments": "{}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": LOG[:5_000]}], "heavy", "tool_turn"),
        ([user("what time is it?"), assistant([{"type": "tool_use", "id": "t", "name": "clock",
          "input": {}}]), user([{"type": "tool_result", "tool_use_id": "t",
          "content": LOG[:5_000]}])], "light", "tool_turn"),
        # pasted material
        ([user(f"{LOG}\n\nwhy?")], "heavy", None),
        ([user(f"rename this function to total\n\n{CODE}")], "light", "easy"),
        ([user(f"translate the word 'house' into German\n\n{CODE}")], "light", "easy"),
        # what a client asks on its own behalf
        ([user(f"Generate a short 3-5 word title for this conversation:\n\nUSER: {HARD * 20}")],
         "light", "housekeeping"),
        # other scripts
        ([user("你好")], "light", "easy"),
        ([user("谢谢你")], "light", "easy"),
        ([user("证明每个有界单调数列都收敛。")], "heavy", "hard"),
        ([user("شكرا جزيلا")], "light", "easy"),
        ([user("أثبت أن مجموع زوايا المثلث يساوي 180 درجة")], "heavy", "hard"),
        ([user("จงพิสูจน์ว่ารากที่สองของสองเป็นจำนวนอตรรกยะ")], "heavy", "unsure"),
        ([user("спасибо")], "light", "easy"),
        ([user("Докажите, что корень из двух иррационален.")], "heavy", "hard"),
    ],
)  # fmt: skip
def test_a_request_goes_where_a_person_would_send_it(
    messages: list[dict[str, Any]], tier: str, reason: str | None
) -> None:
    went, reasons = route(*messages)
    assert went == tier, reasons
    assert reason is None or reason in reasons


@pytest.mark.parametrize("text", ["👍", "🙏🙏", "😂"])
def test_an_emoji_needs_no_large_model_or_goes_up_as_unsure(text: str) -> None:
    tier, reasons = route(user(text))
    assert tier == "light" or "unsure" in reasons


def test_other_shapes_of_bodies() -> None:
    def where(body: dict[str, Any]) -> str:
        return ROUTER.decide(ROUTER.view(body)).tier

    assert where({"prompt": "hi"}) == "light"
    assert where({"prompt": HARD}) == "heavy"
    assert where({"prompt": [1, 2, 3]}) == "heavy", "tokens cannot be read"
    assert where({"input": "hi", "instructions": HARD}) == "light"
    assert where(
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": HARD}]}]}
    ) == ("heavy")
    assert where({"system": HARD, "messages": [user("hi")], "max_tokens": 10}) == "light"
    assert where({"messages": [user("hi")], "n": 4}) == "light"


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x01\x02",
        "\ud800",
        "a" * 100_000,
        "\u202e\u202d" * 50,
        "🙂" * 5_000,
        "\n" * 9_000,
        "?" * 999,
    ],
)
def test_no_text_breaks_it(text: str) -> None:
    assert route(user(text))[0] in ("light", "heavy")

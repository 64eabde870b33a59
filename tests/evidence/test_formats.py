"""Each kind of log, as it looks in the wild, is recognised and read."""

import json
from typing import Any

import pytest

from tier_router.errors import RequestError
from tier_router.evidence.formats import Asked, Format, reader_of, sniff

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
DECISION = {"v": 1, "at": 3.5, "id": "r", "door": "sidecar", "tier": "light", "ttft": 0.1,
            "usage": {"prompt": 9, "completion": 5, "cached": 2}}  # fmt: skip
SPEND = {
    "request_id": "chatcmpl-1", "call_type": "acompletion", "spend": 0.1, "model": "m8",
    "startTime": "2026-03-01T10:00:00+00:00", "completionStartTime": "2026-03-01T10:00:00.250Z",
    "endTime": "2026-03-01T10:00:02Z", "prompt_tokens": 12, "completion_tokens": 34,
    "messages": json.dumps(CHAT["messages"]), "proxy_server_request": "{}",
}  # fmt: skip
VLLM = (
    "INFO 03-01 10:00:00 [logger.py:39] Received request chatcmpl-7: prompt: '<|im_start|>system\\n"
    "Be brief.<|im_end|>\\n<|im_start|>user\\nhello there<|im_end|>\\n<|im_start|>assistant\\n', "
    "params: SamplingParams(n=1, temperature=0.7, max_tokens=77, min_tokens=0), "
    "prompt_token_ids: None, prompt_embeds shape: None, lora_request: None."
)
VLLM_DETAILS = (
    "DEBUG 03-01 10:00:00 [entrypoints/logger.py:42] Request chatcmpl-7 details: prompt: "
    '"what\'s my balance", prompt_token_ids: None, prompt_embeds shape: None.'
)


def read(format: Format, line: Any) -> Asked | None:
    text = line if isinstance(line, str) else json.dumps(line)
    return reader_of(format)(text.encode())


@pytest.mark.parametrize(
    ("lines", "format"),
    [
        ([json.dumps(DECISION)], Format.DECISIONS),
        ([json.dumps(CHAT)], Format.OPENAI),
        ([json.dumps({"custom_id": "1", "body": CHAT})], Format.OPENAI),
        ([json.dumps(CHAT["messages"])], Format.OPENAI),
        ([json.dumps(SPEND)], Format.LITELLM),
        (["INFO 03-01 10:00:00 [api.py:1] Started", VLLM], Format.VLLM),
        (["what is my balance", "", "1234"], Format.PLAIN),
        (['"a prompt as JSON"'], Format.PLAIN),
        (["{broken", json.dumps(CHAT), json.dumps(CHAT)], Format.OPENAI),
    ],
)
def test_the_format_is_seen_from_the_first_lines(lines: list[str], format: Format) -> None:
    assert sniff(line.encode() for line in lines) is format


def test_a_decision_keeps_its_times_and_tokens() -> None:
    asked = read(Format.DECISIONS, DECISION)
    assert asked is not None
    assert asked.record is not None
    assert (asked.at, asked.ttft, asked.prompt, asked.cached, asked.completion) == (
        3.5, 0.1, 9, 2, 5,
    )  # fmt: skip


@pytest.mark.parametrize("key", ["body", "request"])
def test_a_request_is_found_in_its_record(key: str) -> None:
    answer = {"body": {"usage": {"prompt_tokens": 7, "completion_tokens": 8}}}
    line = {"id": "x", "timestamp": "2026-03-01T10:00:00Z", key: CHAT, "response": answer}
    asked = read(Format.OPENAI, line)
    assert asked is not None
    assert asked.body == CHAT
    assert (asked.id, asked.at, asked.prompt, asked.completion) == ("x", 1772359200.0, 7, 8)


def test_times_may_be_seconds_milliseconds_or_text() -> None:
    for told in (1772359200, 1772359200000, "2026-03-01T10:00:00", "2026-03-01T11:00:00+01:00"):
        asked = read(Format.OPENAI, {**CHAT, "created": told})
        assert asked is not None
        assert asked.at == 1772359200.0


def test_a_spend_log_gives_prompt_times_and_tokens() -> None:
    asked = read(Format.LITELLM, SPEND)
    assert asked is not None
    assert asked.body == {"messages": CHAT["messages"]}
    assert (asked.ttft, asked.latency, asked.prompt, asked.completion) == (0.25, 2.0, 12, 34)


def test_a_spend_log_without_prompts_says_what_to_set() -> None:
    with pytest.raises(RequestError, match="store_prompts_in_spend_logs"):
        read(Format.LITELLM, {**SPEND, "messages": "{}"})
    sent = json.dumps({"model": "auto", **CHAT})
    asked = read(Format.LITELLM, {**SPEND, "messages": "{}", "proxy_server_request": sent})
    assert asked is not None
    assert asked.body == {"messages": CHAT["messages"]}


def test_a_spend_log_s_embeddings_are_no_requests_of_the_ladder() -> None:
    assert read(Format.LITELLM, {**SPEND, "call_type": "aembedding"}) is None


def test_vllm_s_log_gives_the_turns_that_the_template_hides() -> None:
    asked = read(Format.VLLM, VLLM)
    assert asked is not None
    assert asked.body == {"messages": CHAT["messages"], "max_tokens": 77}
    assert asked.id == "chatcmpl-7"
    details = read(Format.VLLM, VLLM_DETAILS)
    assert details is not None
    assert details.body == {"messages": [{"role": "user", "content": "what's my balance"}]}
    assert read(Format.VLLM, "INFO 03-01 10:00:00 [loggers.py:9] Avg prompt throughput") is None


@pytest.mark.parametrize(
    ("format", "line", "told"),
    [
        (Format.OPENAI, "{", "not JSON"),
        (Format.OPENAI, "{}", "no `messages`"),
        (Format.OPENAI, "7", "a line is a text"),
        (Format.OPENAI, '{"request": "{"}', "not JSON"),
        (Format.DECISIONS, '{"v": 1}', "not a decision record.*`at`"),
        (Format.LITELLM, "[]", "a spend log's line is an object"),
        (Format.OPENAI, "[" * 100_000, "not JSON"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(format: Format, line: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        read(format, line)

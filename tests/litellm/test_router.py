"""The callback in the real `litellm.Router`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import litellm
import openai

from tests.litellm.tools import EASY, HARD, Counting, Stage, chat, eventually, router_of
from tier_router import Ledger, TierRouter
from tier_router.litellm import TierCallback
from tier_router.testing import (
    BUSY,
    DEAD,
    CloseBeforeAnswer,
    ErrorMidStream,
    Hang,
    Reset,
    Status,
)


def listen(stage: Stage, **more: Any) -> TierCallback:
    """The callback of this stage's configuration, at work."""
    callback = TierCallback(router_of(stage.config(**more)))
    litellm.callbacks = [callback]
    return callback


def idle(ledger: Ledger) -> bool:
    """Whether nothing is open."""
    return not any(ledger.in_flight(name) for name in ("light-0", "light-1", "heavy-0"))


@pytest.mark.parametrize(("text", "tier"), [(EASY, "light"), (HARD, "heavy")])
@pytest.mark.parametrize("kind", ["chat", "stream", "text", "responses", "messages"])
async def test_each_kind_of_call_goes_to_its_tier(
    stage: Stage, kind: str, text: str, tier: str
) -> None:
    ledger = listen(stage).brain.router.ledger
    router = stage.router(stage.config())
    if kind == "chat":
        await router.acompletion(model="auto", messages=chat(text))
    elif kind == "stream":
        stream = await router.acompletion(model="auto", messages=chat(text), stream=True)
        assert [chunk async for chunk in stream]
    elif kind == "text":
        await router.atext_completion(model="auto", prompt=text)
    elif kind == "responses":
        await router.aresponses(model="auto", input=text)
    else:
        await router.aanthropic_messages(model="auto", messages=chat(text), max_tokens=5)
    assert stage.tiers() == {tier: 1}
    await eventually(lambda: idle(ledger))


async def test_embeddings_are_left_to_litellm(stage: Stage) -> None:
    callback = listen(stage)
    router = stage.router(stage.config())
    for _ in range(4):
        await router.aembedding(model="auto", input=[HARD])
    assert sum(stage.served().values()) == 4
    brain = callback.brain
    assert not any(brain.router.ledger.in_flight(name) for name in ("light-0", "heavy-0"))


@pytest.mark.parametrize(
    "fault", [BUSY, DEAD, Status(500), Status(502), Reset(), CloseBeforeAnswer()]
)
async def test_a_failure_is_retried_on_another_replica(stage: Stage, fault: Any) -> None:
    listen(stage)
    router = stage.router(stage.config())
    for fake in stage.light:
        fake.faults.add(fault, None)
    answer = await router.acompletion(model="auto", messages=chat(EASY))
    assert answer.choices[0].message.content
    assert stage.served() == {"light-0": 1, "light-1": 1, "heavy-0": 1}


async def test_one_request_is_judged_once(stage: Stage) -> None:
    counting = Counting()
    litellm.callbacks = [TierCallback(TierRouter(stage.config(), lambda _: counting))]
    router = stage.router(stage.config())
    for fake in stage.light:
        fake.faults.add(BUSY)
    await router.acompletion(model="auto", messages=chat(EASY))
    assert sum(stage.served().values()) == 3
    assert counting.asked == 1


async def test_all_down_is_litellms_error_and_falls_back(stage: Stage) -> None:
    listen(stage)
    router = stage.router(stage.config(), fallbacks=[{"auto": ["backup"]}])
    for fake in (*stage.light, stage.heavy):
        fake.faults.add(BUSY, None)
    answer = await router.acompletion(model="auto", messages=chat(EASY))
    assert answer.choices[0].message.content
    assert stage.served() == {"light-0": 1, "light-1": 1, "heavy-0": 1, "backup-0": 1}
    stage.backup.faults.add(BUSY, None)
    with pytest.raises(litellm.ServiceUnavailableError):
        await router.acompletion(model="auto", messages=chat(EASY))


async def test_a_cooled_down_tier_is_left_and_comes_back(stage: Stage) -> None:
    callback = listen(stage)
    router = stage.router(stage.config(), allowed_fails=0, cooldown_time=1, num_retries=0)
    callback.brain.learn("auto", router.model_list)
    for fake in stage.light:
        fake.faults.add(Status(500))
    for _ in range(2):
        with pytest.raises(litellm.InternalServerError):
            await router.acompletion(model="auto", messages=chat(EASY))
    stage.forget()
    await router.acompletion(model="auto", messages=chat(EASY))
    assert stage.tiers() == {"heavy": 1}
    await asyncio.sleep(1.2)
    stage.forget()
    await router.acompletion(model="auto", messages=chat(EASY))
    assert stage.tiers() == {"light": 1}


async def test_aliases_pin_what_the_configuration_says(stage: Stage) -> None:
    listen(stage)
    router = stage.router(stage.config())
    for name, tier in {
        "gpt-4o": "light",
        "heavy": "heavy",
        "m70": "heavy",
        "light": "light",
    }.items():
        stage.forget()
        await router.acompletion(model=name, messages=chat(EASY))
        assert stage.tiers() == {tier: 1}, name


async def test_foreign_groups_are_left_alone(stage: Stage) -> None:
    listen(stage)
    router = stage.router(stage.config())
    await router.acompletion(model="backup", messages=chat(HARD))
    assert stage.served() == {"backup-0": 1}


async def test_the_header_pins_in_process(stage: Stage) -> None:
    listen(stage)
    router = stage.router(stage.config())
    await router.acompletion(
        model="auto", messages=chat(EASY), extra_headers={"X-Tier-Router-Tier": "heavy"}
    )
    assert stage.tiers() == {"heavy": 1}


async def test_metadata_does_not_steer(stage: Stage) -> None:
    callback = listen(stage)
    router = stage.router(stage.config())
    forged = {
        "tier_router_tier": "heavy", "x-tier-router-tier": "heavy", "gpu_tier": "heavy",
        "tier_router": {"tier": "heavy"}, "headers": {"x-tier-router-tier": "heavy"},
        callback.brain.visits._key: "guessed",
    }  # fmt: skip
    await router.acompletion(model="auto", messages=chat(EASY), metadata=forged)
    assert stage.tiers() == {"light": 1}


async def test_a_prompt_too_long_for_light_goes_up(stage: Stage) -> None:
    small = {"light": {"context": 1000}, "heavy": {"context": 100_000}}
    listen(stage, tiers=small)
    router = stage.router(stage.config(small), enable_pre_call_checks=True)
    await router.acompletion(model="auto", messages=chat("word " * 2_000))
    assert stage.tiers() == {"heavy": 1}


async def test_a_deployments_own_context_counts(stage: Stage) -> None:
    listen(stage)
    document = stage.document(stage.config())
    for deployment in document["model_list"][:2]:
        deployment["model_info"]["max_input_tokens"] = 1000
    router = litellm.Router(model_list=document["model_list"])
    await router.acompletion(model="auto", messages=chat("word " * 2_000))
    assert stage.tiers() == {"heavy": 1}


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": None}],
                                      [{"role": "system", "content": "be kind"}]])  # fmt: skip
async def test_what_cannot_be_judged_is_answered(stage: Stage, messages: Any) -> None:
    listen(stage)
    router = stage.router(stage.config())
    try:
        await router.acompletion(model="auto", messages=messages)
    except litellm.BadRequestError:
        assert messages == []
    assert sum(stage.served().values()) == 1


async def test_a_fault_of_ours_costs_the_choice_not_the_answer(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = listen(stage)
    router = stage.router(stage.config())

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(callback.brain.router, "judge", broken)
    for _ in range(3):
        await router.acompletion(model="auto", messages=chat(EASY))
    assert sum(stage.served().values()) == 3
    said = [record for record in caplog.records if record.name == "tier_router.litellm"]
    assert len(said) == 1
    assert "left to LiteLLM: ours" in said[0].getMessage()


async def test_unmatched_tiers_are_told_once_with_both_sides(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    listen(stage)
    document = stage.document(stage.config())
    for deployment in document["model_list"][:3]:
        deployment["model_info"]["gpu_tier"] = "gigantic"
    router = litellm.Router(model_list=document["model_list"])
    for _ in range(2):
        await router.acompletion(model="auto", messages=chat(EASY))
    said = [r.getMessage() for r in caplog.records if r.name == "tier_router.litellm"]
    assert len(said) == 1
    assert "light, heavy" in said[0]
    assert "gigantic" in said[0]


async def test_a_busy_tier_is_left_by_what_is_not_hard(stage: Stage) -> None:
    limits = {"light": {"limits": {"requests": 2, "tokens": 100_000}}}
    callback = listen(stage, tiers=limits)
    router = stage.router(stage.config())
    for fake in stage.light:
        fake.faults.add(Hang(), None)
    hanging = [
        asyncio.create_task(router.acompletion(model="auto", messages=chat(f"{EASY} {n}")))
        for n in range(4)
    ]
    await eventually(lambda: stage.tiers().get("light") == 4)
    assert stage.served() == {"light-0": 2, "light-1": 2}
    await router.acompletion(model="auto", messages=chat(EASY))
    assert stage.tiers() == {"light": 4, "heavy": 1}
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    await eventually(lambda: idle(callback.brain.router.ledger))


async def test_leases_close_with_answers_streams_and_failures(stage: Stage) -> None:
    callback = listen(stage)
    ledger = callback.brain.router.ledger
    router = stage.router(stage.config())
    await router.acompletion(model="auto", messages=chat(EASY))
    await eventually(lambda: idle(ledger))
    stream = await router.acompletion(model="auto", messages=chat(HARD), stream=True)
    assert ledger.in_flight("heavy-0") == 1
    assert [chunk async for chunk in stream]
    await eventually(lambda: idle(ledger))
    for fake in stage.light:
        fake.faults.add(Status(500))
    await router.acompletion(model="auto", messages=chat(EASY))
    await eventually(lambda: idle(ledger))


async def test_the_decision_is_in_litellms_own_record(stage: Stage) -> None:
    callback = listen(stage)
    records: list[dict[str, Any]] = []

    class Log(litellm.integrations.custom_logger.CustomLogger):
        async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
            records.append(kwargs["standard_logging_object"])

    litellm.callbacks = [callback, Log()]
    router = stage.router(stage.config())
    await router.acompletion(model="auto", messages=chat(HARD), metadata={"tags": ["mine"]})
    await eventually(lambda: bool(records))
    decision = records[0]["metadata"]["routing_decision"]
    assert decision["tier"] == "heavy"
    assert decision["router_model_name"] == "auto"
    assert decision["signals"] == ["hard"]
    assert records[0]["request_tags"][:2] == ["mine", "tier-router:heavy"]


async def test_tag_routing_does_not_see_our_tags(stage: Stage) -> None:
    listen(stage)
    router = stage.router(stage.config(), enable_tag_filtering=True)
    for fake in stage.light:
        fake.faults.add(BUSY)
    await router.acompletion(model="auto", messages=chat(EASY))
    assert stage.tiers() == {"light": 2, "heavy": 1}


async def test_a_deployment_over_its_rate_limit_is_one_that_failed(stage: Stage) -> None:
    listen(stage)
    document = stage.document(stage.config())
    for deployment in document["model_list"][:2]:
        deployment["litellm_params"]["rpm"] = 1
    router = litellm.Router(
        model_list=document["model_list"], routing_strategy="usage-based-routing-v2",
        num_retries=2, retry_after=0,
    )  # fmt: skip
    for n in range(4):
        await router.acompletion(model="auto", messages=chat(f"{EASY} {n}"))
    assert sum(stage.served().values()) == 4


@pytest.mark.parametrize("fault", [ErrorMidStream(2), Reset(after_chunks=2)])
async def test_a_stream_that_breaks_gives_its_place_back(stage: Stage, fault: Any) -> None:
    ledger = listen(stage).brain.router.ledger
    router = stage.router(stage.config())
    for fake in stage.light:
        fake.faults.add(fault)
    try:
        stream = await router.acompletion(model="auto", messages=chat(EASY), stream=True)
        async for _ in stream:
            pass
    except openai.OpenAIError:  # what LiteLLM's errors have in common
        pass
    await eventually(lambda: idle(ledger))

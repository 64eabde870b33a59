"""Pruned bodies on their way through the sidecar, and what their answers prove."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.sidecar.scripted import Asked, Scripted, json_answer, scripted
from tests.unit.prune.tools import called, chat, retrieved, user
from tier_router.config.pruning import Step
from tier_router.errors import ConfigError
from tier_router.prune.audit import Audit, Finding
from tier_router.prune.plan import Edit, Plan, Template
from tier_router.prune.report import Tally
from tier_router.testing import FakeVllm
from tier_router_proxy.pruning_metrics import SERIES
from tier_router_proxy.sidecar import Sidecar

PATH = "/v1/chat/completions"
PRETTY = json.dumps([{"id": n, "name": f"row {n}"} for n in range(40)], indent=4)
FOLDABLE = chat(user("which rows are there?"), called("1", "look", PRETTY))
ON: dict[str, Any] = {"mode": "on", "holdout": 0, "budget_ms": 2_000}
RAG_ON = {**ON, "steps": {"rag": "on"}, "promote": {"unproven": ["rag"]}}
OBSERVE: dict[str, Any] = {"mode": "observe", "budget_ms": 2_000}
QUESTION = chat(user(retrieved("What is a Clarinet?")))


def sent(fake: FakeVllm) -> list[dict[str, Any]]:
    """The chats that a replica was sent, as it read them."""
    return [json.loads(each.raw) for each in fake.requests if each.route == PATH]


def all_sent(stage: Any) -> list[dict[str, Any]]:
    return [body for fake in stage.fakes for body in sent(fake)]


def counted(stage: Any, name: str, tier: str = "light", step: str = "") -> float | None:
    """A number of the sidecar's metrics."""
    labels = {"tier": tier, "step": step}
    found: float | None = stage.sidecar.metrics.registry.get_sample_value(
        f"tier_router_{name}_total", labels
    )
    return found


async def test_off_sends_the_bytes_that_it_always_sent(stage: Any) -> None:
    await stage.serve()
    answer = await stage.http.post(PATH, json=FOLDABLE)
    assert all_sent(stage)[0]["messages"] == FOLDABLE["messages"]
    assert "x-tier-router-pruned" not in answer.headers
    assert stage.sidecar.router.trimming(None, {}) is None
    assert counted(stage, "pruning_requests") is None


async def test_a_tool_result_goes_out_folded_and_the_client_is_told(stage: Any) -> None:
    await stage.serve(pruning=ON)
    answer = await stage.http.post(PATH, json=FOLDABLE)
    assert answer.status_code == 200
    (body,) = all_sent(stage)
    assert body["messages"][:2] == FOLDABLE["messages"][:2]
    assert body["messages"][2]["content"] == msgspec.json.format(PRETTY, indent=-1)
    assert answer.headers["x-tier-router-pruned"].startswith("fold=-")
    assert counted(stage, "uncached_tokens_avoided") > 100
    assert counted(stage, "tokens_removed", step="fold") > 100
    assert counted(stage, "prefix_regressions") is None


async def test_what_is_not_pruned_keeps_its_bytes(stage: Any) -> None:
    await stage.serve(pruning=ON)
    odd = b'{"role":"user","content":"\\u0041\\/b", "weight": 1.50e+03}'
    calls = json.dumps(called("1", "look", PRETTY))[1:-1].encode()
    raw = b'{"model":"auto", "seed": 12345678901234567890123, "messages":[%s, %s]}' % (odd, calls)
    answer = await stage.http.post(PATH, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    (request,) = [r for fake in stage.fakes for r in fake.requests if r.route == PATH]
    assert odd in request.raw
    assert b"12345678901234567890123" in request.raw
    assert b'"messages"' in request.raw
    assert len(request.raw) < len(raw)


@pytest.mark.parametrize("said", ["off", "observe"])
async def test_a_client_may_ask_for_less(stage: Any, said: str) -> None:
    await stage.serve(pruning=ON)
    headers = {"x-tier-router-pruning": said}
    answer = await stage.http.post(PATH, json=FOLDABLE, headers=headers)
    assert all_sent(stage)[0]["messages"] == FOLDABLE["messages"]
    assert "x-tier-router-pruned" not in answer.headers
    (request,) = [r for fake in stage.fakes for r in fake.requests if r.route == PATH]
    assert request.header("x-tier-router-pruning") is None, "it is for the router alone"


async def test_other_shapes_are_left_alone(stage: Any) -> None:
    await stage.serve(pruning=ON)
    body = {"model": "auto", "max_tokens": 5, "messages": FOLDABLE["messages"][:1]}
    assert (await stage.http.post("/v1/messages", json=body)).status_code == 200
    assert counted(stage, "pruning_requests") is None


async def test_a_failover_plans_anew_for_the_other_replica(stage: Any) -> None:
    """The first replica had the conversation whole, so there it stays whole; the next had none."""
    await stage.serve(pruning=ON, log={"path": "/dev/null"})
    whole = {"x-tier-router-pruning": "off"}
    first = await stage.http.post(PATH, json=FOLDABLE, headers=whole)
    home = first.headers["x-tier-router-replica"]
    warm = await stage.http.post(PATH, json=FOLDABLE)
    assert warm.headers["x-tier-router-replica"] == home
    assert "x-tier-router-pruned" not in warm.headers
    await stage.light[int(home[-1])].stop()
    moved = await stage.http.post(PATH, json=FOLDABLE)
    assert moved.headers["x-tier-router-replica"] != home
    assert "failover" in moved.headers["x-tier-router-reason"]
    assert moved.headers["x-tier-router-pruned"].startswith("fold=-")


def test_all_that_a_tally_counts_is_shown() -> None:
    tally, shown = Tally(), set()
    tally.listener = lambda name, *_: shown.add(name)
    edit = Edit(Step.FOLD, "fold", ("messages", 0, "content"), "", 9, 1, True)
    regressed = Plan("light", edits=(edit,), uncached_after=99, fits=True, heldout=True)
    tally.planned(replace(regressed, failed="budget"))
    tally.planned(regressed)
    tally.answered(regressed)
    tally.misfired("light")
    tally.audited(Audit("light", None, (Finding(Step.RAG, True),)))
    tally.regressed(replace(regressed, tokens_after=999), cached=0)
    assert shown == SERIES.keys()


# ---- what answers prove


async def answering(stage: Any, text: str) -> None:
    """One light replica that answers with `text`."""
    fake = FakeVllm("m8", answer=lambda _: text)
    stage.light = [await stage.stack.enter_async_context(fake)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("says", "lost"),
    [
        ("A woodwind instrument with a single reed.", False),
        ("It is not far from the east coast of Sicily, in Italy, I read.", True),
    ],
)
async def test_observing_proves_by_the_answer_and_keeps_the_proof(
    stage: Any, tmp_path: Path, stream: bool, says: str, lost: bool
) -> None:
    await answering(stage, says)
    log, proofs = tmp_path / "d.jsonl", tmp_path / "proofs.json"
    await stage.serve(log=str(log), pruning={**OBSERVE, "proofs": str(proofs)})
    answer = await stage.http.post(PATH, json={**QUESTION, "stream": stream})
    assert answer.status_code == 200
    assert sent(stage.light[0])[0]["messages"] == QUESTION["messages"]
    await stage.sidecar.stop()
    (line,) = [json.loads(each) for each in log.read_text().splitlines()]
    (found,) = line["pruning"]["audit"]
    assert (found["step"], found["lost"]) == ("rag", lost)
    assert "Sicily" not in log.read_text()
    (row,) = json.loads(proofs.read_text())["rows"]
    assert (row["step"], row["tier"], row["audits"], row["lost"]) == ("rag", "light", 1, int(lost))
    assert counted(stage, "audits", step="rag") == 1
    assert counted(stage, "audit_loss", step="rag") == int(lost)


async def test_proofs_survive_a_restart_and_add_up(stage: Any, tmp_path: Path) -> None:
    await answering(stage, "A woodwind instrument.")
    proofs = tmp_path / "proofs.json"
    for _ in range(2):
        await stage.serve(pruning={**OBSERVE, "proofs": str(proofs)})
        await stage.http.post(PATH, json=QUESTION)
        await stage.sidecar.stop()
    (row,) = json.loads(proofs.read_text())["rows"]
    assert row["audits"] == 2


async def test_a_lossy_step_does_not_start_without_its_proof(stage: Any, tmp_path: Path) -> None:
    unproven = {**ON, "steps": {"rag": "on"}, "proofs": str(tmp_path / "proofs.json")}
    with pytest.raises(ConfigError, match=r"needs 600 audits .* there are 0, loss up to 100.0%"):
        Sidecar(stage.config(pruning=unproven))
    await stage.serve()
    with pytest.raises(ConfigError, match=r"pruning.steps.rag"):
        await stage.sidecar.reload(stage.config(pruning=unproven))
    await stage.http.post(PATH, json=FOLDABLE)
    assert all_sent(stage)[0]["messages"] == FOLDABLE["messages"], "the old settings stay"


async def test_a_step_without_proof_can_be_forced_and_that_is_logged(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tier_router"):
        await stage.serve(pruning=RAG_ON)
    assert "pruning step `rag` is on for tier `light` without proof" in caplog.text
    answer = await stage.http.post(PATH, json=QUESTION)
    assert "rag=-" in answer.headers["x-tier-router-pruned"]
    assert "Sicily" not in all_sent(stage)[0]["messages"][0]["content"]


# ---- the context guard


async def test_a_request_that_fits_by_pruning_alone_stays_with_the_smaller_tier(
    stage: Any,
) -> None:
    rows = json.dumps([{"id": n, "name": f"row {n}"} for n in range(150)], indent=16)
    body = chat(user("which rows are there?"), called("1", "look", rows))
    tiers = [
        {"name": "light", "model": "m8", "replicas": [stage.light[0].url], "context": 2_400},
        {"name": "heavy", "model": "m70", "replicas": [stage.heavy.url], "context": 64_000},
    ]
    await stage.serve(tiers=tiers)
    answer = await stage.http.post(PATH, json=body)
    assert answer.headers["x-tier-router-tier"] == "heavy"
    await stage.sidecar.stop()
    await stage.serve(tiers=tiers, pruning=ON)
    answer = await stage.http.post(PATH, json=body)
    assert answer.status_code == 200
    assert answer.headers["x-tier-router-tier"] == "light"
    assert counted(stage, "escalations_avoided") == 1
    again = {"x-tier-router-pruning": "off"}
    answer = await stage.http.post(PATH, json=body, headers=again)
    assert answer.headers["x-tier-router-tier"] == "heavy", "nothing may be taken out"


# ---- thinking


def thinker(silent_when_off: bool) -> Callable[[Asked], AsyncIterator[bytes]]:
    """A model that thinks unless told not to; with a broken parser all is thought then."""

    def answer(asked: Asked) -> bytes:
        body = json.loads(asked.body)
        off = body.get("chat_template_kwargs", {}).get("enable_thinking") is False
        if asked.target == "/tokenize":
            start = list(range(200))
            return json_answer(json.dumps({"tokens": [*start, 7] if off else start}).encode())
        message = {"role": "assistant", "content": "four", "reasoning": None if off else "hm"}
        if off and silent_when_off:
            message = {"role": "assistant", "content": None, "reasoning": "four"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_answer(json.dumps({"choices": [choice]}).encode())

    async def reply(asked: Asked) -> AsyncIterator[bytes]:
        yield answer(asked)

    return reply


def switched(script: Scripted) -> list[Any]:
    """What each chat said of thinking."""
    return [
        json.loads(asked.body).get("chat_template_kwargs")
        for asked in script.asked
        if asked.target == PATH
    ]


async def serve_one(stage: Any, script: Scripted, **pruning: Any) -> None:
    tiers = [
        {"name": "light", "model": "m8", "replicas": [script.url]},
        {"name": "heavy", "model": "m70", "replicas": [stage.heavy.url]},
    ]
    await stage.serve(tiers=tiers, pruning={**ON, **pruning})


async def test_thinking_is_off_for_easy_requests_once_the_template_was_asked(
    stage: Any, eventually: Any
) -> None:
    async with scripted(thinker(False)) as script:
        await serve_one(stage, script)
        templates = stage.sidecar.router.pruner._templates
        await eventually(lambda: "light" in templates)
        assert templates["light"] == (Template.TAIL, True)
        answer = await stage.ask("two and two?")
        assert answer.headers["x-tier-router-pruned"] == "reasoning=1"
        await stage.ask("two and two?", chat_template_kwargs={"enable_thinking": True})
        await stage.ask("prove it")
    assert switched(script) == [{"enable_thinking": False}, {"enable_thinking": True}]


async def test_an_answer_that_came_back_empty_is_asked_for_once_more(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(thinker(True)) as script:
        await serve_one(stage, script, tiers={"light": {"template": "tail"}})
        answer = await stage.ask("two and two?")
        assert answer.json()["choices"][0]["message"]["content"] == "four"
        assert "x-tier-router-pruned" not in answer.headers
        assert (await stage.ask("two and three?")).status_code == 200
    assert switched(script) == [{"enable_thinking": False}, None, None]
    assert "answers nothing with thinking off" in caplog.text
    assert counted(stage, "thinking_misfires") == 1
    ledger = stage.sidecar.router.ledger
    assert ledger.open_on("light-0") == 0


async def test_a_stream_that_came_back_empty_teaches_the_next_request(
    stage: Any, eventually: Any
) -> None:
    events = [
        b'data: {"choices":[{"index":0,"delta":{"reasoning":"four"},"finish_reason":null}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"

    async def reply(_: Asked) -> AsyncIterator[bytes]:
        yield head % len(b"".join(events))
        for event in events:
            yield event

    async with scripted(reply) as script:
        await serve_one(stage, script, tiers={"light": {"template": "tail"}})
        assert (await stage.ask("two and two?", stream=True)).content == b"".join(events)
        await eventually(lambda: counted(stage, "thinking_misfires") == 1)
        await stage.ask("two and two?", stream=True)
    assert switched(script) == [{"enable_thinking": False}, None]

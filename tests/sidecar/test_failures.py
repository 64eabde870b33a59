"""What goes wrong upstream, and what the client sees of it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tier_router.ledger import Outcome
from tier_router.pace import Script
from tier_router.testing import faults

CHAT = "/v1/chat/completions"
HELLO = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
BEFORE_THE_ANSWER = [
    faults.BUSY,
    faults.TOO_MANY,
    faults.DRAINING,
    faults.DEAD,
    faults.BAD_GATEWAY,
    faults.Reset(after_chunks=0),
    faults.CloseBeforeAnswer(),
    faults.Garbage(),
]


async def counters(stage: Any) -> dict[str, float]:
    """The sidecar's metrics by line."""
    lines = (await stage.http.get("/metrics")).text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


@pytest.mark.parametrize("fault", BEFORE_THE_ANSWER, ids=repr)
@pytest.mark.parametrize("stream", [False, True])
async def test_another_replica_takes_over(stage: Any, fault: Any, stream: bool) -> None:
    await stage.serve()
    first = (await stage.ask()).headers["x-tier-router-replica"]
    broken = stage.light[int(first[-1])]
    # a kept connection that dies without a word is tried once more on a fresh one
    broken.faults.add(fault, times=2)
    answer = await stage.ask(stream=stream)
    assert answer.status_code == 200
    assert answer.headers["x-tier-router-replica"] != first
    assert answer.headers["x-tier-router-reason"] == "easy,failover"
    assert (await counters(stage))["tier_router_failovers_total"] == 1.0


async def test_an_error_as_first_event_of_a_200_stream(stage: Any) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.ErrorInStream(), times=1)
    answer = await stage.ask(stream=True)
    assert answer.status_code == 200
    assert b'"error"' not in answer.content
    assert answer.headers["x-tier-router-tier"] == "heavy"
    assert answer.headers["x-tier-router-reason"] == "easy,tier_down,failover"


async def test_all_replicas_failing_is_one_clear_error(stage: Any) -> None:
    await stage.serve()
    for fake in stage.fakes:
        fake.faults.add(faults.BUSY, times=None)
    answer = await stage.ask()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert error["code"] == "no_replica"
    for name in ("light-0", "light-1", "heavy-0"):
        assert name in error["message"]
    assert "currently busy" in error["message"]
    assert answer.headers["x-request-id"]


async def test_no_upstream_at_all_is_said_within_milliseconds(stage: Any) -> None:
    await stage.serve()
    for fake in stage.fakes:
        await fake.stop()
    start = time.monotonic()
    answer = await stage.ask()
    assert time.monotonic() - start < 1
    assert answer.status_code in (502, 503)
    assert "refused" in answer.json()["error"]["message"]
    again = await stage.ask()
    assert again.status_code == 503, "all of them rest now"
    assert (await stage.http.get("/ready")).status_code == 503
    assert (await stage.http.get("/health")).status_code == 200


@pytest.mark.parametrize("fault", [faults.Hang(head=False), faults.Hang(head=True)], ids=repr)
async def test_a_replica_that_hangs_is_given_up(stage: Any, fault: Any) -> None:
    await stage.serve(server={"timeouts": {"first_token": 0.3}})
    for fake in stage.light:
        fake.faults.add(fault, times=None)
    answer = await stage.ask(stream=True)
    assert answer.status_code == 200
    assert answer.headers["x-tier-router-tier"] == "heavy"
    stage.heavy.faults.add(fault, times=None)
    answer = await stage.ask("prove it", stream=True)
    assert answer.status_code in (503, 504)


async def test_a_timeout_is_a_504(stage: Any) -> None:
    await stage.serve(server={"timeouts": {"answer": 0.3}, "attempts": 1})
    stage.heavy.faults.add(faults.Hang(head=False), times=None)
    answer = await stage.ask("prove it")
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "upstream_timeout"


async def test_a_stream_that_breaks_off_is_not_made_to_look_whole(stage: Any) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.Reset(after_chunks=3), times=None)
    with pytest.raises(httpx.TransportError):
        await stage.ask(stream=True, max_tokens=20, ignore_eos=True)
    assert sum(stage.served().values()) == 1, "never a second answer after the first token"


async def test_an_error_event_in_mid_stream_reaches_the_client(stage: Any) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.ErrorMidStream(after=3), times=None)
    answer = await stage.ask(stream=True, max_tokens=20, ignore_eos=True)
    assert b'data: {"error"' in answer.content
    failed = [
        name
        for name, value in (await counters(stage)).items()
        if "attempts_total" in name and 'outcome="failed"' in name and value
    ]
    assert len(failed) == 1, "the replica's account knows"


async def test_a_stream_that_stalls_is_cut(stage: Any) -> None:
    await stage.serve(server={"timeouts": {"between": 0.3}})
    for fake in stage.light:
        fake.faults.add(faults.SlowChunks(5.0), times=None)
    with pytest.raises(httpx.TransportError):
        await stage.ask(stream=True, max_tokens=20, ignore_eos=True)


async def test_a_slow_first_token_is_waited_for(stage: Any) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.SlowFirstToken(0.4), times=None)
    start = time.monotonic()
    answer = await stage.ask(stream=True)
    assert answer.status_code == 200
    assert time.monotonic() - start > 0.35


@pytest.mark.parametrize("rst", [False, True])
async def test_stale_keep_alive_connections_lose_nothing(stage: Any, rst: bool) -> None:
    await stage.serve()
    for fake in stage.fakes:
        fake.faults.add(faults.CloseIdle(after=0.0, rst=rst), times=None)
    statuses = [(await stage.ask(f"q {n}")).status_code for n in range(30)]
    assert statuses == [200] * 30
    assert (await counters(stage))["tier_router_failovers_total"] == 0.0


async def test_a_truncated_body_is_cut_too(stage: Any) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.TruncatedBody(), times=None)
    with pytest.raises(httpx.TransportError):
        await stage.ask()


async def test_a_failed_replica_comes_back(stage: Any, eventually: Callable[..., Any]) -> None:
    await stage.serve()
    for fake in stage.light:
        fake.faults.add(faults.Garbage(), times=1)
    assert (await stage.ask()).headers["x-tier-router-tier"] == "heavy"
    assert (await stage.ask()).headers["x-tier-router-tier"] == "heavy"
    loads = stage.sidecar.router.pressures
    await eventually(lambda: all(load < 1 for load in loads().values()))
    assert (await stage.ask()).headers["x-tier-router-tier"] == "light"


async def test_a_dead_engines_whole_answer_is_json(stage: Any) -> None:
    await stage.serve(server={"attempts": 1})
    stage.heavy.faults.add(faults.DEAD, times=None)
    answer = await stage.ask("prove it")
    assert answer.status_code == 502
    assert "EngineCore" in json.loads(answer.content)["error"]["message"]


async def test_a_replica_that_serves_another_model_is_left_and_said_once(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.serve()
    body = b'{"error":{"message":"The model `m8` does not exist.","param":"model","code":404}}'
    for fake in stage.light:
        fake.faults.add(faults.Status(404, body), times=None)
    for _ in range(3):
        answer = await stage.ask()
        assert answer.status_code == 200
        assert answer.headers["x-tier-router-tier"] == "heavy"
    told = [r for r in caplog.records if "does not serve its tier's model `m8`" in r.getMessage()]
    assert sorted(str(record.args[0]) for record in told) == ["light-0", "light-1"]


async def test_more_than_a_tier_can_hold_is_refused_with_the_time_to_come_back(
    stage: Any, eventually: Callable[..., Any]
) -> None:
    await stage.serve(load={"shed": 1.0, "stamp": 0})
    ledger, now = stage.sidecar.router.ledger, time.monotonic()
    leases = [ledger.opened(name, 400_000, now) for name in ("light-0", "light-1", "heavy-0")]
    answer = await stage.ask()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "overloaded"
    assert int(answer.headers["retry-after"]) >= 1
    assert (await stage.ask(headers={"x-vllm-priority": "-5"})).status_code == 503
    ledger.closed(leases[0], Outcome.DONE, time.monotonic())
    assert (await stage.ask()).status_code == 200
    assert (await counters(stage))['tier_router_errors_total{code="overloaded"}'] == 2.0


async def test_the_priority_is_stamped_for_vllm(stage: Any) -> None:
    await stage.serve()
    for text, headers, sent in (
        ("hello", {}, "-1"),
        ("prove it", {}, None),
        ("hello", {"X-Vllm-Priority": "3"}, "3"),
    ):
        answer = await stage.ask(text, headers=headers)
        fakes = {"light-0": stage.light[0], "light-1": stage.light[1], "heavy-0": stage.heavy}
        seen = fakes[answer.headers["x-tier-router-replica"]].requests[-1]
        assert dict(seen.headers).get("x-vllm-priority") == sent
    answer = await stage.ask(headers={"X-Vllm-Priority": "soon"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-vllm-priority"


async def test_answers_teach_how_fast_a_tier_is(stage: Any) -> None:
    await stage.serve()
    for _ in range(10):
        await stage.ask(stream=True, stream_options={"include_usage": True})
        await stage.ask()
    pace = stage.sidecar.router.paces.of("light")
    assert 0 < pace.ttft < pace.whole
    assert pace.gap is not None


async def test_answers_teach_how_many_tokens_a_text_has(stage: Any) -> None:
    await stage.serve()
    text = "\u4f59\u989d\u591a\u5c11" * 20
    for _ in range(10):
        answer = await stage.ask(text)
    counted = answer.json()["usage"]["prompt_tokens"]
    view = stage.sidecar.router.view({"messages": [{"role": "user", "content": text}]})
    pace = stage.sidecar.router.paces.of("light")
    assert counted != view.tokens
    assert pace.scale(Script.OTHER) == pytest.approx(counted / view.tokens)
    assert pace.scale(Script.ASCII) == 1.0


async def hedged(stage: Any, **load: Any) -> str:
    """The sidecar with hedging on and a tier that is known to be fast; the replica that is asked
    first."""
    await stage.serve()
    for _ in range(40):
        first = (await stage.ask(stream=True)).headers["x-tier-router-replica"]
    await stage.sidecar.reload(stage.config(load={"hedge": True} | load))
    return str(first)


async def test_a_late_first_token_is_fetched_from_a_second_replica(
    stage: Any, eventually: Callable[..., Any]
) -> None:
    slow = await hedged(stage)
    late, other = stage.light[int(slow[-1])], stage.light[1 - int(slow[-1])]
    late.faults.add(faults.SlowFirstToken(8.0), times=1)
    start = time.monotonic()
    answer = await stage.ask(stream=True)
    assert time.monotonic() - start < 4
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert answer.headers["x-tier-router-replica"] != slow
    assert answer.headers["x-tier-router-reason"] == "easy,hedged"
    assert len(other.requests) == 1
    told = await counters(stage)
    assert told["tier_router_hedges_total"] == 1.0
    abandoned = f'tier_router_attempts_total{{outcome="abandoned",replica="{slow}",tier="light"}}'
    assert told[abandoned] == 1.0
    await eventually(lambda: late.requests[-1].aborted)  # the loser is cut off
    assert all(load == 0 for load in stage.sidecar.router.pressures().values())


async def test_a_hedged_request_survives_the_failure_of_either(stage: Any) -> None:
    slow = await hedged(stage)
    late, other = stage.light[int(slow[-1])], stage.light[1 - int(slow[-1])]
    late.faults.add(faults.SlowFirstToken(1.0), times=1)
    other.faults.add(faults.BUSY, times=1)
    answer = await stage.ask(stream=True)
    assert answer.status_code == 200
    assert answer.headers["x-tier-router-replica"] == slow
    assert answer.content.endswith(b"data: [DONE]\n\n")


async def test_a_client_that_leaves_ends_both_attempts(
    stage: Any, eventually: Callable[..., Any]
) -> None:
    await hedged(stage)
    for fake in stage.light:
        fake.faults.add(faults.SlowFirstToken(8.0), times=None)
    with pytest.raises(httpx.ReadTimeout):
        await stage.http.post(CHAT, json=HELLO | {"stream": True}, timeout=1.0)
    await eventually(lambda: all(fake.requests[-1].aborted for fake in stage.light))
    assert all(load == 0 for load in stage.sidecar.router.pressures().values())


async def test_nothing_is_hedged_unless_asked_for(stage: Any) -> None:
    slow = await hedged(stage, hedge=False)
    stage.light[int(slow[-1])].faults.add(faults.SlowFirstToken(0.5), times=1)
    answer = await stage.ask(stream=True)
    assert answer.headers["x-tier-router-replica"] == slow
    assert (await counters(stage))["tier_router_hedges_total"] == 0.0


async def test_a_request_that_kills_replicas_does_not_close_the_house(stage: Any) -> None:
    await stage.serve()
    for fake in stage.fakes:
        fake.faults.add(faults.CloseBeforeAnswer(), times=None)
    assert (await stage.ask("poison")).status_code == 502
    for fake in stage.fakes:
        fake.faults.clear()
    after = await stage.ask("hello")
    assert after.status_code == 200, after.text


async def test_a_fault_of_ours_while_sending_is_answered_and_leaves_no_lease(
    stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError

    await stage.serve(log=str(tmp_path / "d.jsonl"))
    monkeypatch.setattr("tier_router_proxy.relay.body_for", broken)
    answer = await stage.ask()
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert answer.headers["x-request-id"]
    ledger = stage.sidecar.router.ledger
    assert [ledger.in_flight(f"light-{n}") for n in range(2)] == [0, 0]
    await stage.sidecar.stop(0.0)
    (line,) = (tmp_path / "d.jsonl").read_text().splitlines()
    assert json.loads(line)["outcome"] == answer.json()["error"]["code"]

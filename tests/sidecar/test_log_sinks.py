"""The decision log in a Redis stream and at an OpenTelemetry collector: batched, bounded, and never
a request's trouble."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.config.log import Log
from tier_router.decisionlog import DecisionLog, Record, queued
from tier_router.decisionlog.queued import Queued
from tier_router.decisionlog.sink import Lost
from tier_router.errors import ConfigError

STREAM = "tier-router:decisions"


def a_record(name: str = "r") -> Record:
    return Record(v=1, at=1.5, id=name, door="sidecar", tier="light", outcome="done")


def entries(server: Any, stream: str = STREAM) -> list[dict[str, Any]]:
    """The lines of a stream, oldest first."""
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(server.url) as client:
        return [json.loads(fields[b"record"]) for _, fields in client.xrange(stream)]


async def stopped(stage: Any) -> None:
    await stage.http.aclose()
    await stage.sidecar.stop(1.0)


async def lost(stage: Any, sink: str) -> float:
    """What the metric says was lost."""
    text = (await stage.http.get("/metrics")).text
    name = f'tier_router_log_dropped_records_total{{sink="{sink}"}} '
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


# ---- a Redis stream


async def test_each_request_is_an_entry_of_the_stream(stage: Any, redis_server: Any) -> None:
    await stage.serve(log={"redis": redis_server.url})
    answer = await stage.ask("a secret question", headers={"x-request-id": "mine"})
    await stage.ask("prove it")
    await stopped(stage)
    one, two = entries(redis_server)
    assert (one["id"], one["tier"], one["door"]) == ("mine", "light", "sidecar")
    assert one["replica"] == answer.headers["x-tier-router-replica"]
    assert two["reasons"] == ["hard"]
    assert "secret" not in json.dumps([one, two])


async def test_file_and_stream_get_the_same_lines(
    stage: Any, redis_server: Any, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    await stage.serve(log={"path": str(path), "redis": {"url": redis_server.url, "stream": "s"}})
    for _ in range(3):
        await stage.ask()
    await stopped(stage)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert entries(redis_server, "s") == lines
    assert len(lines) == 3


def test_a_stream_keeps_about_so_many_entries(redis_server: Any) -> None:
    settings = Log.model_validate({"redis": {"url": redis_server.url, "keep": 500}})
    with DecisionLog(settings) as log:
        for number in range(4_000):
            log.write(a_record(str(number)))
    kept = entries(redis_server)
    assert 500 <= len(kept) < 1_000  # whole nodes of 100 entries go
    assert kept[-1]["id"] == "3999"
    assert log.dropped == 0


async def test_a_redis_that_is_away_costs_one_line_and_no_request(
    stage: Any,
    redis_server: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., Any],
) -> None:
    monkeypatch.setattr(queued, "PAUSE", 0.02)
    redis_server.stop()
    await stage.serve(log={"redis": redis_server.url})
    for _ in range(3):
        assert (await stage.ask()).status_code == 200
    await eventually(lambda: "cannot be written" in caplog.text)
    for _ in range(3):
        assert (await stage.ask()).status_code == 200
    redis_server.start()
    await eventually(lambda: "is written again" in caplog.text)
    assert await lost(stage, "redis") == 0
    await stopped(stage)
    assert len(entries(redis_server)) == 6
    told = [record.getMessage() for record in caplog.records if "decision log" in record.msg]
    assert len(told) == 2
    assert told[0].startswith("the decision log (redis) cannot be written, 0 records are lost")


async def test_what_a_redis_that_stays_away_loses_is_counted(stage: Any, redis_server: Any) -> None:
    redis_server.stop()
    await stage.serve(log={"redis": redis_server.url})
    for _ in range(3):
        assert (await stage.ask()).status_code == 200
    await stage.sidecar.reload(stage.config(log=None))
    await stage.ask()  # the first request by the new configuration closes the old log
    for _ in range(200):
        if await lost(stage, "redis") == 3:
            break
        await asyncio.sleep(0.01)
    assert await lost(stage, "redis") == 3
    assert await lost(stage, "file") == 0


async def test_a_redis_that_stands_still_holds_nobody_up(stage: Any, redis_server: Any) -> None:
    await stage.serve(log={"redis": redis_server.url})
    redis_server.signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(stage.ask() for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
    finally:
        redis_server.signal(signal.SIGCONT)
    await stopped(stage)
    assert len({entry["id"] for entry in entries(redis_server)}) == 50


def test_a_key_that_is_no_stream_is_given_up_at_once(
    redis_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(STREAM, "something else")
    with DecisionLog(Log.model_validate(redis_server.url)) as log:
        log.write(a_record())
    assert log.dropped == 1
    assert "WRONGTYPE" in caplog.text


# ---- a collector


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    pytest.importorskip("opentelemetry.proto", reason="no OpenTelemetry here")
    from tests.sidecar.collector import collecting

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with collecting() as found:
        yield found


async def test_each_request_is_a_log_record_at_the_collector(
    stage: Any, collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.sidecar.collector import said

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    await stage.serve(log={"otel": collector.url})
    await stage.ask("a secret question", headers={"x-request-id": "mine"}, stream=True)
    await stage.ask(model="nobody")
    await stopped(stage)
    done, refused = collector.logs
    told = said(done)
    assert (told["tier_router.request_id"], told["tier_router.tier"]) == ("mine", "light")
    assert told["tier_router.reasons"] == "easy"
    assert told["gen_ai.response.model"] == "m8"
    assert told["http.response.status_code"] == 200
    assert 0 < told["tier_router.time_to_first_token"] < 10
    assert json.loads(done.body.string_value)["id"] == "mine"
    assert (done.event_name, done.severity_text) == ("tier_router.decision", "INFO")
    assert done.time_unix_nano <= done.observed_time_unix_nano
    assert (refused.severity_text, said(refused)["tier_router.outcome"]) == (
        "WARN",
        "model_not_found",
    )
    assert set(collector.paths) == {"/v1/logs"}
    assert collector.services == {"tier-router"}
    assert collector.fields[0]["x-tenant"] == "blue"
    assert b"secret" not in collector.raw


@pytest.mark.parametrize(("status", "kept", "dropped"), [(503, 1, 0), (429, 1, 0), (400, 0, 1)])
async def test_what_a_collector_refuses_is_sent_again_where_that_may_help(
    collector: Any, monkeypatch: pytest.MonkeyPatch, status: int, kept: int, dropped: int
) -> None:
    monkeypatch.setattr(queued, "PAUSE", 0.02)
    collector.statuses = [status, status]
    log = DecisionLog(Log.model_validate(collector.url))
    log.write(a_record())
    for _ in range(500):
        if len(collector.logs) == kept and log.dropped == dropped:
            break
        await asyncio.sleep(0.01)
    await asyncio.to_thread(log.close)
    assert (len(collector.logs), log.dropped) == (kept, dropped)


async def test_a_collector_that_is_away_fails_no_request(stage: Any, collector: Any) -> None:
    await stage.serve(log={"otel": collector.url.rpartition(":")[0] + ":9"})
    assert (await stage.ask()).status_code == 200
    async with asyncio.timeout(10):
        await stopped(stage)


# ---- the queue


class Slow:
    """A sink that waits until it may write."""

    name = "slow"
    linger = 0.0

    def __init__(self, *troubles: Lost) -> None:
        self.free = threading.Event()
        self.troubles = list(troubles)
        self.written: list[str] = []

    def write(self, records: Sequence[Record]) -> None:
        self.free.wait(10)
        if self.troubles:
            raise self.troubles.pop(0)
        self.written += [record.id for record in records]

    def close(self) -> None:
        pass


def test_a_queue_that_is_full_drops_the_newest_and_counts_them() -> None:
    told: list[tuple[str, int]] = []
    sink = Slow()
    queue = Queued(sink, lambda name, count: told.append((name, count)))
    for number in range(queued.WAITING + queued.BATCH + 1_000):
        queue.write(a_record(str(number)))
    assert 1_000 <= queue.dropped <= 1_000 + queued.BATCH
    assert told == [("slow", 1)] * queue.dropped
    sink.free.set()
    queue.end()
    queue.join(10)
    assert sink.written[:3] == ["0", "1", "2"]
    assert len(sink.written) == queued.WAITING + queued.BATCH + 1_000 - queue.dropped


def test_a_sink_that_collects_batches_does_not_wait_while_whole_ones_are_there() -> None:
    sink = Slow()
    sink.linger, count = 1.0, 8 * queued.BATCH
    sink.free.set()
    queue = Queued(sink)
    for number in range(count):
        queue.write(a_record(str(number)))
    for _ in range(400):  # waiting for each batch would take eight seconds
        if len(sink.written) == count:
            break
        threading.Event().wait(0.01)
    assert len(sink.written) == count
    queue.end()
    queue.join(10)
    assert queue.dropped == 0


def test_a_batch_that_may_be_tried_again_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queued, "PAUSE", 0.01)
    caplog.set_level(logging.WARNING)
    sink = Slow(Lost("away", again=True), Lost("away", again=True), Lost("gone"))
    queue = Queued(sink)
    queue.write(a_record("lost"))
    sink.free.set()
    for _ in range(1_000):
        if queue.dropped:
            break
        threading.Event().wait(0.01)
    queue.write(a_record("kept"))
    queue.end()
    queue.join(10)
    assert (sink.written, queue.dropped) == (["kept"], 1)
    assert [record.getMessage() for record in caplog.records] == [
        "the decision log (slow) cannot be written, 0 records are lost so far: away",
        "the decision log (slow) is written again, 1 records were lost",
    ]


# ---- the configuration

TIERS = "tiers: [{name: light, model: m, replicas: [http://a]}]\n"


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("d.jsonl", "path"),
        ("redis://h:6379/0", "redis"),
        ("rediss://h", "redis"),
        ("unix:///run/redis.sock", "redis"),
        ("https://collector:4318", "otel"),
    ],
)
def test_a_plain_text_is_what_it_looks_like(written: str, kind: str) -> None:
    log = parse(f"{TIERS}log: {written}").log
    assert log is not None
    assert [name for name in ("path", "redis", "otel") if getattr(log, name)] == [kind]


@pytest.mark.parametrize(
    ("written", "key", "told"),
    [
        ("{prompts: true}", "log", "a log has a `path`, a `redis` or an `otel`"),
        ("{redis: 'http://h'}", "log.redis", "a stream's URL starts with redis://"),
        ("{redis: {url: 'redis://h', keep: 0}}", "log.redis.keep", "greater than or equal to 1"),
        ("{redis: {url: 'redis://h', kep: 1}}", "log.redis.kep", "did you mean `keep`"),
        ("{otel: 'collector:4318'}", "log.otel", "starts with http:// or https://"),
        ("{path: d, salt: short}", "log.salt", "16"),
    ],
)
def test_what_a_log_may_not_be(written: str, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{TIERS}log: {written}")
    assert str(caught.value).startswith(f"config:2 {key}")
    assert told in str(caught.value)


def test_a_password_is_never_printed() -> None:
    config = parse(f"{TIERS}log: 'redis://:hunter2@h/0'")
    assert "hunter2" not in repr(config)
    assert "hunter2" not in config.model_dump_json()


def test_processes_that_are_given_a_salt_hash_conversations_alike() -> None:
    salted = {"redis": "redis://127.0.0.1:9/0", "salt": "a secret of sixteen"}
    one, two = (DecisionLog(Log.model_validate(salted)) for _ in range(2))
    alone = DecisionLog(Log.model_validate({"redis": "redis://127.0.0.1:9/0"}))
    for log in (one, two, alone):
        log.close()
    assert one.salt == two.salt != alone.salt
    assert len(alone.salt) == 32

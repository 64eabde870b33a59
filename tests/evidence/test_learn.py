"""Speeds learned from a log, against those that made it."""

from collections.abc import Sequence

import pytest

from tests.evidence.conftest import Written, record
from tier_router.config import Config, parse
from tier_router.errors import ConfigError
from tier_router.evidence import collected, opened
from tier_router.evidence.learn import taught
from tier_router.simulate import Arrival, Machine, run
from tier_router.testing.engine import Speed


def config_of(*speeds: str) -> Config:
    told = "".join(f", speed: {speed}" for speed in speeds)
    return parse(
        "tiers: [{name: only, model: m, replicas: ['http://a', 'http://b'], "
        f"limits: {{requests: 48}}{told}}}]"
    )


def arrivals(count: int, every: float) -> list[Arrival]:
    """Prompts and answers of many lengths."""
    return [
        Arrival(at=n * every + (n * n % 7) * every / 10, prompt=20 + 37 * (n * 31 % 41),
                output=4 + n * 17 % 97)
        for n in range(count)
    ]  # fmt: skip


def lines(config: Config, asked: Sequence[Arrival], speed: Speed) -> list[dict[str, object]]:
    machine = Machine(speed, kv_tokens=400_000, prefix_cache=False)
    result = run(
        config, sorted(asked, key=lambda a: a.at), dict.fromkeys(("only-0", "only-1"), machine)
    )
    return [
        record(n, at=each.at, tier="only", replica=each.replica, ttft=each.ttft,
               latency=each.latency, usage={"prompt": each.prompt, "completion": each.output})
        for n, each in enumerate(result.records)
    ]  # fmt: skip


def learned(config: Config, written: Written, told: list[dict[str, object]]) -> Config:
    with opened(written(told)) as source, collected(source, [config]) as found:
        return taught(config, found.rows)


@pytest.mark.parametrize(
    ("speed", "every"),
    [
        (Speed(slots=64, prefill=5_000, step=0.02), 0.4),
        (Speed(slots=64, prefill=20_000, step=0.008, per_seq=0.0005), 0.05),
        (Speed(slots=4, prefill=3_000, step=0.015, per_seq=0.001), 0.25),
    ],
    ids=["mostly alone", "many at once", "few slots"],
)
def test_speeds_are_those_that_made_the_log(written: Written, speed: Speed, every: float) -> None:
    config = config_of()
    found = learned(config, written, lines(config, arrivals(1_500, every), speed)).tiers[0].speed
    assert found.step == pytest.approx(speed.step, rel=0.1)
    assert found.prefill == pytest.approx(speed.prefill, rel=0.15)
    assert found.per_seq == pytest.approx(speed.per_seq, rel=0.2, abs=4e-4)
    assert found.slots == (4 if speed.slots == 4 else 48)


def test_few_answers_teach_nothing(written: Written) -> None:
    config = config_of()
    told = lines(config, arrivals(40, 0.4), Speed())
    assert not learned(config, written, told).tiers[0].speed.told


def test_a_configured_speed_stays(written: Written) -> None:
    config = config_of("{prefill: 100, step: 0.5}")
    told = lines(config, arrivals(200, 0.4), Speed())
    assert learned(config, written, told).tiers == config.tiers


def test_what_is_configured_of_a_speed_stays(written: Written) -> None:
    told = lines(config_of(), arrivals(200, 0.4), Speed(prefill=4_000, step=0.02))
    found = learned(config_of("{slots: 5, batched_tokens: 512}"), written, told).tiers[0].speed
    assert (found.slots, found.batched_tokens) == (5, 512)
    assert found.prefill == pytest.approx(4_000, rel=0.15)


@pytest.mark.parametrize(
    ("speed", "told"),
    [
        ("{prefill: 0, step: 0.1}", "tiers[0].speed.prefill"),
        ("{prefil: 10}", "did you mean `prefill`?"),
        ("{prefill: 10, step: 0.1, slots: 64, batched_tokens: 32}", "batched_tokens"),
    ],
)
def test_a_speed_that_cannot_be_is_refused(speed: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(speed)
    assert told in str(caught.value)

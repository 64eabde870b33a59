"""`/ui` over HTTP: who may see what, what is told of requests, and nothing while it is off."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tier_router.config import parse
from tier_router.decide import Decision, Reason
from tier_router.errors import ConfigError
from tier_router.request import View
from tier_router.router import TierRouter
from tier_router_proxy.ui import watch as watching
from tier_router_proxy.ui.watch import Watch, percentiles

ON = {"ui": True}
FILES = ["/ui", "/ui/page.css", "/ui/page.js", "/ui/charts.js", "/ui/icon.svg"]


async def data(stage: Any, since: int = 0, **headers: str) -> dict[str, Any]:
    answer = await stage.http.get(f"/ui/data?since={since}", headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


# ---- off and on


async def test_it_is_off_unless_the_configuration_has_it_on(stage: Any) -> None:
    http = await stage.serve()
    for path in [*FILES, "/ui/data"]:
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_path"), path
    up = stage.sidecar._app.up
    assert (up.book.observer, up.metrics.observer) == (None, None)


async def test_a_reload_turns_it_on_and_off(stage: Any) -> None:
    http = await stage.serve()
    await stage.sidecar.reload(stage.config(server={"port": 0} | ON))
    await stage.ask()
    assert len((await data(stage))["decisions"]) == 1
    await stage.sidecar.reload(stage.config())
    assert (await http.get("/ui/data")).status_code == 404
    assert stage.sidecar._app.up.book.observer is None


@pytest.mark.parametrize("value", ["sometimes", "[]", "7"])
def test_nothing_but_yes_and_no_turns_it_on(value: str) -> None:
    tiers = "tiers: [{name: a, model: m, replicas: [http://a:1]}]\n"
    with pytest.raises(ConfigError, match=r"config:2 server\.ui: .*boolean"):
        parse(f"{tiers}server: {{ui: {value}}}")


# ---- the page


async def test_the_page_takes_nothing_from_elsewhere_and_is_small(stage: Any) -> None:
    http = await stage.serve(server=ON)
    size = 0
    for path in FILES:
        answer = await http.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        linked = re.findall(r"""https?://[^\s"')]*|["'(]//|url\([^)]*\)|@import""", answer.text)
        assert set(linked) <= {"http://www.w3.org/2000/svg"}, path  # a name, not an address
        size += len(answer.content)
    assert size < 40_000
    page = (await http.get("/ui")).text
    assert " on" not in "".join(part.partition(">")[0] for part in page.split("<"))
    assert "style=" not in page


async def test_a_slash_at_its_end_leads_to_the_page(stage: Any) -> None:
    http = await stage.serve(server=ON)
    answer = await http.get("/ui/")
    assert (answer.status_code, answer.headers["location"]) == (308, "../ui")
    assert str(answer.request.url.join(answer.headers["location"])) == f"{stage.sidecar.url}/ui"


async def test_it_takes_get_and_head_only(stage: Any) -> None:
    http = await stage.serve(server=ON)
    assert (await http.post("/ui/data")).status_code == 405
    assert (await http.head("/ui")).status_code == 200
    assert (await http.get("/ui/nothing")).status_code == 404
    assert (await http.get("/uix")).status_code == 404


# ---- keys


async def test_the_page_is_open_and_its_data_need_a_key(stage: Any) -> None:
    http = await stage.serve(server=ON | {"api_keys": "s3cret"})
    assert [(await http.get(path)).status_code for path in FILES] == [200] * len(FILES)
    assert "light-0" not in "".join([(await http.get(path)).text for path in FILES])
    assert (await http.get("/ui/data")).status_code == 401
    wrong = {"authorization": "Bearer wrong"}
    assert (await http.get("/ui/data", headers=wrong)).status_code == 401
    assert (await data(stage, authorization="Bearer s3cret"))["tiers"][0]["name"] == "light"


# ---- the data


async def test_decisions_say_where_why_and_how_long(stage: Any) -> None:
    await stage.serve(server=ON)
    await stage.ask("hello", stream=True)
    await stage.ask("prove it", headers={"x-request-id": "mine"})
    told = await data(stage)
    assert [tier["name"] for tier in told["tiers"]] == ["light", "heavy"]
    assert told["tiers"][1]["replicas"] == [{"name": "heavy-0", "pressure": 0.0, "in_flight": 0}]
    assert told["worker"] == {"pid": os.getpid(), "workers": 1}
    one, two = told["decisions"]
    assert (one["number"], one["tier"], one["outcome"]) == (1, "light", "done")
    assert 0 < one["ttft"] <= one["latency"]
    assert (two["id"], two["tier"], two["replica"]) == ("mine", "heavy", "heavy-0")
    assert two["why"].startswith("the light tier is likely not enough (difficulty 0.90")
    counted: dict[str, int] = {}
    for _, counts in told["seconds"]:
        for tier, count in counts.items():
            counted[tier] = counted.get(tier, 0) + count
    assert counted == {"light": 1, "heavy": 1}
    classes = {(each["tier"], each["class"]): each for each in told["classes"]}
    assert classes.keys() == {("light", "easy"), ("heavy", "hard")}
    assert classes["light", "easy"]["ttft"]["p50"] == pytest.approx(one["ttft"], abs=1e-5)
    assert classes["heavy", "hard"]["ttft"] is None
    assert 0 < told["overhead"]["p50"] <= told["overhead"]["p95"]


async def test_refusals_and_failovers_are_told(stage: Any) -> None:
    await stage.serve(server=ON)
    await stage.ask(model="nobody")
    for fake in stage.light:
        await fake.stop()
    await stage.ask()
    told = await data(stage)
    refused, moved = told["decisions"]
    assert "tier" not in refused
    assert (refused["outcome"], refused["status"]) == ("model_not_found", 404)
    assert (moved["tier"], sorted(moved["failed"])) == ("heavy", ["light-0", "light-1"])


async def test_a_replica_that_is_down_has_no_pressure(stage: Any) -> None:
    await stage.serve(server=ON)
    await stage.heavy.stop()
    for _ in range(4):
        await stage.ask("prove it")
    heavy = (await data(stage))["tiers"][1]["replicas"]
    assert heavy == [{"name": "heavy-0", "pressure": None, "in_flight": 0}]


async def test_only_what_is_new_is_told(stage: Any) -> None:
    await stage.serve(server=ON)
    await stage.ask()
    told = await data(stage)
    later = await data(stage, int(told["now"]) + 1)
    assert (later["decisions"], later["seconds"]) == ([], [])
    assert later["classes"]


@pytest.mark.parametrize("since", ["soon", "-1", "1e3", "9" * 13])
async def test_a_second_that_is_none_is_refused_by_name(stage: Any, since: str) -> None:
    http = await stage.serve(server=ON)
    answer = await http.get(f"/ui/data?since={since}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "since")


async def test_no_text_of_a_request_is_told_whatever_the_log_has(
    stage: Any, tmp_path: Path
) -> None:
    log = {"path": str(tmp_path / "d.jsonl"), "prompts": True}
    await stage.serve(server=ON, log=log)
    await stage.ask("a secret question")
    assert "secret" not in json.dumps(await data(stage))


# ---- the memory


def a_view(text: str = "hello") -> View:
    config = parse("tiers: [{name: a, model: m, replicas: [http://a:1]}]")
    return TierRouter(config).view({"messages": [{"role": "user", "content": text}]})


def test_the_memory_is_bounded_whatever_comes() -> None:
    now = [1_000.0]
    watch, view = Watch(lambda: now[0]), a_view()
    for number in range(5_000):
        now[0] += 0.5
        decision = Decision(f"tier-{number}", "r", "http://r", "m", (Reason.EASY,))
        watch.ended(decision, view, {"id": "x", "outcome": "done", "latency": 0.1})
        watch.decided(0.001)
    assert len(watch._seconds) == watching.SECONDS
    assert len(watch._last) == watching.LAST
    assert len(watch._classes) == watching.CLASSES
    assert len(watch._took) == watching.TIMES


def test_times_that_are_old_count_no_more() -> None:
    now = [1_000.0]
    watch, view = Watch(lambda: now[0]), a_view()
    decision = Decision("a", "a-0", "http://a", "m", (Reason.EASY,))
    watch.ended(decision, view, {"ttft": 9.0, "latency": 9.0})
    now[0] += watching.WINDOW + 1
    assert watch.since(0)["classes"] == []
    watch.ended(decision, view, {"ttft": 0.25, "latency": 0.5})
    (told,) = watch.since(0)["classes"]
    assert told["ttft"] == {"p50": 0.25, "p95": 0.25}
    assert told["answers"] == 1


def test_percentiles_are_of_values_that_were_there() -> None:
    assert percentiles([]) is None
    assert percentiles([3.0]) == {"p50": 3.0, "p95": 3.0}
    assert percentiles(float(n) for n in range(100, 0, -1)) == {"p50": 50.0, "p95": 95.0}


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    now = [1_000.0]
    watch, view = Watch(lambda: now[0]), a_view()
    for now[0] in (1_000.0, 990.0, 1_001.0):
        watch.ended(None, view, {"outcome": "no_replica"})
    assert watch.since(0)["seconds"] == [[1_000, {"": 2}], [1_001, {"": 1}]]


def test_what_a_request_costs_is_little() -> None:
    watch, view = Watch(), a_view()
    decision = Decision("a", "a-0", "http://a", "m", (Reason.EASY,))
    fate = {"id": "x", "outcome": "done", "latency": 0.1, "ttft": 0.01}
    began = time.perf_counter()
    for _ in range(10_000):
        watch.ended(decision, view, fate)
        watch.decided(0.0001)
    assert time.perf_counter() - began < 2.0  # 0.02 s on an idle core

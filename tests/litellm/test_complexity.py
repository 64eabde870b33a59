"""Our classifier in LiteLLM's own complexity router."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("litellm", reason="needs pip install 'tier-router[litellm]'")

import litellm

from tests.litellm.tools import EASY, HARD, Stage, chat, router_of
from tier_router.litellm import TierCallback, TierClassifier
from tier_router.litellm.complexity import NAMES, name_of


@pytest.mark.parametrize(
    ("tiers", "names"),
    [
        (1, ["SIMPLE"]),
        (2, ["SIMPLE", "REASONING"]),
        (3, ["SIMPLE", "COMPLEX", "REASONING"]),
        (4, list(NAMES)),
        (5, ["SIMPLE", "MEDIUM", "COMPLEX", "REASONING", "REASONING"]),
    ],
)
def test_names_of_tiers(tiers: int, names: list[str]) -> None:
    assert [name_of(place, tiers) for place in range(tiers)] == names


@pytest.mark.parametrize(("text", "tier"), [(EASY, "light"), (HARD, "heavy")])
@pytest.mark.parametrize("kind", ["chat", "responses", "messages"])
async def test_litellm_routes_by_it(stage: Stage, kind: str, text: str, tier: str) -> None:
    config = stage.config()
    groups = {
        "model_list": [
            {**each, "model_name": each["model_info"]["gpu_tier"]}
            for each in stage.document(config)["model_list"][:3]
        ]
    }
    tiers = dict.fromkeys(NAMES, "light") | {"REASONING": "heavy"}
    marker = {
        "model_name": "auto",
        "litellm_params": {
            "model": "auto_router/complexity_router",
            "complexity_router_config": {
                "classifier_type": "custom",
                "classifier_plugin": TierClassifier(TierCallback(router_of(config))),
                "tiers": tiers,
            },
            "complexity_router_default_model": "light",
        },
    }
    router = litellm.Router(model_list=[marker, *groups["model_list"]])
    if kind == "chat":
        await router.acompletion(model="auto", messages=chat(text))
    elif kind == "responses":
        await router.aresponses(model="auto", input=text)
    else:
        await router.aanthropic_messages(model="auto", messages=chat(text), max_tokens=5)
    assert stage.tiers() == {tier: 1}


async def test_what_cannot_be_read_is_left_to_litellm(stage: Stage) -> None:
    context = SimpleNamespace(structured_messages=[{"role": 5}])
    classifier = TierClassifier(TierCallback(router_of(stage.config())))
    assert await classifier.classify(context) is None

"""The table through the real LiteLLM proxy; rows that need a state of the books are left out,
since the proxy's are in another process."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("litellm", reason="the extra `litellm` is not installed")

from tests.litellm.proxy import Proxy, running
from tier_router.cli.litellm_config import document
from tier_router.testing import FakeVllm
from tier_router.testing import running as serving
from tier_router.view import PIN_HEADER

pytestmark = [
    pytest.mark.skipif(
        find_spec("apscheduler") is None, reason="needs pip install 'litellm[proxy]'"
    ),
    pytest.mark.filterwarnings("ignore"),  # LiteLLM's own
]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, table_text: Any) -> Iterator[Proxy]:
    place = tmp_path_factory.mktemp("litellm")
    fakes = [FakeVllm(model, max_model_len=1 << 20, multimodal=model == "m400")
             for model in ("m8", "m8", "m70", "m400")]  # fmt: skip
    with serving(*fakes):
        text, config = table_text(tuple(fake.url for fake in fakes))
        path = place / "tier_router.yaml"
        path.write_text(text, "utf-8")
        settings = document(config)
        settings["litellm_settings"]["callbacks"] = ["tests.conformance.lite.callback"]
        settings["litellm_settings"]["drop_params"] = True
        with running(place, settings, {"TIER_ROUTER_CONFIG": str(path)}) as started:
            yield started


def test_the_litellm_proxy(case: Any, proxy: Proxy, request: pytest.FixtureRequest) -> None:
    if case.state is not None:
        pytest.skip("the books are in another process")
    if case.name == "input_text":
        pytest.skip("LiteLLM refuses such a part in a chat")
    body = case.body() | {"max_tokens": case.body().get("max_tokens", 3)}
    headers = {PIN_HEADER: case.pin} if case.pin else {}
    told = proxy.post("/v1/chat/completions", body, headers)
    reason = told.headers.get("x-tier-router-reason", "")
    if case.error:
        assert reason.startswith("unrouted:"), told.text
        return
    assert told.status_code == 200, told.text
    assert (told.headers["x-tier-router-tier"], reason) == (case.tier, case.reasons)

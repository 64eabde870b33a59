"""LiteLLM's own router with our strategy, in front of real servers."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.real.servers import FLAGS, serving

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network
litellm = pytest.importorskip("litellm")

pytestmark = pytest.mark.filterwarnings("ignore")  # its own, and those of what it imports


@pytest.fixture
def small_and_large(flagged: Any, folder: Path) -> Any:
    with serving(folder, "heavy", *FLAGS) as heavy:
        yield [("light", flagged.url), ("heavy", heavy.url)]


async def test_requests_go_to_the_tier_that_is_enough(small_and_large: Any, tmp_path: Path) -> None:
    from tier_router.litellm import install

    tiers = "".join(
        f"  - {{name: {name}, model: {name}, replicas: [{url}]}}\n" for name, url in small_and_large
    )
    path = tmp_path / "config.yaml"
    path.write_text(f"tiers:\n{tiers}")
    router = litellm.Router(
        model_list=[
            {
                "model_name": "auto",
                "litellm_params": {
                    "model": f"hosted_vllm/{name}",
                    "api_base": f"{url}/v1",
                    "api_key": "none",
                },
                "model_info": {"id": f"{name}-0", "gpu_tier": name},
            }
            for name, url in small_and_large
        ]
    )
    install(router, str(path))
    for text, tier in (
        ("What is my balance?", "light"),
        ("Prove that every bounded monotone sequence of real numbers converges.", "heavy"),
    ):
        messages = [{"role": "user", "content": text}]
        answer = await router.acompletion("auto", messages, max_tokens=4)
        assert answer.model.removeprefix("hosted_vllm/") == tier
        streamed = await router.acompletion("auto", messages, max_tokens=4, stream=True)
        assert [chunk async for chunk in streamed]

"""`tier-router litellm-config`, and what is said where LiteLLM is missing: need no LiteLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tier_router import ConfigError, parse
from tier_router.cli.litellm_config import document, run

CONFIG = """
tiers:
  - name: light
    model: Qwen/Qwen3-8B
    replicas: [http://l0:8000, {url: http://l1:8000, name: spare}]
    context: 32768
    defaults: {max_tokens: 1024, chat_template_kwargs: {enable_thinking: false}}
  - {name: heavy, model: big, replicas: [https://h0], api_key: "${HEAVY_KEY:-secret-word}"}
aliases: {gpt-4o: auto, gpt-4o-mini: light}
server: {attempts: 4}
"""


def test_the_yaml_lists_each_replica_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    run(path)
    out = capsys.readouterr().out
    assert "secret-word" not in out
    assert out.startswith("# LiteLLM's side of")
    made = yaml.safe_load(out)
    assert made["model_list"] == [
        {
            "model_name": "auto",
            "litellm_params": {
                "model": "hosted_vllm/Qwen/Qwen3-8B", "api_base": "http://l0:8000/v1",
                "api_key": "none", "max_tokens": 1024,
                "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
            },
            "model_info": {"id": "light-0", "gpu_tier": "light", "max_input_tokens": 32768},
        },
        {
            "model_name": "auto",
            "litellm_params": {
                "model": "hosted_vllm/Qwen/Qwen3-8B", "api_base": "http://l1:8000/v1",
                "api_key": "none", "max_tokens": 1024,
                "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
            },
            "model_info": {"id": "spare", "gpu_tier": "light", "max_input_tokens": 32768},
        },
        {
            "model_name": "auto",
            "litellm_params": {
                "model": "hosted_vllm/big", "api_base": "https://h0/v1",
                "api_key": "os.environ/HEAVY_KEY",
            },
            "model_info": {"id": "heavy-0", "gpu_tier": "heavy"},
        },
    ]  # fmt: skip
    assert made["litellm_settings"]["callbacks"] == ["tier_router.litellm.callback"]
    aliases = {"gpt-4o", "gpt-4o-mini", "light", "heavy", "big", "Qwen/Qwen3-8B"}
    settings = made["router_settings"]
    assert settings == {"num_retries": 3, "model_group_alias": dict.fromkeys(aliases, "auto")}


def test_a_key_that_is_written_out_gets_a_variable() -> None:
    config = parse("tiers: [{name: a-b, model: m, replicas: [http://a], api_key: written}]")
    (deployment,) = document(config)["model_list"]
    assert deployment["litellm_params"]["api_key"] == "os.environ/A_B_API_KEY"


def test_simulated_replicas_are_refused() -> None:
    config = parse("tiers: [{name: a, model: m, replicas: ['sim://a?slots=2']}]")
    with pytest.raises(ConfigError, match="replica `a-0` is simulated inside the sidecar"):
        document(config)


def test_a_missing_litellm_names_the_extra() -> None:
    code = "import sys; sys.modules['litellm'] = None; import tier_router.litellm"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'tier-router[litellm]'" in done.stderr.splitlines()[-1]

"""`tier-router litellm-config`: LiteLLM's YAML out of ours, so that replicas are listed once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tier_router.config import Config, Replica, Tier, load
from tier_router.config.model import AUTO
from tier_router.config.source import read
from tier_router.errors import ConfigError

HEAD = """\
# LiteLLM's side of {path}, written by `tier-router litellm-config`.
#   TIER_ROUTER_CONFIG={path} litellm --config THIS_FILE
"""

_VARIABLE = re.compile(r"\s*\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}\s*")

PARAMS = frozenset({
    "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed",
    "presence_penalty", "frequency_penalty", "reasoning_effort", "response_format",
})  # fmt: skip
"""Defaults that LiteLLM takes as parameters of its own; the others go upstream as they are."""


def run(path: Path) -> None:
    """Prints the YAML for LiteLLM's `--config`."""
    config = load(path)
    print(HEAD.format(path=path), end="")
    print(yaml.safe_dump(document(config, _variables(path)), sort_keys=False, width=100), end="")


def document(config: Config, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """LiteLLM's configuration as data; `keys` names the environment variable of a tier's API key.

    All replicas are one model group, `auto`; tiers, their models and aliases are names for it,
    and the callback knows which name was used.  Raises ConfigError for simulated replicas.
    """
    names = [name for name in config.pins if name != AUTO]
    return {
        "model_list": list(_deployments(config, keys or {})),
        "litellm_settings": {"callbacks": ["tier_router.litellm.callback"]},
        "router_settings": {
            "num_retries": config.server.attempts - 1,
            "model_group_alias": dict.fromkeys(names, AUTO),
        },
        "general_settings": {"master_key": "os.environ/LITELLM_MASTER_KEY"},
    }


def _deployments(config: Config, keys: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for tier in config.tiers[: config.rungs]:
        for replica in tier.replicas:
            yield _deployment(tier, replica, keys)


def _deployment(tier: Tier, replica: Replica, keys: Mapping[str, str]) -> dict[str, Any]:
    if replica.url.startswith("sim://"):
        raise ConfigError(
            f"replica `{replica.name}` is simulated inside the sidecar ({replica.url}): LiteLLM "
            "needs the http:// address of a server"
        )
    params: dict[str, Any] = {
        "model": f"{'openai' if tier.kind == 'openai' else 'hosted_vllm'}/{tier.model}",
        "api_base": tier.openai_base(replica),
        "api_key": "none" if tier.api_key is None else f"os.environ/{_variable(tier, keys)}",
    }
    params.update((name, tier.defaults[name]) for name in sorted(PARAMS & tier.defaults.keys()))
    others = {name: tier.defaults[name] for name in tier.defaults if name not in PARAMS}
    if others:
        params["extra_body"] = others
    info: dict[str, Any] = {"id": replica.name, "gpu_tier": tier.name}
    if tier.context is not None:
        info["max_input_tokens"] = tier.context
    return {"model_name": AUTO, "litellm_params": params, "model_info": info}


def _variable(tier: Tier, keys: Mapping[str, str]) -> str:
    """The environment variable of a tier's API key; secrets are never printed."""
    return keys.get(tier.name) or f"{re.sub('[^A-Za-z0-9]', '_', tier.name).upper()}_API_KEY"


def _variables(path: Path) -> dict[str, str]:
    """Tier name to the variable that its `api_key` was written as."""
    found: dict[str, str] = {}
    for tier in read(path).data.get("tiers") or ():
        match = _VARIABLE.fullmatch(str(tier.get("api_key")))
        if match is not None:
            found[str(tier.get("name"))] = match[1]
    return found

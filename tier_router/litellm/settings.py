"""Where the configuration of a LiteLLM process lies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tier_router.errors import ConfigError

VARIABLE = "TIER_ROUTER_CONFIG"
NAME = "tier_router.yaml"


def find() -> Path:
    """`$TIER_ROUTER_CONFIG`, else tier_router.yaml in the working directory or beside LiteLLM's.

    Raises ConfigError, which names the places, where there is none.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    places = list(dict.fromkeys(_places()))
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(map(str, places))
    raise ConfigError(f"no configuration: set {VARIABLE}, or write one of {looked}")


def _places() -> Iterator[Path]:
    yield Path(NAME).absolute()
    proxy = sys.modules.get("litellm.proxy.proxy_server")
    for path in (getattr(proxy, "user_config_file_path", None), os.environ.get("CONFIG_FILE_PATH")):
        if isinstance(path, str) and path:
            yield Path(path).absolute().parent / NAME

"""What is used of LiteLLM, imported in one place, with a word on what to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


def load() -> ModuleType:
    """LiteLLM; raises an ImportError that names the extra where it is missing."""
    try:
        return import_module("litellm")
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        message = "LiteLLM is not installed: pip install 'tier-router[litellm]'"
        raise ImportError(message, name="litellm") from None


litellm = load()

if TYPE_CHECKING:
    # LiteLLM may be missing where types are checked; only what is overridden is spelled out.

    class CustomLogger:
        """LiteLLM's base of callbacks."""

        def __init__(self, **options: Any) -> None: ...

    class CustomRoutingStrategyBase:
        """LiteLLM's base of routing strategies."""
else:
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.types.router import CustomRoutingStrategyBase

__all__ = ["CustomLogger", "CustomRoutingStrategyBase", "litellm"]

"""The LangChain door: a chat model, a runnable and agent middleware over one `config.yaml`.

    from tier_router.langchain import ChatTierRouter
    model = ChatTierRouter(config="config.yaml")
    model.invoke("What is my balance?").response_metadata["tier_router"]["tier"]

`TierMiddleware` needs `langchain` besides; all else needs langchain-core and langchain-openai.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tier_router.langchain.chat import ChatTierRouter
    from tier_router.langchain.decision import TierDecisionModel, route_runnable
    from tier_router.langchain.middleware import TierMiddleware
    from tier_router.langchain.vllm import ChatVllm

__all__ = ["ChatTierRouter", "ChatVllm", "TierDecisionModel", "TierMiddleware", "route_runnable"]

_HOMES = {
    "ChatTierRouter": "chat",
    "ChatVllm": "vllm",
    "TierDecisionModel": "decision",
    "TierMiddleware": "middleware",
    "route_runnable": "decision",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("langchain_core", "langchain_openai", "langchain"):
            raise
        # `langchain` itself is wanted by the middleware alone, so the extra leaves it out
        what = "langchain" if package == "langchain" else "'tier-router[langchain]'"
        raise ImportError(f"`{name}` needs {package}: pip install {what}", name=package) from None
    return getattr(home, name)

"""Aurelio's semantic-router, both lines: as an engine for intents, and its files and classes.

    classifier: {engine: semantic-router}                        # config.yaml: our encoder
    classifier: {engine: semantic-router, file: router.yaml}     # the file's encoder and index

`SemanticClassifier` is the engine, `TierEncoder` our vectors as an encoder of the library,
`TierRouterRoutes` our intents as a router of 1.x.  `save` writes a file of either line and needs
no library; the others need `pip install 'tier-router[semantic]'`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tier_router.semantic.interchange import save

if TYPE_CHECKING:
    from tier_router.semantic.encoder import TierEncoder
    from tier_router.semantic.engine import SemanticClassifier
    from tier_router.semantic.exported import TierRouterRoutes

__all__ = ["SemanticClassifier", "TierEncoder", "TierRouterRoutes", "save"]

_HOMES = {
    "SemanticClassifier": "engine",
    "TierEncoder": "encoder",
    "TierRouterRoutes": "exported",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

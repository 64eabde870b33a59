"""The library itself, imported here and nowhere else: which line it is, and the names we use.

Both lines are one import name: 0.x has `SemanticRouter`, 1.x `IndexedRouter` and `load_router`.
The names are `Any` to the type checker, whether the library is installed or not.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PRICES = "LITELLM_LOCAL_MODEL_COST_MAP"
"""With this set litellm takes its price list from its package.  Without it, importing litellm
(which 0.x does) asks GitHub for the list, three times, for 13 s where there is no network."""


@contextmanager
def _calm() -> Iterator[None]:
    """The import of the library neither asks the network nor warns of what it imports itself."""
    ours = PRICES not in os.environ and "litellm" not in sys.modules
    if ours:
        os.environ[PRICES] = "True"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if ours:
            del os.environ[PRICES]


def _imported() -> tuple[Any, Any, Any]:
    try:
        with _calm():
            names = ("semantic_router", "semantic_router.encoders", "semantic_router.index.local")
            package, encoders, local = map(import_module, names)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "semantic_router":
            raise
        raise ImportError(
            "the semantic-router engine needs its library: pip install 'tier-router[semantic]'",
            name="semantic_router",
        ) from None
    return package, encoders, local


_package, _encoders, _local = _imported()
logging.getLogger("semantic_router").addFilter(
    # 0.x warns so each time an index in memory is filled: there is nothing to be done about it
    lambda record: record.msg != "No config is written for LocalIndex."
)

V1: bool = hasattr(_package, "load_router")
"""Whether the installed library is of the line 1.x."""

Route: Any = _package.Route
DenseEncoder: Any = _encoders.DenseEncoder
LocalIndex: Any = _local.LocalIndex
SemanticRouter: Any = getattr(_package, "SemanticRouter", None)
"""Of 0.x; None in 1.x."""
IndexedRouter: Any = getattr(_package, "IndexedRouter", object)
"""Of 1.x; in 0.x `object`, so that a class can derive from it either way."""
load_router: Any = getattr(_package, "load_router", None)
"""Of 1.x; None in 0.x."""
BaseRouter: Any = import_module("semantic_router.routers.base").BaseRouter
"""Of 1.x: a plain class with one method to write.  In 0.x another class of that name."""

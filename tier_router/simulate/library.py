"""SimPy, imported in one place, with a word on what to install."""

from __future__ import annotations

try:
    import simpy
except ModuleNotFoundError as error:
    if error.name != "simpy":
        raise
    message = "SimPy is not installed: pip install 'tier-router[simulate]'"
    raise ImportError(message, name="simpy") from None

__all__ = ["simpy"]

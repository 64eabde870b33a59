"""`config.yaml`: its types, and how it is read."""

from tier_router.config.load import load, parse
from tier_router.config.model import (
    Calibration,
    Config,
    Cost,
    Intent,
    Limits,
    LoadPolicy,
    Policy,
    Replica,
    Rule,
    Tier,
    When,
)
from tier_router.config.server import ApiKey, Server, Timeouts
from tier_router.config.speed import Speed

__all__ = [
    "ApiKey",
    "Calibration",
    "Config",
    "Cost",
    "Intent",
    "Limits",
    "LoadPolicy",
    "Policy",
    "Replica",
    "Rule",
    "Server",
    "Speed",
    "Tier",
    "Timeouts",
    "When",
    "load",
    "parse",
]

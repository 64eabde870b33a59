"""Routes each request to the smallest self-hosted vLLM tier that answers it well."""

from tier_router.classify import Classifier, Signal, Verdict
from tier_router.config import Config, load, parse
from tier_router.decide import Decision, Judged, Reason
from tier_router.dispatch import Dispatch, Failure
from tier_router.errors import (
    ConfigError,
    NoReplica,
    NotCapable,
    PromptTooLong,
    RequestError,
    TierRouterError,
    Unauthorized,
    UnknownTier,
    UpstreamError,
    UpstreamTimeout,
)
from tier_router.ledger import Lease, Ledger, Outcome
from tier_router.request import Kind, Need, Turn, View
from tier_router.router import TierRouter
from tier_router.view import view_of

__all__ = [
    "Classifier",
    "Config",
    "ConfigError",
    "Decision",
    "Dispatch",
    "Failure",
    "Judged",
    "Kind",
    "Lease",
    "Ledger",
    "Need",
    "NoReplica",
    "NotCapable",
    "Outcome",
    "PromptTooLong",
    "Reason",
    "RequestError",
    "Signal",
    "TierRouter",
    "TierRouterError",
    "Turn",
    "Unauthorized",
    "UnknownTier",
    "UpstreamError",
    "UpstreamTimeout",
    "Verdict",
    "View",
    "load",
    "parse",
    "view_of",
]

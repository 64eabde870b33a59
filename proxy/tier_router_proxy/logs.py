"""How the sidecar's log lines look: plain text, or one JSON object a line."""

from __future__ import annotations

import logging
import sys
from typing import Literal

from tier_router.decide import Decision

Format = Literal["text", "json"]

FIELDS = ("request_id", "tier", "replica")
"""What a line may say besides its message; others' `extra` is left out, whatever is in it."""


def about(decision: Decision, request_id: str) -> dict[str, str]:
    """The `extra` of a line about one request's stay on a replica."""
    return {"request_id": request_id, "tier": decision.tier, "replica": decision.replica}


def configure(form: Format, level: str) -> None:
    """From now on whatever is logged goes to standard error, in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json() if form == "json" else _text())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def _text() -> logging.Formatter:
    return logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def _json() -> logging.Formatter:
    """Objects with `timestamp` (UTC), `level`, `logger`, `event`, what of FIELDS is known, and
    `exception` where there is one: as text, without the values of variables, which may hold
    prompts."""
    from structlog import processors, stdlib  # only where it is asked for: it takes a while

    return stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            stdlib.add_log_level,
            stdlib.add_logger_name,
            stdlib.ExtraAdder(allow=FIELDS),
            processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            stdlib.ProcessorFormatter.remove_processors_meta,
            processors.format_exc_info,
            processors.JSONRenderer(),
        ],
    )

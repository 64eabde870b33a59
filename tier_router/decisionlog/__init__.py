"""The decision log: one JSON line for each request, from every door.

`Record` is the line, `schema()` its JSON schema; `DecisionLog` writes it off the request path.
"""

from __future__ import annotations

from tier_router.decisionlog.book import Logbook
from tier_router.decisionlog.record import VERSION, Record, Tokens, record_of, schema
from tier_router.decisionlog.writer import DecisionLog

__all__ = ["VERSION", "DecisionLog", "Logbook", "Record", "Tokens", "record_of", "schema"]

"""What a plan and its audit leave behind: a record for the log, a header, numbers for metrics.

No text of a prompt or an answer is in any of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tier_router.prune.audit import Audit, Audits, Count
from tier_router.prune.plan import Plan
from tier_router.prune.walk import BLOCK

HEADER = "x-tier-router-pruned"
"""The answer header that says what was taken out, such as `rag=-1810;fold=-120`."""


def header(plan: Plan) -> str:
    """The header's value; "" where nothing was taken out."""
    saved: dict[str, int] = defaultdict(int)
    for edit in plan.sent:
        saved[edit.step] += edit.saved
    parts = [f"{step}=-{tokens}" if tokens else f"{step}=1" for step, tokens in saved.items()]
    if plan.turns:
        parts.append(f"turns={len(plan.turns)}")
    return ";".join(parts)


def record(plan: Plan, audit: Audit | None = None) -> dict[str, Any]:
    """Plan and audit as plain data for JSON."""
    out: dict[str, Any] = {
        "tier": plan.tier,
        "intent": plan.intent,
        "ms": round(plan.seconds * 1000, 3),
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "uncached_before_est": plan.uncached_before,
        "uncached_after_est": plan.uncached_after,
        "output_cap": plan.cap,
        "net_ms_est": round(plan.net_seconds * 1000, 2),
        "heldout": plan.heldout,
        "fits_by_pruning": plan.fits,
        "invariants": "ok" if not plan.failed.startswith("invariant") else plan.failed[11:],
        "failed": plan.failed or None,
        "steps": [
            {
                "step": edit.step,
                "mode": "on" if edit.on else "observe",
                "action": edit.action,
                "unit": ".".join(map(str, edit.path)),
                "name": edit.name or None,
                "tokens": edit.before,
                "cut": edit.saved,
                "labels": list(edit.labels),
                "scores": list(edit.scores),
            }
            for edit in plan.edits
        ],
        "abstained": [{"step": each.step, "reason": each.reason} for each in plan.abstained],
    }
    if audit is not None:
        out["cached_actual"] = audit.cached_actual
        out["audit"] = [
            {"step": each.step, "lost": each.lost, "tool": each.tool or None,
             "saved": each.saved, "evidence_hash": each.evidence or None}
            for each in audit.findings
        ]  # fmt: skip
        out["tool_rank"] = audit.rank
        out["tools"] = audit.tools
    return out


def book_of(records: Iterator[Mapping[str, Any]]) -> Audits:
    """The audits in records as `record` makes them; what is no such record counts for nothing."""
    book = Audits()
    for each in records:
        tier, intent = str(each.get("tier", "")), str(each.get("intent") or "")
        for found in each.get("audit") or ():
            if isinstance(found, Mapping) and isinstance(found.get("lost"), bool):
                saved = found.get("saved")
                count = Count(1, int(found["lost"]), saved if isinstance(saved, int) else 0)
                step, tool = str(found.get("step", "")), str(found.get("tool") or "")
                book.count(step, tier, intent, tool, count)
        rank = each.get("tool_rank")
        if isinstance(rank, int):
            book.rank(tier, rank)
    return book


class Tally:
    """Numbers that only grow, by (name, tier, step), for any metrics library to show.

    `listener` is told of each step of their growth."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], float] = defaultdict(float)
        self.listener: Callable[[str, str, str, float], None] | None = None

    def planned(self, plan: Plan) -> None:
        """Counts a plan that is being carried out."""
        tier = plan.tier
        self._add("pruning_requests", tier, "", 1)
        self._add("prune_seconds", tier, "", plan.seconds)
        if plan.failed:
            self._add("pruning_failed", tier, plan.failed.partition(":")[0], 1)
        if plan.heldout:
            self._add("pruning_heldout", tier, "", 1)

    def answered(self, plan: Plan) -> None:
        """Counts what a plan saved, once its request was answered."""
        if not plan.changes:
            return
        tier = plan.tier
        self._add("uncached_tokens_avoided", tier, "",
                  max(0, plan.uncached_before - plan.uncached_after))  # fmt: skip
        if plan.uncached_after > plan.uncached_before + BLOCK:
            self._add("prefix_regressions", tier, "", 1)
        if plan.fits:
            self._add("escalations_avoided", tier, "", 1)
        for edit in plan.sent:
            self._add("tokens_removed", tier, edit.step, edit.saved)

    def misfired(self, tier: str) -> None:
        """Counts an answer that came back empty with thinking off."""
        self._add("thinking_misfires", tier, "", 1)

    def audited(self, audit: Audit) -> None:
        """Counts an audit."""
        for finding in audit.findings:
            self._add("audits", audit.tier, finding.step, 1)
            self._add("audit_loss", audit.tier, finding.step, int(finding.lost))

    def regressed(self, plan: Plan, cached: int) -> None:
        """A replica had more than a block less in its cache than pruning counted on."""
        believed = plan.tokens_after - plan.uncached_after
        if plan.changes and cached + BLOCK < believed:
            self._add("cache_misjudged", plan.tier, "", 1)

    def _add(self, name: str, tier: str, step: str, more: float) -> None:
        self.counts[name, tier, step] += more
        if self.listener is not None:
            self.listener(name, tier, step, more)

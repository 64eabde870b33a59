"""A report as one HTML page that needs nothing else: no script, font or picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from tier_router.evidence.figures import Report, Side
from tier_router.evidence.wilson import Share

WIDTH, HEIGHT = 720, 200
"""Size of a plot in its own units; the page scales it."""

INTENTS = 40


def page(report: Report) -> str:
    """The page."""
    style = files("tier_router.evidence").joinpath("page.css").read_text("utf-8")
    top = escape(report.tiers[-1])
    parts = [
        f"<h1>{_percent(report.largest)} of the requests need <em>{top}</em></h1>",
        f"<p class=quiet>{_about(report)}</p>",
        "<h2>By intent</h2>", _by_intent(report),
        "<h2>Difficulty</h2>", _difficulties(report),
        "<h2>Where requests go, and what that takes</h2>", _bars(report), _sides(report),
    ]  # fmt: skip
    if report.queues is not None:
        parts += ["<h2>With queues</h2>", _queues(report.queues)]
    if report.pruning is not None:
        cut = report.pruning
        share = cut["removed"] / max(cut["tokens"], 1)
        told = f"{share:.1%} of {cut['tokens']:,} tokens in {cut['requests']:,} requests."
        steps = [(name, f"{count:,}") for name, count in cut["steps"].items()]
        parts += ["<h2>What pruning would remove</h2>", f"<p>{told}</p>"]
        parts += [_table(("step", "tokens"), steps)] if steps else []
    if report.boundary:
        parts += ["<h2>Nearest to the line</h2>", _boundary(report)]
    if report.log["problems"]:
        rows = [(p["line"], p["message"]) for p in report.log["problems"]]
        parts += ["<h2>Lines that could not be read</h2>", _table(("line", "why"), rows)]
    parts += ["<h2>How this was found</h2>", "<ul class=quiet>"]
    parts += [f"<li>{escape(each)}</li>" for each in report.basis]
    body = "\n".join([*parts, "</ul>"])
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tier Router report</title><style>\n{style}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _about(report: Report) -> str:
    log = report.log
    told = f"{log['name']}: {log['lines']:,} lines ({log['format']}), {log['judged']:,} judged"
    if log["unreadable"]:
        told += f", {log['unreadable']:,} could not be read"
    refused = "".join(f"; {n:,} would be refused ({code})" for code, n in report.refused.items())
    return escape(told + refused)


# ---- plots


def _by_intent(report: Report) -> str:
    """Each intent's share with its interval, as a bar and whiskers."""
    rows = [("all", report.largest), *list(report.intents.items())[:INTENTS]]
    height, left = 26 * len(rows) + 20, 190
    span = WIDTH - left - 130
    parts = []
    for place, (name, found) in enumerate(rows):
        y = 26 * place + 8
        x, low, high = (left + span * v for v in (found.value, found.low, found.high))
        parts += [
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name[:26]) or "(none)"}'
            "</text>",
            f'<rect class=bar x="{left}" y="{y}" width="{x - left:.1f}" height="16"/>',
            f'<path class=whisker d="M{low:.1f} {y + 8}H{high:.1f}M{low:.1f} {y + 4}v8'
            f'M{high:.1f} {y + 4}v8"/>',
            f'<text x="{left + span + 8}" y="{y + 12}">{found.value:.1%} of {found.total:,}</text>',
        ]
    return _svg(height, parts, "share of each intent that needs the largest tier")


def _difficulties(report: Report) -> str:
    """How many requests there are of each difficulty, and where the lines are."""
    bins, base = report.difficulties, HEIGHT - 24
    most, wide = max([*bins, 1]), WIDTH / len(bins)
    parts = [
        f'<rect class=bar x="{place * wide + 1:.1f}" y="{base - base * count / most:.1f}" '
        f'width="{wide - 2:.1f}" height="{base * count / most:.1f}"><title>{count:,}</title></rect>'
        for place, count in enumerate(bins)
    ]
    for line in report.thresholds:
        parts.append(f'<path class=line d="M{line * WIDTH:.1f} 0V{base}"/>')
        parts.append(f'<text x="{line * WIDTH + 5:.1f}" y="12">{line:.3f}</text>')
    parts += [
        f'<text x="{share * WIDTH:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{share:g}</text>'
        for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end"))
    ]
    return _svg(HEIGHT, parts, "number of requests by difficulty")


def _bars(report: Report) -> str:
    """GPU-hours of the routed requests by tier, over those of all to the largest."""
    whole = max(report.all_largest.gpu_hours, report.routed.gpu_hours, 1e-12)
    left, parts = 150, []
    span = WIDTH - left - 110
    x = float(left)
    for place, side in enumerate(report.by_tier):
        wide = span * side.gpu_hours / whole
        parts.append(
            f'<rect class="tier t{place % 4}" x="{x:.1f}" y="8" width="{wide:.1f}" height="22">'
            f"<title>{escape(side.tier)}: {side.gpu_hours:,.2f} GPU-hours</title></rect>"
        )
        x += wide
    wide = span * report.all_largest.gpu_hours / whole
    parts += [
        f'<text x="{left - 8}" y="24" text-anchor="end">routed</text>',
        f'<text x="{x + 8:.1f}" y="24">{report.routed.gpu_hours:,.2f} GPU-h</text>',
        f'<text x="{left - 8}" y="58" text-anchor="end">all to {escape(report.tiers[-1][:14])}'
        "</text>",
        f'<rect class=bar x="{left}" y="42" width="{wide:.1f}" height="22"/>',
        f'<text x="{left + wide + 8:.1f}" y="58">{report.all_largest.gpu_hours:,.2f} GPU-h</text>',
    ]
    return _svg(74, parts, "GPU-hours, routed and all to the largest tier")


def _svg(height: int, parts: Iterable[str], label: str) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{inner}</svg>'


# ---- tables


def _sides(report: Report) -> str:
    names = ("", "requests", "prompt tokens", "output tokens", "GPU-hours", "cost",
             "TTFT p50 / p95", "latency p50 / p95")  # fmt: skip
    rows = [
        *((f"to {side.tier}", *_side(side)) for side in report.by_tier),
        ("routed", *_side(report.routed)),
        (f"all to {report.all_largest.tier}", *_side(report.all_largest)),
    ]
    return _table(names, rows)


def _side(side: Side) -> tuple[str, ...]:
    return (
        f"{side.requests.value:.1%}",
        f"{side.prompt_tokens:,}",
        f"{side.output_tokens:,}",
        f"{side.gpu_hours:,.2f}",
        "–" if side.cost is None else f"{side.cost:,.2f}",
        f"{_seconds(side.ttft.p50)} / {_seconds(side.ttft.p95)}",
        f"{_seconds(side.latency.p50)} / {_seconds(side.latency.p95)}",
    )


def _queues(queued: Mapping[str, Any]) -> str:
    before, after = queued["before"], queued["after"]
    names = ("class", "", "TTFT p50", "p95", "p99", "latency p50", "p95", "p99", "mean")
    rows = []
    for kind, row in before["classes"].items():
        for word, side in (("before", before), ("after", after)):
            own = side["classes"].get(kind, row)
            times = [own["ttft"][p] for p in ("p50", "p95", "p99")]
            times += [own["latency"][p] for p in ("p50", "p95", "p99", "mean")]
            rows.append((kind if word == "before" else "", word, *map(_seconds, times)))
    told = (
        f"The first {queued['requests']:,} requests of the log, in {queued['seconds']:,.0f} s. "
        f"Before: {before['about']}. After: {after['about']}. "
        f"Lost: {before['lost']:,} before, {after['lost']:,} after."
    )
    return f"<p class=quiet>{escape(told)}</p>{_table(names, rows)}"


def _boundary(report: Report) -> str:
    rows = [
        (f"{near.difficulty:.3f}", near.tier, near.line, near.text or near.id or "")
        for near in report.boundary
    ]
    return _table(("difficulty", "goes to", "line", "request"), rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _percent(found: Share) -> str:
    if not found.total:
        return "None"
    return f"{found.value:.1%} <small>({found.low:.1%} to {found.high:.1%}, 95&nbsp;%)</small>"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.2f} s"

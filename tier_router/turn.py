"""From the raw text of a human turn to the `Turn` that is judged.

Which text is judged matters more than the model that judges it.  Harness noise, fenced code, data
URIs and pasted logs are set aside and only counted.  Every step looks at a bounded part of the
text, so a 200 KB paste costs what a long paragraph costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat

from tier_router.request import TURN_CHARS, Turn

SCAN_CHARS = 4_000
"""How much of each end of a long turn is cleaned; what lies between counts as pasted.

People put the question before or after what they paste, not inside it."""

KEPT_CHARS = 2_000
"""Up to here a turn is kept with its text: with 1,024 of them at most 8 MB of what has four bytes
a character, and two of English."""

LOG_RUN = 4
"""Fewer log-like lines in a row than this stay in the text: they may be the question."""

# What agent harnesses add to a human turn: Claude Code (system-reminder, local-command-*,
# command-*), Cline and Roo (environment_details), Codex (environment_context), Cursor
# (additional_data, attached_files, ide_*).
NOISE_TAGS = (
    "system-reminder|environment_details|environment_context|local-command-stdout"
    "|local-command-stderr|command-name|command-message|command-args|ide_selection"
    "|ide_opened_file|additional_data|attached_files|user_info"
)
_NOISE = re.compile(rf"<({NOISE_TAGS})\b[^>]*>.*?(?:</\1>|\Z)", re.S)
_NOISE_TAIL = re.compile(rf"\A.*</(?:{NOISE_TAGS})>", re.S)
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)", re.S | re.M)
_FENCE_TAIL = re.compile(r"\A.*?^[ \t]*(?:```+|~~~+)[ \t]*$", re.S | re.M)
_BLOB = re.compile(r"(?:data:[\w/+.-]{3,60};base64,)?[A-Za-z0-9+/=_-]{200,}")
_LOG_LINE = re.compile(
    r"""\s*(?:
        [\[(]?\d{4}-\d\d-\d\d[T ]\d\d:\d\d                    # 2026-12-01T06:00 ...
      | [\[(]?\d\d:\d\d:\d\d                                  # 06:00:00 ...
      | [A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d               # Dec  1 06:00:00 (syslog)
      | [\[<(]?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b
      | [IWEF]\d{4}\s\d\d:                                    # glog
      | at\s[\w.$<>/]+\(                                      # a JVM or JS frame
      | File\s"[^"]+",\sline\s\d+                             # a Python frame
      | \d{1,3}(?:\.\d{1,3}){3}\s                             # an access log
      | [+-]{3}\s|@@\s-\d                                     # a diff
      | \#\d+\s+0x[0-9a-f]+                                   # a native frame
      | (?:[\w.]+[,;|\t]){5,}                                 # a row of a table
    )""",
    re.X,
)


def turn_of(raw: str, media: int = 0) -> Turn:
    """The `Turn` of one human message's text; `media` is the number of images and clips in it.

    A conversation brings its earlier turns with each request, so the last ones are kept.
    """
    return _kept(raw, media) if len(raw) <= KEPT_CHARS else _turn(raw, media)


def _turn(raw: str, media: int) -> Turn:
    chars = len(raw)
    if chars <= 2 * SCAN_CHARS:
        text, code, pasted = _clean(raw)
    else:
        text, code, pasted = _clean_ends(raw)
    return Turn(_cut(text), code, pasted, chars, media)


_kept = lru_cache(maxsize=1_024)(_turn)


def _clean_ends(raw: str) -> tuple[str, int, int]:
    head, tail = _whole_lines(raw[:SCAN_CHARS], raw[-SCAN_CHARS:])
    if "```" in tail and raw.count("```", 0, len(raw) - len(tail)) % 2:  # begins inside a block
        tail = _FENCE_TAIL.sub("", tail, count=1)
    if "</" in tail:
        tail = _drop_open_noise(tail)
    first, code, pasted = _clean(head)
    last, more_code, more_pasted = _clean(tail)
    middle = len(raw) - len(head) - len(tail)
    text = f"{first}\n{last}" if first and last else first or last
    return text, code + more_code, pasted + more_pasted + middle


def _whole_lines(head: str, tail: str) -> tuple[str, str]:
    """Both without the line that the cut went through, where lines are short."""
    end, start = head.rfind("\n"), tail.find("\n")
    if end > SCAN_CHARS * 3 // 4:
        head = head[:end]
    if 0 <= start < SCAN_CHARS // 4:
        tail = tail[start + 1 :]
    return head, tail


def _drop_open_noise(tail: str) -> str:
    """`tail` without what stands before the end of a noise block that began earlier."""
    closing = _NOISE_TAIL.match(tail)
    if closing is None or _NOISE.search(tail[: closing.end()]) is not None:
        return tail
    return tail[closing.end() :]


def _clean(text: str) -> tuple[str, int, int]:
    """(text that is left, characters of code, characters of pasted material)."""
    code = pasted = 0
    if "<" in text and ("</" in text or "<s" in text):  # one character is found fastest
        text = _NOISE.sub("\n", text)
    if ("`" in text and "```" in text) or ("~" in text and "~~~" in text):
        left = _FENCE.sub("\n", text)
        code, text = len(text) - len(left), left
    if _may_hold_blob(text):
        left = _BLOB.sub(" ", text)
        pasted, text = len(text) - len(left), left
    if text.count("\n") >= LOG_RUN - 1:
        kept = "\n".join(_without_logs(text.split("\n")))
        pasted, text = pasted + len(text) - len(kept), kept
    return text.strip(), code, pasted


def _may_hold_blob(text: str) -> bool:
    """Whether some 100 characters hold no space: cheap to see, and every blob has such a window."""
    starts, ends = range(0, len(text) - 199, 100), range(100, len(text) - 99, 100)
    return -1 in map(text.find, repeat(" "), starts, ends)


def _without_logs(lines: list[str]) -> Iterator[str]:
    run: list[str] = []
    for line in lines:
        if _LOG_LINE.match(line) or (run and line[:1] in " \t" and line.strip()):
            run.append(line)
            continue
        if len(run) < LOG_RUN:
            yield from run
        run = []
        yield line
    if len(run) < LOG_RUN:
        yield from run


def _cut(text: str) -> str:
    """The first and last half of `TURN_CHARS`, at word borders where the text has words."""
    if len(text) <= TURN_CHARS:
        return text
    half = TURN_CHARS // 2
    head, tail = text[:half], text[-half + 1 :]
    left, right = head.rfind(" "), tail.find(" ")
    if left > half // 2:
        head = head[:left]
    if 0 <= right < half // 2:
        tail = tail[right + 1 :]
    return f"{head} {tail}"

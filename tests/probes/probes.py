"""The probes: short everyday and hard prompts in eleven languages, for measuring only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("probes.txt")
AFTER = Path(__file__).with_name("after.txt")


@dataclass(frozen=True, slots=True)
class Probe:
    """One prompt, whether it is hard, why, and in which language."""

    text: str
    hard: bool
    reason: str
    language: str
    after: bool = False
    """Written after the word lists and the model were finished, and nothing was changed since."""

    @property
    def part(self) -> str:
        """Which part it is in: looked at, held back, or after (the second file)."""
        if self.after:
            return "after"
        return "held back" if self.held_back else "looked at"

    @property
    def held_back(self) -> bool:
        """Whether it is in the half that nothing was looked up in while features were improved.

        The text's digest decides, so that nobody chose.
        """
        return hashlib.blake2b(self.text.encode(), digest_size=2).digest()[0] % 2 == 1


def load() -> list[Probe]:
    """All probes, in the order of the files."""
    return [*_read(FILE), *_read(AFTER)]


def _read(file: Path) -> list[Probe]:
    found, heading = [], ("", "", "")
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") or not line:
            continue
        if line.startswith("[") and line.endswith("]") and len(line.split()) == 3:
            side, reason, language = line[1:-1].split()
            heading = side, reason, language
            continue
        side, reason, language = heading
        found.append(Probe(line, side == "hard", reason, language, file == AFTER))
    return found

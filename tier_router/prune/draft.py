"""A plan in the making: what steps have changed so far, and what they found and left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tier_router.config.pruning import Mode, Pruning, Step
from tier_router.prune.plan import Abstained, Edit, Known
from tier_router.prune.score import Scorer
from tier_router.prune.units import Path, Prompt, Text


@dataclass(slots=True)
class Draft:
    """What steps read and add to.

    `texts` are the texts that edits of steps which are on have changed; `referred` the places that
    pointers refer to, which must stay, with the places of the pointers.
    """

    body: Mapping[str, Any]
    prompt: Prompt
    config: Pruning
    modes: Mapping[Step, Mode]
    known: Known
    scorer: Scorer
    edits: list[Edit] = field(default_factory=list)
    abstained: list[Abstained] = field(default_factory=list)
    texts: dict[Path, str] = field(default_factory=dict)
    referred: dict[Path, list[Path]] = field(default_factory=dict)
    tools: bytes = b""
    in_time: Callable[[], None] = lambda: None
    """Raises when the time budget is used up; long work asks it between pieces."""

    def on(self, step: Step) -> bool:
        """Whether the step's edits are sent."""
        return self.modes[step] is Mode.ON

    def text(self, text: Text) -> str:
        """A text as earlier steps left it."""
        return self.texts.get(text.path, text.text)

    def free(self, text: Text) -> bool:
        """Whether a text may be changed: not frozen by a mark, not of a protected tool."""
        if text.message < self.prompt.frozen:
            return False
        name = text.call.name if text.call else ""
        return not any(fnmatchcase(name, pattern) for pattern in self.config.protect.tools)

    def add(self, edit: Edit) -> None:
        """Takes an edit; of a step that is on, later steps see its result."""
        self.edits.append(edit)
        if edit.on and isinstance(edit.value, str):
            self.texts[edit.path] = edit.value

    def unpoint(self, first: Path) -> None:
        """Takes back the pointers to a text."""
        gone = self.referred.pop(first, [])
        self.edits = [e for e in self.edits if e.step is not Step.DUPES or e.path not in gone]
        for path in gone:
            self.texts.pop(path, None)
            self.texts.update({e.path: e.value for e in self.edits if e.on and e.path == path})

    def abstain(self, step: Step, reason: str, message: int = -1) -> None:
        """Notes why a step left alone what it found."""
        self.abstained.append(Abstained(step, reason, message))

"""Exchanges inside one process."""

from __future__ import annotations

from collections.abc import Sequence

from tier_router.ledger import Report


class Alone:
    """The exchange of a process that has nobody to talk to."""

    async def swap(self, mine: Report) -> Sequence[Report]:
        """Nothing."""
        return ()

    async def close(self) -> None:
        """Nothing to let go of."""


class Board:
    """A board that several routers of one process share; `join` gives each its place."""

    def __init__(self) -> None:
        self._reports: dict[int, Report] = {}
        self._places = 0

    def join(self) -> Place:
        """A new place on the board."""
        self._places += 1
        return Place(self._reports, self._places)


class Place:
    """One router's place on a board."""

    def __init__(self, reports: dict[int, Report], number: int) -> None:
        self._reports, self._number = reports, number

    async def swap(self, mine: Report) -> Sequence[Report]:
        """The reports of the other places."""
        self._reports[self._number] = mine
        return [report for number, report in self._reports.items() if number != self._number]

    async def close(self) -> None:
        """Takes the report off the board."""
        self._reports.pop(self._number, None)

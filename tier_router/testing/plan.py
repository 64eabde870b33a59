"""Which requests meet which fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tier_router.testing.exchange import Exchange
from tier_router.testing.recorded import Recorded


class Fault:
    """Nothing wrong.  Each method is asked in turn; true means that the answer was given."""

    async def answer(self, exchange: Exchange, stream: bool) -> bool:
        """Called before the request is looked at."""
        return False

    async def before(self, exchange: Exchange, number: int) -> bool:
        """Called before event `number` (from 0, `[DONE]` included) of a stream."""
        return False

    async def whole(self, exchange: Exchange, content: bytes) -> bool:
        """Called before an answer that is not streamed."""
        return False


When = Callable[[Recorded], bool]


def generating(request: Recorded) -> bool:
    """True for requests that make the model write: POST to `/v1/...`."""
    return request.method == "POST" and request.path.startswith("/v1/")


def anything(request: Recorded) -> bool:
    """True for each request."""
    return True


@dataclass(slots=True)
class _Planned:
    fault: Fault
    left: int | None
    when: When


class Faults:
    """The faults of one server, in the order they were added; a request meets one at most."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def add(self, fault: Fault, times: int | None = 1, when: When | None = None) -> None:
        """The next `times` requests for which `when` holds meet `fault`; None: until `clear`.

        Without `when` only requests that generate do, so that no scrape takes it away; for
        `/health` and the like say `when=anything` or name the path."""
        self._planned.append(_Planned(fault, times, when or generating))

    def clear(self) -> None:
        """Nothing goes wrong from now on."""
        self._planned.clear()

    def take(self, request: Recorded) -> Fault:
        """The fault that `request` meets."""
        for planned in self._planned:
            if planned.when(request):
                if planned.left is not None:
                    planned.left -= 1
                    if planned.left <= 0:
                        self._planned.remove(planned)
                return planned.fault
        return Fault()

    def __len__(self) -> int:
        return len(self._planned)

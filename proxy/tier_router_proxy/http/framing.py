"""Where a message body ends, followed through its raw bytes.

A proxy that passes framing through byte for byte has to know the end exactly: `0 CRLF CRLF` may
occur inside a chunk's data, and bytes behind the end belong to nobody. The walker is strict where
two readers could disagree about a border (bare LF, signs, blanks after the size): the client reads
the very bytes that were walked here.
"""

from __future__ import annotations

import re

from tier_router_proxy.http.messages import Framing, FramingKind

# Longer than any size with an extension seen in use; h11's own limit is its 16 KiB buffer.
MAX_CHUNK_LINE = 4096
# Trailers share the spirit of a head limit; the vLLM servers behind send none.
MAX_TRAILER_BYTES = 16 * 1024
# What fits a signed 64-bit length everywhere downstream.
MAX_SIZE = 2**63 - 1

_VISIBLE = rb"[\t\x20-\x7e\x80-\xff]"
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,16})(?:;" + _VISIBLE + rb"*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:" + _VISIBLE + rb"*\r\n")

_COUNTED, _SIZE_LINE, _DATA, _DATA_CR, _DATA_LF, _TRAILERS, _ENDLESS = range(7)


class FramingError(ValueError):
    """The body's chunk framing cannot be trusted."""


class Walker:
    """Follows one body from its first byte; `done` is true once its last byte was fed."""

    __slots__ = ("_line", "_need", "_state", "_trailer", "done")

    def __init__(self, framing: Framing) -> None:
        kind = framing.kind
        self._line = b""
        self._need = 0
        self._trailer = 0
        self.done = False
        if kind is FramingKind.CHUNKED:
            self._state = _SIZE_LINE
        elif kind is FramingKind.CLOSE:
            self._state = _ENDLESS
        else:
            self._state = _COUNTED
            self._need = framing.length if kind is FramingKind.LENGTH else 0
            self.done = self._need == 0

    def feed(self, data: bytes, start: int = 0) -> int:
        """The offset in `data` behind the body's last byte so far; bytes from there are not its."""
        return self._walk(data, start, None)

    def payload(self, data: bytes, start: int = 0) -> tuple[list[bytes], int]:
        """The de-chunked pieces in `data`, and the same offset as `feed` gives."""
        pieces: list[bytes] = []
        return pieces, self._walk(data, start, pieces)

    def _walk(self, data: bytes, pos: int, out: list[bytes] | None) -> int:
        if self.done:
            return pos
        end = len(data)
        if self._state == _COUNTED:
            return self._counted(data, pos, end, out)
        if self._state == _ENDLESS:
            if out is not None and pos < end:
                out.append(data[pos:])
            return end
        while pos < end and not self.done:
            state = self._state
            if state == _SIZE_LINE:
                pos = self._size_line(data, pos)
            elif state == _DATA:
                pos = self._data(data, pos, end, out)
            elif state == _TRAILERS:
                pos = self._trailer_line(data, pos)
            else:
                pos = self._data_end(data, pos)
        return pos

    def _counted(self, data: bytes, pos: int, end: int, out: list[bytes] | None) -> int:
        stop = min(pos + self._need, end)
        self._need -= stop - pos
        self.done = self._need == 0
        if out is not None and pos < stop:
            out.append(data[pos:stop])
        return stop

    def _size_line(self, data: bytes, pos: int) -> int:
        if self._line:
            line, pos = self._whole_line(data, pos, MAX_CHUNK_LINE)
            if line is None:
                return pos
            match = _CHUNK.fullmatch(line)
        else:
            match = _CHUNK.match(data, pos)
            if match is None:
                line, pos = self._whole_line(data, pos, MAX_CHUNK_LINE)
                if line is None:
                    return pos
            else:
                if match.end() - pos > MAX_CHUNK_LINE:
                    raise FramingError("chunk size line too long")
                pos = match.end()
        if match is None:
            raise FramingError("bad chunk size line")
        size = int(match[1], 16)
        if size > MAX_SIZE:
            raise FramingError("chunk size too large")
        self._need = size
        self._state = _DATA if size else _TRAILERS
        return pos

    def _data(self, data: bytes, pos: int, end: int, out: list[bytes] | None) -> int:
        stop = pos + self._need
        if stop > end:
            stop = end
        if out is not None:
            out.append(data[pos:stop])
        self._need -= stop - pos
        if self._need:
            return stop
        if data.startswith(b"\r\n", stop):
            self._state = _SIZE_LINE
            return stop + 2
        self._state = _DATA_CR
        return stop

    def _data_end(self, data: bytes, pos: int) -> int:
        wanted, following = (13, _DATA_LF) if self._state == _DATA_CR else (10, _SIZE_LINE)
        if data[pos] != wanted:
            raise FramingError("chunk data not followed by a line break")
        self._state = following
        return pos + 1

    def _trailer_line(self, data: bytes, pos: int) -> int:
        line, pos = self._whole_line(data, pos, MAX_TRAILER_BYTES - self._trailer)
        if line is None:
            return pos
        if line == b"\r\n":
            self.done = True
        elif _TRAILER.fullmatch(line) is None:
            raise FramingError("bad trailer line")
        self._trailer += len(line)
        return pos

    def _whole_line(self, data: bytes, pos: int, limit: int) -> tuple[bytes | None, int]:
        """The line that ends in `data` (its start may be from before), or None while it is open."""
        stop = data.find(b"\n", pos) + 1
        line = self._line + (data[pos:stop] if stop else data[pos : pos + limit + 1])
        if len(line) > limit:
            raise FramingError("chunk framing line too long")
        if not stop:
            self._line = line
            return None, len(data)
        self._line = b""
        return line, stop

"""Assembles request bodies that arrive in pieces: a REQUEST with the flag MORE, CHUNKs, END."""

from __future__ import annotations

from . import frames, responses
from .errors import ProtocolError

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple, Union


class Uploads:
    def __init__(self) -> None:
        self._open: Dict[int, Any] = {}  # id → [name, headers, pieces, bytes so far]; None after a refusal, until END

    def add(self, frame: frames.Frame, max_message: int) -> Union[None, bytes, Tuple[int, bytes, bytes, bytes]]:
        """Adds a frame. Returns None, or the complete request as (id, name, headers, body), or an ERROR payload to respond with."""
        kind, _, id, name, headers, body = frame
        if kind == frames.REQUEST:
            if id in self._open:
                raise ProtocolError("request %d started twice" % id)
            self._open[id] = [name, headers, [body], len(body)]
            return None
        if id not in self._open:
            return None  # the rest of a cancelled request
        upload = self._open[id]
        if kind == frames.END:
            del self._open[id]
            return None if upload is None else (id, upload[0], upload[1], b"".join(upload[2]))
        if upload is None:
            return None
        upload[2].append(body)
        upload[3] += len(body)
        if upload[3] <= max_message:
            return None
        self._open[id] = None
        return responses.error_payload("too_large", "request body exceeds the limit of %d bytes" % max_message)

    def drop(self, id: int) -> bool:
        """Drops a cancelled request; returns whether it still needs a response."""
        return self._open.pop(id, None) is not None

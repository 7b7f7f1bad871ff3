"""Files of backups of sessions."""

from __future__ import annotations

import json
import os
import tempfile
from typing import IO, Any, Dict, Iterator

from .endpoint import Reply
from .errors import TempoolError, Unavailable, error_of

_PIECE = 64 << 10
_LAST_LINE = 4 << 10  # above the size of the last line of a backup


def save(reply: Reply, path: str) -> int:
    """Writes an answer, which must be a whole backup, to a file that only its owner can read, and returns its number of sessions. If that fails,
    the old file stays."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError("cannot replace %s with a backup: it is not a regular file" % path)
        handle, new = tempfile.mkstemp(prefix="." + name + ".new-", dir=folder)
    except BaseException:
        reply.close()
        raise
    try:
        with os.fdopen(handle, "wb") as out:
            sessions = _copy(reply, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, path)
    except BaseException:
        reply.close()
        os.unlink(new)
        raise
    return sessions


def _copy(reply: Reply, out: IO[bytes]) -> int:
    tail = b""
    try:
        while True:
            piece = reply.read_some()
            if not piece:
                break
            out.write(piece)
            tail = (tail + piece)[-_LAST_LINE:]
    except TempoolError:
        failure = _last(tail)
        if "error" in failure:
            raise error_of(0, "", {}, json.dumps({"code": failure.get("code"), "detail": failure["error"]}).encode()) from None
        raise
    sessions = _last(tail).get("sessions")
    if not isinstance(sessions, int):
        raise Unavailable("the answer is truncated or not from a Tempool gateway: the last line of the backup is missing", "unavailable", True)
    return sessions


def _last(tail: bytes) -> Dict[str, Any]:
    """Returns the object in the last line, empty if there is none."""
    try:
        last = json.loads(tail.rstrip(b"\n").rpartition(b"\n")[2])
    except ValueError:
        return {}
    return last if isinstance(last, dict) else {}


class Content:
    """The content of a file as the body of a request, from its beginning in each attempt."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.size = os.path.getsize(path)

    def __iter__(self) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            while True:
                piece = file.read(_PIECE)
                if not piece:
                    return
                yield piece

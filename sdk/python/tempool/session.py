"""The session of a call and its programs, in the host's session store: every worker of the pool sees the same."""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping

from .errors import Conflict

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, ItemsView, Iterator, KeysView, List, MutableMapping as Base, Optional, ValuesView

    Host = Callable[..., Any]
    Mutable = Base[str, Any]
else:
    Mutable = MutableMapping

_ATTEMPTS = 16  # of a change that conflicts with others
_absent = object()


class Entries(Mutable):
    """A mapping in a session: data or metadata. Values are anything JSON can represent.

    Nothing is cached: each access is a host call; items(), values() and copy() make one for all keys. Setting and deleting a key are
    atomic. For a change that depends on the current value, such as counting, use change().
    """

    def __init__(self, host: Host, part: str) -> None:
        self._host = host
        self._part = part

    def copy(self) -> Dict[str, Any]:
        """Returns a copy as a dict."""
        entries: Dict[str, Any] = self._host("session.get")[self._part]
        return entries

    def __getitem__(self, key: str) -> Any:
        return self.copy()[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.copy().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def keys(self) -> KeysView[str]:
        return self.copy().keys()

    def items(self) -> ItemsView[str, Any]:
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        return self.copy().values()

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Entries) else other)

    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, key: str, value: Any) -> None:
        """Sets a key; None removes it."""
        if isinstance(value, dict):
            self.change(key, lambda _: value)  # a patch would merge the two dicts
        else:
            self._patch({_checked_key(key): value})

    def __delitem__(self, key: str) -> None:
        """Removes a key. Raises KeyError if it is missing."""
        def remove(old: Any) -> None:
            if old is _absent:
                raise KeyError(key)
        self._change(key, remove)

    def pop(self, key: str, default: Any = _absent) -> Any:
        """Removes a key and returns its value, or default if it is missing. Raises KeyError if there is no default."""
        taken: List[Any] = []

        def remove(old: Any) -> None:
            taken[:] = [old]
        self._change(key, remove)
        if taken[0] is not _absent:
            return taken[0]
        if default is _absent:
            raise KeyError(key)
        return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Returns the value of a key, after setting it to default if it is missing."""
        return self.change(key, lambda old: default if old is None else old)

    def clear(self) -> None:
        """Removes every key."""
        self._host("session.update", {"patch": {self._part: None}})

    def update(self, *patch: Any, **more: Any) -> None:
        """Applies a dict, keywords or both as a JSON merge patch (RFC 7396), atomically: None removes a key, and dicts are merged."""
        self._patch(dict(*patch, **more))

    def change(self, key: str, fn: Callable[[Any], Any]) -> Any:
        """Sets a key to fn(current value or None), atomically, and returns the result: change("visits", lambda n: (n or 0) + 1).

        If another call changed the session first, fn runs again. Raises tempool.Conflict after 16 attempts.
        """
        return self._change(key, lambda old: fn(None if old is _absent else old))

    def _change(self, key: str, fn: Callable[[Any], Any]) -> Any:
        _checked_key(key)
        for attempt in range(_ATTEMPTS):
            session = self._host("session.get")
            old = session[self._part].get(key, _absent)
            new = _storable(fn(old))
            if new is None and old is _absent or new == old and _same_in_json(new, old):
                return new
            try:
                self._patch({key: _difference(old, new)}, session["version"])
                return new
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                _backoff(attempt)

    def _patch(self, patch: Any, version: Optional[int] = None) -> Any:
        arguments: Dict[str, Any] = {"patch": {self._part: patch}}
        if version is not None:
            arguments["version"] = version
        return self._host("session.update", arguments)

    def __repr__(self) -> str:
        return "<%s of the call's session>" % self._part


class Session(Entries):
    """The session of a call: a mapping of its data, with metadata, version and more.

    The first use creates the session. Host calls that fail raise tempool.HostError or a subclass.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host, "data")

    def load(self) -> Dict[str, Any]:
        """Returns the session as a dict: id, data, programs, metadata, version, created_at, last_accessed and ttl."""
        session: Dict[str, Any] = self._host("session.get")
        return session

    @property
    def id(self) -> str:
        """The id: the client's, or a temporary one for this call."""
        return str(self.load()["id"])

    @property
    def version(self) -> int:
        """The version, which grows by 1 with each change."""
        return int(self.load()["version"])

    @property
    def metadata(self) -> Entries:
        """The metadata, a mapping like the data."""
        return Entries(self._host, "metadata")

    def patch(self, patch: Dict[str, Any], version: Optional[int] = None) -> Dict[str, Any]:
        """Applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl atomically, and returns the new session. With version,
        raises tempool.Conflict if the session has another version."""
        arguments: Dict[str, Any] = {"patch": patch}
        if version is not None:
            arguments["version"] = version
        session: Dict[str, Any] = self._host("session.update", arguments)
        return session

    def touch(self) -> Dict[str, Any]:
        """Extends the session's ttl, and returns the session."""
        session: Dict[str, Any] = self._host("session.touch")
        return session

    def delete(self) -> None:
        """Deletes the session. The next use creates a new one with the same id."""
        self._host("session.delete")


class Programs:
    """Programs of the call's session: anything JSON can represent, shared by all workers of the pool."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def put(self, id: str, program: Any) -> None:
        """Stores a program under id and replaces an existing one."""
        self._host("programs.put", {"id": id, "program": program})

    def get(self, id: str) -> Any:
        """Returns the program. Raises tempool.ProgramNotFound if there is none with this id."""
        return self._host("programs.get", {"id": id})

    def delete(self, id: str) -> None:
        """Deletes the program if it exists."""
        self._host("programs.delete", {"id": id})


def _backoff(attempt: int) -> None:
    """Sleeps for a random time, longer with each attempt, before a conflicting change is retried."""
    time.sleep(min(0.001 * 2 ** attempt, 0.1) * os.urandom(1)[0] / 255)


def _checked_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError("session keys must be str, not %s" % type(key).__name__)
    return key


def _storable(value: Any) -> Any:
    """Returns value. Raises ValueError for a None in a dict: in a merge patch, null removes a key."""
    if isinstance(value, dict):
        for key, member in value.items():
            if member is None:
                raise ValueError("a session cannot store None in a dict (key %r): omit the key, or put the None in a list" % (key,))
            _storable(member)
    return value


def _difference(old: Any, new: Any) -> Any:
    """Returns the merge patch from old to new."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    patch: Dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or value != old[key] or not _same_in_json(value, old[key]):
            patch[key] = _difference(old.get(key), value)
    return patch


def _same_in_json(a: Any, b: Any) -> bool:
    """Whether equal values are also equal in JSON, where true is not 1. Containers are assumed not to be."""
    return type(a) is type(b) and not isinstance(a, (dict, list, tuple))

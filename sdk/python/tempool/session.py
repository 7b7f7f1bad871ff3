"""The session of a call and its programs, in the host's session store: every worker of the pool sees the same."""

import os
import time
from collections.abc import MutableMapping

from .errors import Conflict

_ATTEMPTS = 16  # of a change that conflicts with others
_absent = object()


class Entries(MutableMapping):
    """A mapping in a session: data or metadata. Values are anything JSON can represent.

    Nothing is cached: each access is a host call; items(), values() and copy() make one for all keys. Setting and deleting a key are
    atomic. For a change that depends on the current value, such as counting, use change().
    """

    def __init__(self, host, part):
        self._host = host
        self._part = part

    def copy(self):
        """Returns a copy as a dict."""
        return self._host("session.get")[self._part]

    def __getitem__(self, key):
        return self.copy()[key]

    def get(self, key, default=None):
        return self.copy().get(key, default)

    def __contains__(self, key):
        return key in self.copy()

    def __iter__(self):
        return iter(self.copy())

    def __len__(self):
        return len(self.copy())

    def keys(self):
        return self.copy().keys()

    def items(self):
        return self.copy().items()

    def values(self):
        return self.copy().values()

    def __eq__(self, other):
        return self.copy() == (other.copy() if isinstance(other, Entries) else other)

    __hash__ = None

    def __setitem__(self, key, value):
        """Sets a key; None removes it."""
        if isinstance(value, dict):
            self.change(key, lambda _: value)  # a patch would merge the two dicts
        else:
            self._patch({_checked_key(key): value})

    def __delitem__(self, key):
        """Removes a key. Raises KeyError if it is missing."""
        def remove(old):
            if old is _absent:
                raise KeyError(key)
        self._change(key, remove)

    def pop(self, key, default=_absent):
        """Removes a key and returns its value, or default if it is missing. Raises KeyError if there is no default."""
        taken = []

        def remove(old):
            taken[:] = [old]
        self._change(key, remove)
        if taken[0] is not _absent:
            return taken[0]
        if default is _absent:
            raise KeyError(key)
        return default

    def setdefault(self, key, default=None):
        """Returns the value of a key, after setting it to default if it is missing."""
        return self.change(key, lambda old: default if old is None else old)

    def clear(self):
        """Removes every key."""
        self._host("session.update", {"patch": {self._part: None}})

    def update(self, *patch, **more):
        """Applies a dict, keywords or both as a JSON merge patch (RFC 7396), atomically: None removes a key, and dicts are merged."""
        self._patch(dict(*patch, **more))

    def change(self, key, fn):
        """Sets a key to fn(current value or None), atomically, and returns the result: change("visits", lambda n: (n or 0) + 1).

        If another call changed the session first, fn runs again. Raises tempool.Conflict after 16 attempts.
        """
        return self._change(key, lambda old: fn(None if old is _absent else old))

    def _change(self, key, fn):
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

    def _patch(self, patch, version=None):
        arguments = {"patch": {self._part: patch}}
        if version is not None:
            arguments["version"] = version
        return self._host("session.update", arguments)

    def __repr__(self):
        return "<%s of the call's session>" % self._part


class Session(Entries):
    """The session of a call: a mapping of its data, with metadata, version and more.

    The first use creates the session. Host calls that fail raise tempool.HostError or a subclass.
    """

    def __init__(self, host):
        super().__init__(host, "data")

    def load(self):
        """Returns the session as a dict: id, data, programs, metadata, version, created_at, last_accessed and ttl."""
        return self._host("session.get")

    @property
    def id(self):
        """The id: the client's, or a temporary one for this call."""
        return self.load()["id"]

    @property
    def version(self):
        """The version, which grows by 1 with each change."""
        return self.load()["version"]

    @property
    def metadata(self):
        """The metadata, a mapping like the data."""
        return Entries(self._host, "metadata")

    def patch(self, patch, version=None):
        """Applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl atomically, and returns the new session. With version,
        raises tempool.Conflict if the session has another version."""
        arguments = {"patch": patch}
        if version is not None:
            arguments["version"] = version
        return self._host("session.update", arguments)

    def touch(self):
        """Extends the session's ttl, and returns the session."""
        return self._host("session.touch")

    def delete(self):
        """Deletes the session. The next use creates a new one with the same id."""
        self._host("session.delete")


class Programs:
    """Programs of the call's session: anything JSON can represent, shared by all workers of the pool."""

    def __init__(self, host):
        self._host = host

    def put(self, id, program):
        """Stores a program under id and replaces an existing one."""
        self._host("programs.put", {"id": id, "program": program})

    def get(self, id):
        """Returns the program. Raises tempool.ProgramNotFound if there is none with this id."""
        return self._host("programs.get", {"id": id})

    def delete(self, id):
        """Deletes the program if it exists."""
        self._host("programs.delete", {"id": id})


def _backoff(attempt):
    """Sleeps for a random time, longer with each attempt, before a conflicting change is retried."""
    time.sleep(min(0.001 * 2 ** attempt, 0.1) * os.urandom(1)[0] / 255)


def _checked_key(key):
    if not isinstance(key, str):
        raise TypeError("session keys must be str, not %s" % type(key).__name__)
    return key


def _storable(value):
    """Returns value. Raises ValueError for a None in a dict: in a merge patch, null removes a key."""
    if isinstance(value, dict):
        for key, member in value.items():
            if member is None:
                raise ValueError("a session cannot store None in a dict (key %r): omit the key, or put the None in a list" % (key,))
            _storable(member)
    return value


def _difference(old, new):
    """Returns the merge patch from old to new."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or value != old[key] or not _same_in_json(value, old[key]):
            patch[key] = _difference(old.get(key), value)
    return patch


def _same_in_json(a, b):
    """Whether equal values are also equal in JSON, where true is not 1. Containers are assumed not to be."""
    return type(a) is type(b) and not isinstance(a, (dict, list, tuple))

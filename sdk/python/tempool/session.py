"""The session of a call, and the programs in it: kept by the host, so that every worker of the pool sees the same."""

import os
import time
from collections.abc import MutableMapping

from .errors import Conflict

_ATTEMPTS = 16  # of a change that others keep getting in the way of
_absent = object()


class Entries(MutableMapping):
    """One part of a session, by key, as a mapping of what JSON can hold.

    Nothing is kept here: each access asks the host, and items(), values() and copy() ask once for all. Setting a key and deleting
    one are atomic; for a change that depends on what is there, such as counting, use change().
    """

    def __init__(self, host, part):
        self._host = host
        self._part = part

    def copy(self):
        """All of it as a dict of your own."""
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
        """Sets a key to value, whatever it was before; None removes it."""
        if isinstance(value, dict):
            self.change(key, lambda _: value)  # a patch would merge it into the dict that is there
        else:
            self._patch({_checked(key): value})

    def __delitem__(self, key):
        """Removes a key; KeyError if it is not there."""
        def remove(old):
            if old is _absent:
                raise KeyError(key)
        self._change(key, remove)

    def pop(self, key, default=_absent):
        """Removes a key and returns what it was set to; without a default, KeyError if it is not there."""
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
        """What the key is set to, once it is set to default where it was not there."""
        return self.change(key, lambda old: default if old is None else old)

    def clear(self):
        """Removes every key."""
        self._host("session.update", {"patch": {self._part: None}})

    def update(self, *patch, **more):
        """Merges a dict, keywords or both into what is there, as a JSON merge patch (RFC 7396), at once: None removes a key, and a dict is
        merged into the dict that is there."""
        self._patch(dict(*patch, **more))

    def change(self, key, fn):
        """Sets a key to fn(what it was set to, or None), atomically, and returns that: change("visits", lambda n: (n or 0) + 1).

        fn runs again when another call has changed the session meanwhile; after many times tempool.Conflict is raised.
        """
        return self._change(key, lambda old: fn(None if old is _absent else old))

    def _change(self, key, fn):
        _checked(key)
        for attempt in range(_ATTEMPTS):
            session = self._host("session.get")
            old = session[self._part].get(key, _absent)
            new = _storable(fn(old))
            if new is None and old is _absent or new == old and _alike(new, old):
                return new
            try:
                self._patch({key: _difference(old, new)}, session["version"])
                return new
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                _step_aside(attempt)

    def _patch(self, patch, version=None):
        arguments = {"patch": {self._part: patch}}
        if version is not None:
            arguments["version"] = version
        return self._host("session.update", arguments)

    def __repr__(self):
        return "<%s of the call's session>" % self._part


class Session(Entries):
    """The session of a call: a mapping of its data, and what else belongs to it.

    It begins with its first use. tempool.HostError, or one of its kinds, is raised when the host refuses.
    """

    def __init__(self, host):
        super().__init__(host, "data")

    def load(self):
        """The whole session: id, data, programs, metadata, version, created_at, last_accessed and ttl."""
        return self._host("session.get")

    @property
    def id(self):
        """Its id: the client's, or one made up for this call alone."""
        return self.load()["id"]

    @property
    def version(self):
        """How often it was changed."""
        return self.load()["version"]

    @property
    def metadata(self):
        """Its metadata, a mapping like its data."""
        return Entries(self._host, "metadata")

    def patch(self, patch, version=None):
        """Applies a JSON merge patch (RFC 7396) to data, metadata, programs and ttl at once, and returns the new session. With version,
        only if the session has that version still: tempool.Conflict if not."""
        arguments = {"patch": patch}
        if version is not None:
            arguments["version"] = version
        return self._host("session.update", arguments)

    def touch(self):
        """Extends its life, and returns it."""
        return self._host("session.touch")

    def delete(self):
        """Ends it. One with the same id begins with the next use."""
        self._host("session.delete")


class Programs:
    """Programs of the call's session: anything JSON can hold, put by one worker and got by any other."""

    def __init__(self, host):
        self._host = host

    def put(self, id, program):
        """Keeps a program under id, in place of the one before."""
        self._host("programs.put", {"id": id, "program": program})

    def get(self, id):
        """The program; tempool.ProgramNotFound if the session has none of this id."""
        return self._host("programs.get", {"id": id})

    def delete(self, id):
        """Forgets the program; nothing happens if there is none."""
        self._host("programs.delete", {"id": id})


def _step_aside(attempt):
    """Waits for up to a millisecond, and longer each time, so that those who change one session at once do not stay in step."""
    time.sleep(min(0.001 * 2 ** attempt, 0.1) * os.urandom(1)[0] / 255)


def _checked(key):
    if not isinstance(key, str):
        raise TypeError("a session's keys are str, not %s" % type(key).__name__)
    return key


def _storable(value):
    """value, or ValueError for what a merge patch cannot set: null inside of an object means to remove."""
    if isinstance(value, dict):
        for key, member in value.items():
            if member is None:
                raise ValueError("a session cannot keep None in a dict (at %r): leave the key out, or put the None into a list" % (key,))
            _storable(member)
    return value


def _difference(old, new):
    """The merge patch that makes new of old."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or value != old[key] or not _alike(value, old[key]):
            patch[key] = _difference(old.get(key), value)
    return patch


def _alike(a, b):
    """Whether equal values are the same in JSON, too, where true is not 1; what holds others is taken not to be."""
    return type(a) is type(b) and not isinstance(a, (dict, list, tuple))

"""A session store in memory: what hosts and gateways do with sessions, without expiry."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any, Dict, Optional

from ..client.errors import SessionNotFound, TempoolError, VersionConflict


class MemorySessions:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: Dict[str, Dict[str, Any]] = {}  # guarded by _lock

    def get(self, id: str) -> Dict[str, Any]:
        """Returns a copy of the session. Raises SessionNotFound."""
        with self._lock:
            if id not in self._sessions:
                raise SessionNotFound("session %s does not exist" % id, "session_not_found")
            return copy.deepcopy(self._sessions[id])

    def put(self, id: str, content: Optional[Dict[str, Any]] = None, version: Optional[int] = None) -> Dict[str, Any]:
        """Stores a session with this data, programs, metadata and ttl, and returns it. Raises VersionConflict if it has another version."""
        with self._lock:
            old = self._sessions.get(id, {})
            if version is not None and old.get("version") != version:
                raise VersionConflict("session %s has version %s, not %d" % (id, old.get("version", 0), version), "version_conflict")
            now, content = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), content or {}
            session: Dict[str, Any] = {part: copy.deepcopy(content.get(part) or {}) for part in ("data", "programs", "metadata")}
            session.update(
                id=id, ttl=content.get("ttl") or "1h", version=old.get("version", 0) + 1, created_at=old.get("created_at", now), last_accessed=now)
            self._sessions[id] = session
            return self.get(id)

    def patch(self, id: str, patch: Any, version: Optional[int] = None) -> Dict[str, Any]:
        """Applies a merge patch (RFC 7396), and returns the session."""
        with self._lock:
            return self.put(id, _merge(self.get(id), patch), version)

    def delete(self, id: str) -> None:
        """Deletes a session. Raises SessionNotFound."""
        with self._lock:
            self.get(id)
            del self._sessions[id]

    def host_call(self, id: str, method: str, params: Dict[str, Any]) -> Any:
        """Serves a host call of a call with this session."""
        with self._lock:
            if method == "session.delete":
                self._sessions.pop(id, None)
                return None
            if id not in self._sessions and params.get("version") is None:
                self.put(id)
            if method in ("session.get", "session.touch"):
                return self.get(id)
            if method == "session.update":
                return self.patch(id, params["patch"], params.get("version"))
            session = self.get(id)
            programs = session["programs"]
            if method == "programs.get":
                if params["id"] not in programs:
                    raise TempoolError("session %s has no program %s" % (id, params["id"]), "program_not_found")
                return programs[params["id"]]
            if method == "programs.put":
                programs[params["id"]] = params["program"]
            elif method == "programs.delete":
                programs.pop(params["id"], None)
            else:
                raise TempoolError("the host has no method " + method, "unsupported")
            self.put(id, session)
            return None


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged

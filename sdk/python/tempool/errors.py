"""Exceptions that handlers can raise, and those that the SDK raises in handlers."""

from __future__ import annotations


TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any


class Error(Exception):
    """An error with a code of your own and optional data for the caller (anything JSON can represent)."""

    fatal = False

    def __init__(self, message: str, code: str = "error", data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Fatal(Error):
    """An error after which this process must not be used again: Tempool returns it to the caller and replaces the process."""

    fatal = True


class Cancelled(Error):
    """The caller cancelled the call or has disconnected."""

    def __init__(self, message: str = "the call was cancelled") -> None:
        super().__init__(message, code="cancelled")


class HostError(Error):
    """The host rejected or failed a host call; code says why."""


class Conflict(HostError):
    """Another call changed the session first."""


class SessionNotFound(HostError):
    """The call's session does not exist."""


class ProgramNotFound(HostError):
    """The call's session has no program with that id."""


_HOST_ERRORS = {"version_conflict": Conflict, "session_not_found": SessionNotFound, "program_not_found": ProgramNotFound}


def host_error(message: str, code: str, data: Any = None) -> Error:
    """Returns the exception for a host error."""
    if code == "cancelled":
        return Cancelled(message)
    return _HOST_ERRORS.get(code, HostError)(message, code=code, data=data)


class ProtocolError(Exception):
    """The host violated the protocol. The connection cannot be used further."""

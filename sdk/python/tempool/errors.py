"""What a handler may raise to say more than "it failed", and what the SDK raises into handlers."""


class Error(Exception):
    """A failure with a code of your own and, if you like, data for the caller (anything JSON can hold)."""

    fatal = False

    def __init__(self, message, code="error", data=None):
        super().__init__(message)
        self.code = code
        self.data = data


class Fatal(Error):
    """A failure after which this process should not be used again: Tempool answers the caller, then replaces the worker."""

    fatal = True


class Cancelled(Error):
    """Nobody waits for this call any more."""

    def __init__(self, message="the call was cancelled"):
        super().__init__(message, code="cancelled")


class HostError(Error):
    """The host refused or failed what this worker asked of it; code says why."""


class Conflict(HostError):
    """The session was changed by somebody else meanwhile."""


class SessionNotFound(HostError):
    """The call's session has ended, or has not begun."""


class ProgramNotFound(HostError):
    """The call's session has no program of that id."""


_HOST_ERRORS = {"version_conflict": Conflict, "session_not_found": SessionNotFound, "program_not_found": ProgramNotFound}


def host_error(message, code, data=None):
    """The exception for what the host said."""
    if code == "cancelled":
        return Cancelled(message)
    return _HOST_ERRORS.get(code, HostError)(message, code=code, data=data)


class ProtocolError(Exception):
    """The bytes are not what the protocol allows. Nothing read after them can be trusted."""

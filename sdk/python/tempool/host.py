"""The messages exchanged with the host other than calls: hellos and the results of host calls."""

from __future__ import annotations

import json

from . import frames
from .errors import HostError, ProtocolError, host_error

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Iterable, Optional, Tuple

SDK = "python/0.1.0"


def hello(methods: Iterable[bytes]) -> bytes:
    """Returns the worker's hello. methods maps encoded names to handlers."""
    message = {"protocol": frames.PROTOCOL, "sdk": SDK, "methods": sorted(name.decode() for name in methods)}
    return json.dumps(message).encode()


def max_message_of(payload: bytes) -> int:
    """Decodes the host's hello and returns its max_message in bytes."""
    try:
        message = json.loads(payload)
        protocol, limit = message["protocol"], int(message["max_message"])
    except (ValueError, KeyError, TypeError):
        raise ProtocolError("malformed hello") from None
    if protocol != frames.PROTOCOL:
        raise ProtocolError("the host has protocol version %s, this SDK has %d: install the SDK of the host's release" % (protocol, frames.PROTOCOL))
    return limit


def host_result(result: Optional[Tuple[int, bytes]]) -> bytes:
    """Returns the payload of a host call's result, given as (type, payload), or raises HostError. None means that the host closed the connection."""
    if result is None:
        raise HostError("the host closed the connection", code="closed")
    kind, payload = result
    if kind == frames.HOST_RESULT:
        return payload
    try:
        message = json.loads(payload)
        error = host_error(message["message"], message["code"], message.get("data"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProtocolError("malformed host error") from None
    raise error

"""What the two sides say to each other besides calls: hellos, host calls, and request bodies that come in pieces."""

import json

from . import answers, frames
from .errors import HostError, ProtocolError, host_error

SDK = "python/0.1.0"


def hello(methods):
    """The worker's hello; methods maps encoded names to handlers."""
    names = sorted(name.decode() for name in methods)
    return json.dumps({"protocol": frames.PROTOCOL, "sdk": SDK, "methods": names}).encode()


def welcome(payload):
    """The host's hello: how many bytes a message may have."""
    try:
        said = json.loads(payload)
        protocol, limit = said["protocol"], int(said["max_message"])
    except (ValueError, KeyError, TypeError):
        raise ProtocolError("a hello that is not JSON of its shape") from None
    if protocol != frames.PROTOCOL:
        raise ProtocolError("the host speaks protocol %s and this SDK %d: install the SDK of its release" % (protocol, frames.PROTOCOL))
    return limit


def host_result(answer):
    """The payload of a host call's answer (type, payload), or HostError; None stands for a host that is gone."""
    if answer is None:
        raise HostError("the host closed the connection before it answered", code="closed")
    kind, payload = answer
    if kind == frames.HOST_RESULT:
        return payload
    try:
        said = json.loads(payload)
        failure = host_error(said["message"], said["code"], said.get("data"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProtocolError("a host error that is not JSON of its shape") from None
    raise failure


class Uploads:
    """Puts request bodies together that come in pieces: a REQUEST with the flag MORE, CHUNKs, END."""

    def __init__(self):
        self._open = {}  # id → [name, headers, pieces, bytes so far]; None once refused, until END

    def add(self, frame, max_message):
        """Takes a piece in. Returns None, or the whole request as (id, name, headers, body), or an ERROR payload to answer with."""
        kind, _, id, name, headers, body = frame
        if kind == frames.REQUEST:
            if id in self._open:
                raise ProtocolError("request %d begins twice" % id)
            self._open[id] = [name, headers, [body], len(body)]
            return None
        if id not in self._open:
            return None  # the rest of a request that was cancelled
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
        return answers.refusal("too_large", "the request body exceeds %d bytes" % max_message)

    def drop(self, id):
        """Forgets a request that was cancelled; tells whether its answer was still due."""
        return self._open.pop(id, None) is not None

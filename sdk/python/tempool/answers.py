"""How a call ends on the wire: a response, or an error that says what happened."""

import json
import traceback

from . import frames
from .errors import Cancelled, Error


def failure(error):
    """An exception as the payload of an ERROR frame, cut to what fits into one."""
    report = {
        "code": error.code if isinstance(error, Error) else "error",
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }
    if isinstance(error, Error):
        if error.data is not None:
            report["data"] = _data(error.data)
        if error.fatal:
            report["fatal"] = True
    payload = json.dumps(report).encode()
    if len(payload) > frames.MAX_CONTROL:
        report.update(message=report["message"][:2000], traceback=report["traceback"][-4000:], data=None)
        payload = json.dumps(report).encode()
    return payload


def _data(data):
    try:
        json.dumps(data)
        return data
    except (TypeError, ValueError, RecursionError):
        return repr(data)


def not_found(name, methods):
    known = ", ".join(sorted(method.decode() for method in methods)) or "none"
    return json.dumps({
        "code": "method_not_found",
        "message": "no method %.100r here; this worker has: %.1000s" % (name.decode(errors="replace"), known),
    }).encode()


def refusal(code, message):
    return json.dumps({"code": code, "message": message}).encode()


def serve(connection, method, id, body):
    """Runs a handler and sends its answer.

    SystemExit and KeyboardInterrupt pass through: they end the worker, and the host sees the call cut.
    """
    try:
        payload = _stream(connection, method, id, body) if method.streams else method.call(body)
    except Exception as error:
        fail(connection, id, error)
    else:
        conclude(connection, id, payload)


def conclude(connection, id, payload):
    """Sends a result, or why it cannot be sent."""
    try:
        if len(payload) > connection.max_message:
            raise Error("the result has %d bytes, the host takes %d" % (len(payload), connection.max_message), code="too_large")
        made = connection.made
        headers = b"" if made is None else made.answer_headers()
    except Exception as error:
        fail(connection, id, error)
    else:
        connection.send(frames.RESPONSE, id, payload, headers)


def fail(connection, id, error):
    """Sends an exception as the call's answer."""
    connection.send(frames.ERROR, id, failure(error), _headers_after_failure(connection.made))


def _headers_after_failure(made):
    try:
        return b"" if made is None else made.answer_headers()
    except Exception:
        return b""  # the headers may be what the failure is about


def _stream(connection, method, id, body):
    chunks = method.call(body)
    try:
        while True:
            try:
                chunk = method.to_chunk(next(chunks))
            except StopIteration as end:
                return b"" if end.value is None else method.to_payload(end.value)
            if len(chunk) > connection.max_message:
                raise Error("a chunk has %d bytes, the host takes %d" % (len(chunk), connection.max_message), code="too_large")
            connection.send(frames.CHUNK, id, chunk)
            if connection.is_cancelled(id):
                raise Cancelled()
    finally:
        chunks.close()

"""Responses: runs a handler and sends its result or its error."""

from __future__ import annotations

import json
import sys
import traceback

from . import frames, tracing
from .errors import Cancelled, Error

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Optional

    from .context import Context
    from .methods import Method


_PACKAGE = __file__[:-len("responses.py")]

# Answers a request that this worker has not begun, and that the host may send to another one.
NOT_BEGUN = json.dumps({"code": "not_begun", "message": "the worker ends, and has not begun the call", "not_begun": True}).encode()


def exception_payload(error: BaseException) -> bytes:
    """Encodes any exception as the payload of an ERROR frame, truncated to its limit. It never raises."""
    report: Dict[str, Any] = {"code": "error", "type": type(error).__name__, "message": _text(str, error), "traceback": _text(_traceback, error)}
    try:
        if isinstance(error, Error):
            report["code"] = error.code if isinstance(error.code, str) else _text(str, error.code)
            if error.fatal:
                report["fatal"] = True
            if error.data is not None:
                report["data"] = _json_or_repr(error.data)
        else:
            report["unhandled"] = True
    except BaseException as broken:  # a property of the exception raised
        report["message"] += " (%s in the exception itself)" % type(broken).__name__
    payload = json.dumps(report).encode()
    for size in (2000, 1000):  # in JSON a character takes up to 12 bytes
        if len(payload) <= frames.MAX_CONTROL:
            break
        report.update(code=report["code"][:256], type=report["type"][:256], message=report["message"][:size], traceback=report["traceback"][-2 * size:], data=None)
        payload = json.dumps(report).encode()
    return payload


def _text(describe: Callable[[Any], str], value: Any) -> str:
    """Returns describe(value), even if methods of the program that it calls raise."""
    try:
        return describe(value)
    except BaseException as broken:
        return "<%s of %s raised %s>" % (describe.__name__.strip("_"), type(value).__name__, type(broken).__name__)


def _traceback(error: BaseException) -> str:
    begin = error.__traceback__
    while begin is not None and begin.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        begin = begin.tb_next  # the program's frames matter
    return "".join(traceback.format_exception(type(error), error, begin or error.__traceback__))


def _json_or_repr(data: Any) -> Any:
    try:
        return json.loads(json.dumps(data, allow_nan=False))
    except BaseException:
        return _text(repr, data)


def log_exception(error: BaseException) -> None:
    """Writes an exception that no caller gets to stderr. It never raises."""
    try:
        print(_text(_traceback, error), end="", file=sys.stderr, flush=True)
    except BaseException:
        pass  # the program has replaced stderr with something that does not work


def not_found(name: bytes, methods: Iterable[bytes]) -> bytes:
    known = ", ".join(sorted(method.decode() for method in methods)) or "none"
    return json.dumps({
        "code": "method_not_found",
        "message": "method %.100r not found; this worker has: %.1000s" % (name.decode(errors="replace"), known),
    }).encode()


def error_payload(code: str, message: str) -> bytes:
    """Encodes an ERROR payload of a code and a message."""
    return json.dumps({"code": code, "message": message}).encode()


def pong(connection: Any, id: int, check: Callable[[], Any]) -> None:
    """Answers a ping: with an error if check, which runs the program's hooks, raises. SystemExit and KeyboardInterrupt propagate."""
    try:
        check()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        connection.send(frames.ERROR, id, exception_payload(error))
    else:
        connection.send(frames.PONG, id)


def serve(connection: Any, method: Method, id: int, body: bytes) -> None:
    """Runs a handler and sends its response.

    SystemExit and KeyboardInterrupt propagate: they end the worker, and the host sees the connection close during the call.
    """
    try:
        payload = _stream(connection, method, id, body) if method.streams else method.call(body)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        send_exception(connection, id, error)
    else:
        send_result(connection, id, payload)


def send_result(connection: Any, id: int, payload: bytes) -> None:
    """Sends a result, or an error if it cannot be sent."""
    try:
        if len(payload) > connection.max_message:
            raise Error("the result has %d bytes, the limit is %d" % (len(payload), connection.max_message), code="too_large")
        context = connection.current
        headers = b"" if context is None else context.encoded_headers()
    except BaseException as error:
        send_exception(connection, id, error)
    else:
        connection.send(frames.RESPONSE, id, payload, headers)


def send_exception(connection: Any, id: int, error: BaseException) -> None:
    """Sends an exception as the call's response. After a fatal one, requests that have arrived and have not begun must not begin."""
    tracing.fail(error)
    payload = exception_payload(error)
    behind = connection.take_requests() if _is_fatal(error) else ()
    connection.send(frames.ERROR, id, payload, _headers_or_none(connection.current))
    for request in behind:
        connection.send(frames.ERROR, request, NOT_BEGUN)


def _is_fatal(error: BaseException) -> bool:
    try:
        return isinstance(error, Error) and bool(error.fatal)
    except BaseException:  # a property of the exception raised
        return False


def _headers_or_none(context: Optional[Context]) -> bytes:
    try:
        return b"" if context is None else context.encoded_headers()
    except Exception:
        return b""  # invalid headers may be the error being reported


def _stream(connection: Any, method: Method, id: int, body: bytes) -> bytes:
    chunks = method.call(body)
    headers = method.chunk_headers  # of the first one
    try:
        while True:
            try:
                chunk = method.to_chunk(next(chunks))
            except StopIteration as end:
                return b"" if end.value is None else method.to_payload(end.value)
            send_chunk(connection, id, chunk, headers)
            headers = b""
    finally:
        chunks.close()


def send_chunk(connection: Any, id: int, chunk: bytes, headers: bytes) -> None:
    """Sends a piece of a stream; raises Cancelled if the call is cancelled."""
    if len(chunk) > connection.max_message:
        raise Error("a chunk has %d bytes, the limit is %d" % (len(chunk), connection.max_message), code="too_large")
    connection.send(frames.CHUNK, id, chunk, headers)
    if connection.is_cancelled(id):
        raise Cancelled()

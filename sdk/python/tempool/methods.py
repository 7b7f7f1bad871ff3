"""Methods: decode a payload to arguments, call the handler, encode its result."""

from __future__ import annotations

import json

from .errors import Error
from .frames import MAX_METHOD, encode_headers

TYPE_CHECKING = False  # the import of typing would slow the start of every worker
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Sequence

# Flags of code objects, from the module inspect, whose import takes longer than those of the rest of this package.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
_FUNCTION = type(lambda: None)

_decode = json.JSONDecoder().decode
_JSON_LINES = encode_headers({"content-type": "application/x-ndjson"})
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def to_json(value: Any) -> bytes:
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError("cannot encode the result as JSON: %s (use raw=True to return bytes)" % e) from e


def to_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError("a raw method must return bytes, str or None, not %s" % type(value).__name__)


def json_chunk(value: Any) -> bytes:
    return to_json(value) + b"\n"


class Method:
    """One handler. call(body) returns the encoded result. Of a handler that streams or is async it returns what the handler returned:
    an iterator, an awaitable or an async iterator, whose values to_chunk and to_payload encode."""

    def __init__(self, name: str, fn: Callable[..., Any], raw: bool, whole: bool) -> None:
        if not 1 <= len(name.encode()) <= MAX_METHOD:
            raise ValueError("a method name must have 1 to %d bytes: %.40r" % (MAX_METHOD, name))
        self.name = name
        self.fn = fn
        self.to_payload = to_bytes if raw else to_json
        self.to_chunk = to_bytes if raw else json_chunk
        self.chunk_headers = b"" if raw else _JSON_LINES
        self.is_async = is_async(fn)
        self.streams = _is(fn, _GENERATOR | _ASYNC_GENERATOR, "isgeneratorfunction", "isasyncgenfunction")
        call: Any = fn if raw else self._call_whole if whole else self._call_spread
        if self.streams or self.is_async:
            self.call: Callable[[bytes], Any] = call
        else:
            encode = self.to_payload
            self.call = lambda body: encode(call(body))

    def _call_whole(self, body: bytes) -> Any:
        return self.fn(self._params(body))

    def _call_spread(self, body: bytes) -> Any:
        params = self._params(body)
        args: Sequence[Any] = ()
        kwargs: Dict[str, Any] = {}
        if type(params) is dict:
            kwargs = params
        elif type(params) is list:
            args = params
        elif params is not None:
            args = (params,)
        try:
            return self.fn(*args, **kwargs)
        except TypeError:
            import inspect

            try:
                inspect.signature(self.fn).bind(*args, **kwargs)
            except TypeError as e:
                raise Error("%s: %s" % (self.name, e), code="invalid_params") from None
            raise

    def _params(self, body: bytes) -> Any:
        if not body:
            return None
        try:
            return _decode(body.decode())
        except (ValueError, RecursionError) as e:
            raise Error("%s: invalid JSON in the payload: %s" % (self.name, e), code="invalid_params") from None


def is_async(fn: Any) -> bool:
    """Reports whether fn must run on an event loop."""
    return _is(fn, _COROUTINE | _ASYNC_GENERATOR, "iscoroutinefunction", "isasyncgenfunction")


def _is(fn: Any, flags: int, *kinds: str) -> bool:
    """Reports whether one of the functions of inspect that kinds names holds for fn, or for its __call__. flags are what they look for."""
    if type(fn) is _FUNCTION and not fn.__dict__:  # nothing marks or wraps it
        return bool(fn.__code__.co_flags & flags)
    import inspect

    return any(getattr(inspect, kind)(f) for kind in kinds for f in (fn, getattr(fn, "__call__", None)))

"""Encodes and decodes the frames of the wire protocol (docs/protocol.md; examples in sdk/vectors)."""

from __future__ import annotations

import struct

from .errors import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Tuple

    Frame = Tuple[int, int, int, bytes, bytes, bytes]  # type, flags, id, method, headers, payload

HELLO, REQUEST, NOTIFY, CHUNK, _, RESPONSE, ERROR, CANCEL, PING, PONG, HOST_CALL, HOST_RESULT, HOST_ERROR = range(1, 14)

HEAD = struct.Struct(">IBBHII")  # length, type, flags, bytes of method, id, bytes of headers
HEAD_WORDS = struct.Struct(">IIII")  # the same; type, flags and bytes of method are one number
HEAD_SIZE = 16
FIXED = 12  # bytes of the head that are included in length
MAX_METHOD = 1024
MAX_HEADERS = 64 << 10
MAX_CONTROL = 64 << 10  # limit of a hello or error payload, even if max_message is lower
MAX_MESSAGE = 64 << 20  # until the host's hello says otherwise
PROTOCOL = 1

_HEADER = struct.Struct(">HH")
_WITH_METHOD = frozenset((REQUEST, NOTIFY, HOST_CALL))
CONTROL = frozenset((HELLO, ERROR, HOST_ERROR))
_WITHOUT_ID = frozenset((HELLO, NOTIFY))


def encode(kind: int, id: int = 0, method: bytes = b"", headers: bytes = b"", payload: bytes = b"") -> bytes:
    """Returns one frame as bytes. headers is an encoded block, see encode_headers."""
    head = HEAD.pack(FIXED + len(method) + len(headers) + len(payload), kind, 0, len(method), id, len(headers))
    return b"".join((head, method, headers, payload))


def check(length: int, kind: int, flags: int, method: int, id: int, headers: int, max_message: int = MAX_MESSAGE) -> None:
    """Raises ProtocolError if a frame head is invalid. The arguments are HEAD's fields."""
    if not HELLO <= kind <= HOST_ERROR:
        raise ProtocolError("unknown frame type %d" % kind)
    if flags:
        raise ProtocolError("invalid flags %#x in a frame of type %d" % (flags, kind))
    if (id != 0) == (kind in _WITHOUT_ID):
        raise ProtocolError("invalid id %d in a frame of type %d" % (id, kind))
    if (method != 0) != (kind in _WITH_METHOD):
        raise ProtocolError("invalid method length %d in a frame of type %d" % (method, kind))
    if method > MAX_METHOD:
        raise ProtocolError("method of %d bytes exceeds the limit of %d" % (method, MAX_METHOD))
    if headers > MAX_HEADERS:
        raise ProtocolError("headers of %d bytes exceed the limit of %d" % (headers, MAX_HEADERS))
    payload = length - FIXED - method - headers
    if payload < 0:
        raise ProtocolError("frame length %d is shorter than its method and headers" % length)
    if payload > max_message and (payload > MAX_CONTROL or kind not in CONTROL):
        raise ProtocolError("payload of %d bytes exceeds the limit of %d" % (payload, max_message))


def decode(data: bytes, max_message: int = MAX_MESSAGE) -> Tuple[int, int, int, str, Dict[str, str], bytes]:
    """Returns the first frame of data as (type, flags, id, method, headers, payload); headers is a dict."""
    if len(data) < HEAD_SIZE:
        raise ProtocolError("frame cut off after %d bytes" % len(data))
    length, kind, flags, method, id, headers = HEAD.unpack_from(data)
    check(length, kind, flags, method, id, headers, max_message)
    if len(data) < length + 4:
        raise ProtocolError("frame cut off after %d of %d bytes" % (len(data), length + 4))
    body = HEAD_SIZE + method
    try:
        name = bytes(data[HEAD_SIZE:body]).decode()
    except UnicodeDecodeError:
        raise ProtocolError("method is not valid UTF-8") from None
    fields = decode_headers(data[body:body + headers])
    return kind, flags, id, name, fields, bytes(data[body + headers:length + 4])


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Encodes a dict of str to str as a header block. Raises ValueError if a part is too long or a key is empty."""
    out: List[bytes] = []
    for key, value in headers.items():
        k, v = key.encode(), value.encode()
        if not k or len(k) > 0xFFFF or len(v) > 0xFFFF:
            raise ValueError("header %.40r: a key must have 1 to 65535 bytes, a value at most 65535" % key)
        out += (_HEADER.pack(len(k), len(v)), k, v)
    block = b"".join(out)
    if len(block) > MAX_HEADERS:
        raise ValueError("headers of %d bytes exceed the limit of %d" % (len(block), MAX_HEADERS))
    return block


def decode_headers(block: bytes) -> Dict[str, str]:
    """Decodes a header block to a dict of str to str."""
    headers: Dict[str, str] = {}
    at = 0
    while at < len(block):
        if len(block) - at < 4:
            raise ProtocolError("truncated header lengths")
        k, v = _HEADER.unpack_from(block, at)
        at += 4
        if len(block) - at < k + v:
            raise ProtocolError("header exceeds its block")
        if not k:
            raise ProtocolError("empty header key")
        try:
            key, value = bytes(block[at:at + k]).decode(), bytes(block[at + k:at + k + v]).decode()
        except UnicodeDecodeError:
            raise ProtocolError("header is not valid UTF-8") from None
        if key in headers:
            raise ProtocolError("duplicate header %.40r" % key)
        headers[key] = value
        at += k + v
    return headers

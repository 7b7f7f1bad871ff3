"""A minimal Python worker for RoadRunner's pool that returns its input. worker_equal.py is one that does Tempool's work.

It reads frames from stdin and writes frames to stdout: a header of 12 bytes (version and header length, flags, payload length, a CRC-32 of
those six bytes, two reserved bytes), options of 4 bytes, and the payload, of which the first option's number of bytes is context.
"""
import json
import os
import struct
import zlib

CONTROL, JSON = 0x01, 0x08
VERSION = 1 << 4

START = struct.Struct("<BBI")
heads = {}


def head(flags, size):
    """Returns the header of a frame with one option and no context, cached by flags and size."""
    key = flags, size
    if key not in heads:
        start = START.pack(VERSION | 4, flags, size)
        heads[key] = start + struct.pack("<I2xI", zlib.crc32(start), 0)
    return heads[key]


def control(payload):
    if "stop" in json.loads(payload):
        raise SystemExit
    reply = json.dumps({"pid": os.getpid()}).encode()
    start = START.pack(VERSION | 3, CONTROL | JSON, len(reply))
    return start + struct.pack("<I2x", zlib.crc32(start)) + reply


def main():
    read, write = os.read, os.write
    buffer = b""
    while True:
        data = read(0, 65536)
        if not data:
            return
        buffer = buffer + data if buffer else data
        while len(buffer) >= 12:
            words, flags, size = START.unpack_from(buffer)
            begin = (words & 15) * 4
            end = begin + size
            if len(buffer) < end:
                break
            if flags & CONTROL:
                write(1, control(buffer[begin:end]))
            else:
                begin += int.from_bytes(buffer[12:16], "little") if begin > 12 else 0
                write(1, head(flags, end - begin) + buffer[begin:end])
            buffer = buffer[end:]


if __name__ == "__main__":
    main()

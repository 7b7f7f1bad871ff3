"""A Python worker for RoadRunner's pool that does for a call what Tempool's worker does: it looks the method up in a table, keeps the headers for
a handler that asks for them, checks the limits of sizes, and reports what a handler raises as an error.

The context of a request is the name of the method, a zero byte and the headers.
"""
import json
import os
import traceback

from worker import CONTROL, START, control, head

ERROR = 0x40
MAX_MESSAGE = 64 << 20
MAX_CONTEXT = 64 << 10


def echo(body):
    return body


class Worker:
    def __init__(self, methods):
        self.methods = {name.encode(): method for name, method in methods.items()}
        self.call = None  # the buffer with the call's headers, and where they begin and end

    def headers(self):
        buffer, begin, end = self.call
        return buffer[begin:end]

    def run(self):
        read, write, methods, buffer, at = os.read, os.write, self.methods, b"", 0
        while True:
            size = len(buffer) - at
            if size >= 12:
                words, flags, length = START.unpack_from(buffer, at)
                body = at + (words & 15) * 4
                end = body + length
            if size < 12 or end > len(buffer):
                more = read(0, 65536)
                if not more:
                    return
                buffer, at = buffer[at:] + more if size else more, 0
                continue
            if flags & CONTROL:
                write(1, control(buffer[body:end]))
                at = end
                continue
            fields = body
            body += int.from_bytes(buffer[at + 12:at + 16], "little")
            name = buffer.find(b"\0", fields, body)
            method = methods.get(buffer[fields:name])
            at = end
            if method is None or body - fields > MAX_CONTEXT or end - body > MAX_MESSAGE:
                self.fail({"message": "no such method, or the request is too large"})
                continue
            self.call = buffer, name + 1, body
            try:
                payload = method(buffer[body:end])
                if type(payload) is not bytes or len(payload) > MAX_MESSAGE:
                    raise TypeError("the result cannot be sent")
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.fail({"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()})
            else:
                write(1, head(0, len(payload)) + payload)
            self.call = None

    def fail(self, report):
        payload = json.dumps(report).encode()
        os.write(1, head(ERROR, len(payload)) + payload)


if __name__ == "__main__":
    Worker({"echo": echo}).run()

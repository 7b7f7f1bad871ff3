"""sdk/vectors/client.json, for the clients' tests."""

import json
import os

from .gateway import Answered

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "vectors", "client.json"), encoding="utf-8") as file:
    VECTORS = json.load(file)


def answering(vector):
    """Returns the answer function of a FakeGateway that answers each request with the vector's next answer."""
    left = list(vector["answers"])

    def answer(_):
        said = left.pop(0)
        pieces = said.get("pieces")
        if pieces is not None:
            pieces = [piece.encode() for piece in pieces]
        elif "pieces_hex" in said:
            pieces = [bytes.fromhex(piece) for piece in said["pieces_hex"]]
        return Answered(said.get("body", "").encode(), said["status"], said.get("headers"), pieces, said.get("cut", False))

    return answer


def check(test, vector, asked, gives, failure):
    """Compares what a client did with the vector."""
    test.assertEqual(len(asked), vector["requests"])
    test.assertEqual(asked[0].headers.get("X-Name", "").encode("latin-1").decode(), vector.get("header", ""))
    if "gives" in vector:
        test.assertEqual(gives, vector["gives"])
    want = dict(vector.get("fails", {}))
    if not want:
        if failure is not None:
            raise failure
        return
    test.assertIsNotNone(failure)
    if "retry_after_ms" in want:
        test.assertEqual(failure.retry_after, want.pop("retry_after_ms") / 1000)
    for name, value in want.items():
        test.assertEqual(getattr(failure, name), value, name)


def near(test, remaining, ms):
    test.assertLessEqual(remaining, ms / 1000)
    test.assertGreater(remaining, ms / 1000 - 60)

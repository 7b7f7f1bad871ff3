import json
import os
import unittest

from tempool import frames
from tempool.errors import ProtocolError

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "vectors")


def vectors(name):
    with open(os.path.join(VECTORS, name), encoding="utf-8") as f:
        found = json.load(f)
    assert found
    return found


class Frames(unittest.TestCase):
    def test_good_vectors_decode_and_encode(self):
        for v in vectors("frames.json"):
            with self.subTest(v["name"]):
                raw = bytes.fromhex(v["hex"])
                kind, flags, id, method, headers, payload = frames.decode(raw, v.get("max_message", frames.MAX_MESSAGE))
                self.assertEqual(
                    (kind, flags, id, method, headers, payload),
                    (v["type"], v["flags"], v["id"], v["method"], v["headers"], bytes.fromhex(v["payload"])))
                self.assertEqual(raw, frames.encode(kind, id, method.encode(), frames.encode_headers(headers), payload))

    def test_malformed_vectors_are_rejected_with_a_reason(self):
        for v in vectors("malformed.json"):
            with self.subTest(v["name"]):
                with self.assertRaisesRegex(ProtocolError, v["reason"]):
                    frames.decode(bytes.fromhex(v["hex"]), v.get("max_message", frames.MAX_MESSAGE))

    def test_invalid_headers_are_not_encoded(self):
        for headers in ({"": "v"}, {"k": "v" * 65536}, {"a": "v" * 40000, "b": "v" * 40000}):
            with self.assertRaises(ValueError):
                frames.encode_headers(headers)


if __name__ == "__main__":
    unittest.main()

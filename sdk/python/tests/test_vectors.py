"""The client against sdk/vectors/client.json."""

import unittest

from tempool.client import Client, TempoolError

from .gateway import FakeGateway
from .vectors import VECTORS, answering, check, near


class TestVectors(unittest.TestCase):
    def test_vectors(self):
        self.assertGreater(len(VECTORS), 20)
        for vector in VECTORS:
            with self.subTest(vector["name"]), FakeGateway(answering(vector)) as gateway, Client(gateway.endpoint, timeout=120) as client:
                gives, failure = [] if vector["do"] == "stream" else None, None
                pool = client.pool("p")
                try:
                    if vector["do"] == "call":
                        gives = pool.call("square", {"x": 12})
                    elif vector["do"] == "exchange":
                        gives = pool.exchange("square", headers={"X-Name": vector["header"]}).headers["X-Name"]
                    elif vector["do"] == "stream":
                        for value in pool.stream("count"):
                            gives.append(value)
                    else:
                        lease = pool.lease()
                        near(self, lease.remaining, vector["granted_ms"])
                        lease._closing.set()  # ends the renewals in the background
                        lease.renew()
                        near(self, lease.remaining, vector["renewed_ms"])
                except TempoolError as e:
                    failure = e
                check(self, vector, gateway.asked, gives, failure)

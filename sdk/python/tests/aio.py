"""The asynchronous client: python3 -m unittest tests.aio, with an interpreter that has httpx."""

import asyncio
import contextlib
import os
import ssl
import threading
import time
import unittest

from tempool.client import DeadlineExceeded, Invalid, LeaseFenced, LeaseNotFound, QueueTimeout, TempoolError, Unauthorized, Unavailable, WorkerCrashed, WorkerError
from tempool.client.aio import AsyncClient
from tempool.testing import FakeGateway as Scripted, crash

from .gateway import TLS, FakeGateway, Answered, problem, server_tls
from .test_lease import Leases, Unreadable, wait_in_vain
from .vectors import VECTORS, answering, check, near


class TestAsyncClient(unittest.IsolatedAsyncioTestCase):
    async def test_vectors(self):
        for vector in VECTORS:
            with self.subTest(vector["name"]), FakeGateway(answering(vector)) as gateway:
                async with AsyncClient(gateway.endpoint, timeout=120) as client:
                    gives, failure = [] if vector["do"] == "stream" else None, None
                    pool = client.pool("p")
                    try:
                        if vector["do"] == "call":
                            gives = await pool.call("square", {"x": 12})
                        elif vector["do"] == "exchange":
                            gives = (await pool.exchange("square", headers={"X-Name": vector["header"]})).headers["X-Name"]
                        elif vector["do"] == "stream":
                            async for value in pool.stream("count"):
                                gives.append(value)
                        else:
                            lease = await pool.lease()
                            near(self, lease.remaining, vector["granted_ms"])
                            await lease.renew()
                            near(self, lease.remaining, vector["renewed_ms"])
                    except TempoolError as e:
                        failure = e
                    finally:
                        if vector["do"] == "lease":
                            lease._renewer.cancel()
                    check(self, vector, gateway.asked, gives, failure)

    async def test_sockets_tls_and_tokens(self):
        with FakeGateway(lambda _: Answered(1), unix=True) as gateway:
            async with AsyncClient(gateway.endpoint) as client:
                self.assertEqual(await client.pool("p").call("m"), 1)
        with FakeGateway(lambda _: Answered(1), tls=server_tls()) as gateway:
            async with AsyncClient(gateway.endpoint, ca_file=os.path.join(TLS, "authority.pem"), token="secret") as client:
                self.assertEqual(await client.pool("p").call("m"), 1)
            self.assertEqual(gateway.asked[0].headers["Authorization"], "Bearer secret")
            async with AsyncClient(gateway.endpoint, tls=ssl.create_default_context(), retries=0) as client:
                with self.assertRaises(Unavailable) as caught:
                    await client.pool("p").call("m")
            self.assertFalse(caught.exception.started)
        with Scripted(token="secret") as gateway:
            gateway.on("p", "m", 1)
            async with AsyncClient(["http://127.0.0.1:1", gateway.endpoint], token="secret") as client:
                for _ in range(4):
                    self.assertEqual(await client.pool("p").call("m"), 1)
            async with AsyncClient(gateway.endpoint, token="wrong") as client:
                with self.assertRaises(Unauthorized):
                    await client.pool("p").call("m")

    async def test_leases_are_renewed_and_fenced(self):
        with Scripted() as gateway:
            gateway.on("p", "m", 1, crash(), 2)
            async with AsyncClient(gateway.endpoint) as client:
                pool = client.pool("p")
                async with await pool.lease(6, holder="me") as lease:
                    left = 6
                    while lease.remaining <= left:  # until it is renewed
                        left = lease.remaining
                        self.assertGreater(left, 0)
                        await asyncio.sleep(0.02)
                    self.assertEqual(await lease.call("m"), 1)
                    await lease.notify("note", [1])
                with self.assertRaises(LeaseFenced):
                    await lease.call("m")
                lease = await pool.lease()
                with self.assertRaises(WorkerCrashed):
                    await lease.call("m")
                for ended in (lease.call("m"), lease.aclose()):
                    with self.assertRaises(LeaseFenced):
                        await ended
                self.assertEqual(await pool.call("m"), 2)
                self.assertEqual((await pool.sessions.put("ada", {"n": 1}, create=True))["version"], 1)
                self.assertEqual((await pool.sessions.patch("ada", {"data": {"n": None}}, 1))["data"], {})
                await pool.sessions.delete("ada")
                await pool.sessions.delete("ada")
                with self.assertRaises(Invalid):
                    await pool.call("")

    async def test_a_lease_stays_with_its_gateway_where_another_one_cannot_be_reached(self):
        leases = Leases()
        referrals = [problem("lease_not_found", 404, host="b", endpoint=endpoint) for endpoint in ("http://127.0.0.1:1", "no endpoint")]
        with FakeGateway(lambda asked: referrals.pop() if "/call/" in asked.path and referrals else leases(asked)) as gateway:
            async with AsyncClient(gateway.endpoint, retries=0) as client, await client.pool("p").lease() as lease:
                for _ in range(2):
                    with self.assertRaises(Unavailable):
                        await lease.call("m", 1)
                self.assertEqual(await lease.call("m", 2), 2)
                await lease.renew(7)
                self.assertEqual(leases.of("PUT")[-1].json(), {"ttl_ms": 7000})
                await lease.notify("note", headers={"X-A": "b"})
                self.assertEqual(leases.asked[-1].headers["X-A"], "b")
                async with lease.stream("m", [1]) as stream:
                    self.assertEqual((stream.worker, stream.incarnation, [value async for value in stream]), ("python/0", 3, [[1]]))
                with self.assertRaises(Unreadable):
                    async with lease:
                        raise Unreadable
                self.assertTrue(leases.asked[-1].path.endswith("?outcome=error&error=Unreadable"))
                await lease.aclose()
                again = await client.pool("p").lease()
                leases.refuse = problem("unavailable", 503)
                with self.assertRaises(Unavailable):
                    await again.aclose()
                leases.refuse = None
                await again.aclose()
                await again.aclose()
                self.assertEqual(len(leases.of("DELETE")), 3, "one that failed is repeated")

    async def test_a_lease_moves_to_the_gateway_where_its_worker_has_failed_a_call(self):
        leases = Leases()
        with FakeGateway(lambda asked: problem("worker_error", 500, started=True) if "/call/" in asked.path else leases(asked)) as other, \
                FakeGateway(lambda asked: problem("lease_not_found", 404, endpoint=other.endpoint) if "/call/" in asked.path else leases(asked)) as gateway:
            async with AsyncClient(gateway.endpoint) as client, await client.pool("p").lease() as lease:
                for _ in range(2):
                    with self.assertRaises(WorkerError):
                        await lease.call("m", 1)
            self.assertEqual([asked.method for asked in gateway.asked], ["POST", "POST"], "it is asked for the lease and once more")

    async def test_a_lease_outlives_a_renewal_without_an_answer(self):
        leases, ended = Leases(ttl=6), threading.Event()

        def answer(asked):
            if asked.method == "PUT" and not leases.of("PUT"):
                leases.asked.append(asked)
                ended.wait(60)
            return leases(asked)

        with FakeGateway(answer) as gateway:
            async with AsyncClient(gateway.endpoint) as client, await client.pool("p").lease() as lease:
                while not leases.renewals:
                    self.assertGreater(lease.remaining, 0)
                    await asyncio.sleep(0.02)
                ended.set()

    async def test_another_gateway_serves_a_lease_whose_own_does_not(self):
        leases, ended = Leases(), threading.Event()
        with FakeGateway(leases) as one, FakeGateway(leases) as two:
            async with AsyncClient([one.endpoint, two.endpoint], retries=1) as client, await client.pool("p").lease() as lease:
                own, other = (one, two) if one.asked else (two, one)
                own.answer = lambda asked: problem("unavailable", 503)
                self.assertEqual(await lease.call("m", 1), 1)
                await lease.renew()
                refusals = []
                own.answer = lambda asked: refusals.pop() if refusals else leases(asked)
                other.answer = lambda asked: problem("lease_not_found", 404, endpoint=own.endpoint)
                for refusals in [problem("busy", 503, retry_after_ms=1)], [problem("unavailable", 503)]:
                    self.assertEqual(await lease.call("m", 1), 1)
                self.assertEqual(len(other.asked), 3, "a busy worker is no freer there")
                own.answer, other.answer = lambda asked: ended.wait(60) and problem("unavailable", 503), leases
                lease._until = time.monotonic() + 0.2
                with self.assertRaises(DeadlineExceeded):
                    await lease.renew()
                lease._until = 0.0  # a renewal then lasts as long as it may
                await lease.renew()
            ended.set()
        self.assertEqual([asked.method for asked in leases.asked], ["POST", "POST", "PUT", "POST", "POST", "PUT", "DELETE"])

    async def test_one_gateway_only_has_a_checkout_wait(self):
        with FakeGateway(wait_in_vain) as one, FakeGateway(wait_in_vain) as two:
            async with AsyncClient([one.endpoint, two.endpoint]) as client:
                with self.assertRaises(QueueTimeout):
                    await client.pool("p").lease(wait=0.2)
            self.assertEqual(sorted(asked.json()["wait_ms"] > 0 for asked in one.asked + two.asked), [False, True])

    async def test_map(self):
        with Scripted() as gateway:
            def answer(n, call):
                if n == 2:
                    raise WorkerError("two", "worker_error", True)
                return n * 10

            async def items():
                for n in (1, 2, 3):
                    yield n

            gateway.on("p", "m", answer)
            async with AsyncClient(gateway.endpoint) as client:
                pool, done = client.pool("p"), []
                results = [r async for r in pool.map("m", items(), on_progress=done.append)]
                self.assertEqual([(r.index, r.item, r.ok, r.value) for r in results], [(0, 1, True, 10), (1, 2, False, None), (2, 3, True, 30)])
                self.assertEqual(done, [1, 2, 3])
                self.assertEqual(sorted([r.index async for r in pool.map("m", range(9), ordered=False, concurrency=3)]), list(range(9)))

    async def test_map_yields_what_has_ended_while_its_source_waits(self):
        with Scripted() as gateway:
            gateway.on("p", "m", lambda n, call: n + 1)
            async with AsyncClient(gateway.endpoint) as client:
                for ordered in (True, False):
                    answered = asyncio.get_running_loop().create_future()
                    values, ended = [], []

                    async def items():
                        yield 0
                        try:
                            yield await answered
                            await asyncio.Event().wait()
                        finally:
                            ended.append(True)

                    async def run():
                        results = client.pool("p").map("m", items(), ordered=ordered, concurrency=3)
                        async for result in results:
                            values.append(result.value)
                            if len(values) == 2:
                                return await results.aclose()
                            answered.set_result(result.value)

                    await asyncio.wait_for(run(), 30)
                    self.assertEqual((values, ended), ([1, 2], [True]))

    async def test_a_cancellation_is_never_lost(self):
        with Scripted() as gateway:
            gateway.on("p", "m", *[1] * 200)
            async with AsyncClient(gateway.endpoint) as client:
                pool, cancelled = client.pool("p"), 0
                for n in range(200):
                    task = asyncio.ensure_future(pool.call("m"))
                    await asyncio.sleep(n * 0.0001)
                    if task.cancel():
                        cancelled += 1
                        with self.assertRaises(asyncio.CancelledError):
                            await task
                self.assertGreater(cancelled, 0)
                for n in range(20):
                    lease = await pool.lease(0.15)
                    await asyncio.sleep(0.05 + n * 0.001)  # about when its renewal is answered
                    with contextlib.suppress(LeaseFenced, LeaseNotFound):  # on a slow machine it has expired
                        await asyncio.wait_for(lease.aclose(), 60)

    async def test_a_cancelled_task_closes_its_connection(self):
        asked, closed = asyncio.Event(), asyncio.Event()

        async def gateway(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            self.assertEqual(await reader.read(), b"")
            closed.set()
            writer.close()

        server = await asyncio.start_server(gateway, "127.0.0.1", 0)
        async with server, AsyncClient("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]) as client:
            task = asyncio.ensure_future(client.pool("p").call("m"))
            await asyncio.wait_for(asked.wait(), 60)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(closed.wait(), 60)

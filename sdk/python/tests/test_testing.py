import asyncio
import unittest

import tempool
from tempool.client import Client, LeaseFenced, MethodNotFound, PoolNotFound, QueueFull, VersionConflict, WorkerCrashed, WorkerError
from tempool.testing import FakeGateway, TestWorker, crash


def program():
    w = tempool.Worker()
    w.happened = []
    w.on_start(lambda: w.happened.append("start"))
    w.on_stop(lambda: w.happened.append("stop"))

    @w.on_health
    async def healthy():
        if "sick" in w.happened:
            raise RuntimeError("the GPU is gone")

    @w.method
    def square(x):
        return x * x

    @w.method(raw=True)
    def echo(body):
        return body

    @w.method
    def count(n):
        try:
            for i in range(n):
                yield {"i": i}
            return "counted"
        finally:
            w.happened.append("closed")

    @w.method
    async def ticks(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    @w.method
    async def later(x):
        await asyncio.sleep(0)
        return [x, tempool.context().headers.get("x-a")]

    @w.method
    def fail():
        raise tempool.Error("no such thing", code="nothing", data={"n": 1})

    @w.method
    def visit():
        call = tempool.context()
        call.count("visits", 2)
        call.programs.put("p", {"a": 1})
        call.programs.put("p", {"b": 2})
        return {"visits": call.session.change("visits", lambda n: (n or 0) + 1), "program": call.programs.get("p")}

    w.run()  # returns: the test kit was imported
    return w


class TestKit(unittest.TestCase):
    def behaves(self, pool):
        self.assertEqual(pool.call("square", {"x": 12}), 144)
        self.assertEqual(pool.call_raw("echo", b"\x00\xff"), b"\x00\xff")
        self.assertEqual(list(pool.stream("count", [3])), [{"i": 0}, {"i": 1}, {"i": 2}, "counted"])
        with pool.stream("count", [3]) as values:
            self.assertEqual(next(values), {"i": 0})
        self.assertEqual(list(pool.stream("ticks", [2])), [0, 1])
        self.assertEqual(pool.call("later", 1, headers={"X-A": "b"}), [1, "b"])
        with self.assertRaises(WorkerError) as caught:
            pool.call("fail")
        self.assertEqual((caught.exception.worker_code, caught.exception.data, caught.exception.unhandled), ("nothing", {"n": 1}, False))
        with self.assertRaises(WorkerError) as caught:
            pool.call("square", {"y": 1})
        self.assertEqual(caught.exception.worker_code, "invalid_params")
        self.assertIn("square", str(caught.exception))
        self.assertRaises(MethodNotFound, pool.call, "missing")
        self.assertEqual(pool.call("visit", session="ada"), {"visits": 1, "program": {"b": 2}})

    def test_a_worker_in_process(self):
        w = program()
        worker = TestWorker(w)
        worker.start()
        self.behaves(worker)
        self.assertEqual(worker.counts, {"visits": 2})
        self.assertEqual(worker.sessions.get("ada")["data"], {"visits": 1})
        worker.check_health()
        w.happened.append("sick")
        self.assertRaisesRegex(RuntimeError, "GPU", worker.check_health)
        worker.stop()
        self.assertEqual(w.happened, ["start", "closed", "closed", "sick", "stop"])

    def test_a_worker_behind_a_fake_gateway(self):
        worker = TestWorker(program())
        with FakeGateway() as gateway, Client(gateway.serve("p", worker).endpoint) as client:
            self.behaves(client.pool("p"))
            self.assertRaises(PoolNotFound, client.pool("other").call, "m")
        worker.stop()

    def test_a_script(self):
        with FakeGateway(size=2, token="secret") as gateway, Client(gateway.endpoint, token="secret") as client:
            busy = QueueFull("full", "queue_full", retry_after=0.001)
            gateway.on("p", "tools/call", busy, 1, crash(), ValueError("boom"), iter([1, 2]), lambda params, call: [params, call.session])
            pool = client.pool("p")
            self.assertEqual(pool.call("tools/call"), 1)
            self.assertRaises(WorkerCrashed, pool.call, "tools/call")
            with self.assertRaises(WorkerError) as caught:
                pool.call("tools/call")
            self.assertEqual((caught.exception.type, caught.exception.unhandled), ("ValueError", True))
            self.assertEqual(list(pool.stream("tools/call")), [1, 2])
            self.assertEqual(pool.call("tools/call", 7, session="ß"), [7, "ß"])
            self.assertEqual((len(gateway.calls), gateway.calls[-1].session), (6, "ß"))
            self.assertEqual(pool.status()["workers"][0]["incarnation"], 2)

    def test_leases_and_sessions(self):
        with FakeGateway() as gateway, Client(gateway.endpoint) as client:
            pool = client.pool("p")
            gateway.on("p", "m", 1, crash(), 2)
            with pool.lease(holder="me") as lease:
                self.assertEqual([one["holder"] for one in gateway.leases("p")], ["me"])
                self.assertEqual(lease.call("m"), 1)
                lease.notify("note", [1])
            self.assertEqual(gateway.leases("p"), [])
            lease = pool.lease()
            self.assertRaises(WorkerCrashed, lease.call, "m")
            self.assertRaises(LeaseFenced, lease.call, "m")
            self.assertRaises(LeaseFenced, lease.close)
            lease = pool.lease()
            self.assertEqual((lease.incarnation, lease.call("m")), (2, 2))
            gateway.fence("p")
            self.assertRaises(LeaseFenced, lease.close)
            self.assertEqual(pool.sessions.put("ada", {"n": 1}, create=True)["version"], 1)
            self.assertEqual(pool.sessions.patch("ada", {"data": {"n": None}}, version=1)["data"], {})
            self.assertRaises(VersionConflict, pool.sessions.patch, "ada", {}, version=1)
            pool.sessions.delete("ada")

    def test_map_and_submit(self):
        with FakeGateway() as gateway, Client(gateway.endpoint) as client:
            pool = client.pool("p")

            def answer(n, call):
                if n == 2:
                    raise WorkerError("two", "worker_error", True)
                return n * 10

            gateway.on("p", "m", answer)
            done = []
            results = list(pool.map("m", iter([1, 2, 3, 4]), on_progress=done.append))
            self.assertEqual([(r.index, r.item, r.ok, r.value) for r in results], [(0, 1, True, 10), (1, 2, False, None), (2, 3, True, 30), (3, 4, True, 40)])
            self.assertRaises(WorkerError, results[1].get)
            self.assertEqual(done, [1, 2, 3, 4])
            self.assertEqual(sorted(r.index for r in pool.map("m", range(9), ordered=False, concurrency=3)), list(range(9)))
            self.assertEqual(next(pool.map("m", iter(int, 1), concurrency=2)).value, 0)
            self.assertEqual(pool.submit("m", 5).result(), 50)


if __name__ == "__main__":
    unittest.main()

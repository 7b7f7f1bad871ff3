"""Calls the pool "called" through the gateways of its hosts, whose names, token and certificates are in the environment."""
import asyncio
import os
import ssl
import time

from tempool.client import DeadlineExceeded, LeaseFenced, MethodNotFound, Unauthorized, Unavailable, WorkerCrashed, WorkerError
from tempool.client.aio import AsyncClient


async def raises(kind, awaitable):
    try:
        await awaitable
    except kind as e:
        return e
    raise AssertionError("no %s" % kind.__name__)


async def main():
    async with AsyncClient() as client:
        pool = client.pool("called")
        assert await pool.call("square", {"x": 12}) == 144
        assert await pool.call_raw("echo", b"\x00" * 3_000_000) == b"\x00" * 3_000_000
        assert [value async for value in pool.stream("count", [3])] == [{"i": 0}, {"i": 1}, {"i": 2}, "counted"]
        async with pool.stream("count", [1_000_000]) as values:
            assert await values.__anext__() == {"i": 0}
        error = await raises(WorkerError, pool.call("fail"))
        assert (error.worker_code, error.data) == ("nothing", {"n": 1})
        await raises(MethodNotFound, pool.call("missing"))
        await raises(asyncio.TimeoutError, asyncio.wait_for(pool.call("nap", [60]), 0.1))
        assert (await raises(DeadlineExceeded, pool.call("nap", [60], timeout=0.2))).started
        async with AsyncClient(token="wrong") as wrong:
            assert not (await raises(Unauthorized, wrong.pool("called").call("square", [1]))).started
        async with AsyncClient(os.environ["TEMPOOL_GATEWAY"].split(",")[0], tls=ssl.create_default_context(), retries=0) as strict:
            assert not (await raises(Unavailable, strict.pool("called").call("square", [1]))).started

        async with await pool.lease(2) as lease:
            pid = (await lease.call("nap", [2.5]))[0]  # longer than the ttl: it is renewed
            assert (await lease.call("nap", [0]))[0] == pid
            await lease.notify("remember", ["first"])
            assert await lease.call("remember") == ["first"]
        lease = await pool.lease()
        assert (await raises(WorkerCrashed, lease.call("die"))).started
        assert not (await raises(LeaseFenced, lease.call("square", [1]))).started
        assert await pool.call("square", [3]) == 9
        def is_back(worker):
            return worker["worker"] == lease.worker and worker["incarnation"] > lease.incarnation and worker["state"] == "ready"

        while not any(map(is_back, (await pool.status())["workers"])):
            await asyncio.sleep(0.05)

        began = time.monotonic()
        naps = await asyncio.gather(*(pool.call("nap", [0.1]) for _ in range(50)))
        took = time.monotonic() - began
        assert len({pid for pid, _, _ in naps}) == 10, naps
        overlap = max(sum(begins <= at < ends for _, begins, ends in naps) for _, at, _ in naps)
        assert overlap >= 5, overlap
        print("50 calls of 100 ms on 10 workers took %.0f ms; up to %d ran at a time" % (took * 1000, overlap))
        assert [r.value async for r in pool.map("square", ([n] for n in range(200)))] == [n * n for n in range(200)]


asyncio.run(main())

"""A program that calls the pool "called" through the gateway's socket, and through TCP. It fails on an unexpected answer."""
import sys
from concurrent.futures import ThreadPoolExecutor

from tempool import client
from tempool.client import Client


def raises(kind, do):
    try:
        do()
    except kind as e:
        return e
    raise AssertionError("no %s" % kind.__name__)


with Client("unix:" + sys.argv[1]) as c:
    pool = c.pool("called")
    assert pool.call("square", {"x": 12}, timeout=30) == 144
    assert pool.call_raw("echo", b"\x00" * 3_000_000) == b"\x00" * 3_000_000
    assert pool.exchange("pid").worker in ("called/0", "called/1")
    assert list(pool.stream("count", [3])) == [{"i": 0}, {"i": 1}, {"i": 2}, "counted"]
    assert b"".join(pool.stream("count", b"[2]", raw=True)) == b'{"i":0}\n{"i":1}\n"counted"'
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: pool.call("square", [n]), range(200))) == [n * n for n in range(200)]

    e = raises(client.WorkerError, lambda: pool.call("fail"))
    assert (e.worker_code, e.data, e.type, e.started) == ("nothing", {"n": 1}, "Error", True), vars(e)
    assert raises(client.WorkerError, lambda: pool.call("missing")).worker_code == "method_not_found"
    assert not raises(client.PoolNotFound, lambda: c.pool("absent").call("m")).started

    assert {w["worker"] for w in c.workers()} == {"called/0", "called/1"}
    assert (pool.status()["size"], [p["pool"] for p in c.pools()]) == (2, ["called"])

    with pool.lease(ttl=20, holder="caller") as lease:
        assert len({lease.call("pid") for _ in range(5)}) == 1
        lease.notify("remember", ["first"])
        lease.notify("remember", ["second"])
        assert lease.call("remember") == ["first", "second"]
        lease.renew()
        assert [w["lease"]["holder"] for w in c.workers() if w["worker"] == lease.worker] == ["caller"]
        with Client(lease.granted["endpoint"]) as tcp:  # http://127.0.0.1:PORT
            assert tcp.pool("called").call("square", [5]) == 25
    raises(client.LeaseFenced, lambda: lease.call("pid"))

    made = pool.sessions.put("ada", {"name": "Ada", "last": {"page": 1}}, metadata={"lang": "en"}, ttl="10m", create=True)
    assert (made["version"], made["ttl"]) == (1, "10m"), made
    raises(client.SessionExists, lambda: pool.sessions.put("ada", create=True))
    with ThreadPoolExecutor(4) as threads:
        assert sorted(seen["visits"] for seen in threads.map(lambda _: pool.call("visit", session="ada"), range(12)))[-1] == 12
    seen = pool.sessions.get("ada")
    assert seen["data"]["visits"] == 12 and list(seen["data"]["last"]) == ["pid"] and seen["metadata"] == {"lang": "en"}, seen
    raises(client.VersionConflict, lambda: pool.sessions.patch("ada", {"data": {"name": None}}, version=1))
    seen = pool.sessions.patch("ada", {"data": {"name": None}}, version=seen["version"])
    assert sorted(seen["data"]) == ["last", "visits"]
    with pool.lease(session="ada") as lease:
        assert lease.call("visit")["visits"] == 13
    pool.sessions.delete("ada")
    pool.sessions.delete("ada")
    raises(client.SessionNotFound, lambda: pool.sessions.get("ada"))

    lease = pool.lease()
    assert raises(client.WorkerCrashed, lambda: lease.call("die")).started
    raises(client.LeaseFenced, lambda: lease.call("pid"))
    lease.close("error", error="it died")
    assert pool.call("square", [3], timeout=60) == 9
print("all is well")

import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

from tempool import client
from tempool.client import Client

from .gateway import TIMEOUT, Answered, FakeGateway, problem


TTL = 6  # seconds of a lease; a client that is not run for most of them loses it


def text(at):
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"  # nanoseconds, as Go writes them


class Leases:
    """What a gateway does about leases, for one worker."""

    def __init__(self, ttl=60.0, endpoint=""):
        self.ttl, self.endpoint = ttl, endpoint
        self.renewals = 0
        self.renewed = threading.Event()
        self.refuse = None
        self.asked = []

    def lease(self):
        now = datetime.now(timezone.utc) - timedelta(hours=self.renewals)  # this clock is set back again and again
        return {"id": "p.0.1.7", "worker": "p/0", "seq": 7, "incarnation": 1, "holder": "h", "session": "s1", "host": "a", "endpoint": self.endpoint,
                "granted_at": text(now), "expires_at": text(now + timedelta(seconds=self.ttl)), "ttl_ms": int(1000 * self.ttl)}

    def __call__(self, asked):
        self.asked.append(asked)
        if self.refuse is not None and asked.method != "POST":
            return self.refuse
        if asked.path.endswith("/leases"):
            return Answered(self.lease(), 201)
        if asked.method == "PUT":
            self.renewals += 1
            if self.renewals >= 3:
                self.renewed.set()
            return Answered(self.lease())
        if asked.method == "DELETE":
            return Answered({"state": "ready"})
        return Answered(b"" if "/notify/" in asked.path else asked.body, 202 if "/notify/" in asked.path else 200)

    def of(self, method):
        return [asked for asked in self.asked if asked.method == method]


def wait_in_vain(asked):
    """A gateway's answer to a checkout for which no worker becomes free."""
    time.sleep(asked.json()["wait_ms"] / 1000)
    return problem("queue_timeout", 503)


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text")


class ALease(unittest.TestCase):
    def test_calls_and_checkin(self):
        leases = Leases()
        with FakeGateway(leases) as gateway, Client(gateway.endpoint) as c:
            with c.pool("p").lease(ttl=30, holder="me", session="s1", key="k1", wait=2) as lease:
                self.assertEqual((lease.id, lease.worker, lease.incarnation), ("p.0.1.7", "p/0", 1))
                self.assertEqual(lease.call("m", {"x": 1}), {"x": 1})
                self.assertEqual(list(lease.stream("m", [5])), [[5]])
                self.assertIsNone(lease.notify("tools/n", {"y": 2}))
            asked = leases.asked[0].json()
            self.assertTrue(asked.pop("request_id"))
            token = asked.pop("token")
            self.assertGreaterEqual(len(token), 22)
            self.assertTrue(0 < asked.pop("wait_ms") <= 2000)
            self.assertEqual({a.headers["Tempool-Lease-Token"] for a in leases.asked[1:]}, {token})
            self.assertEqual(asked, {"holder": "me", "session": "s1", "key": "k1", "ttl_ms": 30000})
            self.assertEqual([(a.method, a.path) for a in leases.asked[1:]], [
                ("POST", "/v1/leases/p.0.1.7/call/m"), ("POST", "/v1/leases/p.0.1.7/call/m"),
                ("POST", "/v1/leases/p.0.1.7/notify/tools/n"), ("DELETE", "/v1/leases/p.0.1.7?outcome=ok")])
            self.assertEqual([leases.asked[1].headers[k] for k in ("Tempool-Session", "Tempool-Key")], ["s1", "k1"])
            lease.close()
            self.assertEqual(len(leases.of("DELETE")), 1, "once")
            with self.assertRaises(client.LeaseFenced):
                lease.call("m")

    def test_exception_in_the_block_checks_in_with_error(self):
        leases = Leases()
        with FakeGateway(leases) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(ZeroDivisionError):
                with c.pool("p").lease():
                    1 / 0
            self.assertEqual(parse_qs(urlsplit(leases.of("DELETE")[0].path).query), {"outcome": ["error"], "error": ["ZeroDivisionError: division by zero"]})
            self.assertRegex(leases.asked[0].json()["holder"], r":\d+$")
            lease = c.pool("p").lease()
            lease.close("close", error="it leaks")
            self.assertIn("outcome=close", leases.of("DELETE")[1].path)
            for error, shown in ((Unreadable(), "Unreadable"), (OSError("\udcff.txt"), "OSError%3A%20%3F.txt")):
                with self.assertRaises(type(error)):
                    with c.pool("p").lease():
                        raise error
                self.assertTrue(leases.of("DELETE")[-1].path.endswith("?outcome=error&error=" + shown), leases.asked[-1].path)
            with self.assertRaises(OSError), c.pool("p").lease():
                raise OSError("x" + "語" * 600)
            shown = parse_qs(urlsplit(leases.asked[-1].path).query)["error"][0]
            self.assertEqual(shown, "OSError: x" + "語" * 330, "whole characters in 1000 bytes; a gateway takes 1024")

    def test_a_failed_checkin_may_be_repeated(self):
        leases = Leases()
        with FakeGateway(leases) as gateway, Client(gateway.endpoint, retries=0) as c:
            lease = c.pool("p").lease()
            leases.refuse = problem("unavailable", 503)
            with self.assertRaises(client.Unavailable):
                lease.close()
            leases.refuse = None
            lease.close()
            lease.close()
            self.assertEqual(len(leases.of("DELETE")), 2, "until it succeeds")

    def test_lease_is_renewed_until_closed_also_after_a_renewal_without_an_answer(self):
        leases, ended = Leases(ttl=TTL), threading.Event()

        def answer(asked):
            if asked.method == "PUT" and not leases.of("PUT"):
                leases.asked.append(asked)
                ended.wait(TIMEOUT)
            return leases(asked)

        with FakeGateway(answer) as gateway, Client(gateway.endpoint) as c:
            self.addCleanup(ended.set)
            with c.pool("p").lease(ttl=TTL) as lease:
                self.assertTrue(leases.renewed.wait(TIMEOUT))
                self.assertEqual(lease.call("m", 1), 1)
                self.assertEqual(leases.of("PUT")[0].json(), {"ttl_ms": 1000 * TTL})
            self.assertFalse(lease._renewer.is_alive())
            self.assertEqual(leases.asked[-1].method, "DELETE")

    def test_lost_lease_is_fenced(self):
        leases = Leases(ttl=TTL)
        leases.refuse = problem("lease_fenced", 409)
        with FakeGateway(leases) as gateway, Client(gateway.endpoint) as c:
            lease = c.pool("p").lease()
            lease._renewer.join(TIMEOUT)
            with self.assertRaises(client.LeaseFenced) as raised:
                lease.call("m")
            self.assertIn("was lost", str(raised.exception))
            self.assertFalse(raised.exception.started)
            with self.assertRaises(client.LeaseFenced):
                lease.close()

    def test_failed_renewal_is_retried_until_expiry(self):
        leases = Leases(ttl=TTL)
        leases.refuse = problem("unavailable", 503)
        with FakeGateway(leases) as gateway, Client(gateway.endpoint, retries=0) as c:
            lease = c.pool("p").lease()
            lease._renewer.join(TIMEOUT)
            self.assertGreater(len(leases.of("PUT")), 1)
            with self.assertRaises(client.LeaseFenced):
                lease.call("m")
            leases.refuse = None
            lease.close()

    def test_requests_follow_the_lease_to_its_gateway(self):
        with FakeGateway(None) as other, FakeGateway(None) as gateway, Client(gateway.endpoint) as c:
            here, there = Leases(endpoint=other.endpoint), Leases(endpoint=other.endpoint)
            other.answer = there

            def answer(asked):
                here.asked.append(asked)
                if asked.path.endswith("/leases"):
                    return Answered(here.lease(), 201)
                return problem("lease_not_found", 404, host="b", endpoint=other.endpoint)

            gateway.answer = answer
            with c.pool("p").lease() as lease:
                other.answer = lambda asked: there.asked.append(asked) or problem("worker_error", 500, started=True)
                with self.assertRaises(client.WorkerError):
                    lease.call("m")
                other.answer = there
                for n in range(2):
                    self.assertEqual(lease.call("m", n), n)
            self.assertEqual(len(here.asked), 2, "it is asked once without success")
            self.assertEqual([asked.method for asked in there.asked], ["POST", "POST", "POST", "DELETE"])

    def test_another_gateway_serves_a_lease_whose_own_does_not(self):
        leases = Leases()
        with FakeGateway(leases) as one, FakeGateway(leases) as two, Client([one.endpoint, two.endpoint], retries=1) as c:
            lease = c.pool("p").lease()
            own, other = (one, two) if one.asked else (two, one)
            refusals = [problem("busy", 503, retry_after_ms=1)]
            own.answer = lambda asked: refusals.pop() if refusals else leases(asked)
            self.assertEqual(lease.call("m", 1), 1)
            self.assertEqual(other.asked, [], "its worker is no freer there")
            own.answer = lambda asked: problem("unavailable", 503)
            self.assertEqual(lease.call("m", 1), 1)
            lease.renew()
            own.answer = lambda asked: Answered(cut=True)
            with self.assertRaises(client.Unavailable):
                lease.call("m", 1)  # which may have begun
            lease.close()
            self.assertEqual([asked.method for asked in leases.asked], ["POST", "POST", "POST", "PUT", "DELETE"])

    def test_a_call_waits_for_the_leases_gateway_if_the_others_only_name_it(self):
        leases, refusals = Leases(), [problem("unavailable", 503)] * 3
        with FakeGateway(leases) as one, FakeGateway(leases) as two, Client([one.endpoint, two.endpoint], retries=3) as c:
            lease = c.pool("p").lease()
            own, other = (one, two) if one.asked else (two, one)
            own.answer = lambda asked: refusals.pop() if refusals else leases(asked)
            other.answer = lambda asked: problem("lease_not_found", 404, endpoint=lease._gateway.endpoint)
            self.assertEqual(lease.call("m", 1), 1)
            self.assertEqual(len(other.asked), 3)
            own.answer, lease._gateway = other.answer, c.balancer.at("http://127.0.0.1:1")
            with self.assertRaisesRegex(client.Unavailable, "cannot connect"):
                lease.call("m", 1)
            self.assertEqual(lease._gateway.failures, 4, "each retry is one of the lease's gateway")

    def test_a_renewal_asks_another_gateway_after_one_without_an_answer(self):
        leases, ended = Leases(), threading.Event()
        with FakeGateway(leases) as one, FakeGateway(leases) as two, Client([one.endpoint, two.endpoint]) as c:
            self.addCleanup(ended.set)
            lease = c.pool("p").lease()
            (one if one.asked else two).answer = lambda asked: ended.wait(TIMEOUT) and problem("unavailable", 503)
            lease._until = time.monotonic() + 0.2
            with self.assertRaises(client.DeadlineExceeded):
                lease.renew()
            lease._until = 0.0  # a renewal then lasts as long as it may
            lease.renew()
            lease.close()

    def test_a_lease_stays_with_its_gateway_where_another_one_cannot_be_reached(self):
        leases, referrals = Leases(), [problem("lease_not_found", 404, host="b", endpoint="http://127.0.0.1:1")]
        with FakeGateway(lambda asked: referrals.pop() if "/call/" in asked.path and referrals else leases(asked)) as gateway, \
                Client(gateway.endpoint, retries=0) as c, c.pool("p").lease() as lease:
            with self.assertRaises(client.Unavailable):
                lease.call("m", 1)
            self.assertEqual(lease.call("m", 2), 2)
            lease.renew()

    def test_the_token_goes_to_gateways_of_the_roster_only(self):
        for listed in (True, False):
            there = Leases()
            with FakeGateway(there) as other, FakeGateway(None) as gateway, Client(gateway.endpoint, token="t" * 16, retries=0) as c:
                def answer(asked):
                    if asked.path.endswith("/leases"):
                        return Answered(there.lease(), 201)
                    if asked.path == "/v1/workers":
                        return Answered([{"worker": "p/0", "endpoint": other.endpoint if listed else gateway.endpoint}])
                    return problem("lease_not_found", 404, host="b", endpoint=other.endpoint)

                gateway.answer = answer
                lease = c.pool("p").lease()
                if listed:
                    self.assertEqual(lease.call("m", 1), 1)
                    lease.close()
                    self.assertEqual(other.asked[0].headers["Authorization"], "Bearer " + "t" * 16)
                    continue
                for do in (lambda: lease.call("m", 1), lease.close):
                    with self.assertRaises(client.Unavailable):
                        do()
                self.assertEqual(other.asked, [], "an address that only an error names")

    def test_wait_for_a_worker_is_limited(self):
        refusal = problem("no_workers", 503, retry_after_ms=20)
        with FakeGateway(lambda asked: refusal) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(client.NoWorkers):
                c.pool("p").lease(wait=0)
            self.assertEqual(len(gateway.asked), 1)
            with self.assertRaises(client.NoWorkers):
                c.pool("p").lease(wait=0.1)
        with FakeGateway(wait_in_vain) as one, FakeGateway(wait_in_vain) as two, Client([one.endpoint, two.endpoint]) as c:
            with self.assertRaises(client.QueueTimeout):
                c.pool("p").lease(wait=0.2)
            self.assertEqual(sorted(asked.json()["wait_ms"] > 0 for asked in one.asked + two.asked), [False, True], "only one gateway has it wait")
        leases, refusals = Leases(), [refusal, refusal, refusal]
        with FakeGateway(lambda asked: refusals.pop() if refusals else leases(asked)) as gateway, Client(gateway.endpoint) as c:
            with c.pool("p").lease(wait=TIMEOUT):
                self.assertEqual(len(gateway.asked), 4)

    def test_a_step_of_the_servers_clock_does_not_move_the_end(self):
        leases = Leases()
        with FakeGateway(leases) as gateway, Client(gateway.endpoint) as c, c.pool("p").lease() as lease:
            leases.renewals = 1  # an hour back
            lease.renew()
            self.assertAlmostEqual(lease._until, time.monotonic() + leases.ttl, delta=leases.ttl / 2)


class Sessions(unittest.TestCase):
    def test_requests_of_each_operation(self):
        session = {"id": "s 1", "data": {"n": 1}, "version": 4}
        with FakeGateway(lambda asked: Answered(session)) as gateway, Client(gateway.endpoint) as c:
            self.assertEqual(c.sessions.get("s 1"), session)
            self.assertEqual(c.sessions.put("s 1", {"n": 1}, metadata={"m": 2}, ttl="30m"), session)
            self.assertEqual(c.sessions.put("s 1", {"n": 1}, version=3), session)
            self.assertEqual(c.sessions.patch("s 1", {"data": {"n": None}}, version=4), session)
            self.assertIsNone(c.sessions.delete("s 1"))
            self.assertEqual(c.pool("p").sessions.put("s", create=True), session)
            got = [(a.method, a.path, a.body and a.json(), a.headers.get("If-Match"), a.headers.get("Content-Type")) for a in gateway.asked]
            self.assertEqual(got, [
                ("GET", "/v1/sessions/s%201", b"", None, None),
                ("PUT", "/v1/sessions/s%201", {"data": {"n": 1}, "metadata": {"m": 2}, "ttl": "30m"}, None, "application/json"),
                ("PUT", "/v1/sessions/s%201", {"data": {"n": 1}}, '"3"', "application/json"),
                ("PATCH", "/v1/sessions/s%201", {"data": {"n": None}}, '"4"', "application/merge-patch+json"),
                ("DELETE", "/v1/sessions/s%201", b"", None, None),
                ("PUT", "/v1/sessions/s?pool=p", {}, None, "application/json")])
            self.assertEqual([a.headers.get("If-None-Match") for a in gateway.asked], [None] * 5 + ["*"])

    def test_conditional_changes_are_not_retried(self):
        with FakeGateway(lambda asked: Answered(cut=True)) as gateway, Client(gateway.endpoint, retries=1) as c:
            for do, tries in ((lambda: c.sessions.get("s"), 2), (lambda: c.sessions.put("s"), 2), (lambda: c.sessions.delete("s"), 2),
                              (lambda: c.sessions.patch("s", {}), 1), (lambda: c.sessions.put("s", version=1), 1), (lambda: c.sessions.put("s", create=True), 1)):
                gateway.asked.clear()
                with self.assertRaises(client.Unavailable):
                    do()
                self.assertEqual(len(gateway.asked), tries)

    def test_conflict_and_missing_session_exceptions(self):
        with FakeGateway(lambda asked: problem("version_conflict", 409)) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(client.VersionConflict):
                c.sessions.patch("s", {}, version=1)
            gateway.answer = lambda asked: problem("session_not_found", 404)
            with self.assertRaises(client.SessionNotFound):
                c.sessions.get("s")
            c.sessions.delete("s")


if __name__ == "__main__":
    unittest.main()

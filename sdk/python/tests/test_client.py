import json
import os
import random
import socket
import tempfile
import threading
import time
import unittest
from unittest import mock

from tempool import client
from tempool.client import Client, TempoolError

from .gateway import TIMEOUT, TLS, Answered, FakeGateway, problem, server_tls


def echo(asked):
    return Answered(asked.body)


def closed_port():
    """An endpoint at which nobody listens: its port is below those that the system gives to connections, and to servers that want any."""
    while True:
        with socket.socket() as s:
            port = random.randrange(10000, 20000)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return "http://127.0.0.1:%d" % port


class Calls(unittest.TestCase):
    def test_call_headers(self):
        with FakeGateway(lambda asked: Answered({"n": 144}, headers={"X-Kind": "test"})) as gateway, Client(gateway.endpoint) as c:
            pool = c.pool("python")
            self.assertEqual(pool.call("tools/square it", {"x": 12}, timeout=50, session="s1", key="k1", priority=9, headers={"traceparent": "00-1"}), {"n": 144})
            asked = gateway.asked[0]
            self.assertEqual((asked.method, asked.path, asked.body), ("POST", "/v1/pools/python/call/tools/square%20it", b'{"x":12}'))
            self.assertEqual([asked.headers[k] for k in ("Tempool-Session", "Tempool-Key", "Tempool-Priority", "traceparent", "Content-Type")], ["s1", "k1", "9", "00-1", "application/json"])
            self.assertTrue(40000 < int(asked.headers["Tempool-Timeout"]) <= 50000)
            answer = pool.exchange("m", b"raw")
            self.assertEqual((answer.json(), answer.worker, answer.incarnation, answer.headers["x-kind"]), ({"n": 144}, "python/0", 3, "test"))
            self.assertTrue(50000 < int(gateway.asked[1].headers["Tempool-Timeout"]) <= 60000, "the client's own timeout")

    def test_a_call_of_one_worker_names_it(self):
        with FakeGateway(echo) as gateway, Client(gateway.endpoint) as c:
            worker = c.pool("p").worker(7)
            self.assertEqual(worker.call("tools/call", {"x": 1}, session="s"), {"x": 1})
            self.assertEqual((gateway.asked[0].path, gateway.asked[0].headers["Tempool-Session"]), ("/v1/pools/p/workers/7/call/tools/call", "s"))
            self.assertEqual(worker.call_raw("m", b"x"), b"x")
            for bad in (-1, "0", None, 1.0):
                with self.assertRaises(client.Invalid):
                    c.pool("p").worker(bad)

    def test_an_anonymous_session_has_the_id_that_the_gateway_chose(self):
        with FakeGateway(lambda asked: Answered({"id": "temp_x", "version": 1}, 201)) as gateway, Client(gateway.endpoint) as c:
            self.assertEqual(c.pool("p").sessions.new({"k": 1}, ttl="10m")["id"], "temp_x")
            c.sessions.new()
            self.assertEqual([(a.method, a.path, a.json()) for a in gateway.asked], [
                ("POST", "/v1/sessions?pool=p", {"data": {"k": 1}, "ttl": "10m"}), ("POST", "/v1/sessions", {})])

    def test_a_backup_is_exported_and_imported(self):
        backup = b'{"format":"tempool-sessions"}\n{"id":"a"}\n{"sessions":1}\n'

        def serve(asked):
            if asked.method == "GET":
                return answers.pop(0)
            return Answered({"created": 1, "replaced": 0, "kept": 0, "expired": 0})

        with tempfile.TemporaryDirectory() as folder, FakeGateway(serve) as gateway, Client(gateway.endpoint) as c:
            sessions, path = c.pool("p").sessions, os.path.join(folder, "backup")
            failed = [backup[:-15], b'{"code":"store_unavailable","error":"it went away"}\n']
            answers = [Answered(backup), Answered(backup[:-15]), Answered(pieces=failed, cut=True)]
            self.assertEqual(sessions.export_to(path), 1)
            with self.assertRaises(client.Unavailable):
                sessions.export_to(path)
            with self.assertRaisesRegex(TempoolError, "it went away") as caught:
                sessions.export_to(path)
            self.assertEqual(caught.exception.code, "store_unavailable")
            with open(path, "rb") as file:
                self.assertEqual(file.read(), backup, "the old backup stays")
            self.assertEqual((os.listdir(folder), os.stat(path).st_mode & 0o777), (["backup"], 0o600))
            self.assertEqual(sessions.import_from(path, any_pool=True)["created"], 1)
            self.assertEqual([(a.method, a.path) for a in gateway.asked[-2:]], [("GET", "/v1/pools/p/sessions/export"), ("POST", "/v1/pools/p/sessions/import?any_pool=true")])
            self.assertEqual(gateway.asked[-1].body, backup)
            with self.assertRaises(TypeError):
                c.sessions.export_to(path)
            with self.assertRaises(FileNotFoundError):
                sessions.import_from(os.path.join(folder, "none"))

    def test_bindings_are_asked_and_set(self):
        with FakeGateway(lambda asked: Answered({"bindings": [{"session": "s", "worker": "p/1"}], "next": ""})) as gateway, Client(gateway.endpoint) as c:
            sessions = c.pool("p").sessions
            self.assertEqual(sessions.bindings("a b", 7)["bindings"], [{"session": "s", "worker": "p/1"}])
            sessions.bind("user:4?", 1)
            sessions.unbind("s")
            self.assertEqual([(a.method, a.path) for a in gateway.asked], [
                ("GET", "/v1/pools/p/bindings?after=a%20b&limit=7"), ("PUT", "/v1/pools/p/bindings/user%3A4%3F"),
                ("DELETE", "/v1/pools/p/bindings/user%3A4%3F?keep=p%2F1"), ("DELETE", "/v1/pools/p/bindings/s")])
            self.assertEqual(gateway.asked[1].json(), {"worker": "p/1"})
            with self.assertRaises(TypeError):
                c.sessions.bind("s", 1)

    def test_bindings_of_all_hosts_are_asked_and_ended(self):
        def page(*found, more=""):
            return lambda asked: Answered({"bindings": [{"session": s, "worker": w} for s, w in found], "next": more})

        with FakeGateway(page(("a", "p/0"), ("c", "p/0"), more="c")) as one, FakeGateway(page(("b", "p/1"), ("c", "p/1"))) as two:
            with Client([one.endpoint, two.endpoint]) as c:
                sessions = c.pool("p").sessions
                both = [{"session": s, "worker": w} for s, w in (("a", "p/0"), ("b", "p/1"), ("c", "p/0"), ("c", "p/1"))]
                self.assertEqual(sessions.bindings(limit=3), {"bindings": both, "next": "c"})
                self.assertEqual(sessions.bindings(limit=2), {"bindings": both[:2], "next": "b"})
                sessions.unbind("s")
                for gateway in (one, two):
                    self.assertEqual((gateway.asked[-1].method, gateway.asked[-1].path), ("DELETE", "/v1/pools/p/bindings/s"))
                two.answer = lambda asked: problem("forbidden", 403)
                one.asked.clear()
                with self.assertRaises(client.Unauthorized):
                    sessions.unbind("s")
                self.assertEqual(len(one.asked), 1, "the others are asked even if one fails")

    def test_a_worker_of_another_host_is_bound_at_its_gateway(self):
        with FakeGateway(lambda asked: Answered()) as two:
            peers = [{"host": "x", "endpoint": "ftp://x"}, {"host": "two", "endpoint": two.endpoint}]
            refusal = problem("no_workers", 503, gateways=peers)
            with FakeGateway(lambda asked: refusal if asked.method == "PUT" else Answered(status=204)) as one, Client(one.endpoint) as c:
                c.pool("p").sessions.bind("s", 1)
                for gateway in (one, two):
                    self.assertEqual([(a.method, a.path) for a in gateway.asked], [
                        ("PUT", "/v1/pools/p/bindings/s"), ("DELETE", "/v1/pools/p/bindings/s?keep=p%2F1")])
                one.answer = lambda asked: problem("forbidden", 403) if asked.method == "DELETE" else refusal
                with self.assertRaisesRegex(client.Unauthorized, "session s is bound to p/1; its bindings on other hosts could not be ended"):
                    c.pool("p").sessions.bind("s", 1)

    def test_a_suspended_worker_is_not_called_again(self):
        with FakeGateway(lambda asked: problem("suspended", 503)) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(TempoolError) as raised:
                c.pool("p").worker(0).call("m")
            self.assertEqual((raised.exception.code, len(gateway.asked)), ("suspended", 1))

    def test_parameters_and_results_of_any_json_type(self):
        with FakeGateway(echo) as gateway, Client(gateway.endpoint) as c:
            pool = c.pool("p")
            for value in (None, 0, False, "ü", [1, None], {"a": {}}):
                self.assertEqual(pool.call("m", value), value)
            for body in (b"", b"\x00\xff", b"x" * 3_000_000):
                self.assertEqual(pool.call_raw("m", body), body)
            self.assertIsNone(pool.call("m"))
            self.assertEqual(gateway.asked[0].body, b"")
            with self.assertRaises(client.WorkerError) as raised:
                gateway.answer = lambda asked: Answered(b"not json")
                pool.call("m")
            self.assertTrue(raised.exception.started)
            for bad in (lambda: pool.call("m", {1, 2}), lambda: pool.call("m", float("nan")), lambda: pool.call(""), lambda: pool.call("m", timeout=0),
                        lambda: pool.call("m", session="a\r\nb"), lambda: pool.call("m", key="\udcff"), lambda: c.pool("")):
                with self.assertRaises(client.Invalid):
                    bad()

    def test_a_call_cut_by_the_memory_limit_is_a_crash_with_a_class_of_its_own(self):
        with FakeGateway(lambda asked: problem("memory_limit_exceeded", 502, True)) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(client.MemoryLimitExceeded) as raised:
                c.pool("p").call("m")
            self.assertIsInstance(raised.exception, client.WorkerCrashed)
            self.assertTrue(raised.exception.started)

    def test_worker_error_has_the_workers_details(self):
        said = {"code": "nope", "type": "Odd", "message": "why", "traceback": "here", "data": {"n": 1}, "fatal": True}
        with FakeGateway(lambda asked: problem("worker_error", 500, True, worker_error=said)) as gateway, Client(gateway.endpoint) as c:
            with self.assertRaises(client.WorkerError) as raised:
                c.pool("p").call("m")
            e = raised.exception
            self.assertEqual((e.code, e.worker_code, e.type, e.traceback, e.data, e.fatal, e.started, e.status),
                             ("worker_error", "nope", "Odd", "here", {"n": 1}, True, True, 500))
            self.assertEqual(len(gateway.asked), 1)

    def test_each_code_has_its_exception(self):
        with FakeGateway(None) as gateway, Client(gateway.endpoint, retries=0) as c:
            for code, kind in (("pool_not_found", client.PoolNotFound), ("queue_full", client.QueueFull), ("lease_fenced", client.LeaseFenced),
                               ("deadline_exceeded", client.DeadlineExceeded), ("payload_too_large", client.PayloadTooLarge),
                               ("unauthorized", client.Unauthorized), ("something_new", TempoolError)):
                gateway.answer = lambda asked: problem(code, 500)
                with self.assertRaises(kind) as raised:
                    c.pool("p").call("m")
                self.assertEqual((raised.exception.code, str(raised.exception)), (code, "about " + code))
            gateway.answer = lambda asked: Answered(b"431 Request Header Fields Too Large", 431)
            with self.assertRaisesRegex(client.PayloadTooLarge, "line and headers are too large.*64 KiB") as raised:
                c.pool("p").call("m" * 1000)
            self.assertFalse(raised.exception.started)
            gateway.answer = lambda asked: Answered(b"<html>", 502)
            with self.assertRaises(client.Unavailable) as raised:
                c.pool("p").call("m")
            self.assertTrue(raised.exception.started, "nobody said that it was not")

    def test_pools_and_workers(self):
        with FakeGateway(lambda asked: Answered([asked.path])) as gateway, Client(gateway.endpoint) as c:
            self.assertEqual([c.pools(), c.workers(), c.pool("a b").status()], [["/v1/pools"], ["/v1/workers"], ["/v1/pools/a%20b"]])


class Retries(unittest.TestCase):
    def test_only_unstarted_requests_are_retried(self):
        for error, tries in ((problem("queue_full", 429), 3), (problem("worker_crashed", 502), 3), (problem("worker_crashed", 502, True), 1),
                             (problem("worker_error", 500, True), 1), (problem("invalid", 400), 1), (Answered(cut=True), 1)):
            with FakeGateway(lambda asked: error) as gateway, Client(gateway.endpoint, retries=2) as c:
                with self.assertRaises(TempoolError) as raised:
                    c.pool("p").call("m")
                self.assertEqual(len(gateway.asked), tries, raised.exception)
                self.assertEqual(raised.exception.started, tries == 1 and raised.exception.code != "invalid")

    def test_retry_after_is_respected(self):
        answers = [problem("rate_limited", 429, retry_after_ms=300), problem("no_workers", 503), Answered(b"1")]
        with FakeGateway(lambda asked: answers.pop(0)) as gateway, Client(gateway.endpoint) as c:
            began = time.monotonic()
            self.assertEqual(c.pool("p").call("m"), 1)
            self.assertGreaterEqual(time.monotonic() - began, 0.3)
            timeouts = [int(asked.headers["Tempool-Timeout"]) for asked in gateway.asked]
            self.assertEqual(sorted(timeouts, reverse=True), timeouts)
            self.assertLessEqual(timeouts[1], timeouts[0] - 300, "each attempt gets the time that is left")

    def test_retries_end_at_the_deadline(self):
        with FakeGateway(lambda asked: problem("queue_full", 429, retry_after_ms=2000 * TIMEOUT)) as gateway, Client(gateway.endpoint) as c:
            began = time.monotonic()
            with self.assertRaises(client.QueueFull) as raised:
                c.pool("p").call("m", timeout=TIMEOUT)
            self.assertEqual((raised.exception.retry_after, len(gateway.asked)), (2 * TIMEOUT, 1))
            self.assertLess(time.monotonic() - began, TIMEOUT / 2)

    def test_idempotent_requests_are_retried_after_a_disconnect(self):
        answers = [Answered(cut=True), Answered([])]
        with FakeGateway(lambda asked: answers.pop(0)) as gateway, Client(gateway.endpoint) as c:
            self.assertEqual(c.workers(), [])
            self.assertEqual(len(gateway.asked), 2)

    def test_call_without_an_answer_times_out(self):
        done = threading.Event()
        with FakeGateway(lambda asked: done.wait(TIMEOUT) and Answered()) as gateway, Client(gateway.endpoint) as c:
            with mock.patch("tempool.client.endpoint.GRACE", 0.05), self.assertRaises(client.DeadlineExceeded) as raised:
                c.pool("p").call("m", timeout=8)  # the time to send it on a slow machine
            self.assertTrue(raised.exception.started)
            done.set()


class Gateways(unittest.TestCase):
    def test_calls_are_balanced_and_avoid_a_dead_gateway(self):
        with FakeGateway(echo) as one, FakeGateway(echo) as other, Client([one.endpoint, other.endpoint, closed_port()]) as c:
            for n in range(30):
                self.assertEqual(c.pool("p").call("m", n), n)
            self.assertEqual(len(one.asked) + len(other.asked), 30)
            self.assertGreaterEqual(min(len(one.asked), len(other.asked)), 5)

    def test_refused_call_goes_to_another_gateway_at_once(self):
        with FakeGateway(lambda asked: problem("queue_full", 429, retry_after_ms=60000)) as full, FakeGateway(echo) as free:
            with Client(full.endpoint + "," + free.endpoint) as c:
                for n in range(4):
                    self.assertEqual(c.pool("p").call("m", n, timeout=TIMEOUT), n)
            self.assertEqual(len(full.asked), 2)

    def test_unreachable_gateway_is_unavailable_and_unstarted(self):
        with Client(closed_port(), retries=1) as c, self.assertRaises(client.Unavailable) as raised:
            c.pool("p").call("m")
        self.assertFalse(raised.exception.started)

    def test_recovered_gateway_is_used_again(self):
        endpoint = closed_port()
        with Client(endpoint, retries=0) as c:
            with self.assertRaises(client.Unavailable):
                c.pool("p").call("m", 1)
            with mock.patch("tests.gateway._Server.__init__", lambda server, address, handler: super(type(server), server).__init__(
                    ("127.0.0.1", int(endpoint.rsplit(":", 1)[1])), handler)), FakeGateway(echo):
                self.assertEqual(c.pool("p").call("m", 1), 1)

    def test_gateway_from_the_environment(self):
        with FakeGateway(echo) as gateway, mock.patch.dict(os.environ, {"TEMPOOL_GATEWAY": gateway.endpoint}), Client() as c:
            self.assertEqual(c.pool("p").call("m", 1), 1)
        with mock.patch.dict(os.environ):
            os.environ.pop("TEMPOOL_GATEWAY", None)
            with Client() as c:
                self.assertEqual(c.balancer.at("http://127.0.0.1:7460"), c.balancer._order()[0])

    def test_invalid_endpoints(self):
        for bad in ("", "127.0.0.1:7460", "ftp://h:1", "unix:relative", "http://", "http://h:1/path", []):
            with self.assertRaises(ValueError, msg=bad):
                Client(bad)
        for secretly in ("http://s3cret@h:1", "https://me:s3cret@h", "redis://s3cret@h", "http://me:x/s3cret@h", "http://h:1?token=s3cret", "http://h:1#token=s3cret"):
            with self.assertRaises(ValueError) as raised:
                Client(secretly)
            self.assertIn("h", str(raised.exception))
            self.assertNotIn("s3cret", str(raised.exception))
        with self.assertRaises(ValueError):
            Client(token="a", token_file="b")

    def test_unix_socket(self):
        with FakeGateway(echo, unix=True) as gateway, Client(gateway.endpoint, token="t" * 16) as c:
            for n in range(3):
                self.assertEqual(c.pool("p").call("m", n), n)
            self.assertEqual(len({asked.connection for asked in gateway.asked}), 1)
            self.assertEqual(gateway.asked[0].headers["Authorization"], "Bearer " + "t" * 16)

    def test_tls_with_token_and_client_certificate(self):
        files = {"ca_file": os.path.join(TLS, "authority.pem"), "cert_file": os.path.join(TLS, "client.pem")}
        with FakeGateway(echo, tls=server_tls(client_certificates=True)) as gateway:
            token = os.path.join(gateway.folder.name, "token")
            with open(token, "w") as f:
                f.write("secret of 16 and more\n")
            with Client(gateway.endpoint, token_file=token, **files) as c:
                self.assertEqual(c.pool("p").call("m", 1), 1)
            with mock.patch.dict(os.environ, {"TEMPOOL_CERT_FILE": files["cert_file"]}), Client(gateway.endpoint, ca_file=files["ca_file"]) as c:
                self.assertEqual(c.pool("p").call("m", 1), 1)
            with self.assertRaisesRegex(ValueError, "without cert_file"):
                Client(gateway.endpoint, key_file=files["cert_file"])
            self.assertEqual(gateway.asked[0].headers["Authorization"], "Bearer secret of 16 and more")
        with FakeGateway(echo, tls=server_tls()) as gateway:
            with Client(gateway.endpoint, retries=0) as c, self.assertRaises(client.Unavailable) as raised:
                c.pool("p").call("m", 1)
            self.assertIn("certificate", str(raised.exception))
            self.assertFalse(raised.exception.started)

    def test_token_is_never_sent_unencrypted_over_a_network(self):
        for endpoint, goes in (("http://127.0.0.1:1", True), ("http://localhost:1", True), ("http://[::1]:1", True), ("https://h:1", True),
                               ("unix:/s", True), ("http://10.0.0.1:1", False), ("http://127.0.0.1.example.com:1", False)):
            with Client(endpoint, token="t" * 16) as c:
                self.assertEqual("Authorization" in c.balancer.at(endpoint)._headers, goes, endpoint)


class Connections(unittest.TestCase):
    def test_sequential_calls_share_a_connection(self):
        with FakeGateway(echo) as gateway, Client(gateway.endpoint) as c:
            for n in range(20):
                self.assertEqual(c.pool("p").call("m", n), n)
            self.assertEqual(len({asked.connection for asked in gateway.asked}), 1)

    def test_concurrent_calls_get_their_own_answers(self):
        with FakeGateway(echo) as gateway, Client(gateway.endpoint) as c:
            wrong = []

            def caller(me):
                for n in range(40):
                    got = c.pool("p").call("m", [me, n])
                    if got != [me, n]:
                        wrong.append(got)

            threads = [threading.Thread(target=caller, args=(me,)) for me in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(TIMEOUT)
            self.assertEqual((wrong, len(gateway.asked)), ([], 320))
            self.assertLessEqual(len({asked.connection for asked in gateway.asked}), 8)

    def test_closed_connection_is_not_reused(self):
        for said in ({}, {"Connection": "close"}):
            answers = [Answered(str(n).encode(), hang_up=True, headers=said) for n in range(5)]
            with FakeGateway(lambda asked: answers[len(gateway.asked) - 1]) as gateway, Client(gateway.endpoint, retries=0) as c:
                for n in range(5):
                    self.assertEqual(c.pool("p").call("m"), n)
                    for connection, _ in c.balancer.at(gateway.endpoint)._idle:
                        connection.sock.recv(1, socket.MSG_PEEK)  # returns once the end has come
                self.assertEqual(len({asked.connection for asked in gateway.asked}), 5)

    def test_forked_child_does_not_use_the_parents_connections_and_threads(self):
        with FakeGateway(echo) as gateway, Client(gateway.endpoint) as c:
            c.pool("p").call("m", 1)
            idle, threads = c.balancer.at(gateway.endpoint)._idle[0][0], c.threads()
            with mock.patch("os.getpid", lambda: -1), mock.patch.object(threads, "submit"):
                self.assertEqual(c.pool("p").submit("m", 2).result(TIMEOUT), 2)
            threads.shutdown()
            self.assertEqual(len({asked.connection for asked in gateway.asked}), 2)
            idle.close()

    def test_answer_before_the_whole_body_was_sent(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def refuse():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                body = json.dumps({"code": "payload_too_large", "detail": "too large", "started": False}).encode()
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):  # a close with bytes unread would reset the connection, and take the answer with it
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        with Client("http://127.0.0.1:%d" % listener.getsockname()[1]) as c, self.assertRaises(client.PayloadTooLarge):
            c.pool("p").call_raw("m", b"x" * 5_000_000)
        thread.join(TIMEOUT)


class Streams(unittest.TestCase):
    def test_values_are_split_by_line_across_chunks(self):
        pieces = [b'{"a":1}\n{"b"', b":", b"2}\n", b"\n", b'"end"']
        with FakeGateway(lambda asked: Answered(pieces=pieces)) as gateway, Client(gateway.endpoint) as c:
            stream = c.pool("p").stream("count", [3])
            self.assertEqual((stream.worker, stream.incarnation), ("python/0", 3))
            self.assertEqual(list(stream), [{"a": 1}, {"b": 2}, "end"])
            self.assertEqual(b"".join(c.pool("p").stream("count", b"3", raw=True)), b"".join(pieces))
            self.assertEqual([asked.body for asked in gateway.asked], [b"[3]", b"3"])
            self.assertEqual(len({asked.connection for asked in gateway.asked}), 1)

    def test_pieces_arrive_before_the_end(self):
        go_on = threading.Event()

        def pieces():
            yield b"1\n"
            go_on.wait(TIMEOUT)
            yield b"2\n"

        with FakeGateway(lambda asked: Answered(pieces=pieces())) as gateway, Client(gateway.endpoint) as c:
            stream = c.pool("p").stream("m")
            self.assertEqual(next(stream), 1)
            go_on.set()
            self.assertEqual(list(stream), [2])

    def test_closing_a_stream_cancels_the_call(self):
        left = threading.Event()

        def forever():
            try:
                while True:
                    yield b"1\n" * 1000
            finally:
                left.set()

        answers = [Answered(pieces=forever()), Answered(b"5")]
        with FakeGateway(lambda asked: answers.pop(0)) as gateway, Client(gateway.endpoint) as c:
            with c.pool("p").stream("m") as stream:
                self.assertEqual(next(stream), 1)
            self.assertEqual(c.pool("p").call("m"), 5)
            self.assertTrue(left.wait(TIMEOUT))

    def test_truncated_stream_is_an_error(self):
        for raw in (False, True):
            with FakeGateway(lambda asked: Answered(pieces=[b"1\n"], cut=True)) as gateway, Client(gateway.endpoint) as c:
                stream = c.pool("p").stream("m", raw=raw)
                next(stream)
                with self.assertRaises(client.WorkerCrashed) as raised:
                    next(stream)
                self.assertTrue(raised.exception.started)


if __name__ == "__main__":
    unittest.main()

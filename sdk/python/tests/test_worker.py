import ctypes
import json
import os
import signal
import tempfile
import time
import unittest

import tempool
from tempool import frames

from .host import TIMEOUT, Host

HEAD = "import os, sys, time, tempool\n"

# Every behaviour of a call has to hold in both ways of serving.
MODES = {"serial": "tempool.run()", "threaded": "tempool.run(threads=2)"}


def each_mode(test):
    def both(self):
        for way, run in MODES.items():
            with self.subTest(way):
                test(self, lambda body, **kw: Host(HEAD + body + "\n" + run, **kw))
    return both


class Calls(unittest.TestCase):
    @each_mode
    def test_hello_names_the_methods(self, start):
        with start("@tempool.method\ndef a(): pass\n@tempool.method('b/c')\ndef b(): pass") as host:
            self.assertEqual(host.hello["methods"], ["a", "b/c"])
            self.assertEqual(host.hello["protocol"], 1)
            self.assertTrue(host.hello["sdk"].startswith("python/"))

    def test_a_request_that_is_cancelled_before_it_begins_is_skipped(self):
        with Host(HEAD + "@tempool.method(raw=True)\ndef echo(b): return b\ntempool.run()") as host:
            looks_like_a_cancel = frames.encode(frames.CANCEL, 7)
            front = frames.encode(frames.REQUEST, 1, b"echo", payload=b"front")
            behind = b"".join((
                frames.encode(frames.REQUEST, 2, b"echo", payload=b"two"), frames.encode(frames.PING, 1 << 30), frames.encode(frames.CANCEL, 2),
                frames.encode(frames.REQUEST, 3, b"echo", payload=looks_like_a_cancel), frames.encode(frames.REQUEST, 4, b"echo", payload=b"four")))
            host.socket.sendall(front + behind)
            self.assertEqual(json.loads(host.expect(frames.ERROR, 2)[5])["code"], "cancelled")
            self.assertEqual(host.expect(frames.RESPONSE, 1)[5], b"front")
            host.expect(frames.PONG, 1 << 30)
            self.assertEqual(host.expect(frames.RESPONSE, 3)[5], looks_like_a_cancel)
            self.assertEqual(host.expect(frames.RESPONSE, 4)[5], b"four")
            host.socket.sendall(front + frames.encode(frames.REQUEST, 5, b"echo", payload=looks_like_a_cancel))
            self.assertEqual(host.expect(frames.RESPONSE, 1)[5], b"front")
            self.assertEqual(host.expect(frames.RESPONSE, 5)[5], looks_like_a_cancel)

    def test_a_request_behind_a_long_call_is_skipped_if_it_was_cancelled_meanwhile(self):
        # A worker looks for a cancel behind calls of 1 ms and longer, and a loaded machine may do all else in less.
        with Host(HEAD + "@tempool.method\ndef long(path):\n open(path + '.began', 'w').close()\n time.sleep(0.002)\n"
                  " while not os.path.exists(path): time.sleep(0.001)\n"
                  "@tempool.method\ndef asks(path):\n tempool.context().host('here')\n long(path)\n"
                  "@tempool.method\ndef never(): raise SystemExit\ntempool.run()") as host:
            with tempfile.TemporaryDirectory() as folder:
                for front, method in enumerate((b"long", b"asks"), 1):
                    path = os.path.join(folder, str(front))
                    behind = front + 10
                    both = frames.encode(frames.REQUEST, front, method, payload=json.dumps(path).encode()) + frames.encode(frames.REQUEST, behind, b"never")
                    host.socket.sendall(both)  # in one read
                    if method == b"asks":  # then the worker has it before the answer
                        host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
                    while not os.path.exists(path + ".began"):
                        time.sleep(0.001)
                    host.send(frames.CANCEL, behind)
                    open(path, "w").close()
                    host.expect(frames.RESPONSE, front)
                    self.assertEqual(json.loads(host.expect(frames.ERROR, behind)[5])["code"], "cancelled")

    def test_a_start_imports_only_what_it_uses(self):
        with Host(HEAD + "import sys\n@tempool.method\ndef unused():\n"
                  " return [name for name in ('template', 'threaded', 'eventloop', 'client', 'testing') if 'tempool.' + name in sys.modules]\n"
                  "tempool.run()") as host:
            self.assertEqual(host.call("unused"), [])

    def test_a_request_behind_a_fatal_call_is_not_begun(self):
        with Host(HEAD + "@tempool.method\ndef broken(): raise tempool.Fatal('the GPU is gone')\n"
                  "@tempool.method\ndef streams():\n yield 1\n broken()\n"
                  "@tempool.method(raw=True)\ndef echo(b): return b\ntempool.run()") as host:
            for front, method in enumerate((b"broken", b"streams"), 1):
                behind = front + 10
                host.socket.sendall(frames.encode(frames.REQUEST, front, method) + frames.encode(frames.REQUEST, behind, b"echo"))
                if method == b"streams":
                    host.expect(frames.CHUNK, front)
                self.assertTrue(json.loads(host.expect(frames.ERROR, front)[5])["fatal"])
                self.assertTrue(json.loads(host.expect(frames.ERROR, behind)[5])["not_begun"])
                host.expect(frames.RESPONSE, host.request("echo"))  # a hook, or a call of a client that knows

    @each_mode
    def test_json_type_decides_the_arguments(self, start):
        with start("@tempool.method\ndef f(*a, **k): return [list(a), k]\n"
                   "@tempool.method(whole=True)\ndef whole(x): return x") as host:
            for sent, want in (
                ('{"x":1}', [[], {"x": 1}]), ("[1,2]", [[1, 2], {}]), ("5", [[5], {}]), ('"s"', [["s"], {}]),
                ("null", [[], {}]), ("", [[], {}]), ('[{"a":1}]', [[{"a": 1}], {}]),
            ):
                id = host.request("f", sent.encode())
                self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), want, sent)
            for sent in ('{"x":1}', "[1,2]", "null"):
                id = host.request("whole", sent.encode())
                self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), json.loads(sent))

    @each_mode
    def test_raw_methods_take_and_return_bytes(self, start):
        with start("@tempool.method(raw=True)\ndef echo(b): return b\n"
                   "@tempool.method(raw=True)\ndef text(b): return 'ü'\n"
                   "@tempool.method(raw=True)\ndef none(b): pass\n"
                   "@tempool.method(raw=True)\ndef wrong(b): return 5") as host:
            for body in (b"", b"\x00\xff", b"x" * 700000):
                self.assertEqual(host.expect(frames.RESPONSE, host.request("echo", body))[5], body)
            self.assertEqual(host.expect(frames.RESPONSE, host.request("text"))[5], "ü".encode())
            self.assertEqual(host.expect(frames.RESPONSE, host.request("none"))[5], b"")
            self.assertIn("must return bytes", json.loads(host.expect(frames.ERROR, host.request("wrong"))[5])["message"])

    @each_mode
    def test_exceptions_become_error_frames(self, start):
        with start("class Odd(Exception): pass\n"
                   "@tempool.method\ndef bad(): raise Odd('why')\n"
                   "@tempool.method\ndef typed(x): return x + None\n"
                   "@tempool.method\ndef coded(): raise tempool.Error('no', code='nope', data={'n': 1})\n"
                   "@tempool.method\ndef fatal(): raise tempool.Fatal('gpu is gone')\n"
                   "@tempool.method\ndef nojson(): return {1, 2}\n"
                   "@tempool.method\ndef nan(): return float('nan')\n"
                   "@tempool.method\ndef odd(): raise tempool.Error('x', data={1})\n"
                   "@tempool.method\ndef long(): raise Odd('y' * 200000)") as host:
            e = host.call("bad")
            self.assertEqual((e["code"], e["type"], e["message"]), ("error", "Odd", "why"))
            self.assertIn("raise Odd", e["traceback"].replace("Odd: why", "raise Odd"))
            self.assertEqual(host.call("typed", 1)["code"], "error")
            self.assertEqual(host.call("typed")["code"], "invalid_params")
            self.assertEqual(host.call("typed", y=1)["code"], "invalid_params")
            e = host.call("coded")
            self.assertEqual((e["code"], e["data"], e.get("fatal")), ("nope", {"n": 1}, None))
            self.assertTrue(host.call("fatal")["fatal"])
            self.assertIn("not JSON", host.call("nojson")["message"])
            self.assertIn("not JSON", host.call("nan")["message"])
            self.assertEqual(host.call("odd")["data"], "{1}")
            self.assertEqual(len(host.call("long")["message"]), 2000)
            self.assertTrue(all(host.call(method).get("unhandled") for method in ("bad", "nojson", "long")))
            self.assertFalse(any("unhandled" in host.call(method) for method in ("coded", "fatal", "odd", "missing", "typed")))
            e = host.call("missing")
            self.assertEqual(e["code"], "method_not_found")
            self.assertIn("coded", e["message"])
            id = host.request("bad", b"{")
            self.assertEqual(json.loads(host.expect(frames.ERROR, id)[5])["code"], "invalid_params")

    @each_mode
    def test_result_above_max_message_is_an_error(self, start):
        with start("@tempool.method(raw=True)\ndef big(b): return b'x' * 101", max_message=100) as host:
            self.assertEqual(host.call("big")["code"], "too_large")

    @each_mode
    def test_generators_stream(self, start):
        with start("@tempool.method\ndef count(n):\n for i in range(n): yield {'i': i}\n return 'done'\n"
                   "@tempool.method(raw=True)\ndef raw(b):\n yield b'a'\n yield 'b'\n"
                   "@tempool.method\ndef breaks():\n yield 1\n raise ValueError('mid')\n"
                   "@tempool.method\nasync def later(x): return x + 1\n"
                   "@tempool.method\nasync def each(n):\n for i in range(n): yield i\n") as host:
            id = host.request("count", b"[2]")
            self.assertEqual(host.expect(frames.CHUNK, id)[4:], ({"content-type": "application/x-ndjson"}, b'{"i":0}\n'))
            self.assertEqual(host.expect(frames.CHUNK, id)[4:], ({}, b'{"i":1}\n'))
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b'"done"')
            id = host.request("raw")
            self.assertEqual([host.expect(frames.CHUNK, id)[4:] for _ in range(2)], [({}, b"a"), ({}, b"b")])
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b"")
            id = host.request("breaks")
            host.expect(frames.CHUNK, id)
            self.assertEqual(json.loads(host.expect(frames.ERROR, id)[5])["message"], "mid")
            self.assertEqual(host.call("later", 1), 2)
            id = host.request("each", b"[2]")
            self.assertEqual([host.expect(frames.CHUNK, id)[4:] for _ in range(2)],
                             [({"content-type": "application/x-ndjson"}, b"0\n"), ({}, b"1\n")])
            host.expect(frames.RESPONSE, id)

    @each_mode
    def test_context(self, start):
        with start("@tempool.method\ndef who():\n"
                   " c = tempool.context()\n c.count('api_calls'); c.count('api_calls', 2); c.response_headers['k'] = 'v'\n"
                   " return [c.headers.get('a'), c.worker, c.incarnation, c.deadline is not None and 0 < c.remaining <= 600, c.cancelled]\n",
                   env={"TEMPOOL_WORKER": "python/3", "TEMPOOL_INCARNATION": "host:1:python/3:7:ab.cd"}) as host:
            id = host.request("who", headers={"a": "b", "tempool-timeout": "600000"})
            _, _, _, _, headers, payload = host.expect(frames.RESPONSE, id)
            self.assertEqual(json.loads(payload), ["b", "python/3", 7, True, False])
            self.assertEqual(headers, {"tempool-count-api_calls": "3", "k": "v"})
            id = host.request("who")
            self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5])[3], False)

    @each_mode
    def test_handler_sees_a_cancel(self, start):
        with start("@tempool.method\ndef wait():\n tempool.context().host('begun')\n"
                   " while not tempool.context().cancelled: time.sleep(0.001)\n return 'left'\n"
                   "@tempool.method\ndef forever():\n while True: yield 1; time.sleep(0.001)") as host:
            id = host.request("wait")
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            host.send(frames.CANCEL, id)
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b'"left"')
            id = host.request("forever")
            host.expect(frames.CHUNK, id)
            host.send(frames.CANCEL, id)
            while (frame := host.read())[0] == frames.CHUNK:
                pass
            self.assertEqual((frame[0], json.loads(frame[5])["code"]), (frames.ERROR, "cancelled"))
            host.send(frames.CANCEL, id)  # too late: of no effect
            host.send(frames.PING, 5)
            host.expect(frames.PONG, 5)

    @each_mode
    def test_host_calls(self, start):
        with start("@tempool.method\ndef f():\n c = tempool.context()\n"
                   " c.session['n'] = c.session['n'] + 1\n"
                   " try: c.host('forbidden')\n except tempool.HostError as e: return [e.code, str(e)]") as host:
            id = host.request("f")

            def answer(method, kind, value):
                _, _, asked, name, headers, payload = host.expect(frames.HOST_CALL)
                self.assertEqual((name, headers), (method, {"call": str(id)}))
                host.send(kind, asked, payload=json.dumps(value).encode())
                return payload and json.loads(payload)

            answer("session.get", frames.HOST_RESULT, {"data": {"n": 1}})
            self.assertEqual(answer("session.update", frames.HOST_RESULT, {}), {"patch": {"data": {"n": 2}}})
            answer("forbidden", frames.HOST_ERROR, {"code": "unsupported", "message": "no"})
            self.assertEqual(json.loads(host.expect(frames.RESPONSE, id)[5]), ["unsupported", "no"])

    @each_mode
    def test_garbage_is_collected_when_the_host_asks(self, start):
        with start("import gc, weakref\ngc.disable()\nkept = []\nclass Thing: pass\n"
                   "@tempool.method\ndef litter():\n    a = Thing(); a.itself = a; kept.append(weakref.ref(a))\n"
                   "@tempool.method\ndef alive(): return sum(r() is not None for r in kept)") as host:
            host.call("litter")
            self.assertEqual(host.call("alive"), 1)
            host.send(frames.NOTIFY, 0, b"tempool.gc")
            self.assertEqual(host.call("alive"), 0)
            host.socket.close()
            self.assertEqual(host.wait(), 0)
            self.assertNotIn("tempool.gc", host.log())

    @each_mode
    def test_program_can_replace_the_gc_method(self, start):
        with start("done = []\n@tempool.method('tempool.gc')\ndef gc(): done.append(1)\n@tempool.method\ndef get(): return done") as host:
            host.send(frames.NOTIFY, 0, b"tempool.gc")
            got = host.call("get")
            while not got:  # threads may answer before the notification before it is through
                got = host.call("get")
            self.assertEqual(got, [1])

    @each_mode
    def test_notifications_get_no_response(self, start):
        with start("seen = []\n@tempool.method\ndef note(x): seen.append(x); 1 / x\n@tempool.method\ndef get(): return seen") as host:
            host.send(frames.NOTIFY, 0, b"note", payload=b"1")
            host.send(frames.NOTIFY, 0, b"note", payload=b"0")
            host.send(frames.NOTIFY, 0, b"absent")
            got = host.call("get")
            while len(got) < 2:  # threads may answer before the notification before it is through
                got = host.call("get")
            self.assertEqual(sorted(got), [0, 1])
            host.socket.close()
            self.assertEqual(host.wait(), 0)
            self.assertIn("ZeroDivisionError", host.log())
            self.assertIn("absent", host.log())

    @each_mode
    def test_frames_are_split_across_reads(self, start):
        with start("@tempool.method(raw=True)\ndef echo(b): return b") as host:
            stream = b"".join(frames.encode(frames.REQUEST, i, b"echo", b"", b"%d" % i) for i in range(1, 50))
            host.socket.sendall(stream)
            got = {f[2]: f[5] for f in (host.expect(frames.RESPONSE) for _ in range(1, 50))}
            self.assertEqual(got, {i: b"%d" % i for i in range(1, 50)})
            for byte in frames.encode(frames.REQUEST, 99, b"echo", b"", b"slow"):
                host.socket.sendall(bytes([byte]))
            self.assertEqual(host.expect(frames.RESPONSE, 99)[5], b"slow")


class Lifecycle(unittest.TestCase):
    @each_mode
    def test_end_of_stream_is_a_clean_exit(self, start):
        with start("@tempool.on_stop\ndef bye(): print('bye')") as host:
            host.socket.close()
            self.assertEqual(host.wait(), 0)
            self.assertIn("bye", host.log())

    @each_mode
    def test_sigterm_finishes_the_call_in_flight(self, start):
        with start("@tempool.method\ndef slow():\n"
                   " tempool.context().host('here')\n time.sleep(0.05)\n tempool.context().host('still here')\n return 'whole'") as host:
            id = host.request("slow")
            asked = host.expect(frames.HOST_CALL)[2]
            host.terminate()
            host.send(frames.HOST_RESULT, asked)
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b'"whole"')
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 0)

    def test_sigterm_ends_a_worker_that_always_has_a_request_ahead(self):
        with Host(HEAD + "@tempool.method\ndef asks():\n tempool.context().host('here')\n tempool.context().check()\ntempool.run()") as host:
            first = host.request("asks")
            asked = host.expect(frames.HOST_CALL)[2]
            host.terminate()
            second = host.request("asks")
            host.send(frames.HOST_RESULT, asked)
            host.expect(frames.RESPONSE, first)
            asked = host.expect(frames.HOST_CALL)[2]  # the worker had received it
            third = host.request("asks")
            host.send(frames.HOST_RESULT, asked)
            host.expect(frames.RESPONSE, second)
            self.assertTrue(json.loads(host.expect(frames.ERROR, third)[5])["not_begun"])
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 0)

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "needs /proc, to see that a worker is idle")
    @each_mode
    def test_a_call_that_comes_with_sigterm_is_not_begun(self, start):
        with start("@tempool.method\ndef asks(): return tempool.context().host('here')") as host:
            host.await_idle()  # a worker that still handles the host's hello would accept what it finds behind it
            host.process.send_signal(signal.SIGSTOP)
            ids = [host.request("asks"), host.request("asks")]
            # to the main thread, which reads: any one of a process that is stopped takes a signal to the process, perhaps later
            ctypes.CDLL(None).tgkill(host.process.pid, host.process.pid, signal.SIGTERM)
            host.process.send_signal(signal.SIGCONT)  # the worker reads both, and then handles the signal
            for id in ids:
                self.assertTrue(json.loads(host.expect(frames.ERROR, id)[5])["not_begun"])
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 0)

    def test_sigterm_ends_a_worker_that_always_has_another_call(self):
        for quick, run in (("def", "threads=2"), ("async def", "")):
            with Host(HEAD + "@tempool.method\ndef asks(): return tempool.context().host('here')\n"
                      "@tempool.method\n%s quick(): return 1\ntempool.run(%s)" % (quick, run)) as host:
                first = host.request("asks")
                asked = host.expect(frames.HOST_CALL)[2]
                host.terminate()
                sent = time.monotonic()
                while True:  # until the worker has handled the signal
                    id = host.request("quick")
                    kind, _, got, _, _, payload = host.read()
                    self.assertEqual(got, id)
                    if kind == frames.ERROR:
                        break
                    self.assertLess(time.monotonic(), sent + TIMEOUT)
                self.assertTrue(json.loads(payload)["not_begun"])
                host.send(frames.HOST_RESULT, asked)
                host.expect(frames.RESPONSE, first)
                self.assertIsNone(host.read())
                self.assertEqual(host.wait(), 0)

    @each_mode
    def test_sigterm_ends_an_idle_worker(self, start):
        with start("") as host:
            host.send(frames.PING, 1)
            host.expect(frames.PONG, 1)
            host.terminate()
            self.assertEqual(host.wait(), 0)
            with self.assertRaises(BrokenPipeError):
                host.request("x")

    @each_mode
    def test_system_exit_ends_the_worker_with_its_code(self, start):
        with start("@tempool.method\ndef leave(): sys.exit(7)") as host:
            host.request("leave")
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 7)

    @each_mode
    def test_protocol_error_is_logged(self, start):
        for raw in (frames.encode(frames.RESPONSE, 1), b"\x00\x00\x00\x0c\x63" + b"\x00" * 11, b"\x00" * 16):
            with start("") as host:
                host.socket.sendall(raw)
                self.assertEqual(host.wait(), 1)
                self.assertIn("protocol error", host.log())

    def test_stdout_is_line_buffered_and_children_do_not_inherit_the_socket(self):
        with Host(HEAD + "import subprocess\n@tempool.method\ndef f():\n print('to the log')\n"
                  " code = 'import os; print(os.environ.get(\"TEMPOOL_FD\"), sorted(os.listdir(\"/proc/self/fd\")))'\n"
                  " return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, close_fds=False).stdout\n"
                  "tempool.run()") as host:
            out = host.call("f")
            self.assertIn("to the log\n", host.log())
            self.assertTrue(out.startswith("None "), out)
            self.assertLessEqual(out.count("'"), 2 * 4, "0, 1, 2 and the folder that is listed: " + out)

    def test_on_start_runs_before_ready_and_its_failure_fails_the_start(self):
        with Host(HEAD + "state = {}\n@tempool.on_start\ndef load(): state['x'] = 1\n"
                  "@tempool.method\ndef get(): return state\ntempool.run()") as host:
            self.assertEqual(host.call("get"), {"x": 1})
        with Host(HEAD + "@tempool.on_start\ndef load(): raise OSError('no model')\ntempool.run()", hello=False) as host:
            self.assertEqual(host.wait(), 1)
            self.assertIn("no model", host.log())

    def test_threads_run_calls_concurrently(self):
        with Host(HEAD + "import threading\nb = threading.Barrier(2)\n"
                  "@tempool.method\ndef meet(): b.wait(120); return True\ntempool.run(threads=2)") as host:
            ids = {host.request("meet"), host.request("meet")}
            self.assertEqual({host.expect(frames.RESPONSE)[2], host.expect(frames.RESPONSE)[2]}, ids)


class Registration(unittest.TestCase):
    def test_invalid_method_names_raise(self):
        worker = tempool.Worker()
        worker.method(len)
        for name in ("len", "x" * 1025):
            with self.assertRaises(ValueError):
                worker.method(name)(len)
        with self.assertRaises(ValueError):
            worker.run(threads=0)

    def test_context_outside_of_a_call_raises(self):
        with self.assertRaises(RuntimeError):
            tempool.context()


if __name__ == "__main__":
    unittest.main()

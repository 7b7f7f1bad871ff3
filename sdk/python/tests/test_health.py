import json
import unittest

from tempool import frames

from .test_worker import each_mode

PING = 0x40000001


class Health(unittest.TestCase):
    @each_mode
    def test_a_ping_fails_with_what_a_hook_raises(self, start):
        with start("well = []\n"
                   "@tempool.on_health\ndef first(): pass\n"
                   "@tempool.on_health\ndef second():\n    if not well: raise ConnectionError('the GPU is gone')\n"
                   "@tempool.method\ndef recover(): well.append(1)") as host:
            host.send(frames.PING, PING)
            failure = json.loads(host.expect(frames.ERROR, PING)[5])
            self.assertEqual((failure["type"], failure["message"]), ("ConnectionError", "the GPU is gone"))
            host.call("recover")
            host.send(frames.PING, PING + 1)
            host.expect(frames.PONG, PING + 1)

    @each_mode
    def test_a_hook_may_be_async(self, start):
        with start("import asyncio\n@tempool.on_health\nasync def check():\n    await asyncio.sleep(0)\n    raise ValueError('no')") as host:
            host.send(frames.PING, PING)
            self.assertEqual(json.loads(host.expect(frames.ERROR, PING)[5])["message"], "no")

    @each_mode
    def test_a_hook_that_raises_system_exit_ends_the_worker(self, start):
        with start("@tempool.on_health\ndef check(): sys.exit(7)") as host:
            host.send(frames.PING, PING)
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 7)

    def test_a_hook_never_runs_in_the_middle_of_a_handler(self):
        from .test_worker import HEAD, Host

        program = HEAD + ("serving = False\n"
                          "@tempool.on_health\ndef check():\n    if serving: raise RuntimeError('in a handler')\n"
                          "@tempool.method\ndef wait():\n    global serving\n    serving = True\n    tempool.context().host('begun')\n"
                          "    while not tempool.context().cancelled: time.sleep(0.001)\n    serving = False\ntempool.run()")
        with Host(program) as host:
            call = host.request("wait")
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            host.send(frames.PING, PING)
            self.assertTrue(host.silent())
            host.send(frames.CANCEL, call)
            host.expect(frames.RESPONSE, call)
            host.expect(frames.PONG, PING)

    def test_other_calls_go_on_beside_a_slow_hook(self):
        from .test_worker import HEAD, Host

        program = HEAD + ("import threading\ngo = threading.Event()\n"
                          "@tempool.on_health\ndef check(): go.wait()\n"
                          "@tempool.method\ndef end(): go.set()\ntempool.run(threads=2)")
        with Host(program) as host:
            host.send(frames.PING, PING)
            end = host.request("end")
            self.assertEqual({frame[0]: frame[2] for frame in (host.read(), host.read())}, {frames.PONG: PING, frames.RESPONSE: end})

    @each_mode
    def test_a_worker_reports_at_once_that_it_is_not_well(self, start):
        with start("import threading\n"
                   "@tempool.method\ndef here(): tempool.unhealthy('the GPU is gone')\n"
                   "@tempool.method\ndef there(): threading.Thread(target=tempool.unhealthy, args=('x' * 5000,)).start()") as host:
            call = host.request("here")
            note = host.expect(frames.NOTIFY)
            self.assertEqual((note[3], json.loads(note[5])), ("worker.unhealthy", {"reason": "the GPU is gone"}))
            host.expect(frames.RESPONSE, call)
            host.request("there")
            got = {frame[0]: frame for frame in (host.read(), host.read())}
            self.assertEqual(json.loads(got[frames.NOTIFY][5]), {"reason": "x" * 1000})

    @each_mode
    def test_many_threads_may_report_during_calls(self, start):
        with start("import threading\n"
                   "def report():\n    for _ in range(50): tempool.unhealthy('x' * 1000)\n"
                   "@tempool.method(raw=True)\ndef begin(b):\n    for _ in range(4): threading.Thread(target=report).start()\n"
                   "@tempool.method(raw=True)\ndef echo(b): return b") as host:
            call, calls, reports = host.request("begin"), 0, 0
            while calls < 50 or reports < 200:
                kind, _, id, _, _, body = host.read()
                if kind == frames.NOTIFY:
                    self.assertEqual(json.loads(body), {"reason": "x" * 1000})
                    reports += 1
                else:
                    self.assertEqual((kind, id), (frames.RESPONSE, call))
                    call, calls = host.request("echo", b"y" * 40000), calls + 1

    def test_a_report_before_the_hello_is_refused(self):
        from .test_worker import HEAD, Host

        program = HEAD + ("@tempool.on_start\ndef early():\n    try: tempool.unhealthy('no')\n    except RuntimeError as e: print(e)\ntempool.run()")
        with Host(program) as host:
            self.assertIn("after run()", host.log())

    def test_a_forked_child_cannot_report_for_its_parent(self):
        from .test_worker import HEAD, Host

        program = HEAD + ("@tempool.method\ndef split():\n"
                          "    if os.fork() == 0:\n        try: tempool.unhealthy('no')\n        except tempool.HostError as e: print(e.code, flush=True); os._exit(0)\n"
                          "    os.wait()\n    return 1\ntempool.run()")
        with Host(program) as host:
            self.assertEqual(host.call("split"), 1)
            self.assertIn("forked", host.log())

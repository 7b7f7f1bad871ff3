"""Methods that are async functions: all of a worker's share one event loop and overlap."""

import json
import unittest

from tempool import frames

from .host import Host
from .test_worker import HEAD

MEET = """
import asyncio
waiting = []
@tempool.method
async def meet():
    me = asyncio.get_running_loop().create_future()
    waiting.append(me)
    if len(waiting) == 3:
        for other in waiting: other.set_result(id(asyncio.get_running_loop()))
    return await me
"""


class Overlap(unittest.TestCase):
    def test_async_calls_overlap_on_one_loop(self):
        with Host(HEAD + MEET + "tempool.run()") as host:
            ids = {host.request("meet") for _ in range(3)}
            answers = [host.expect(frames.RESPONSE) for _ in ids]
            self.assertEqual({a[2] for a in answers}, ids)
            self.assertEqual(len({a[5] for a in answers}), 1, "one event loop")

    def test_async_generators_overlap_with_calls(self):
        with Host(HEAD + "import asyncio\ngo = asyncio.Event()\n"
                  "@tempool.method\nasync def each():\n yield 1\n await go.wait()\n yield 2\n"
                  "@tempool.method\nasync def release(): go.set()\n"
                  "@tempool.method\ndef plain(): return 5\n"
                  "tempool.run()") as host:
            stream = host.request("each")
            self.assertEqual(host.expect(frames.CHUNK, stream)[5], b"1\n")
            self.assertEqual(host.call("plain"), 5)
            host.request("release")
            got = [host.read() for _ in range(3)]
            self.assertEqual([f[5] for f in got if f[0] == frames.CHUNK], [b"2\n"])
            self.assertEqual(sum(f[0] == frames.RESPONSE for f in got), 2)

    def test_a_cancel_reaches_the_coroutine(self):
        with Host(HEAD + "import asyncio\nseen = []\n"
                  "@tempool.method\nasync def forever():\n tempool.context().host('begun')\n"
                  " try: await asyncio.Event().wait()\n finally: seen.append(tempool.context().cancelled)\n"
                  "@tempool.method\nasync def saves():\n tempool.context().host('begun')\n"
                  " try: await asyncio.Event().wait()\n except asyncio.CancelledError: return 'saved'\n"
                  "@tempool.method\nasync def get(): return seen\n"
                  "tempool.run()") as host:
            def cancelled(method, kind):
                id = host.request(method)
                host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
                host.send(frames.CANCEL, id)
                return json.loads(host.expect(kind, id)[5])

            self.assertEqual(cancelled("forever", frames.ERROR)["code"], "cancelled")
            self.assertEqual(host.call("get"), [True])
            self.assertEqual(cancelled("saves", frames.RESPONSE), "saved")

    def test_each_call_has_its_own_context(self):
        with Host(HEAD + "import asyncio\n"
                  "@tempool.method\nasync def who():\n await asyncio.sleep(0.01)\n"
                  " inner = await asyncio.to_thread(lambda: tempool.context().headers['me'])\n"
                  " return [tempool.context().headers['me'], inner]\n"
                  "tempool.run()") as host:
            sent = {host.request("who", headers={"me": str(n)}): str(n) for n in range(8)}
            for _ in sent:
                frame = host.expect(frames.RESPONSE)
                self.assertEqual(json.loads(frame[5]), [sent[frame[2]]] * 2)

    def test_host_calls_work_in_coroutines(self):
        with Host(HEAD + "@tempool.method\nasync def f(): return tempool.context().host('x', 1)\ntempool.run()") as host:
            id = host.request("f")
            asked = host.expect(frames.HOST_CALL)[2]
            host.send(frames.PING, 7)
            host.expect(frames.PONG, 7)
            host.send(frames.HOST_RESULT, asked, payload=b"5")
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b"5")


class Survival(unittest.TestCase):
    def test_the_loop_survives_everything_that_is_raised(self):
        with Host(HEAD + "import asyncio\nclass Own(BaseException): pass\n"
                  "kinds = {'cancelled': asyncio.CancelledError, 'own': Own}\n"
                  "@tempool.method\nasync def fail(kind): raise kinds[kind]()\n"
                  "@tempool.method\nasync def stream(kind):\n yield 1\n raise kinds[kind]()\n"
                  "@tempool.method\nasync def spawn():\n"
                  " async def later(): raise Own()\n asyncio.get_running_loop().create_task(later())\n"
                  "tempool.run()") as host:
            for kind in ("cancelled", "own", "cancelled", "own"):
                self.assertEqual(host.call("fail", kind)["code"], "error")
                id = host.request("stream", json.dumps([kind]).encode())
                host.expect(frames.CHUNK, id)
                host.expect(frames.ERROR, id)
                self.assertIsNone(host.call("spawn"))
                host.send(frames.NOTIFY, 0, b"fail", payload=json.dumps([kind]).encode())

    def test_system_exit_ends_the_worker_with_its_code(self):
        for body in ("sys.exit(7)", "asyncio.get_running_loop().call_soon(sys.exit, 7); await asyncio.Event().wait()"):
            with Host(HEAD + "import asyncio\n@tempool.method\nasync def leave(): %s\ntempool.run()" % body) as host:
                host.request("leave")
                while host.read() is not None:
                    pass
                self.assertEqual(host.wait(), 7)

    def test_a_closed_connection_cancels_the_calls(self):
        with Host(HEAD + "import asyncio\n"
                  "@tempool.method\nasync def forever():\n tempool.context().host('begun')\n"
                  " try: await asyncio.Event().wait()\n finally: print('cleaned up')\n"
                  "tempool.run()") as host:
            host.request("forever")
            host.send(frames.HOST_RESULT, host.expect(frames.HOST_CALL)[2])
            host.send(frames.PING, 1)
            host.expect(frames.PONG, 1)
            host.socket.close()
            self.assertEqual(host.wait(), 0)
            self.assertIn("cleaned up", host.log())

    def test_sigterm_finishes_the_calls_in_flight(self):
        with Host(HEAD + "import asyncio\n"
                  "@tempool.method\nasync def slow():\n tempool.context().host('here')\n await asyncio.sleep(0.05)\n return 'whole'\n"
                  "tempool.run()") as host:
            id = host.request("slow")
            asked = host.expect(frames.HOST_CALL)[2]
            host.terminate()
            host.send(frames.HOST_RESULT, asked)
            self.assertEqual(host.expect(frames.RESPONSE, id)[5], b'"whole"')
            self.assertIsNone(host.read())
            self.assertEqual(host.wait(), 0)


class Hooks(unittest.TestCase):
    def test_hooks_may_be_async(self):
        with Host(HEAD + "import asyncio\nstate = []\n"
                  "@tempool.on_start\nasync def load(): state.append(asyncio.get_running_loop())\n"
                  "@tempool.method\nasync def same(): return state == [asyncio.get_running_loop()]\n"
                  "@tempool.on_stop\nasync def bye(): await asyncio.sleep(0); print('bye', state == [asyncio.get_running_loop()])\n"
                  "tempool.run()") as host:
            self.assertIs(host.call("same"), True)
            host.socket.close()
            self.assertEqual(host.wait(), 0)
            self.assertIn("bye True", host.log())


class Fork(unittest.TestCase):
    def test_a_forked_child_that_returns_ends_itself(self):
        with Host(HEAD + "import os\n@tempool.method\nasync def f():\n pid = os.fork()\n"
                  " return os.waitpid(pid, 0)[1] if pid else None\ntempool.run()") as host:
            for _ in range(3):
                self.assertEqual(host.call("f"), 0)


if __name__ == "__main__":
    unittest.main()

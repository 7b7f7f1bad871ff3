import json
import os
import unittest

from tempool import frames

from .host import Host
from .test_frames import vectors
from .test_worker import HEAD, each_mode

with open(os.path.join(os.path.dirname(__file__), "performer.py"), encoding="utf-8") as f:
    PERFORMER = f.read()


class HostCalls(unittest.TestCase):
    maxDiff = None

    def test_vectors(self):
        with Host(PERFORMER) as host:
            for v in vectors("hostcalls.json"):
                with self.subTest(v["name"]):
                    id = host.request("perform", json.dumps(v["do"]).encode())
                    for step in v["host"]:
                        _, _, asked, method, headers, payload = host.expect(frames.HOST_CALL)
                        self.assertEqual((method, headers), (step["method"], {"call": str(id)}))
                        self.assertEqual(json.loads(payload) if payload else None, step["params"])
                        kind = frames.HOST_ERROR if "error" in step else frames.HOST_RESULT
                        host.send(kind, asked, payload=json.dumps(step.get("error", step.get("result"))).encode())
                    kind, _, got, _, _, payload = host.read()
                    self.assertEqual(got, id)
                    answer = json.loads(payload)
                    if "fails" in v:
                        self.assertEqual((kind, answer["code"]), (frames.ERROR, v["fails"]))
                    else:
                        self.assertEqual((kind, answer), (frames.RESPONSE, v["gives"]))


def store(host, session, id):
    """Answers host calls from a session until call id is answered, and returns the answer."""
    while True:
        kind, _, asked, method, _, payload = host.read()
        if kind != frames.HOST_CALL:
            assert (kind, asked) == (frames.RESPONSE, id), payload
            return json.loads(payload)
        if method == "session.update":
            patch = json.loads(payload)["patch"]
            for part, entries in patch.items():
                if entries is None:
                    session[part] = {}
                for key, value in (entries or {}).items():
                    session[part].pop(key, None)
                    if value is not None:
                        session[part][key] = value
            session["version"] += 1
        else:
            assert method == "session.get"
        host.send(frames.HOST_RESULT, asked, payload=json.dumps(session).encode())


class Mapping(unittest.TestCase):
    @each_mode
    def test_session_is_a_mapping(self, start):
        with start("@tempool.method\ndef f():\n"
                   " s = tempool.context().session\n"
                   " s['a'] = 1; s['b'] = [2]; s.update({'c': 3}, d=4)\n"
                   " del s['a']\n"
                   " seen = [s['b'], s.get('a'), s.get('a', 0), 'c' in s, 'a' in s, sorted(s), len(s), sorted(s.items()), s.pop('c'), s.pop('c', 'gone')]\n"
                   " seen += [s.setdefault('e', 5), s.setdefault('e', 6), s == {'b': [2], 'd': 4, 'e': 5}, s.metadata == {}]\n"
                   " for bad in ('s[\"a\"]', 's.pop(\"a\")', 's.__delitem__(\"a\")', 's.__setitem__(1, 2)', 's.__setitem__(\"x\", {\"y\": None})', 's.__setitem__(\"x\", float(\"nan\"))'):\n"
                   "  try: eval(bad)\n"
                   "  except Exception as e: seen.append(type(e).__name__)\n"
                   " s['n'] = True; s.change('n', lambda n: 1)\n"
                   " seen.append(s['n'] is True)\n"
                   " s.clear()\n"
                   " return seen + [s.copy(), s.metadata.copy()]") as host:
            session = {"id": "s", "data": {}, "metadata": {"m": 1}, "programs": {}, "version": 1}
            got = store(host, session, host.request("f"))
            self.assertEqual(got, [
                [2], None, 0, True, False, ["b", "c", "d"], 3, [["b", [2]], ["c", 3], ["d", 4]], 3, "gone", 5, 5, True, False,
                "KeyError", "KeyError", "KeyError", "TypeError", "ValueError", "ValueError", False, {}, {"m": 1}])

    @each_mode
    def test_change_raises_conflict_after_all_attempts(self, start):
        with start("@tempool.method\ndef f():\n"
                   " try: tempool.context().session.change('n', lambda n: 1)\n"
                   " except tempool.Conflict as e: return [e.code, isinstance(e, tempool.HostError)]") as host:
            id, tries = host.request("f"), 0
            while True:
                kind, _, asked, method, _, payload = host.read()
                if kind == frames.RESPONSE:
                    break
                if method == "session.get":
                    host.send(frames.HOST_RESULT, asked, payload=b'{"data": {}, "version": 1}')
                    continue
                tries += 1
                host.send(frames.HOST_ERROR, asked, payload=b'{"code": "version_conflict", "message": "no"}')
            self.assertEqual((json.loads(payload), tries), (["version_conflict", True], 16))

    @each_mode
    def test_session_hooks_run_as_calls_of_the_session(self, start):
        with start("@tempool.on_session_release\ndef release(id): tempool.context().session['seen'] = id\n"
                   "@tempool.on_session_load\ndef load(id): return tempool.context().headers['tempool-session']") as host:
            self.assertEqual(host.hello["methods"], ["session.load", "session.release"])
            id = host.request("session.release", b'["s1"]', {"tempool-session": "s1"})
            session = {"id": "s1", "data": {}, "metadata": {}, "programs": {}, "version": 1}
            self.assertIsNone(store(host, session, id))
            self.assertEqual(session["data"], {"seen": "s1"})
            self.assertEqual(store(host, session, host.request("session.load", b'["s1"]', {"tempool-session": "s1"})), "s1")


    @each_mode
    def test_lease_reset_hook_takes_no_arguments(self, start):
        with start("kept = [1]\n@tempool.on_lease_reset\ndef reset(): kept.clear()\n@tempool.method\ndef count(): return len(kept)") as host:
            self.assertEqual(host.hello["methods"], ["count", "lease.reset"])
            session = {"id": "s1", "data": {}, "metadata": {}, "programs": {}, "version": 1}
            self.assertEqual(store(host, session, host.request("count", b"[]", {})), 1)
            self.assertIsNone(store(host, session, host.request("lease.reset", b"[]", {})))
            self.assertEqual(store(host, session, host.request("count", b"[]", {})), 0)


class Suspension(unittest.TestCase):
    @each_mode
    def test_hooks_of_a_suspension_take_no_arguments(self, start):
        with start("seen = []\n@tempool.on_suspend\ndef pause(): seen.append('suspend')\n@tempool.on_resume\ndef go_on(): seen.append('resume')\n"
                   "@tempool.method\ndef recorded(): return seen") as host:
            self.assertEqual(host.hello["methods"], ["recorded", "worker.resume", "worker.suspend"])
            session = {"id": "s1", "data": {}, "metadata": {}, "programs": {}, "version": 1}
            self.assertIsNone(store(host, session, host.request("worker.suspend", b"[]", {})))
            self.assertIsNone(store(host, session, host.request("worker.resume", b"[]", {})))
            self.assertEqual(store(host, session, host.request("recorded", b"[]", {})), ["suspend", "resume"])


class Counting(unittest.TestCase):
    @each_mode
    def test_notification_reports_its_counters(self, start):
        with start("@tempool.method\ndef note(): tempool.context().count('api_calls', 3); 1 / 0") as host:
            host.send(frames.NOTIFY, 0, b"note")
            _, _, asked, method, headers, payload = host.expect(frames.HOST_CALL)
            self.assertEqual((method, headers, json.loads(payload)), ("worker.count", {}, {"api_calls": 3}))
            host.send(frames.HOST_RESULT, asked)

    @each_mode
    def test_invalid_counts_raise(self, start):
        with start("@tempool.method\ndef f():\n"
                   " bad = [('x', -1), ('x', 1.5), ('x', 1 << 54), ('X', 1), ('', 1), ('x' * 65, 1), ('a-b', 1), (5, 1)]\n"
                   " refused = 0\n"
                   " for name, n in bad:\n"
                   "  try: tempool.context().count(name, n)\n"
                   "  except ValueError: refused += 1\n"
                   " return refused == len(bad)") as host:
            self.assertIs(host.call("f"), True)


if __name__ == "__main__":
    unittest.main()

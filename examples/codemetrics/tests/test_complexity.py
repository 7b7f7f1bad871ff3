"""What counts as a decision, and what becomes of files that are no Python."""

import os
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from complexity import measure_file, measure_source  # noqa: E402


def complexities(source):
    return {f["name"]: f["complexity"] for f in measure_source(textwrap.dedent(source))}


class Decisions(unittest.TestCase):
    def of(self, body, expected):
        source = "def f(a, b, c):\n" + textwrap.indent(textwrap.dedent(body), "    ")
        self.assertEqual(complexities(source)["f"], expected, body)

    def test_each_decision_adds_one_to_the_one_way_through(self):
        self.of("return a", 1)
        self.of("if a: return b", 2)
        self.of("if a: pass\nelif b: pass\nelse: pass", 3)
        self.of("return b if a else c", 2)
        self.of("for x in a: pass\nelse: pass", 2)
        self.of("while a: pass", 2)
        self.of("assert a", 2)
        self.of("with a: pass", 1)

    def test_each_simple_condition_counts(self):
        self.of("return a and b and c", 3)
        self.of("return a and (b or c)", 3)
        self.of("if a and b: pass", 3)

    def test_each_handler_counts_and_try_else_finally_do_not(self):
        self.of("try: a()\nexcept ValueError: pass\nexcept OSError: pass\nelse: pass\nfinally: pass", 3)

    def test_a_comprehension_is_a_loop(self):
        self.of("return [x for x in a]", 2)
        self.of("return {x: y for x in a if x if b for y in x}", 5)

    def test_a_case_counts_unless_it_always_matches(self):
        if sys.version_info < (3, 10):
            self.assertFalse(hasattr(__import__("ast"), "match_case"))
            return
        self.of("match a:\n    case 1: pass\n    case [x, y] if x: pass\n    case _: pass", 4)
        self.of("match a:\n    case x if x: pass\n    case (x): pass", 2)
        self.of("match a:\n    case 1 as x: pass", 2)

    def test_a_lambda_counts_where_it_stands(self):
        self.of("return lambda: a or b", 2)

    def test_inner_functions_and_classes_are_measured_by_themselves(self):
        self.assertEqual(complexities("""
            class Outer:
                def method(self):
                    if self: pass
                    def inner():
                        while True: pass
                    class Local:
                        async def deep(self):
                            async for x in self: pass
            if True: pass
            """), {"Outer.method": 2, "Outer.method.inner": 2, "Outer.method.Local.deep": 2})


class Files(unittest.TestCase):
    def measure(self, content, top=5):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file.py")
            with open(path, "wb") as file:
                file.write(content)
            return measure_file(path, top)

    def test_a_file_is_measured(self):
        result = self.measure(b"class A:\n    def f(self):\n        if self: pass\n\ndef g(): pass", top=1)
        del result["path"]
        self.assertEqual(result, {
            "bytes": 62, "lines": 5, "functions": 2, "classes": 1, "complexity": 3,
            "worst": [{"name": "A.f", "line": 2, "complexity": 2}], "problem": None,
        })

    def test_a_file_that_does_not_parse_keeps_its_size_and_says_why(self):
        for content, problem in ((b"print 'python 2'\n", "SyntaxError"), (b"a = '\x00'\n", "null byte"), (b"a = '\xff'\n", "utf-8")):
            result = self.measure(content)
            self.assertEqual((result["bytes"], result["lines"], result["functions"]), (len(content), 1, 0))
            self.assertIn(problem, result["problem"])

    def test_a_file_that_nests_too_deep_is_told_and_harms_nobody(self):
        result = self.measure(b"x = " + b"(" * 5000 + b")" * 5000)
        self.assertIsNotNone(result["problem"])

    def test_code_that_nests_deeper_than_python_recurses_is_measured(self):
        depth = 900
        result = self.measure(b"def f(x):\n    return " + b"+".join([b"x"] * depth) + b" if x else 0\n")
        self.assertIsNone(result["problem"])
        self.assertEqual(result["complexity"], 2)

    def test_an_empty_file_has_no_line(self):
        self.assertEqual(self.measure(b"")["lines"], 0)

    def test_a_file_that_is_gone_is_told(self):
        result = measure_file("/nowhere/at/all.py", 5)
        self.assertIn("cannot be read", result["problem"])


if __name__ == "__main__":
    unittest.main()

"""Size and cyclomatic complexity of Python source files.

Cyclomatic complexity is v(G) = e - n + 2p of a function's control flow graph (T. J. McCabe, "A Complexity Measure", IEEE
Transactions on Software Engineering SE-2(4), 1976). For a function with one entry and one exit that is one more than the number of
its decisions, which is how it is counted here. Decisions are:

    if, elif, conditional expression          1 each
    for, async for, while                     1 each
    except                                    1 each
    assert                                    1 each
    and, or                                   1 for each operand after the first: McCabe counts simple conditions
    for and if in a comprehension             1 each
    case                                      1 each, except one that always matches; and 1 for its guard

else, finally, with, try and return are no decisions. A function's complexity excludes nested functions and classes, which are measured
separately; a lambda counts for the function that contains it. Code outside of functions has no complexity.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ONE_EACH = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert)
_MATCH_CASE: Any = getattr(ast, "match_case", ())  # since Python 3.10


def measure_file(path: str, top: int) -> dict[str, Any]:
    """Measures one file and returns a dict:

    path, bytes, lines   0 for an unreadable file
    functions, classes   their number, at any depth
    complexity           the sum over its functions
    worst                its `top` most complex functions, worst first: {"name", "line", "complexity"}
    problem              why the file could not be read or parsed, else None. With a problem, the counts above are 0.
    """
    result: dict[str, Any] = {"path": path, "bytes": 0, "lines": 0, "functions": 0, "classes": 0, "complexity": 0, "worst": [], "problem": None}
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as e:
        result["problem"] = "it cannot be read: %s" % (e.strerror or e)
        return result
    result["bytes"] = len(source)
    result["lines"] = source.count(b"\n") + (1 if source and not source.endswith(b"\n") else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the measured code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        result["problem"] = "%s: %s" % (type(e).__name__, e)
        return result
    functions, result["classes"] = _definitions(tree)
    result["functions"] = len(functions)
    result["complexity"] = sum(f["complexity"] for f in functions)
    functions.sort(key=lambda f: (-f["complexity"], f["line"]))
    result["worst"] = functions[:top]
    return result


def measure_source(source: str) -> list[dict[str, Any]]:
    """Returns all functions of a source text, ordered by line, in the format of worst in measure_file."""
    functions, _ = _definitions(ast.parse(source))
    return sorted(functions, key=lambda f: int(f["line"]))


def _definitions(tree: ast.AST) -> tuple[list[dict[str, Any]], int]:
    """Returns (functions, number of classes). It uses an explicit stack, because generated code can exceed Python's recursion limit."""
    functions: list[dict[str, Any]] = []
    classes = 0
    stack: list[tuple[ast.AST, dict[str, Any] | None, str]] = [(tree, None, "")]  # node, the function it counts for, and the prefix of names defined in it
    while stack:
        node, function, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                measured: dict[str, Any] = {"name": prefix + child.name, "line": child.lineno, "complexity": 1}
                functions.append(measured)
                stack.append((child, measured, measured["name"] + "."))
            elif isinstance(child, ast.ClassDef):
                classes += 1
                stack.append((child, None, prefix + child.name + "."))
            else:
                if function is not None:
                    function["complexity"] += _decisions(child)
                stack.append((child, function, prefix))
    return functions, classes


def _decisions(node: Any) -> int:
    """Returns the number of decisions in a node, without its children."""
    if isinstance(node, _ONE_EACH):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    if isinstance(node, _MATCH_CASE):
        return (0 if _always_matches(node.pattern) else 1) + (1 if node.guard is not None else 0)
    return 0


def _always_matches(pattern: Any) -> bool:
    """Whether a pattern is irrefutable: `_` or a name, even in parentheses or with `as`."""
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _always_matches(pattern.pattern))

"""Mutation testing of `paired/`, by hand: which changes of the code would no test notice?

    python tests/mutation.py --count 300 --seed 1

The tests run once under coverage, which tells the tests of every line. Mutants are spread evenly over the package.
Each is one changed expression; a child of this process takes the changed functions in and runs the tests of the line,
those of its module first and then the quickest, until one fails or `--budget` is spent. The generated `_sync` is left
out. Prints every mutant and the share of those that were killed, which more tests could only raise.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src/twinbus/paired")
TESTS = "tests/paired"
# A test of the module itself that takes longer comes with the others.
QUICK_S = 1.0
CHILD_TIMEOUT_S = 180
LARGE = 100
FAILING_MAX = 5
TEST_TIMEOUT_S = 30
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What only people read, and what only a checker reads.
UNSEEN = {"annotation", "returns", "decorator_list", "type_params"}


def places(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """Everything in a tree that can be mutated, in order."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for statement in node.body:
            yield from places(statement, True)
        return
    if isinstance(node, ast.Raise) or ast.unparse(node).startswith("logger."):
        return
    if in_function:
        match node:
            case ast.Compare() if type(node.ops[0]) in COMPARISONS:
                yield node, "comparison"
            case ast.BoolOp():
                yield node, "and/or"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not"
            case ast.If() | ast.IfExp():
                yield node, "condition"
            case ast.BinOp() if type(node.op) in OPERATORS:
                yield node, "operator"
            case ast.Constant() if isinstance(node.value, bool | int):
                yield node, "constant"
            # A constant is mutated by itself; None instead of False would mostly change nothing.
            case ast.Return() if node.value is not None and not isinstance(node.value, ast.Constant):
                yield node, "result"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield node, "call"
            case ast.Name() if node.id in SWAPPED:
                yield node, "function"
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNSEEN:
                yield from places(child, in_function)


def mutated(source: str, path: Path, index: int) -> tuple[CodeType, int, str]:
    """The module with one change, its line, and a description."""
    tree = ast.parse(source)
    node, kind = list(places(tree))[index]
    line: int = node.lineno  # type: ignore[attr-defined]
    before = ast.unparse(node).splitlines()[0]
    match node:
        case ast.Compare():
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.BinOp():
            node.op = OPERATORS[type(node.op)]()
        case ast.Constant():
            node.value = _changed(node.value)  # type: ignore[arg-type]
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Expr():
            # An awaited call would be what makes the function a coroutine's.
            node.value = ast.BoolOp(ast.And(), [ast.Constant(None), node.value])
        case ast.Name():
            node.id = SWAPPED[node.id]
    code = compile(ast.fix_missing_locations(tree), str(ROOT / path), "exec", dont_inherit=True)
    return code, line, f"{kind}: {before}"


def _changed(value: bool | int) -> bool | int:
    """Another value. One more of a large number, such as the milliseconds of a second, would be no change to see."""
    if isinstance(value, bool):
        return not value
    return value + 1 if abs(value) < LARGE else value * 2


def functions(code: CodeType) -> Iterator[CodeType]:
    """The code of everything that is defined in a module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from functions(constant)


def take_in(code: CodeType) -> None:
    """Give the functions of an imported module the code of its mutant."""
    mutant = {(each.co_qualname, each.co_firstlineno): each for each in functions(code)}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == code.co_filename:
            each.__code__ = mutant[each.__code__.co_qualname, each.__code__.co_firstlineno]


class Knowledge:
    """Which tests run a line, and how long each takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_file: dict[str, dict[int, list[str]]] = {}
        self._seconds: dict[str, float] = {}
        if not (folder / "lines.json").exists():
            self._measure()
        for path, lines in json.loads((folder / "lines.json").read_text()).items():
            self._by_file[path] = {int(line): tests for line, tests in lines.items()}
        self._seconds = json.loads((folder / "seconds.json").read_text())

    def _measure(self) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "180"]
        command += [f"--cov={PACKAGE}", "--cov-context=test", "--cov-report=", "--durations=0", "-vv", TESTS]
        environment = {**os.environ, "COVERAGE_FILE": str(self._folder / "data")}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        # A test that fails without any mutant, on a busy machine, tells nothing.
        failing = {line.split()[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))}
        print("left out:", *sorted(failing), flush=True)
        if run.returncode not in (0, 1) or len(failing) > FAILING_MAX:
            raise SystemExit(f"The tests fail without any mutant:\n{run.stdout[-3000:]}")
        seconds: dict[str, float] = {}
        for words in (line.split() for line in run.stdout.splitlines()):
            if len(words) == 3 and words[0].endswith("s") and words[1] in ("call", "setup", "teardown"):
                seconds[words[2]] = seconds.get(words[2], 0.0) + float(words[0][:-1])
        from coverage import CoverageData

        data = CoverageData(str(self._folder / "data"))
        data.read()
        lines = {
            str(Path(path).relative_to(ROOT)): {
                line: sorted({context.partition("|")[0] for context in contexts if context} - failing)
                for line, contexts in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        (self._folder / "lines.json").write_text(json.dumps(lines))
        (self._folder / "seconds.json").write_text(json.dumps(seconds))

    def tests(self, path: Path, line: int, budget_s: float, names: Iterable[str]) -> list[str]:
        """The tests of a line, as many as the budget allows: its module's own, then the quickest.

        Those of a file with the module's name are its own, whatever they ran when they were measured.
        """
        seconds = self._seconds
        known = self._by_file.get(str(path), {}).get(line, [])
        own = {name for name in names if f"/test_{path.stem}.py::" in name and seconds.get(name, 0.0) <= QUICK_S}
        chosen: list[str] = []
        total_s = 0.0
        for test in sorted({*known, *own} & set(names), key=lambda test: (test not in own, seconds.get(test, 0.0))):
            total_s += seconds.get(test, 0.0)
            if total_s > budget_s and chosen:
                break
            chosen.append(test)
        return chosen


def spread(mutants: list[tuple[Path, int]], count: int, seed: int) -> list[tuple[Path, int]]:
    """One mutant by chance out of each of `count` stretches of the same length."""
    rng = Random(seed)
    count = min(count, len(mutants))
    ends = [len(mutants) * number // count for number in range(count + 1)]
    return [mutants[rng.randrange(start, end)] for start, end in pairwise(ends)]


class MutantLoop:
    """A plugin of pytest that runs mutants instead of tests."""

    def __init__(self, options: argparse.Namespace, knowledge: Knowledge) -> None:
        self._options = options
        self._knowledge = knowledge

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        options = self._options
        mutants = [
            (path.relative_to(ROOT), index)
            for path in sorted((ROOT / PACKAGE).rglob("*.py"))
            if "_sync" not in path.parts and options.only in str(path)
            for index in range(len(list(places(ast.parse(path.read_text())))))
        ]
        chosen = spread(mutants, options.count, options.seed)
        shard, shards = map(int, options.shard.split("/"))
        chosen = chosen[shard::shards]
        sources = {path: (ROOT / path).read_text() for path, _ in chosen}
        items = {item.nodeid: item for item in session.items}
        # Modules whose tests have passed without a mutant.
        proved: set[Path] = set()
        count = survivors = 0
        for path, index in chosen:
            code, line, description = mutated(sources[path], path, index)
            if options.lines and not any(f"{path}:{line}".endswith(each) for each in options.lines.split(",")):
                continue
            tests = [items[name] for name in self._knowledge.tests(path, line, options.budget, items)]
            if path not in proved:
                proved.add(path)
                if self._killed(compile(sources[path], str(ROOT / path), "exec", dont_inherit=True), tests):
                    print("CONTROL FAILED", f"{path}:{line}", flush=True)
            dead = self._killed(code, tests)
            count += 1
            survivors += not dead
            print("killed  " if dead else "SURVIVED", f"{path}:{line}", description, flush=True)
        share = 100 * (count - survivors) / max(count, 1)
        print(f"{count} mutants of {len(mutants)}, {survivors} survived: {share:.1f} % killed")
        return True

    @staticmethod
    def _killed(code: CodeType, tests: list[pytest.Item]) -> bool:
        """Whether one of the tests fails in a child with this code; a child that hangs counts as one."""
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                take_in(code)
                for test, after in pairwise([*tests, None]):
                    assert test is not None
                    test.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
                    if test.session.testsfailed:
                        break
                else:
                    failed = 0
            finally:
                os._exit(failed)
        ends = time.monotonic() + CHILD_TIMEOUT_S
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        return ended[1] != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shard", default="0/1", help="only every n-th of them: 0/2 and 1/2 are all (default 0/1)")
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests for a mutant (default 20)")
    parser.add_argument("--lines", help="only mutants of these lines, as FILE:LINE,FILE:LINE")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--known", type=Path, help="a folder to keep the tests of every line in, for the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinbus-mutants-") as scratch:
        known = options.known or Path(scratch)
        known.mkdir(parents=True, exist_ok=True)
        loop = MutantLoop(options, Knowledge(known))
        settings = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        # By a signal it would need the alarm; a thread ends the child, which is as good.
        settings += ["--timeout", str(TEST_TIMEOUT_S), "--timeout-method", "thread"]
        return int(pytest.main([*settings, TESTS], plugins=[loop]))


if __name__ == "__main__":
    sys.exit(main())

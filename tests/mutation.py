"""Mutation testing of `paired/`, by hand: which changes of the code would no test notice?

    python tests/mutation.py --count 300 --seed 1

The tests run once under coverage, which tells the tests of every line. Mutants are spread evenly over the package.
Each is one changed expression in a copy of it; the tests of its line run against it, those of its module first and then
the quickest, until one fails or `--budget` is spent. The generated `_sync` is left out. Prints every survivor and the
share of mutants that were killed, which more tests could only raise.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src/twinbus/paired")
TESTS = "tests/paired"
# A test that takes longer comes after all that do not.
QUICK_S = 1.0
CHILD_TIMEOUT_S = 180
TEST_TIMEOUT_S = 60
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
# What every mutant's tests import and no mutant changes.
SHARED = ["twinbus.testing", "twinbus.client", "azure.servicebus.aio.management", "aiohttp", "requests"]
SHARED += ["pytest", "pytest_timeout", "pytest_asyncio.plugin", "hypothesis"]
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
            case ast.Return() if node.value is not None and ast.unparse(node.value) != "None":
                yield node, "result"
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield node, "call"
            case ast.Name() if node.id in SWAPPED:
                yield node, "function"
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNSEEN:
                yield from places(child, in_function)


def mutated(source: str, index: int) -> tuple[str, int, str]:
    """The source with one change, its line, and a description."""
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
            node.value = (not node.value) if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
        case ast.Return():
            node.value = ast.Constant(None)
        case ast.Expr():
            node.value = ast.Constant(None)
        case ast.Name():
            node.id = SWAPPED[node.id]
    return ast.unparse(ast.fix_missing_locations(tree)), line, f"{kind}: {before}"


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
        if run.returncode != 0:
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
                line: sorted({context.partition("|")[0] for context in contexts if context})
                for line, contexts in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        (self._folder / "lines.json").write_text(json.dumps(lines))
        (self._folder / "seconds.json").write_text(json.dumps(seconds))

    def tests(self, path: Path, line: int, budget_s: float) -> list[str]:
        """The tests of a line, as many as the budget allows: its module's own, then the quickest."""
        own = f"test_{path.stem}.py"
        known = self._by_file.get(str(path), {}).get(line, [])
        chosen: list[str] = []
        total_s = 0.0
        for test in sorted(
            known,
            key=lambda test: (self._seconds.get(test, 0.0) > QUICK_S, own not in test, self._seconds.get(test, 0.0)),
        ):
            total_s += self._seconds.get(test, 0.0)
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


def killed(folder: Path, tests: list[str], *, warming: bool = False) -> bool:
    """Whether one of the tests fails in this copy of the tree; a child that hangs counts as one."""
    if not tests:
        return False
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        sys.dont_write_bytecode = not warming
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        signal.alarm(CHILD_TIMEOUT_S)
        code = 99
        try:
            import pytest

            options = ["-q", "-x", "--timeout", str(TEST_TIMEOUT_S)]
            options += [f"-pno:{name}" for name in ("cacheprovider", "xdist", "cov", "hypothesispytest")]
            options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
            options += ["--collect-only"] * warming
            code = int(pytest.main([*options, *tests]))
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # 1: a test failed. 2 and 4: it could not even be imported. Below 0: a signal, such as that of the timeout.
    if code not in (0, 1, 2, 4) and code > 0:
        raise SystemExit(f"pytest ended with {code}: {' '.join(tests)}")
    return code != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="how many mutants (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests for a mutant (default 20)")
    parser.add_argument("--lines", help="only mutants of these lines, as FILE:LINE,FILE:LINE")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--part", default="0/1", help="this part of the mutants, such as 0/2 and 1/2 for two processes")
    parser.add_argument("--known", type=Path, help="a folder to keep the tests of every line in, for the next run")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    with tempfile.TemporaryDirectory(prefix="twinbus-mutants-") as scratch:
        known = options.known or Path(scratch) / "known"
        known.mkdir(parents=True, exist_ok=True)
        knowledge = Knowledge(known)
        copy = Path(scratch) / "copy"
        for name in ("src", "tests", "scripts"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        # From here on the copy is what is imported.
        sys.path[:0] = [str(copy / "src"), str(copy)]
        for name in SHARED:
            importlib.import_module(name)
        mutants = [
            (path.relative_to(copy), index)
            for path in sorted((copy / PACKAGE).rglob("*.py"))
            if "_sync" not in path.parts and options.only in str(path)
            for index in range(len(list(places(ast.parse(path.read_text())))))
        ]
        # Writes the tests' bytecode, which saves every mutant a second.
        killed(copy, [TESTS], warming=True)
        chosen = spread(mutants, options.count, options.seed)
        count = survivors = 0
        for path, index in chosen[part::parts]:
            source = (copy / path).read_text()
            text, line, description = mutated(source, index)
            if options.lines and not any(f"{path}:{line}".endswith(each) for each in options.lines.split(",")):
                continue
            (copy / path).write_text(text)
            dead = killed(copy, knowledge.tests(path, line, options.budget))
            (copy / path).write_text(source)
            count += 1
            survivors += not dead
            print("killed  " if dead else "SURVIVED", f"{path}:{line}", description, flush=True)
        print(
            f"{count} mutants of {len(mutants)}, {survivors} survived: {100 * (count - survivors) / count:.1f} % killed"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutation testing of a tiny package whose tests are known to be weak or strong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.samples import sample
from tools.mutation.mutants import Mutant, list_functions, list_mutants
from tools.mutation.report import find_gates
from tools.mutation.sample import Equivalent, Sampler, find_stale, read_equivalents

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
SOURCES = {
    "tiny/__init__.py": "",
    "tiny/limits.py": '''\
import functools

class Limit:
    @functools.cache
    def strong(self, count):
        """Tell whether a count is within the limit."""
        return count <= 3

    def weak(self, count):
        return count <= 3

    def environment(self, count):
        return count <= 3

    def untested(self, count):
        return count <= 3
''',
    "tiny/loops.py": """\
def drain(values):
    while values:
        values.pop()
    return values
""",
    "tiny/tables.py": """\
def _count(steps):
    return steps + 1

COUNT = _count(2)
""",
    "checks/conftest.py": """\
import gc

def pytest_collection_finish():
    gc.freeze()
""",
    "checks/test_tables.py": """\
from tiny import tables

def test_count():
    assert tables.COUNT == 3
""",
    "checks/test_limits.py": """\
import os
import subprocess
import sys
import time
import pytest
from tiny.limits import Limit
from tiny.loops import drain

LIMIT = Limit()

@pytest.mark.parametrize(("count", "within"), [(2, True), (3, True), (4, False)])
def test_strong(count, within):
    assert LIMIT.strong(count) is within

def test_weak():
    LIMIT.weak(3)

def test_that_fails_without_a_mutant_in_a_fork():
    LIMIT.environment(3)
    assert "mutation-" not in os.environ.get("TMPDIR", "")

def test_drain():
    assert drain([1, 2]) == []

def test_that_waits():
    time.sleep(0.5)
    drain([])

BURN = "import time\\nend = time.process_time() + 0.5\\nwhile time.process_time() < end: pass"

def test_that_computes():
    exec(BURN)
    drain([])

def test_whose_child_computes():
    subprocess.run([sys.executable, "-c", BURN], check=True)
    drain([])
""",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny")
    for name, text in SOURCES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def run_tool(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environment.pop("TMPDIR", None)
    fixed = ["--root", str(root), "--package", "tiny", "--tests", "checks", "--jobs", "1"]
    command = [sys.executable, "-m", "tools.mutation.run", *fixed, *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def mutants_of(root: Path, name: str) -> list[Mutant]:
    return [m for f in list_functions(root, "tiny") if f.name == name for m in list_mutants(root, f)]


def test_only_what_a_test_notices_is_caught(tiny: Path) -> None:
    ran = run_tool(tiny, "--folders", "limits", "--json", str(tiny / "result.json"))

    assert ran.returncode == 1, ran.stderr
    result = json.loads((tiny / "result.json").read_text())
    assert {mutant["function"]: mutant["status"] for mutant in result["mutants"]} == {
        "Limit.strong": "caught",
        "Limit.weak": "survived",
        "Limit.environment": "survived",
        "Limit.untested": "unreached",
    }
    assert "limits          25.0 %  1 caught, 2 survived, 1 unreached" in ran.stdout
    assert "tiny/limits.py:10 Limit.weak" in ran.stdout
    assert "-        return count <= 3" in ran.stdout


def test_function_that_runs_while_modules_are_imported_is_tried_with_the_tests_of_what_it_made(
    tiny: Path,
) -> None:
    ran = run_tool(tiny, "--folders", "tables")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "tables         100.0 %  1 caught" in ran.stdout
    assert "by checks/test_tables.py::test_count" in ran.stdout


def test_seed_draws_the_same_mutants_whatever_else_is_there(tiny: Path) -> None:
    def draw(seed: int) -> list[tuple[str, str, str]]:
        return [mutant.key for mutant in Sampler(tiny, "tiny", seed).sample_folder("limits", 3)]

    first = draw(1)
    (tiny / "tiny/more.py").write_text("def more(values):\n    return len(values) + 1\n")

    assert draw(1) == first
    assert any(draw(seed) != first for seed in range(2, 6))


def test_equivalent_that_is_no_mutant_any_more_is_an_error(tiny: Path, tmp_path: Path) -> None:
    mutant = mutants_of(tiny, "drain")[0]
    entry = {"file": mutant.key[0], "function": mutant.key[1], "change": mutant.change, "reason": "A test."}
    outdated = {**entry, "change": mutant.change.replace("values", "numbers")}
    (tmp_path / "equivalents.yaml").write_text(json.dumps([entry, outdated]))

    entries = read_equivalents(tmp_path / "equivalents.yaml")
    ran = run_tool(tiny, "--equivalents", str(tmp_path / "equivalents.yaml"))

    assert find_stale(tiny, entries) == [Equivalent(**outdated)]
    assert ran.returncode == 2
    assert "tiny/loops.py has no such mutant any more" in ran.stdout


def test_committed_equivalents_are_mutants_of_the_code_and_have_a_reason() -> None:
    entries = read_equivalents(PROJECT / "tools/mutation/equivalents.yaml")

    assert find_stale(PROJECT, sample(entries, 5)) == []
    assert all(len(entry.reason.split()) > 3 for entry in entries)


def test_changed_draws_from_functions_that_differ_from_the_base(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    module = tmp_path / "tiny/sizes.py"
    module.parent.mkdir()
    module.write_text("def first(a):\n    return a + 1\n\n\ndef second(a):\n    return a + 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "Start")
    module.write_text("def first(a):\n    return a + 1\n\n\ndef second(a):\n    return a + 2\n")

    mutants = Sampler(tmp_path, "tiny", 1).sample_changed("HEAD", 10)

    assert {mutant.function.name for mutant in mutants} == {"second"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return a and b", "return b"),
        ("return a and b", "return a or b"),
        ("if a:\n        return b", "if not (a):"),
        ("return [x for x in a if x]", "return [x for x in a if not (x)]"),
        ("a.clear()", "pass"), ("return min(a)", "return max(a)"), ("return a[0]", "return a[-1]"),
        ("return a[-1]", "return a[0]"), ("return a < b", "return a <= b"),
        ("return b.get('key')", "return b.get('XXkeyXX')"),
    ],
)  # fmt: skip
def test_operators_make_these_mutants(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/example.py").write_text(f"def example(a, b):\n    {before}\n")

    assert any(f"+{after}" in mutant.change for mutant in mutants_of(tmp_path, "example"))


@pytest.mark.parametrize(
    ("count", "is_change", "gates"),
    [(9, True, []), (10, True, [50.0]), (9, False, [40.0, 60.0, 50.0]), (0, True, [])],
)
def test_a_change_with_few_mutants_has_no_minimum(count: int, is_change: bool, gates: list[float]) -> None:
    assert find_gates({"plan": 40.0, "read": 60.0, "all": 50.0}, count, is_change=is_change) == gates

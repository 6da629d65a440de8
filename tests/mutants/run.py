"""Apply each kept mutant to a scratch copy, and require that the tests it names fail.

A mutant is a patch (`git diff` of production code) whose first lines name its tests:
`# test: tests/property/test_plan_laws.py::test_law_1`. Arguments choose mutants by part of their name.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
COPIED = ("reconciler", "tests", "templates", "fixtures", "pyproject.toml")
TIMEOUT_S = 600


class Verdict(NamedTuple):
    """What became of one mutant."""

    name: str
    caught: bool
    detail: str


def named_tests(patch: Path) -> list[str]:
    """Return the tests that a mutant names in its first lines."""
    lines = patch.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("# test: ").strip() for line in lines if line.startswith("# test: ")]


def copy_project(scratch: Path) -> None:
    """Copy what the tests need; caches stay behind."""
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(source, scratch / name, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, scratch / name)


def run_tests(scratch: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in the scratch copy, and nowhere else."""
    environment = {**os.environ, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.setdefault("RECONCILER_CONFORMANCE", str(PROJECT.parent / "shared" / "conformance"))
    quick = ["-p", "tests.mutants.quick", "--hypothesis-profile", "quick"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *quick, *tests]
    return subprocess.run(
        command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def judge(patch: Path) -> Verdict:
    """Apply one mutant and run its tests; it is caught if they fail, not if they cannot run."""
    tests = named_tests(patch)
    if not tests:
        return Verdict(patch.stem, caught=False, detail="names no test")
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        scratch = Path(directory)
        copy_project(scratch)
        command = ["git", "apply", "--whitespace=nowarn", str(patch)]
        applied = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if applied.returncode:
            return Verdict(patch.stem, caught=False, detail=f"does not apply: {applied.stderr.strip()}")
        ran = run_tests(scratch, tests)
    last = (ran.stdout.strip().splitlines() or ["no output"])[-1]
    failed = ran.returncode == 1 and " failed" in last
    return Verdict(patch.stem, caught=failed, detail=last)


def main(chosen: list[str]) -> int:
    """Judge the mutants, print a line each, and return how many survived."""
    patches = sorted(HERE.glob("*.patch"))
    wanted = [p for p in patches if not chosen or any(part in p.stem for part in chosen)]
    survivors = 0
    for patch in wanted:
        verdict = judge(patch)
        survivors += not verdict.caught
        print(f"{'caught  ' if verdict.caught else 'SURVIVED'} {verdict.name}: {verdict.detail}", flush=True)
    print(f"{len(wanted) - survivors} of {len(wanted)} mutants caught")
    return min(survivors, 1) if wanted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

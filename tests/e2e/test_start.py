"""What a command imports: libraries that only some inputs need stay away from all other runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.workdir.starter import SEPARATE, write_demo
from tests.support.world import git

COUNT = """
import json, sys
from reconciler.cli.main import invoke
code = invoke(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
NEVER = {"httpx", "rich", "cryptography", "ruamel", "pysat", "starlark", "pathspec", "asyncio"}
"""Libraries for forges, terminals, signatures, round trips, solving, scripts, `.krmignore` and traces."""


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    write_demo(directory, SEPARATE, clusters=3)
    git(directory / "control", "commit", "-q", "--allow-empty", "-m", "Say nothing")
    return directory / "control"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [("--version",), ("plan", "-q"), ("expand",), ("check",)], ids=lambda line: line[0]
)
def test_command_imports_no_library_that_it_does_not_need(control: Path, line: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, *line], cwd=control, capture_output=True, text=True, check=False
    )

    code, modules = json.loads(ran.stderr.splitlines()[-1])
    assert code in {0, 7}, ran.stderr
    assert sorted(NEVER & {name.partition(".")[0] for name in modules}) == []
    assert "jinja2" not in modules or line == ("check",)  # its summary for a workflow


def test_validation_imports_no_stage_of_a_plan(control: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, "validate"], cwd=control, capture_output=True, text=True, check=False
    )

    code, modules = json.loads(ran.stderr.splitlines()[-1])
    folders = {name.split(".")[1] for name in modules if name.startswith("reconciler.")}
    assert code == 0, ran.stderr
    assert sorted(folders & {"apply", "admission", "forge", "http", "plan", "render"}) == []
    assert "reconciler.dependencies.solve.resolve" not in modules

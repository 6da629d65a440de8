"""The commands of README.md. Its first ones are run by `make fresh`, on a system that has nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WANTED = os.environ.get("RECONCILER_README") == "1"


def test_two_commands_come_first(project_root: Path) -> None:
    text = (project_root / "README.md").read_text()
    block = re.search(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    assert block is not None
    assert [line.partition("#")[0].strip() for line in block[1].splitlines()] == ["make demo", "make test"]
    assert block.start() < text.index("\n## ")


@pytest.mark.slow
@pytest.mark.skipif(not WANTED, reason="downloads every dependency: `make readme` does, in CI too")
def test_the_command_of_the_demo_does_what_the_page_says(project_root: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", project_root, tmp_path / "clone"], check=True)
    path = [tmp_path / "clone/.venv/bin", Path(sys.base_prefix) / "bin", "/usr/local/bin", "/usr/bin", "/bin"]
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PATH": os.pathsep.join(map(str, path))}

    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=tmp_path / "clone", env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    run("make", "demo")
    printed = run("python3", "-I", "tests/support/pages.py", "README.md")

    assert re.fullmatch(r"README\.md: \d+ s, 0 wrong\n", printed)

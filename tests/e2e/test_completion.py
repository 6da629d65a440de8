"""`completion`: real shells complete commands, options and the names that the last run saw."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.cli.main import invoke
from reconciler.run.name_cache import read_names
from tests.support.small_world import write_world
from tests.support.world import World

BASH = """\
source <(reconciler completion bash)
COMP_WORDS=({line}) COMP_CWORD={place} COMPREPLY=()
_reconciler_completion reconciler
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = 'reconciler completion fish | source; complete -C "{line}"'
ZSH = """\
autoload -Uz compinit; compinit -u -D
compadd() {{ print -rl -- $completions }}
_describe() {{ print -rl -- $completions_with_descriptions }}
source <(reconciler completion zsh)
words=({line}) CURRENT={zsh_place}
_reconciler_completion
"""
LINES = [
    ("reconciler stat", ["status"]),
    ("reconciler pr re", ["reopen"]),
    ("reconciler status --sta", ["--state"]),
    ("reconciler explain edge-1/", ["edge-1/db", "edge-1/web"]),
    ("reconciler approve edge-1/w", ["edge-1/web"]),
    ("reconciler status --repository edge", ["edge-1"]),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A shell's environment in which a fleet was looked at before, and this program is on the path."""
    root = tmp_path_factory.mktemp("w")
    write_world(root / "w", ("edge-1",))
    world = World(root / "w")
    world.run("apply")
    cache = root / "cache/reconciler"
    assert invoke(["status", "--control", str(world.control), "--cache-dir", str(cache)]) == 0
    return {
        "HOME": str(root),
        "XDG_CACHE_HOME": str(root / "cache"),
        "RECONCILER_CONTROL": str(world.control),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "dumb",
    }


def _completions(shell: str, script: str, line: str, environment: dict[str, str]) -> list[str]:
    words = line.split()
    text = script.format(line=line, place=len(words) - 1, zsh_place=len(words))
    options = {"bash": ["--norc", "-c"], "fish": ["--no-config", "-c"], "zsh": ["-f", "-c"]}[shell]
    ran = subprocess.run(
        [shell, *options, text], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    return [each.partition("\t")[0].partition(":")[0] for each in ran.stdout.splitlines()]


@pytest.mark.parametrize(("line", "expected"), LINES)
@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("fish", FISH), ("zsh", ZSH)])
def test_a_shell_completes(
    shell: str, script: str, line: str, expected: list[str], environment: dict[str, str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")

    assert _completions(shell, script, line, environment) == expected


def test_a_completion_needs_no_repository(environment: dict[str, str], tmp_path: Path) -> None:
    """Names come from the cache alone: the control repository may be gone."""
    cache = Path(environment["XDG_CACHE_HOME"]) / "reconciler"
    gone = f"{environment['RECONCILER_CONTROL']}-is-away"

    assert read_names(cache, environment["RECONCILER_CONTROL"], "repositories") == ["blueprints", "edge-1"]
    assert read_names(cache, gone, "repositories") == []
    assert read_names(tmp_path, gone, "packages") == []


@pytest.mark.parametrize("damage", ["", "[]", '{"packages": 3}', '{"packages": [1]}', "\x00"])
def test_a_damaged_cache_completes_nothing(damage: str, tmp_path: Path, environment: dict[str, str]) -> None:
    source = Path(environment["XDG_CACHE_HOME"]) / "reconciler/names"
    (tmp_path / "names").mkdir()
    (file,) = source.iterdir()
    (tmp_path / "names" / file.name).write_text(damage)

    assert read_names(tmp_path, environment["RECONCILER_CONTROL"], "packages") == []


def test_completing_imports_neither_models_nor_git(environment: dict[str, str]) -> None:
    code = (
        "import os, sys\n"
        "from reconciler.cli.main import invoke\n"
        "assert invoke([]) == 0\n"
        "print([name for name in ('pydantic', 'pygit2', 'httpx') if name in sys.modules], file=sys.stderr)\n"
    )
    asking = {
        "_RECONCILER_COMPLETE": "bash_complete",
        "COMP_WORDS": "reconciler explain e",
        "COMP_CWORD": "2",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment | asking, capture_output=True, text=True, check=False
    )

    assert ran.stdout.splitlines() == ["plain,edge-1/db", "plain,edge-1/web"]
    assert ran.stderr == "[]\n"

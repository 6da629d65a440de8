"""`completion`: real shells complete commands and options."""

import os
import subprocess
import sys

import pytest

from tests.support.ci import need
from tests.support.command_server import write_client

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
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A shell's environment in which this program is on the path."""
    return {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PATH": f"{write_client(tmp_path_factory.mktemp('bin'))}:{os.environ['PATH']}",
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


@pytest.mark.parametrize(
    ("shell", "script", "line", "expected"),
    [
        *(("bash", BASH, *line) for line in LINES),
        *(("fish", FISH, *line) for line in LINES[1:]),
        *(("zsh", ZSH, *line) for line in LINES[1:]),
    ],
)
def test_a_shell_completes(
    shell: str, script: str, line: str, expected: list[str], environment: dict[str, str]
) -> None:
    need(shell)

    assert _completions(shell, script, line, environment) == expected


def test_completing_imports_neither_models_nor_git(environment: dict[str, str]) -> None:
    code = (
        "import os, sys\n"
        "from reconciler.cli.main import invoke\n"
        "assert invoke([]) == 0\n"
        "print([name for name in ('pydantic', 'pygit2', 'httpx') if name in sys.modules], file=sys.stderr)\n"
    )
    asking = {"_RECONCILER_COMPLETE": "bash_complete", "COMP_WORDS": "reconciler stat", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment | asking, capture_output=True, text=True, check=False
    )

    assert ran.stdout.splitlines() == ["plain,status"]
    assert ran.stderr == "[]\n"

"""Run the commands of a documentation page in a shell, and compare what they print with the page.

A page has three forms that count; everything else is for readers only:

- a fenced block ``console``: lines with ``$ `` are commands (``> `` goes on), what follows is their output;
- a fenced block after a comment ``<!-- file: PATH -->``: the text of a file, relative to the directory that
  the commands have reached, in a directory that is there. ``<!-- append: PATH -->`` adds to it;
- a fenced block after a comment ``<!-- prints: COMMAND -->``: a text that readers see elsewhere, such as the
  summary of a workflow; the command prints it here. ``<!-- runs: COMMAND -->`` alone, without a block, does
  quietly what readers do elsewhere, such as a click.

In an expected output the line ``...`` stands for any lines; ids of commits and checksums of the same length,
dates and the version of Git may differ.
`/home/ada` is the user's home everywhere.
A command exits with 0, or with the code in ``<!-- exits: 10 -->`` before its block: then its block has no
other command. ``<!-- not run: REASON -->`` before a block says why only its form counts.

As a program (`python -m tests.support.pages PAGE...`) it runs pages with the `reconciler` of PATH.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

_FENCE = re.compile(r"^```(?P<language>[\w-]*)\s*$")
_COMMENT = re.compile(r"^<!-- (?P<key>file|append|exits|prints|runs|not run): (?P<value>.+) -->$")
_ID = re.compile(r"\b[0-9a-f]{7,64}\b")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\dZ)?\b")
_GIT = re.compile(r"\bgit version \S+")
_ANY = "..."
_HOME = "/home/ada"
_MARK = "@@page@@"
TIMEOUT_S = 600


@dataclass
class Step:
    """One command or file of a page, with the lines of the page that it came from."""

    line: int
    script: str
    expected: list[str] = field(default_factory=list)
    exits: int = 0


@dataclass
class Mismatch:
    """A command that did something else than the page says."""

    page: Path
    step: Step
    code: int
    printed: list[str]

    def __str__(self) -> str:
        said = "\n".join(f"  - {line}" for line in self.step.expected)
        did = "\n".join(f"  + {line}" for line in self.printed)
        return (
            f"{self.page}:{self.step.line}: `{self.step.script}` exits with {self.code}, "
            f"the page says {self.step.exits}\n{said}\n{did}"
        )


def read_steps(text: str) -> list[Step]:
    """Return what a page does, in order.

    Raises:
        ValueError: A block does not end, or prints something before its first command.
    """
    steps: list[Step] = []
    notes: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if (note := _COMMENT.match(line)) and note["key"] == "runs":
            steps.append(Step(number, note["value"]))
        elif note:
            notes[note["key"]] = note["value"]
        elif fence := _FENCE.match(line):
            steps += _steps_of(fence["language"], number, _block(lines, number), notes)
            notes = {}
        elif line.strip():
            notes = {}
    return steps


def _block(lines: Iterator[tuple[int, str]], number: int) -> list[str]:
    block: list[str] = []
    for _, line in lines:
        if line == "```":
            return block
        block.append(line)
    message = f"line {number}: the block does not end"
    raise ValueError(message)


def _steps_of(language: str, number: int, block: Sequence[str], notes: dict[str, str]) -> list[Step]:
    for key, operator in (("file", ">"), ("append", ">>")):
        if key in notes:
            path = notes[key]
            script = f"cat {operator} {path} <<'END_OF_FILE'\n"
            return [Step(number, script + "\n".join([*block, "END_OF_FILE"]))]
    exits = int(notes.get("exits", "0"))
    if "prints" in notes:
        return [Step(number, notes["prints"], list(block), exits)]
    if language != "console" or "not run" in notes:
        return []
    return _commands(number, block, exits)


def _commands(number: int, block: Sequence[str], exits: int) -> list[Step]:
    steps: list[Step] = []
    for offset, line in enumerate(block, 1):
        if line.startswith("$ "):
            steps.append(Step(number + offset, line[2:], exits=exits))
        elif not steps:
            message = f"line {number + offset}: output without a command"
            raise ValueError(message)
        elif line.startswith("> ") and not steps[-1].expected:
            steps[-1].script += "\n" + line[2:]
        else:
            steps[-1].expected.append(line)
    return steps


def run_page(
    page: Path,
    directory: Path,
    path: str,
    addresses: Mapping[str, str] = MappingProxyType({}),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> list[Mismatch]:
    """Run a page as a new user would, and return where it is wrong.

    Args:
        page: The page.
        directory: A directory; the user's home is `ada` in it.
        path: PATH of the commands.
        addresses: What serves each address that the page names, such as a simulator for `https://github.com`.
        variables: Further variables of the environment.
    """
    steps = read_steps(page.read_text(encoding="utf-8"))
    home = directory / "ada"
    home.mkdir(parents=True, exist_ok=True)
    script = "".join(f"{_pause(step)}{step.script}\nprintf '\\n{_MARK} %s\\n' $?\n" for step in steps)
    real = {_HOME: str(home), **addresses}
    for shown, served in real.items():
        script = script.replace(shown, served)
    ran = subprocess.run(
        ["bash"],
        input=script,
        cwd=home,
        env={**_environment(home, path), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    # YAML quotes a commit whose digits look like a number.
    printed = re.sub(r'"([0-9a-f]{40})"', r"\1", ran.stdout)
    for shown, served in real.items():
        printed = printed.replace(served, shown)
    outcomes = re.findall(rf"(.*?)\n{_MARK} (\d+)\n", printed, flags=re.DOTALL)
    results = [
        Mismatch(page, step, int(code), output.rstrip("\n").split("\n") if output.strip() else [])
        for step, (output, code) in zip(steps, outcomes, strict=True)
    ]
    return [
        one for one in results if one.code != one.step.exits or not matches(one.step.expected, one.printed)
    ]


def _pause(step: Step) -> str:
    """Let a snapshot be of a later second than what was merged before, as it is where a reader types."""
    rest = "$(printf 0.%09d $((1000000000 - 10#$(date +%N))))"
    return f"sleep {rest}\n" if "snapshot import" in step.script else ""


def _environment(home: Path, path: str) -> dict[str, str]:
    (home / ".gitconfig").write_text(
        "[include]\n\tpath = .gitconfig-more\n[user]\n\tname = Ada\n\temail = ada@example.com\n"
        "[init]\n\tdefaultBranch = master\n"  # As Git has it, whatever this machine is set to.
        "[advice]\n\tdetachedHead = false\n"
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[receive]\n\tautogc = false\n",
        encoding="utf-8",
    )
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "PATH": path, "COLUMNS": "120", "GIT_CONFIG_NOSYSTEM": "1"}


def matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Tell whether an output is what the page says."""
    pattern = "\n".join(".*" if line == _ANY else re.escape(_masked(line)) for line in expected)
    return re.fullmatch(pattern, "\n".join(map(_masked, printed)), flags=re.DOTALL) is not None


def _masked(line: str) -> str:
    return _GIT.sub("git version", _DATE.sub("DATE", _ID.sub(lambda id_: "0" * len(id_[0]), line))).rstrip()


def corrected(text: str, mismatches: Sequence[Mismatch]) -> str:
    """Return the page with what its commands printed; codes are for people to correct."""
    lines = text.splitlines()
    for one in reversed(mismatches):
        if lines[one.step.line - 1].startswith("<!-- runs: "):
            continue
        first = one.step.line + one.step.script.count("\n")
        lines[first : first + len(one.step.expected)] = one.printed
    return "\n".join(lines) + "\n"


def main(pages: Sequence[str]) -> int:
    """Run pages, and say how long each took."""
    wrong = 0
    for page in map(Path, pages):
        with tempfile.TemporaryDirectory() as directory:
            begun = time.monotonic()
            found = run_page(page, Path(directory).resolve(), os.environ["PATH"])
            print(f"{page}: {time.monotonic() - begun:.0f} s, {len(found)} wrong")
            for one in found:
                print(one)
            wrong += len(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

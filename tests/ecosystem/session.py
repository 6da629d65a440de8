"""Run commands of one commit's code on public packages, and record what they print and write."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.command_server import PROJECT, run_reconciler


class Step(NamedTuple):
    """One command: its arguments, its exit code, and what it printed, without the name of its directory."""

    line: str
    code: int
    text: str


@dataclass
class Session:
    """Commands in one directory; `broken` are the laws that they broke, in words."""

    root: Path
    code: Path = PROJECT
    steps: list[Step] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def run(self, *arguments: str | Path, allowed: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """Run one command; return its JSON output, or what it printed as `text`."""
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.root),
            "XDG_CACHE_HOME": str(self.root / "cache"),
        }
        ran = run_reconciler([*map(str, arguments)], cwd=self.root, env=environment, code=self.code)
        line = " ".join(map(str, arguments)).replace(f"{self.root}/", "")
        text = (ran.stdout + ran.stderr).replace(str(self.root), "ROOT")
        self.steps.append(Step(line, ran.returncode, re.sub(r"\d+(\.\d+)? (m?s|seconds)\b", "TIME", text)))
        self.law("Traceback" not in text, f"{line}: {text[-1500:]}")
        self.law(ran.returncode in allowed, f"{line}: exit {ran.returncode}: {text[-1500:]}")
        try:
            read = json.loads(ran.stdout)
        except ValueError:
            read = {}
        return {**(read if isinstance(read, dict) else {"list": read}), "code": ran.returncode, "text": text}

    def law(self, holds: object, words: str) -> None:
        """Record that a law does not hold."""
        if not holds:
            self.broken.append(words)

    def keep(self, name: str, files: Mapping[str, bytes]) -> None:
        """Record files, for the comparison of two commits."""
        self.files.update({f"{name}/{path}": data for path, data in files.items()})


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the files of a directory."""
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def write_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a directory."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory

"""Draw the sample: functions in a random but stable order, and one mutant of each."""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from tools.mutation.mutants import Function, Mutant, choose_mutant, list_functions, list_mutants, rank

HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Equivalent:
    """A mutant that no test can catch, and why."""

    file: str
    function: str
    change: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify the mutant."""
        return (self.file, self.function, self.change)


def read_equivalents(path: Path) -> list[Equivalent]:
    """Read the mutants that count for nothing."""
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
    return [Equivalent(**{**entry, "change": entry["change"].strip("\n")}) for entry in entries or []]


def find_stale(root: Path, equivalents: Iterable[Equivalent]) -> list[Equivalent]:
    """Return the entries that are no mutant of today's code."""
    functions: dict[tuple[str, str], list[Function]] = {}
    for path in {equivalent.file.split("/")[0] for equivalent in equivalents}:
        for function in list_functions(root, path):
            functions.setdefault((function.path, function.name), []).append(function)
    return [
        equivalent
        for equivalent in equivalents
        if not any(
            mutant.key == equivalent.key
            for function in functions.get((equivalent.file, equivalent.function), ())
            for mutant in list_mutants(root, function)
        )
    ]


@dataclass(frozen=True)
class Sampler:
    """Mutants of a package, drawn with a seed, without those that are known to be equivalent."""

    root: Path
    package: str
    seed: int
    equivalents: frozenset[tuple[str, str, str]] = frozenset()

    def sample_folder(self, folder: str, number: int) -> list[Mutant]:
        """Draw mutants of the functions of a folder."""
        functions = list_functions(self.root, self.package)
        return list(islice(self._draw(f for f in functions if folder_of(f) == folder), number))

    def sample_changed(self, base: str, number: int) -> list[Mutant]:
        """Draw mutants of the functions that differ from those of a commit."""
        changed = _changed_lines(self.root, self.package, base)
        functions = list_functions(self.root, self.package)
        touched = [f for f in functions if any(f.first <= line <= f.last for line in changed.get(f.path, ()))]
        return list(islice(self._draw(touched), number))

    def list_survivors(self, result: Path) -> list[Mutant]:
        """Return the mutants that nothing caught in an earlier result, as far as they still exist."""
        survived = [m for m in json.loads(result.read_text(encoding="utf-8"))["mutants"] if not m["test"]]
        keys = {(mutant["file"], mutant["function"], mutant["change"]) for mutant in survived}
        functions = [
            f for f in list_functions(self.root, self.package) if (f.path, f.name) in {k[:2] for k in keys}
        ]
        mutants = [mutant for function in functions for mutant in list_mutants(self.root, function)]
        return [mutant for mutant in mutants if mutant.key in keys - self.equivalents]

    def _draw(self, functions: Iterable[Function]) -> Iterator[Mutant]:
        for function in sorted(functions, key=lambda f: rank(self.seed, f.path, f.name)):
            mutants = [m for m in list_mutants(self.root, function) if m.key not in self.equivalents]
            if mutant := choose_mutant(mutants, self.seed):
                yield mutant


def folder_of(function: Function) -> str:
    """Return the folder of the package that a function is in; a module beside the folders is its own."""
    return function.path.split("/")[1].removesuffix(".py")


def _changed_lines(root: Path, package: str, base: str) -> Mapping[str, set[int]]:
    command = ["git", "diff", "--unified=0", "--no-color", "--relative", "--merge-base", base, "--", package]
    diff = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    changed: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif hunk := HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            changed.setdefault(path, set()).update(range(first, first + max(count, 1)))
    return changed

"""Read conformance vectors: answers that this project did not write, kept beside it and never copied into it.

The folder is named by `RECONCILER_CONFORMANCE`, by default `../shared/conformance` from the project root.
Any folder of the same shape works, with other cases or with only some of the parts.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "RECONCILER_CONFORMANCE"


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: its fields by name, and where it stands."""

    file: Path
    kind: str
    name: str
    data: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def get(self, field: str, default: Any = None) -> Any:
        """Return one field, or `default` where the vector leaves it out."""
        return self.data.get(field, default)


def root() -> Path:
    """Return the folder of the vectors, whether it is there or not."""
    return Path(os.environ.get(VARIABLE) or PROJECT.parent / "shared" / "conformance")


@cache
def load_yaml(file: Path) -> Any:
    """Parse one vector file; every scalar in them is quoted as YAML 1.1 wants it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text(encoding="utf-8"), Loader=loader)


def cases_of(part: str, *kinds: str) -> list[Case]:
    """Return the cases of every `<part>/*.yaml` whose `kind` is one of `kinds`, in file order."""
    found = []
    for file in sorted((root() / part).glob("*.yaml")):
        document = load_yaml(file)
        if isinstance(document, dict) and document.get("kind") in kinds:
            found += [Case(file, document["kind"], case["name"], case) for case in document["cases"]]
    return found


def vectors(part: str, *kinds: str) -> list[Any]:
    """Return pytest parameters for the cases of `kinds`; one skipped parameter where there are none.

    Use as `@pytest.mark.parametrize("case", vectors("porch", "CelExpression"))`.
    """
    return parameters(
        ((f"{case.file.stem}-{index:03}-{case.name}", case) for index, case in _numbered(part, kinds)),
        absent=f"no vectors of kind {', '.join(kinds)} in {part}/",
    )


def folders(part: str, marker: str = "") -> list[Any]:
    """Return pytest parameters for the folders below `part`, those that hold a file named `marker`."""
    base = root() / part
    found = [d for d in sorted(base.glob("*")) if d.is_dir() and (not marker or (d / marker).is_file())]
    return parameters(((d.name, d) for d in found), absent=f"no folders in {part}/")


def parameters(named: Iterable[tuple[str, Any]], *, absent: str) -> list[Any]:
    """Return one pytest parameter per (id, value), or a single skipped one that says what is absent."""
    found = [pytest.param(value, id=name) for name, value in named]
    reason = f"{absent} of the folder that {VARIABLE} names (default ../shared/conformance)"
    return found or [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]


def _numbered(part: str, kinds: tuple[str, ...]) -> Iterable[tuple[int, Case]]:
    last: Path | None = None
    index = 0
    for case in cases_of(part, *kinds):
        index = index + 1 if case.file == last else 0
        last = case.file
        yield index, case

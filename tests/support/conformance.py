"""Read conformance vectors: recorded answers of kpt, Porch and others.

Some are in `tests/vectors`. All are in the folder that `RECONCILER_CONFORMANCE` names, by default
`../shared/conformance` from the project root; its files replace those of the same path in `tests/vectors`.
Any folder of the same shape works, with other cases or with only some of the parts.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
VARIABLE = "RECONCILER_CONFORMANCE"
OWN = PROJECT / "tests" / "vectors"
BESIDE = PROJECT.parent / "shared" / "conformance"
NOT_COPIED = (
    "functions/*/*/meta.yaml",
    "github-openapi.json",
    "gitea-swagger.json",
    "kyaml-merge3.yaml",
    "porch/fixtures/*.tar",
    "porch/git-*.yaml",
    "porch/pv-*.yaml",
    "porch/pvs-*.yaml",
    "resolver/*/*.json",
)
"""The parts that are beside the project only."""


@dataclass(frozen=True, slots=True)
class Case:
    """One vector: its fields by name, and its file."""

    file: Path
    kind: str
    name: str
    data: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def get(self, field: str, default: Any = None) -> Any:
        """Return one field, or `default` where the vector leaves it out."""
        return self.data.get(field, default)


def named_folder() -> Path:
    """Return the folder with all vectors; it may be absent, unless the variable names it."""
    folder = Path(os.environ.get(VARIABLE) or BESIDE)
    if VARIABLE in os.environ and not folder.is_dir():
        pytest.fail(f"{VARIABLE} names {folder}, which is no folder", pytrace=False)
    return folder


def vector_files(pattern: str) -> list[Path]:
    """Return the vector files of a pattern, sorted by their paths in the folder."""
    paths = {
        path.relative_to(folder): path for folder in (OWN, named_folder()) for path in folder.glob(pattern)
    }
    return [paths[name] for name in sorted(paths)]


def require_file(path: str) -> Path:
    """Return one vector file; skip the test if it is absent, or fail it in CI."""
    files = vector_files(path)
    if not files:
        skip_absent(absence(path))
    return files[0]


def skip_absent(message: str) -> NoReturn:
    """Skip a test without its vectors, or fail it in CI."""
    if is_required():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def absence(pattern: str) -> str:
    """Return the message about absent vectors."""
    return f"needs the vectors that {VARIABLE} names ({pattern}, in {named_folder()})"


def is_required() -> bool:
    """Return whether absent vectors are an error: in CI, unless the variable names a folder."""
    return os.environ.get("CI") == "true" and VARIABLE not in os.environ


@cache
def load_yaml(file: Path) -> Any:
    """Parse one vector file; every scalar in them is quoted as YAML 1.1 wants it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text(encoding="utf-8"), Loader=loader)


def cases_of(part: str, *kinds: str) -> list[Case]:
    """Return the cases of every `<part>/*.yaml` whose `kind` is one of `kinds`, in file order."""
    cases = []
    for file in vector_files(f"{part}/*.yaml"):
        document = load_yaml(file)
        if isinstance(document, dict) and document.get("kind") in kinds:
            cases += [Case(file, document["kind"], case["name"], case) for case in document["cases"]]
    return cases


def vectors(part: str, *kinds: str) -> list[Any]:
    """Return pytest parameters for the cases of `kinds`.

    Use as `@pytest.mark.parametrize("case", vectors("porch", "CelExpression"))`.
    """
    named = ((f"{case.file.stem}-{index:03}-{case.name}", case) for index, case in _numbered(part, kinds))
    return parameters(named, absent=absence(f"of kind {', '.join(kinds)} in {part}/"))


def folders(part: str, marker: str) -> list[Any]:
    """Return pytest parameters for the folders below `part` that have a file named `marker`."""
    found = [file.parent for file in vector_files(f"{part}/*/{marker}")]
    return parameters(((folder.name, folder) for folder in found), absent=absence(f"{part}/*/{marker}"))


def parameters(named: Iterable[tuple[str, Any]], *, absent: str) -> list[Any]:
    """Return one pytest parameter per (id, value), or a skipped one with the message about absent vectors.

    In CI absent vectors are an error.
    """
    found = [pytest.param(value, id=name) for name, value in named]
    if not found and is_required():
        pytest.fail(absent, pytrace=False)
    return found or [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=absent))]


def _numbered(part: str, kinds: tuple[str, ...]) -> Iterable[tuple[int, Case]]:
    last: Path | None = None
    index = 0
    for case in cases_of(part, *kinds):
        index = index + 1 if case.file == last else 0
        last = case.file
        yield index, case

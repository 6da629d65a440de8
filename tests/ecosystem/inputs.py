"""Public packages and manifests, found in the folder that `RECONCILER_ECOSYSTEM` names.

Any folder of the same shape works, with other packages or with only some of the kinds. A sample of it runs
with all tests, everything by `make ecosystem`.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.conformance import PROJECT

VARIABLE = "RECONCILER_ECOSYSTEM"
ROOT = Path(os.environ.get(VARIABLE) or PROJECT.parent / "shared" / "ecosystem")
ABSENT = f"needs the packages that {VARIABLE} names"
EVERYTHING = "RECONCILER_ECOSYSTEM_ALL" in os.environ
SAMPLE = {"nephio": 2, "kpt-fn-render": 6, "carvel": 2, "crossplane": 1, "porter": 2}
"""How many inputs of each kind are in the sample; of packages those that are not large."""
LARGE = 80_000
"""Bytes of a package that is left out of the sample."""
KINDS = tuple(SAMPLE)


def inputs_of(*kinds: str, everything: bool = EVERYTHING) -> list[Path]:
    """Return the directories of some kinds: packages, cases, bundles, repositories; or a sample of them."""
    found = []
    for kind in kinds:
        cases = kind == "kpt-fn-render"
        here = sorted(
            path.parent if cases else path for path in ROOT.glob(f"{kind}/{'**/.expected' if cases else '*'}")
        )
        found += here if everything else sorted([*_drawn(here)][: SAMPLE[kind]])
    return found


def _drawn(directories: list[Path]) -> Iterator[Path]:
    """Yield directories in an order that depends on nothing but their names."""
    for path in sorted(directories, key=lambda path: hashlib.sha256(path.name.encode()).digest()):
        if sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) < LARGE:
            yield path


def name_of(directory: Path) -> str:
    """Return the name of an input, as tests show it."""
    return "-".join(directory.relative_to(ROOT).parts[1:])


def revisions(package: Path) -> list[Path]:
    """Return the directories of a package's revisions, the oldest first."""
    return sorted((path for path in package.iterdir() if path.is_dir()), key=_number)


def _number(revision: Path) -> tuple[list[int], str]:
    return [int(part) for part in re.findall(r"\d+", revision.name)], revision.name

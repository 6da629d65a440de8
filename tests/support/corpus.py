"""Real packages, read from the folder that RECONCILER_CORPUS names."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("RECONCILER_CORPUS", ROOT.parent / "shared/corpus"))
ABSENT = "needs the packages that RECONCILER_CORPUS names"


def corpus_package(name: str) -> dict[str, bytes]:
    """Return the files of the package in the directory called `name`, whatever stands above it."""
    if not CORPUS.is_dir():
        pytest.skip(ABSENT)
    (kptfile,) = (p for p in CORPUS.rglob("Kptfile") if p.parent.name == name)
    return {
        str(p.relative_to(kptfile.parent)): p.read_bytes()
        for p in sorted(kptfile.parent.rglob("*"))
        if p.is_file()
    }

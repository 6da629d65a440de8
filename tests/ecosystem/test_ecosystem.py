"""Laws that hold for public packages and manifests, whoever wrote them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem.inputs import ABSENT, inputs_of, name_of
from tests.ecosystem.laws import RUNS, KnownFault, check_laws, known_faults
from tests.ecosystem.session import Session

pytestmark = pytest.mark.slow

Run = Callable[[Session, Path], None]


def cases() -> list[Any]:
    """Return a parameter for each run over each input; a known fault must still be there."""
    found = []
    for kind, runs in RUNS.items():
        for run in runs:
            known = known_faults(run.__name__)
            for path in inputs_of(kind):
                row = known.get(name_of(path))
                marks = [pytest.mark.xfail(raises=KnownFault, reason=row, strict=True)] if row else []
                found.append(pytest.param(run, path, id=f"{run.__name__}-{name_of(path)}", marks=marks))
    return found or [pytest.param(None, None, id="absent", marks=pytest.mark.skip(reason=ABSENT))]


@pytest.mark.parametrize(("run", "directory"), cases())
def test_laws(run: Run, directory: Path, tmp_path: Path) -> None:
    session = Session(tmp_path)

    run(session, directory)

    check_laws(session)

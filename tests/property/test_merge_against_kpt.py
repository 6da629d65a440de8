"""The same random packages through the real kpt and through `compatible` mode: the same documents come out.

30 examples in the test suite, in chunks that run beside each other; 1,500 by `make laws`. Needs kpt on the
PATH and the oracle beside the project.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from reconciler.names.objects import File, Files
from reconciler.policy import MergeMode, Strategy
from tests.property.random_packages import Example
from tests.property.test_merge_laws import plain_examples
from tests.support.merges import attempt, difference, documents, files_of, read_tree
from tests.support.notes import note
from tests.support.oracles import ORACLE, load_kpt

FUZZ = int(os.environ.get("RECONCILER_FUZZ", "1"))
CHUNKS = 3
EXAMPLES = 10 if FUZZ == 1 else 50 * FUZZ
"""In each chunk."""

pytestmark = [
    pytest.mark.needs("kpt"),
    pytest.mark.slow,
    pytest.mark.skipif(not ORACLE.is_file(), reason="needs the oracle that runs kpt beside the project"),
]

COUNTED: Counter[str] = Counter()


@pytest.fixture(scope="module")
def oracle() -> Iterator[ModuleType]:
    module = load_kpt()
    yield module
    note(f"updates like the real kpt: {COUNTED['examples']} examples, kpt gives up in {COUNTED['failed']}")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_compatible_mode_equals_the_real_kpt(oracle: ModuleType, chunk: int) -> None:
    for_each_example(chunk, lambda example: compare_with_kpt(oracle, example))


def for_each_example(chunk: int, check: Callable[[Example], None]) -> None:
    @seed(chunk)
    @given(example=plain_examples())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def run(example: Example) -> None:
        check(example)

    run()


def compare_with_kpt(oracle: ModuleType, example: Example) -> None:
    COUNTED["examples"] += 1
    sides = [files_of(side) for side in (example.base, example.upstream, example.local)]
    theirs = run_kpt(oracle, *sides)

    ours, _, refused = attempt(*sides, mode=MergeMode.COMPATIBLE, strategy=Strategy.RESOURCE_MERGE)

    if theirs is None:
        COUNTED["failed"] += 1
    else:
        assert not refused
        assert difference(comparable(ours), comparable(theirs)) == {}


def run_kpt(oracle: ModuleType, *sides: Files) -> Files | None:
    """Return what kpt makes of three sides, None where it stops with an error."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name, files in zip(("original", "upstream", "local"), sides, strict=True):
            for path, file in files.items():
                (root / name / path).parent.mkdir(parents=True, exist_ok=True)
                (root / name / path).write_bytes(file.data)
        done = oracle.merge_dirs(root / "original", root / "upstream", root / "local", root / "out")
        return None if done["rc"] else read_tree(root / "out")


def comparable(files: Files) -> dict[str, File]:
    """Leave out the Kptfile's upstream, a temporary repository, and files in which kpt left nothing."""
    kptfile = documents(files["Kptfile"].data)[0]
    own = {key: value for key, value in kptfile.items() if key not in ("upstream", "upstreamLock")}
    return {
        **{path: file for path, file in files.items() if file.data.strip()},
        "Kptfile": File.of(json.dumps(own, sort_keys=True).encode()),
    }

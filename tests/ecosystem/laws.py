"""What is run over each kind of input, and the faults that are known."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.ecosystem.fleet import run_fleet
from tests.ecosystem.inputs import KINDS
from tests.ecosystem.manifests import run_manifests
from tests.ecosystem.renders import run_render
from tests.ecosystem.session import Session
from tests.ecosystem.updates import run_updates

RUNS: Mapping[str, Sequence[Callable[[Session, Path], None]]] = {
    **dict.fromkeys(KINDS, (run_manifests,)),
    "nephio": (run_fleet, run_updates),
    "kpt-fn-render": (run_render,),
}


class KnownFault(AssertionError):  # noqa: N818 - what a test expects
    """An input breaks laws by known faults only."""


class Known(NamedTuple):
    """A known fault: how to tell it from the words of a broken law, and the inputs (`run:name`)."""

    row: str
    words: str
    inputs: frozenset[str]


KNOWN: tuple[Known, ...] = ()
"""Each input here must still have its fault: a mended one fails until it is taken off the list."""


def check_laws(session: Session) -> None:
    """Fail for every broken law; with KnownFault if all of them are known."""
    unknown = [
        words for words in session.broken if not any(re.search(k.words, words, re.DOTALL) for k in KNOWN)
    ]
    assert unknown == []
    if session.broken:
        raise KnownFault("; ".join(session.broken))


def known_faults(run: str) -> dict[str, str]:
    """Return the known fault of each input of a run."""
    return {name.partition(":")[2]: k.row for k in KNOWN for name in k.inputs if name.startswith(f"{run}:")}

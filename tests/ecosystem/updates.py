"""A package outside of a fleet: updated between its revisions, unedited and edited, beside the real kpt."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.names.objects import Files
from tests.ecosystem.edits import draw_edits
from tests.ecosystem.inputs import revisions
from tests.ecosystem.kpt_rules import Outcome, Update, unexplained
from tests.ecosystem.session import Session, read_files, write_files
from tests.support.merges import MINIMAL, difference, files_of_bytes
from tests.support.oracles import KPT, ORACLE, load_kpt

HAS_KPT = KPT is not None and ORACLE.is_file()
STRATEGY = "resource-merge"
MODES = {"asked": (), "decided": ("--on-conflict", "upstream"), "compatible": ("--mode", "compatible")}
_ATTRIBUTED = re.compile(rb"(?m),kpt-pkg\b|^ *cnrm\.cloud\.google\.com/blueprint: ['\"]?kpt-pkg['\"]?\n")
MADE = 0, 7
REFUSED = 3, 4


def run_updates(session: Session, package: Path) -> None:
    """Update a package from each revision to the next, and from the first to the last."""
    found = revisions(package)
    pairs = [*pairwise(found), *([(found[0], found[-1])] if len(found) > 2 else [])]
    for old, new in pairs:
        for given in _given(package, old, new, session.root):
            _update(session, given)


class Given(NamedTuple):
    """A package to update: as kpt fetched it, as a person edited it, and what kpt makes of the update."""

    name: str
    old: Path
    new: Path
    fetched: Mapping[str, bytes]
    local: Mapping[str, bytes]
    edits: list[str]
    kpts: Outcome | None = None


def _given(package: Path, old: Path, new: Path, root: Path) -> Iterator[Given]:
    name = f"{package.name}/{old.name}-{new.name}"
    if not HAS_KPT:
        yield from _without_kpt(name, old, new)
        return
    with closing(load_kpt().Workspace(old, new, old)) as kpt:
        environment = {**kpt.env, "KRM_DISABLE_ATTRIBUTION": "false"}
        get = [str(KPT), "pkg", "get", f"file://{kpt.up}.git/pkg@v1", str(root / name / "fetched")]
        (root / name).mkdir(parents=True)
        if subprocess.run(get, env=environment, capture_output=True, check=False).returncode:
            yield from _without_kpt(name, old, new)  # kpt refuses it too: a Kptfile of an old version
            return
        fetched = read_files(root / name / "fetched")
        kpts = difference(
            *(_published(files_of_bytes(each)) for each in (fetched, read_files(old))), loose=True
        )
        by_kpt = ["kpt's own changes of values"] if kpts else []
        for suffix, (local, made) in {"": (fetched, by_kpt), "-edited": draw_edits(fetched, name)}.items():
            kpt.local = write_files(root / f"{name}{suffix}" / "given", local)
            kpt.prepare()
            ran = kpt.update()
            out = read_files(kpt.down / "pkg")
            outcome = Outcome(files_of_bytes(out), ran["stderr"] if ran["rc"] else "")
            yield Given(f"{name}{suffix}", old, new, fetched, local, made, outcome)


def _without_kpt(name: str, old: Path, new: Path) -> Iterator[Given]:
    fetched = {"Kptfile": MINIMAL.encode(), **read_files(old)}
    yield Given(name, old, new, fetched, fetched, [])
    yield Given(f"{name}-edited", old, new, fetched, *draw_edits(fetched, name))


def _update(session: Session, given: Given) -> None:
    name = given.name
    local = write_files(session.root / name / "local", given.local)
    outcomes: dict[str, Outcome] = {}
    for mode, options in MODES.items():
        out = session.root / name / mode
        line = ["package", "update", "--original", given.old, "--upstream", given.new]
        end = ("--out-dir", out, *options, "-o", "json")
        ran = session.run(*line, "--local", local, *end, allowed=(*MADE, *REFUSED))
        places = frozenset((each["path"], each["resource"]) for each in ran.get("conflicts", ()))
        result = read_files(out)
        session.keep(f"{name}-{mode}", result)
        outcomes[mode] = Outcome(files_of_bytes(result), "" if ran["code"] in MADE else ran["text"], places)
        if ran["code"] == 0 and mode != "compatible":  # kpt's next update drops further nulls
            line[3] = given.new
            session.run(*line, "--local", out, *end, allowed=MADE)
            session.law(read_files(out) == result, f"{name}, {mode}: a second update writes")
    upstream = files_of_bytes(read_files(given.new))
    base, mine = files_of_bytes(given.fetched), files_of_bytes(given.local)
    if not given.edits and not outcomes["asked"].error:
        asked = outcomes["asked"]
        differs = difference(_published(asked.files), _published(upstream), loose=True)
        session.law(
            not asked.conflicts, f"{name}: nobody edited it, and a person is asked: {sorted(asked.conflicts)}"
        )
        session.law(not differs, f"{name}: nobody edited it, and it is not upstream's: {differs}")
    for mode in ("decided", "compatible"):
        asked = outcomes["compatible" if mode == "compatible" else "asked"]
        theirs = given.kpts or outcomes[mode]
        update = Update(base, upstream, mine, STRATEGY, theirs, outcomes[mode], asked, mode == "compatible")
        for row in unexplained(update):
            session.law(False, f"{name}, {mode}, {given.edits}: {row}")


def _published(files: Files) -> Files:
    """Return the files that a package update takes from upstream, without the name that kpt adds to them."""
    return {
        path: replace(file, data=_ATTRIBUTED.sub(b"", file.data))
        for path, file in files.items()
        if not path.endswith(("Kptfile", "package-context.yaml"))
    }

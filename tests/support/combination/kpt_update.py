"""The real `kpt pkg update` on packages of a fleet, beside what the reconciler makes of the same update."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from reconciler.objects import File
from tests.support.combination import trees
from tests.support.combination.fleet import Fleet, Pull, run_line
from tests.support.combination.oracles import Observation
from tests.support.combination.spec import CATALOG, VariantSpec
from tests.support.merges import difference

_LOCK = re.compile(r"^    (ref|commit): (\S+)$", re.MULTILINE)
_REPO = re.compile(r"^(    repo): .*$", re.MULTILINE)
OURS = ("Kptfile", "package-context.yaml")


@cache
def has_kpt() -> bool:
    """Whether kpt is here."""
    return shutil.which("kpt") is not None


def check_kpt(fleet: Fleet, observation: Observation, fresh: set[tuple[str, str]]) -> Iterator[str]:
    """A new draft of an update holds the data that kpt makes of it, where nothing of ours comes in.

    That is: nobody's conflict, no pipeline, no injection, no context. One draft is compared, for time.

    Args:
        fleet: The fleet.
        observation: What the settled run showed.
        fresh: (repository, branch) of the drafts that this run wrote.
    """
    for variant in fleet.spec.variants:
        if variant.pipeline != "none" or variant.injection or variant.context:
            continue
        for pull in fleet.pulls(variant.repository):
            if (variant.repository, pull.head) in fresh and _is_plain_update(
                fleet, observation, variant, pull
            ):
                yield from _compare(fleet, variant, pull)
                return


def check_compatible(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """`package update --mode compatible` gives the data of kpt for a package that is to be updated."""
    for variant in fleet.spec.variants:
        for pull in fleet.pulls(variant.repository):
            change = observation.change(variant.repository, pull.package)
            if change and change["upstream"]["from"] and pull.package in _paths(fleet, variant):
                yield from _compare_compatible(fleet, variant, pull)
                return


def _paths(fleet: Fleet, variant: VariantSpec) -> list[str]:
    return [fleet.full(variant.repository, path) for path in variant.paths]


def _is_plain_update(fleet: Fleet, observation: Observation, variant: VariantSpec, pull: Pull) -> bool:
    repo, path = fleet.repo(variant.repository), pull.package
    if pull.is_deletion or path not in _paths(fleet, variant):
        return False
    change = observation.change(variant.repository, path) or {}
    main = _package(fleet, variant.repository, "main", path)
    draft = _package(fleet, variant.repository, pull.head, path)
    kptfiles = main.get("Kptfile", b""), draft.get("Kptfile", b"")
    return (
        change.get("reason") == "UpToDate"
        and not change["conflicts"]
        and not change["answers"]
        and repo.find(f"refs/heads/{pull.head}") is not None
        and all(b"upstreamLock:" in kptfile and b"pipeline:" not in kptfile for kptfile in kptfiles)
        and _lock(kptfiles[0]) != _lock(kptfiles[1])
    )


def _compare(fleet: Fleet, variant: VariantSpec, pull: Pull) -> Iterator[str]:
    draft = _package(fleet, variant.repository, pull.head, pull.package)
    main = _package(fleet, variant.repository, "main", pull.package)
    lock = _lock(draft["Kptfile"])
    with tempfile.TemporaryDirectory(dir=fleet.root) as scratch:
        theirs = _kpt_update(Path(scratch), fleet, main, lock["ref"])
    if theirs is not None and _lock(theirs["Kptfile"]).get("commit") == lock["commit"]:
        differs = difference(_data(draft), _data(theirs), loose=True)
        if differs:
            yield f"kpt makes other data of the update of {pull.package}: {str(differs)[:1500]}"


def _compare_compatible(fleet: Fleet, variant: VariantSpec, pull: Pull) -> Iterator[str]:
    main = _package(fleet, variant.repository, "main", pull.package)
    lock = _lock(_package(fleet, variant.repository, pull.head, pull.package).get("Kptfile", b""))
    if b"upstreamLock:" not in main.get("Kptfile", b"") or "ref" not in lock:
        return
    with tempfile.TemporaryDirectory(dir=fleet.root) as scratch:
        theirs = _kpt_update(Path(scratch) / "theirs", fleet, main, lock["ref"])
        if theirs is None:
            return
        package = _write(Path(scratch) / "ours", fleet, main)
        where = f"{package}@{lock['ref']}"
        result = run_line(["package", "update", where, "--mode", "compatible"])
        if result.code:
            yield f"{where} is updated by kpt, and here: exit {result.code} {result.out}{result.err}"
            return
        differs = difference(_data(_read(package)), _data(theirs), loose=True)
    if differs:
        yield f"kpt makes other data of {pull.package} than compatible mode: {str(differs)[:1500]}"


def _kpt_update(scratch: Path, fleet: Fleet, main: Mapping[str, bytes], ref: str) -> dict[str, bytes] | None:
    """Return the package after `kpt pkg update`; None where kpt gives up."""
    package = _write(scratch, fleet, main)
    environment = {**os.environ, "KPT_CACHE_DIR": str(fleet.root / "kpt")}
    ran = subprocess.run(
        ["kpt", "pkg", "update", f"pkg@{ref}"],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if ran.returncode else _read(package)


def _write(scratch: Path, fleet: Fleet, files: Mapping[str, bytes]) -> Path:
    """Write a package into a new working copy, with the catalog's address as kpt can read it."""
    package = scratch / "pkg"
    for path, data in files.items():
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    kptfile = package / "Kptfile"
    address = f"file://{fleet.repo(CATALOG).path}"
    kptfile.write_text(_REPO.sub(rf"\1: {address}", kptfile.read_text()))
    for line in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Package"]):
        subprocess.run(["git", *line], cwd=scratch, check=True, capture_output=True)
    return package


def _read(package: Path) -> dict[str, bytes]:
    return {str(p.relative_to(package)): p.read_bytes() for p in package.rglob("*") if p.is_file()}


def _package(fleet: Fleet, repository: str, branch: str, path: str) -> dict[str, bytes]:
    repo = fleet.repo(repository)
    listed = trees.files(repo, trees.root(repo, branch), path)
    return {name.removeprefix(f"{path}/"): data for name, data in listed.items()}


def _lock(kptfile: bytes) -> dict[str, str]:
    """Return ref and commit of a Kptfile's upstreamLock."""
    return dict(_LOCK.findall(kptfile.decode().partition("upstreamLock:")[2]))


def _data(files: Mapping[str, bytes]) -> dict[str, File]:
    return {path: File.of(data) for path, data in files.items() if path not in OURS}

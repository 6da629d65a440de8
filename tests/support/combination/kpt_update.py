"""The real `kpt pkg update` on packages of a fleet, beside what the reconciler makes of the same update."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from reconciler.names.objects import File
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
    """An update gives the data that kpt makes of it; one new draft is compared, for time.

    Where nothing of ours comes in (no conflict, pipeline, injection or context) that is the draft
    itself, else what `package update --mode compatible` makes of the package on main.

    Args:
        fleet: The fleet.
        observation: What the settled run showed.
        fresh: (repository, branch) of the drafts that this run wrote.
    """
    for variant in fleet.spec.variants:
        for pull in fleet.pulls(variant.repository):
            is_fresh = (variant.repository, pull.head) in fresh and not pull.is_deletion
            if is_fresh and _is_update(fleet, variant, pull):
                is_plain = _is_plain(observation, fleet, variant, pull)
                yield from (_compare if is_plain else _compare_compatible)(fleet, variant, pull)
                return


def _paths(fleet: Fleet, variant: VariantSpec) -> list[str]:
    return [fleet.full(variant.repository, path) for path in variant.paths]


def _is_update(fleet: Fleet, variant: VariantSpec, pull: Pull) -> bool:
    """Whether a draft brings another upstream commit to a package on main."""
    if pull.package not in _paths(fleet, variant):
        return False
    kptfiles = _kptfiles(fleet, variant, pull)
    locks = [_lock(kptfile) for kptfile in kptfiles]
    return all("commit" in lock and "ref" in lock for lock in locks) and locks[0] != locks[1]


def _is_plain(observation: Observation, fleet: Fleet, variant: VariantSpec, pull: Pull) -> bool:
    """Whether nothing of ours comes into an update."""
    change = observation.change(variant.repository, pull.package) or {}
    return (
        variant.pipeline == "none"
        and not (variant.injection or variant.context)
        and change.get("reason") in ("UpToDate", "InReview")
        and not (change["conflicts"] or change["answers"])
        and not any(b"pipeline:" in kptfile for kptfile in _kptfiles(fleet, variant, pull))
    )


def _kptfiles(fleet: Fleet, variant: VariantSpec, pull: Pull) -> list[bytes]:
    branches = ("main", pull.head)
    packages = [_package(fleet, variant.repository, branch, pull.package) for branch in branches]
    return [package.get("Kptfile", b"") for package in packages]


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
    old, new = (_lock(kptfile) for kptfile in _kptfiles(fleet, variant, pull))
    with tempfile.TemporaryDirectory(dir=fleet.root) as directory:
        scratch = Path(directory)
        theirs = _kpt_update(scratch / "theirs", fleet, main, new["ref"])
        if theirs is None or _lock(theirs["Kptfile"]).get("commit") != new["commit"]:
            return
        sides = {"local": main}
        for name, lock in (("original", old), ("upstream", new)):
            if lock["commit"] not in fleet.repo(CATALOG).git:
                return
            sides[name] = _package(fleet, CATALOG, lock["commit"], fleet.full(CATALOG, variant.package))
        for name, files in sides.items():
            _write_files(scratch / name, files)
        options = [word for name in sides for word in (f"--{name}", str(scratch / name))]
        result = run_line(
            ["package", "update", *options, "--mode", "compatible", "--out-dir", str(scratch / "local")]
        )
        if result.code:
            yield f"kpt updates {pull.package}, and here: exit {result.code} {result.out}{result.err}"
            return
        differs = difference(_data(_read(scratch / "local")), _data(theirs), loose=True)
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
    _write_files(package, files)
    kptfile = package / "Kptfile"
    address = f"file://{fleet.repo(CATALOG).path}"
    kptfile.write_text(_REPO.sub(rf"\1: {address}", kptfile.read_text()))
    for line in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-q", "-m", "Package"],
    ):
        subprocess.run(["git", *line], cwd=scratch, check=True, capture_output=True)
    return package


def _write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


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

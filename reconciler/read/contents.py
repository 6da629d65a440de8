"""Fetch the package contents that rendering needs, one batch of blobs per repository, side by side."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from msgspec import Struct

from reconciler.api.kptfile import KPTFILE, new_kptfile
from reconciler.base.errors import UnavailableError
from reconciler.base.progress import track
from reconciler.base.text import plural
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.trees import PackageRefusedError
from reconciler.names.filled import PackageSamples
from reconciler.names.ids import Oid
from reconciler.names.objects import File, Files, Mode
from reconciler.policy import Limits
from reconciler.resolve.resolution import BeyondRun, Needs


@dataclass(frozen=True, slots=True)
class PackageContents(Mapping[Oid, Files]):
    """Packages by tree id; `refused` are the reasons for needed ones that are missing."""

    files: Mapping[Oid, Files] = field(default_factory=dict)
    refused: Mapping[Oid, str] = field(default_factory=dict)

    def __getitem__(self, tree: Oid) -> Files:
        return self.files[tree]

    def __iter__(self) -> Iterator[Oid]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def fetch_contents(
    needs: Needs,
    mirrors: Mirrors,
    limits: Limits | None = None,
    *,
    later: Needs | None = None,
    values: Mapping[Oid, tuple[Oid, tuple[str, ...]]] = MappingProxyType({}),
) -> PackageContents:
    """Fetch the packages that rendering needs. Total.

    What is needed `later`, by another call, comes in the same batch of its repository. Of packages that were
    made of one upstream and differ only in their `values`, by tree, one is read and held. A package that is
    hostile, too large or unavailable is in `refused`, as are those beyond `limits.run_bytes` in the order of
    repositories and trees.
    """
    fetched = _Fetched(limits or Limits(), values)
    files, refused = fetched.files, fetched.refused
    mirrors.ensure_all(_missing_blobs((needs, later or Needs()), mirrors, fetched.limits))
    for url, trees in track(needs.trees.items(), "fetching packages of repositories"):
        missing = sorted(tree for tree in trees if tree not in files)
        try:
            _fetch(mirrors.of(url), missing, fetched)
        except UnavailableError as error:
            refused.update({tree: str(error) for tree in missing if tree not in files})
    for tree in needs.plain & files.keys():
        files[tree] = {KPTFILE: File.of(new_kptfile("package", {})), **files[tree]}
    return PackageContents(files, {tree: why for tree, why in refused.items() if tree not in files})


class _Fetched(Struct):
    """The packages that were fetched up to now, and the reasons for missing ones.

    Equal files of packages are `held` once; `size` are their bytes.
    """

    limits: Limits
    values: Mapping[Oid, tuple[Oid, tuple[str, ...]]]
    files: dict[Oid, Files] = msgspec.field(default_factory=dict)
    held: dict[tuple[Oid, Mode], File] = msgspec.field(default_factory=dict)
    size: int = 0
    refused: dict[Oid, str] = msgspec.field(default_factory=dict)
    samples: PackageSamples = msgspec.field(default_factory=PackageSamples)


def _missing_blobs(needs: Iterable[Needs], mirrors: Mirrors, limits: Limits) -> dict[str, set[Oid]]:
    """Return the blobs of packages in remote repositories; each package of the first one that has it."""
    blobs: dict[str, set[Oid]] = {}
    listed = set[Oid]()
    for url, trees in (pair for part in needs for pair in part.trees.items()):
        with suppress(UnavailableError):
            mirror = mirrors.of(url)
            for tree in sorted(trees - listed) if not mirror.is_local else ():
                # One that cannot be listed is refused when it is read.
                with suppress(PackageRefusedError, UnavailableError):
                    blobs.setdefault(url, set()).update(mirror.list_blobs(tree, limits))
                    listed.add(tree)
    return blobs


def _fetch(mirror: Mirror, trees: list[Oid], fetched: _Fetched) -> None:
    limits, refused = fetched.limits, fetched.refused
    for tree in trees:
        upstream, values = fetched.values.get(tree, (Oid(""), ()))
        sizes = limits.package_bytes, limits.package_file_bytes
        if values and (filled := fetched.samples.find(upstream, tree, values, *sizes)) is not None:
            fetched.files[tree] = filled
            continue
        try:
            package = mirror.files(tree, limits)
        except (PackageRefusedError, UnavailableError) as error:
            refused[tree] = str(error)
            continue
        new = {
            file.oid: len(file.data) for file in package.values() if (file.oid, file.mode) not in fetched.held
        }
        if fetched.size + sum(new.values()) > limits.run_bytes:
            most = plural(limits.run_bytes, "byte")
            refused[tree] = BeyondRun(f"the packages of this run have more than {most} (limits.runBytes)")
            continue
        fetched.size += sum(new.values())
        held = fetched.held
        fetched.files[tree] = {p: held.setdefault((f.oid, f.mode), f) for p, f in package.items()}
        if values:
            fetched.samples.add(upstream, fetched.files[tree], values)

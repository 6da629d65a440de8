"""The runs of `index sync` and `index missing`: what manifests and the index need, and what is not there."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import UsageError
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY, MissingPackage, find_missing, read_index
from reconciler.dependencies.model.cluster import Catalogue, build_catalogue
from reconciler.expand import expand
from reconciler.git.repository import Mirror
from reconciler.git.urls import local_path
from reconciler.git.working_copy import find_working_copy
from reconciler.http.client import ReplyCache
from reconciler.inventory.inventory import Inventory, Unit
from reconciler.names.problems import Problem
from reconciler.read.configuration import FILE
from reconciler.read.dependencies import INDEX_SUFFIXES, read_index_directory
from reconciler.read.forges import find_credentials
from reconciler.read.governance import open_allowed
from reconciler.read.manifests import parse_manifests
from reconciler.records.upstream_lock import LOCKS_DIRECTORY
from reconciler.resolve.fleet import fleet_inputs
from reconciler.run.chart_proposals import propose_charts
from reconciler.run.inputs import RunInputs, read_inputs
from reconciler.run.options import RunOptions
from reconciler.sources.credentials import registry_credentials
from reconciler.sources.registry import RegistryClient
from reconciler.sources.sync import SyncRequest, SyncResult, find_new_versions
from reconciler.workdir.control_files import add_version
from reconciler.workdir.manifest_files import read_manifest_files


class SyncOptions(NamedTuple):
    """Whether to take every version, not only those that are needed, and to compare digests with tags."""

    every: bool = False
    checks_tags: bool = False


class IndexSync(Struct, frozen=True):
    """The result of a synchronisation: what was found, the files written, and the requests to registries."""

    result: SyncResult
    written: tuple[str, ...] = ()
    requests: int = 0


class MissingPackages(NamedTuple):
    """The packages that installs lack, the problems that hide further ones, and the number of installs."""

    packages: tuple[MissingPackage, ...]
    problems: tuple[Problem, ...]
    installs: int = 0


def find_missing_packages(options: RunOptions) -> MissingPackages:
    """Return every package that installs lack, with manifests and index as on disk. Writes nothing."""
    inventory = _on_disk(inputs := read_inputs(options), options)
    fleet = _fleet_inputs(replace(inputs, inventory=inventory))
    missing = find_missing((world.installs, world.catalogue) for world in fleet.worlds)
    problems = (*inventory.problems, *read_index(inventory.index).problems, *fleet.problems)
    installs = sum(len(world.installs) for world in fleet.worlds)
    return MissingPackages(missing, tuple(sorted({*problems})), installs)


def _fleet_inputs(inputs: RunInputs) -> FleetInputs:
    """Return what clusters need and can have, without what a bug of ours breaks the work on."""

    def collect(left_out: Mapping[Unit, DefectError]) -> FleetInputs:
        some = inputs.without(left_out)
        return fleet_inputs(some.inventory, expand(some.inventory), some.dependencies)

    return isolate(inputs.inventory.units, collect)[0]


def sync_index(options: RunOptions, chosen: SyncOptions) -> IndexSync:
    """Write the versions that are needed into the index of a working copy.

    Raises:
        UsageError: There is no working copy.
    """
    path = local_path(options.control)
    copy = find_working_copy(path) if path else None
    if copy is None:
        hint = "Run the command inside a working copy, or propose the versions with --pull-request."
        raise UsageError(f"{options.control} is no working copy of the control repository", hint=hint)
    inputs = read_inputs(options)
    inventory = _on_disk(inputs, options)
    files = {
        path.relative_to(copy.root).as_posix(): path.read_bytes()
        for path in sorted((copy.root / INDEX_DIRECTORY).rglob("*"))
        if path.suffix in INDEX_SUFFIXES and path.is_file()
    }
    result, requests = synchronise(replace(inputs, inventory=inventory), chosen, files)
    written = []
    for version in result.versions:
        add_version(copy.root, version.folder, version.files)
        written += [f"{version.folder}/{name}" for name in sorted(version.files)]
    charts = propose_charts(inputs, writes=False)
    result.problems += charts.problems
    result.notes += charts.notes
    result.is_idle = result.is_idle and not charts.followed
    return IndexSync(result, tuple(written), requests + charts.requests)


def synchronise(
    inputs: RunInputs, chosen: SyncOptions, present: Mapping[str, bytes]
) -> tuple[SyncResult, int]:
    """Return the versions that manifests and index need and do not have, and the number of requests.

    The settings and credentials are those of the default branch, whatever the working copy has (D25).
    """
    inventory, mirrors = inputs.inventory, inputs.mirrors
    policy = inventory.policy
    fleet = _fleet_inputs(inputs)
    installs = {install for world in fleet.worlds for install in world.installs}
    catalogue = next((world.catalogue for world in fleet.worlds), None)
    request = SyncRequest(
        tuple(sorted(installs, key=lambda install: (str(install), install.location))),
        catalogue or _catalogue(inventory),
        tuple(
            document for document in inventory.documents if document.value.get("kind") == "PackageRepository"
        ),
        present,
        every=chosen.every,
        checks_tags=chosen.checks_tags,
    )
    find = registry_credentials(os.environ, find_credentials(policy, os.environ))
    replies = ReplyCache(mirrors.cache_dir / "replies")
    client = RegistryClient(policy.registries, find, replies, addresses=policy.addresses)
    control = mirrors.open(inventory.control.remote)

    def open_mirror(remote: str) -> Mirror:
        return open_allowed(remote, policy, mirrors, control)

    return find_new_versions(request, client, open_mirror, policy.registries, policy.limits), client.requests


def _catalogue(inventory: Inventory) -> Catalogue:
    index = read_index(inventory.index)
    return build_catalogue(index.candidates, index.refused)


def _on_disk(inputs: RunInputs, options: RunOptions) -> Inventory:
    """Return the inventory with manifests and index as a working copy has them, committed or not."""
    path = local_path(options.control)
    copy = find_working_copy(path) if path else None
    inventory = inputs.inventory
    if copy is None:
        return inventory
    folders = read_index_directory(copy.root, inventory.policy.limits)
    problems = {p for p in inventory.problems if not p.location.path.startswith(f"{INDEX_DIRECTORY}/")}
    paths = {name or ".": copy.root / name for name in inventory.policy.manifests}
    left_out = (inventory.policy.snapshot.path, INDEX_DIRECTORY, LOCKS_DIRECTORY)
    skipped = frozenset((copy.root / name).resolve() for name in left_out)
    files = read_manifest_files({name: path for name, path in paths.items() if path.exists()}, skipped)
    files.pop(FILE, None)
    return replace(
        inventory,
        documents=parse_manifests(files, inventory.policy).documents,
        index=folders.documents,
        problems=tuple(sorted({*problems, *folders.problems})),
    )

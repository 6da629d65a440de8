"""The whole inventory of a run: configuration, manifests, snapshot, state, repositories, pull requests."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from reconciler.api.annotations import check_keys
from reconciler.api.porch import REPOSITORY, Repository
from reconciler.api.validation import parse_model
from reconciler.errors import Location, Problem, UnavailableError
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirror, Mirrors
from reconciler.ids import ObjectName, Oid, normalise_url
from reconciler.inventory import (
    Control,
    Inventory,
    RecordedStatus,
    RepositoryView,
    ReviewedLock,
    Source,
    Sourced,
)
from reconciler.lock import LOCKS_DIRECTORY
from reconciler.policy import Policy
from reconciler.read.control import OpenControl, absolute_remote, open_control
from reconciler.read.credentials import commit_signing, find_credentials
from reconciler.read.dependencies import IndexFolders, read_index_folders
from reconciler.read.files import is_below
from reconciler.read.forges import Answers, read_forges
from reconciler.read.governance import ReadOptions, allow_addresses, read_options, read_policy
from reconciler.read.locks import ImageDigests, read_image_digests, read_reviewed_lock, with_image_digests
from reconciler.read.manifests import Manifests, read_manifests
from reconciler.read.repositories import describe_repositories, read_repositories
from reconciler.read.repositories.trees import Trees, read_trees
from reconciler.read.snapshot import read_snapshot
from reconciler.read.state import State, read_state, read_statuses, state_ref, status_ref
from reconciler.reasons import Reason
from reconciler.snapshot import Snapshot

_SHORT = 12
_SHOWN = 3
_STATE = re.compile(r"refs/heads/reconciler/([^/]+)/state")

Registration = Sourced[Repository]


def read_inventory(
    control: str,
    mirrors: Mirrors,
    environment: Mapping[str, str],
    reading: ReadOptions | None = None,
    forges: Forges | None = None,
) -> Inventory:
    """Return all that one run may know. Writes nothing.

    One repository that cannot be read is a view with a `problem`, one manifest that is not
    understood is a stalled owner; the others proceed.

    Args:
        control: The control repository: a working copy, whose HEAD is read, a bare one, or a URL.
        mirrors: Where repositories are opened.
        environment: Overrides of the configuration; see `reconciler.config`.
        reading: Which commit to read instead, and how; `control` is not looked at then.
        forges: Where pull requests are read; configured here.

    Raises:
        ConfigurationError: There is no configuration, or it cannot be trusted.
        UnavailableError: The control repository cannot be reached.
    """
    reading = reading or read_options(open_control(control, mirrors), environment)
    forges = forges or Forges(writes=False)
    opened = reading.at
    policy = _authorised(reading, mirrors, forges, environment)
    snapshot = read_snapshot(opened.objects, opened.commit.oid, policy)
    declared = _read_declared(opened, policy, snapshot)
    written = _read_written(opened, policy)
    policy = policy if policy.lock.is_reviewed else with_image_digests(policy, written.images.lock)
    views = _read_views(declared.registrations, reading, mirrors, policy)
    forges.set_authors(views.values())
    manifests, state = declared.manifests, written.state
    said, found = Answers(views, written.reviewed), Trees()
    if reading.deep:
        said = read_forges(said, opened.mirror, mirrors, forges, policy)
        found = read_trees(manifests, said.views, mirrors, state, said.reviewed)
    unread = tuple(_unread(opened, policy, manifests, state))
    problems = (*declared.problems, *snapshot.problems, *written.problems, *said.problems, *unread)
    notes = (*reading.notes, *said.notes, *manifests.notes)
    return Inventory(
        policy=policy,
        control=_control(opened, policy, written, manifests, unread),
        variants=manifests.variants,
        sets=manifests.sets,
        stalled=manifests.stalled,
        claims=manifests.claims,
        repositories=said.views,
        snapshot=snapshot,
        records=state.records,
        set_records=state.set_records,
        refused=state.refused,
        statuses=written.statuses,
        pulls=said.pulls,
        unreadable_pulls=said.unreadable,
        trees=found.trees,
        times=found.times,
        locks=state.locks,
        retry_requests=said.asked,
        passed_checks=said.passed,
        reviewed=said.reviewed,
        documents=manifests.documents,
        index=written.folders.documents,
        images=written.images.lock.images,
        problems=tuple(sorted(set(problems))),
        notes=(
            *notes,
            *_notes(said.views, opened, policy, written.tip),
        ),
    )


def _authorised(
    reading: ReadOptions, mirrors: Mirrors, forges: Forges, environment: Mapping[str, str]
) -> Policy:
    """Return the policy that counts; from here on repositories and forges are opened as it says."""
    policy = reading.govern(read_policy(reading.at, environment))
    find = find_credentials(policy, environment, forges.app_credential)
    forges.configure(policy, find, environment)
    mirrors.authenticate(find)
    mirrors.limit_reads(float(policy.limits.read_seconds))
    mirrors.sign_commits(commit_signing(policy.commits, environment))
    return policy


class _Written(NamedTuple):
    """What earlier runs and people wrote in the control repository: state, locks, the package index."""

    tip: Oid | None
    state: State
    statuses: Mapping[ObjectName, RecordedStatus]
    images: ImageDigests
    folders: IndexFolders
    reviewed: ReviewedLock | None

    @property
    def problems(self) -> Iterator[Problem]:
        """What is wrong with it, apart from the reviewed lock."""
        yield from (*self.folders.problems, *self.state.problems)
        if self.images.problem is not None:
            yield self.images.problem


def _read_written(opened: OpenControl, policy: Policy) -> _Written:
    refs = opened.mirror.refs()
    tip = refs.get(state_ref(policy.instance))
    state = read_state(opened.mirror, tip, policy.limits)
    return _Written(
        tip=tip,
        state=state,
        statuses=read_statuses(opened.mirror, refs.get(status_ref(policy.instance)), policy.limits),
        images=read_image_digests(opened.mirror, tip, policy.limits.manifest_bytes),
        folders=read_index_folders(opened.objects, opened.commit.oid, policy.limits),
        reviewed=read_reviewed_lock(opened, policy, state.wanted_lock),
    )


class _Declared(NamedTuple):
    """What people declare: manifests of the control repository, and the Repositories of both places."""

    manifests: Manifests
    registrations: tuple[Registration, ...]
    problems: tuple[Problem, ...]


def _read_declared(opened: OpenControl, policy: Policy, snapshot: Snapshot) -> _Declared:
    found = tuple(_registrations_of(snapshot, policy))
    registered = [one for one in found if isinstance(one, Sourced)]
    manifests = read_manifests(
        opened.objects,
        opened.commit.oid,
        policy,
        registered=[one.manifest for one in registered],
        is_control=lambda repo: normalise_url(_address(repo, opened.mirror)) == opened.mirror.url,
    )
    wrong = (one for one in found if isinstance(one, Problem))
    return _Declared(manifests, tuple(_merged(manifests, registered)), (*manifests.problems, *wrong))


def _notes(
    views: Mapping[ObjectName, RepositoryView], opened: OpenControl, policy: Policy, state: Oid | None
) -> Iterator[str]:
    yield from _what_is_read(opened, policy)
    yield from _unused_secrets(views)
    yield from _other_instances(opened, policy, state)


def _what_is_read(opened: OpenControl, policy: Policy) -> Iterator[str]:
    """Say which commit counts, where a person's working copy has more than everybody else."""
    inputs = (policy.config_path, policy.snapshot_path, "index", LOCKS_DIRECTORY, *policy.manifest_paths)
    left = [path for path in opened.uncommitted if any(is_below(path, one) for one in inputs)]
    if opened.published and not left:
        return
    said = f"Commit {opened.commit.oid[:_SHORT]} is read"
    said += "" if opened.published else ", which is not pushed"
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        files = "1 uncommitted file is" if len(left) == 1 else f"{len(left)} uncommitted files are"
        said += f"; {files} not: {', '.join(left[:_SHOWN])}{more}"
    yield said


def _unused_secrets(views: Mapping[ObjectName, RepositoryView]) -> Iterator[str]:
    specs = {str(key): view.manifest.spec.git for key, view in views.items()}
    names = sorted(name for name, git in specs.items() if git and git.secret_ref)
    if names:
        yield f"secretRef is not used, credentials come from the configuration: {', '.join(names)}"


def _other_instances(opened: OpenControl, policy: Policy, state: Oid | None) -> Iterator[str]:
    """Say that the instance may have been renamed, which it must not be: it owns packages by name."""
    if state is not None:
        return
    for ref in sorted(opened.mirror.refs()):
        if match := _STATE.fullmatch(ref):
            yield (
                f"Instance {policy.instance} has no state yet, but instance {match.group(1)} has: if it was "
                f"renamed, name it {match.group(1)} again, as its packages stay owned under that name"
            )


def _control(
    opened: OpenControl, policy: Policy, written: _Written, manifests: Manifests, unread: Iterable[Problem]
) -> Control:
    mirror = opened.mirror
    return Control(
        url=mirror.url,
        remote=mirror.remote,
        commit=opened.commit,
        branch=opened.branch,
        state=written.tip,
        status=mirror.refs().get(status_ref(policy.instance)),
        readable=True,
        broken=manifests.broken | {problem.location.path for problem in unread},
        removed=_removed(opened, manifests, written.state),
        published=opened.published,
    )


def _removed(opened: OpenControl, manifests: Manifests, state: State) -> Mapping[str, Oid]:
    """Return the files that declared what was applied and are gone, with the commit that removed each."""
    declared = {r.manifest for r in state.records.values()} | {r.manifest for r in state.set_records.values()}
    at = opened.commit.oid
    gone = [path for path in sorted(declared - manifests.files) if opened.objects.blob_at(at, path) is None]
    return opened.objects.last_touching(at, gone) if gone else {}


def _registrations_of(snapshot: Snapshot, policy: Policy) -> Iterator[Registration | Problem]:
    """Yield the repositories that the cluster has registered, and what is wrong with one of them."""
    for (api_version, kind), objects in sorted(snapshot.objects.items()):
        if (api_version, kind) != (REPOSITORY, "Repository"):
            continue
        for one in objects:
            key = ObjectName(one.namespace or policy.default_namespace, one.name)
            parsed = parse_model(Repository, {k: v for k, v in one.body.items() if k != "status"})
            parsed = check_keys(kind, one.body) or parsed
            if isinstance(parsed, Repository):
                yield Sourced(key, parsed, Source(one.location, snapshot.time))
                continue
            for fault in parsed:
                yield Problem(one.location, fault.reason, fault.message, fault.hint, f"Repository {key}")


def _merged(manifests: Manifests, registered: Iterable[Registration]) -> list[Registration]:
    """Return every registration; a manifest, even one that is not understood, comes before the cluster's."""
    mine = {r.key for r in manifests.repositories}
    mine |= {ObjectName(k.namespace, k.name) for k in manifests.stalled if k.kind == "Repository"}
    return [*manifests.repositories, *(r for r in registered if r.key not in mine)]


def _read_views(
    registrations: Iterable[Registration], reading: ReadOptions, mirrors: Mirrors, policy: Policy
) -> dict[ObjectName, RepositoryView]:
    """Return the views, each with its manifest as it was written and the address that it means."""
    written = {r.key: r for r in registrations}
    located = [_located(r, reading.at.mirror) for r in written.values()]
    if reading.deep:
        allowed = allow_addresses(policy, reading.at.mirror)
        views = read_repositories(located, mirrors, policy, lambda v: allowed(v) or reading.judge(v))
    else:
        views = describe_repositories(located, mirrors, policy)
    return {key: replace(view, manifest=written[key].manifest) for key, view in views.items()}


def _located(registration: Registration, control: Mirror) -> Registration:
    manifest = registration.manifest
    if manifest.spec.git is None:
        return registration
    git = manifest.spec.git.model_copy(update={"repo": _address(manifest.spec.git.repo, control)})
    spec = manifest.spec.model_copy(update={"git": git})
    return replace(registration, manifest=manifest.model_copy(update={"spec": spec}))


def _address(remote: str, control: Mirror) -> str:
    try:
        return absolute_remote(remote, control.remote)
    except UnavailableError:
        return remote


def _unread(opened: OpenControl, policy: Policy, manifests: Manifests, state: State) -> Iterator[Problem]:
    """Yield a problem for each file that declared something and was not read: it is unknown, not absent."""
    declared = {r.manifest for r in state.records.values()} | {r.manifest for r in state.set_records.values()}
    for path in sorted(declared - manifests.files):
        why = next((u.why for u in manifests.unread if is_below(path, u.path)), "")
        if not why and opened.objects.blob_at(opened.commit.oid, path):
            why = "it is not among the manifests any more"
        if why:
            message = f"The file declared manifests and was not read: {why}; what they own is kept"
            hint = f"Add it to spec.manifests of {policy.config_path}, or remove the file."
            yield Problem(Location(path), Reason.MANIFEST_UNREADABLE, message, hint)
    for path in manifests.missing:
        if not any(is_below(one, path) for one in declared):
            hint = "Correct spec.manifests, or create it."
            message = f"Manifest path {path} does not exist"
            yield Problem(Location(policy.config_path), Reason.MANIFEST_UNREADABLE, message, hint)

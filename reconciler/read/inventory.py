"""Read the inventory of a run: configuration, manifests, snapshot, state, repositories, pull requests."""

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from reconciler.api.annotations import check_keys
from reconciler.api.porch import GROUP, REPOSITORY, Repository
from reconciler.api.validation import parse_model
from reconciler.base.defects import DefectError, isolate
from reconciler.base.errors import Location, UnavailableError
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.base.redact import learn_names, shown_credentials
from reconciler.base.text import plural, some, verb
from reconciler.base.values import LazyMapping
from reconciler.dependencies.catalog.index import INDEX_DIRECTORY
from reconciler.expand.variants import owner_key, set_key, variant_key
from reconciler.forge.registry import Forges
from reconciler.git.repository import Mirror, Mirrors
from reconciler.inventory.inventory import (
    Control,
    Inventory,
    RecordedStatus,
    RepositoryRole,
    RepositoryView,
    ReviewedLock,
    Source,
    Sourced,
    Unit,
    unusable,
)
from reconciler.inventory.snapshot import Snapshot
from reconciler.inventory.standing import Position, Removals, Standing
from reconciler.names.ids import ObjectKey, ObjectName, Oid, normalise_url
from reconciler.names.problems import Problem, defect_problem
from reconciler.policy import Policy
from reconciler.read.control import ControlHistory, OpenControl, absolute_remote, open_control, read_standing
from reconciler.read.dependencies import IndexFolders, read_index_folders
from reconciler.read.files import SourcePosition, Walk, is_below
from reconciler.read.forges import ForgeState, commit_signing, find_credentials, read_forges
from reconciler.read.former import find_former, with_distinct_places
from reconciler.read.governance import (
    ReadOptions,
    address_check,
    read_opening,
    read_options,
    read_policy,
    read_trust,
    snapshot_check,
    unused_rules,
)
from reconciler.read.manifests import SUFFIXES, Manifests, read_manifests
from reconciler.read.removals import find_removals
from reconciler.read.repositories import (
    describe_repositories,
    read_repositories,
    unread,
    with_commits_of_tags,
)
from reconciler.read.repositories.trees import read_trees
from reconciler.read.snapshot import read_snapshot, unknown_versions
from reconciler.read.state import (
    ImageDigests,
    State,
    at_addresses,
    read_histories,
    read_image_digests,
    read_reviewed_lock,
    read_state,
    read_statuses,
    recorded_names,
    state_ref,
    status_ref,
    with_image_digests,
)
from reconciler.records.state import LOCKS_DIRECTORY, VARIANTS_DIRECTORY, PullHistory
from reconciler.resolve.deliveries import cluster_of

_SHORT = 12
_MOST_SETS = 3
_STATE = regex(r"refs/heads/reconciler/([^/]+)/state")

Registration = Sourced[Repository]


class Reading(Struct, frozen=True):
    """The reading of a run, step by step: the control repository, then repositories that it names.

    `inventory` has a view of every repository: one that was not read yet is skipped.
    """

    inventory: Inventory
    options: ReadOptions
    mirrors: Mirrors
    forges: Forges
    content: "_ControlContent"

    @property
    def skipped(self) -> frozenset[ObjectName]:
        """The repositories that were not read."""
        views = self.inventory.views.items()
        return frozenset(key for key, view in views if view.role is RepositoryRole.SKIPPED)

    def read(self, urls: Container[str] | None = None, *, planned: Container[str] | None = None) -> "Reading":
        """Read the repositories with these URLs, all without them, as far as they were not read yet.

        Packages of the `planned` clusters are planned, and everywhere once no repository is skipped.
        """
        views, skipped = dict(self.inventory.views), self.skipped
        omitted = {key for key in skipped if urls is not None and views[key].url not in urls}
        for key in views.keys() - omitted:
            is_planned = planned is None or not omitted or views[key].cluster in planned
            role = RepositoryRole.PLANNED if is_planned else RepositoryRole.READ
            views[key] = views[key] if views[key].role is role else replace(views[key], role=role)
        if self.options.deep:
            texts = (text for r in self.inventory.records.values() for text in (r.path, r.output_tree))
            described = {key: view for key, view in views.items() if key in skipped - omitted}
            policy, shared = self.inventory.policy, {text: text for text in texts}
            views |= self.options.reads.get(
                "repositories",
                (described, _manifest_texts(described), policy),
                lambda: read_repositories(described, self.mirrors, policy, shared),
            )
            views = {**with_commits_of_tags(views, self.mirrors)}
        return replace(self, inventory=_with_views(self.inventory, views))

    def complete(self, *notes: str) -> Inventory:
        """Return the inventory with all that follows from its repositories, and what forges know of them."""
        options, content = self.options, self.content
        read = self.inventory
        if options.deep:
            read = _with_views(read, with_distinct_places(read.views, self.mirrors))
        read = _with_forges(read, content, options, self.mirrors, self.forges)
        learn_names(lambda: _names(read))

        def completed(left_out: Mapping[Unit, DefectError]) -> Inventory:
            inventory = read.without(left_out)
            if options.deep:
                inventory = with_trees(inventory, self.mirrors)
            # A plan depends on the time of the run for a rollout, and after a merge that was refused.
            uses_time = inventory.policy.uses_time or any(r.refused for r in inventory.records.values())
            now = self.forges.clock.now()
            return replace(
                inventory,
                trust=read_trust(inventory, self.mirrors) if options.deep else {},
                opening=read_opening(inventory.policy, now),
                now=int(now) if uses_time else 0,
                notes=(
                    *options.notes,
                    *_position(inventory.control.standing),
                    *inventory.notes,
                    *content.declared.manifests.notes,
                    *_read_commit(options.control, inventory.policy),
                    *_unused_secrets(inventory.repositories),
                    *unknown_versions(inventory.snapshot, inventory.policy),
                    *unused_rules(inventory.policy, inventory.control, inventory.repositories.values()),
                    *_other_instances(options.control, inventory.policy, content.recorded.tip),
                    *notes,
                    *shown_credentials(),
                ),
            )

        return isolate(read.units, completed)[0]


def read_control(
    control: str,
    mirrors: Mirrors,
    environment: Mapping[str, str],
    options: ReadOptions | None = None,
    forges: Forges | None = None,
) -> Reading:
    """Return what the control repository has: manifests, snapshot, index and records. Writes nothing.

    `control` is a working copy (its HEAD is read), a bare repository or a URL; the commit in `options` comes
    first.

    Raises:
        ConfigurationError: There is no configuration, or it cannot be trusted.
        UnavailableError: The control repository cannot be reached.
    """
    options = options or read_options(open_control(control, mirrors), environment)
    forges = forges or Forges(writes=False)
    policy = authorize(options, mirrors, forges, environment)
    content, _ = isolate(
        lambda: _control_units(options.control, policy),
        lambda left_out: _read_control(options, policy, left_out),
    )
    views = {
        # One that cannot be used was read: nothing of it is skipped.
        key: replace(view, role=RepositoryRole.SKIPPED) if view.problem is None else view
        for key, view in _describe_views(content, options, mirrors).items()
    }
    return Reading(_with_views(content.inventory, views), options, mirrors, forges, content)


def read_inventory(
    control: str,
    mirrors: Mirrors,
    environment: Mapping[str, str],
    options: ReadOptions | None = None,
    forges: Forges | None = None,
) -> Inventory:
    """Return everything that one run over the whole fleet reads, as `read_control` does. Writes nothing.

    An unreadable repository is a view with a `problem`, an invalid manifest a stalled owner; the others
    proceed.
    """
    return read_control(control, mirrors, environment, options, forges).read().complete()


def with_trees(inventory: Inventory, mirrors: Mirrors) -> Inventory:
    """Return the inventory with the packages at commits without a revision, as far as they were read."""
    return replace(inventory, **asdict(read_trees(inventory, mirrors)))


def _names(inventory: Inventory) -> Iterator[str]:
    """Yield the names that a plan has from what was read; some more than once."""
    yield from (inventory.policy.instance, inventory.control.remote, inventory.control.branch)
    for variant in inventory.variants:
        yield from (*variant.key, variant.source.location.path)
    for declared in inventory.sets:
        yield from (*declared.key, declared.source.location.path)
    for view in inventory.views.values():
        yield from (*view.key, view.remote, view.branch, view.directory, view.cluster, *view.files)
        yield from (*view.branches, *view.tags, *view.packages)
        yield from (draft.ref for package in view.packages.values() for draft in package.drafts)


def _with_views(inventory: Inventory, views: Mapping[ObjectName, RepositoryView]) -> Inventory:
    """Return the inventory with the registered and the former ones of some views."""
    return replace(
        inventory,
        repositories={key: view for key, view in views.items() if view.former is None},
        former={key: view for key, view in views.items() if view.former is not None},
    )


def _manifest_texts(views: Mapping[ObjectName, RepositoryView]) -> Mapping[object, object]:
    """Return the texts of Repositories: views are equal wherever their fields are, which problems name."""
    marks = (view.source.marks for view in views.values())
    return {(m.path, m.lines_above): m.text.text for m in marks if isinstance(m, SourcePosition)}


def _with_forges(
    inventory: Inventory, content: "_ControlContent", options: ReadOptions, mirrors: Mirrors, forges: Forges
) -> Inventory:
    """Return the inventory with what forges know of its repositories."""
    views, recorded = inventory.views, content.recorded
    _, unusable = isolate(
        lambda: [view.url for view in views.values()],
        lambda left_out: forges.set_authors(view for view in views.values() if view.url not in left_out),
    )
    if unusable:
        views = {
            key: unread(view, unusable[view.url]) if view.url in unusable else view
            for key, view in views.items()
        }
    if not options.deep:
        return replace(_with_views(inventory, views), histories=recorded.histories)
    before = ForgeState(views, recorded.reviewed, recorded.histories)
    control, policy = options.control.mirror, inventory.policy
    forge_state = options.reads.get(
        "forges",
        (before, _manifest_texts(views), control, policy),
        lambda: read_forges(before, control, mirrors, forges, policy),
    )
    return replace(
        # The forges may have found a repository unavailable, or the lock closed.
        _with_views(inventory, forge_state.views),
        reviewed=forge_state.reviewed,
        pulls=forge_state.pulls,
        histories=forge_state.histories,
        is_history_due=forge_state.is_history_due,
        unreadable_pulls=forge_state.unreadable,
        retry_requests=forge_state.retry_requests,
        passed_checks=forge_state.passed_checks,
        other_checks=forge_state.other_checks,
        problems=tuple(sorted({*inventory.problems, *forge_state.problems})),
        notes=forge_state.notes,
    )


def authorize(
    options: ReadOptions, mirrors: Mirrors, forges: Forges, environment: Mapping[str, str]
) -> Policy:
    """Return the policy that applies, after giving its credentials and limits to mirrors and forges."""
    policy = options.govern(read_policy(options.control, environment))
    find = find_credentials(policy, environment, forges.app_credential)
    forges.configure(policy, find, environment)
    mirrors.authenticate(find)
    mirrors.limit_reads(float(policy.limits.read_seconds), policy.limits.repositories_at_once)
    mirrors.sign_commits(commit_signing(policy.commits, environment))
    return policy


class _ControlContent(NamedTuple):
    """The content of the control repository; `inventory` has no repositories yet."""

    inventory: Inventory
    declared: "_Declared"
    recorded: "_Recorded"


def _control_units(opened: OpenControl, policy: Policy) -> Iterator[str | ObjectName]:
    """Yield the units of the control repository: paths of files, and names that records are about."""
    root, walk = opened.mirror.commit(opened.commit.oid).tree, Walk(SUFFIXES, depth=policy.limits.path_depth)
    yield from (file.path for file in walk.below(opened.objects, root, ""))
    tip = opened.mirror.refs().get(state_ref(policy.instance))
    yield from recorded_names(opened.mirror, tip, policy.limits)


def _read_control(
    options: ReadOptions, policy: Policy, left_out: Mapping[str | ObjectName, DefectError]
) -> _ControlContent:
    opened = options.control
    paths = {unit: error for unit, error in left_out.items() if isinstance(unit, str)}
    names = {unit: error for unit, error in left_out.items() if isinstance(unit, ObjectName)}
    snapshot = read_snapshot(opened.objects, opened.commit.oid, policy, paths)
    declared = _read_declared(opened, policy, snapshot, paths)
    recorded = _read_recorded(options, policy, paths, names)
    manifests, state = declared.manifests, recorded.state
    skipped = tuple(_skipped_files(opened, policy, manifests, state))
    broken = {
        name: defect_problem(error, Location(VARIANTS_DIRECTORY), ObjectKey(GROUP, "PackageVariant", *name))
        for name, error in names.items()
    }
    faults = {defect_problem(error, Location(path)) for path, error in paths.items()} | {*broken.values()}
    problems = {*declared.problems, *snapshot.problems, *recorded.problems, *skipped, *faults}
    digests = recorded.images.lock
    inventory = Inventory(
        policy=policy if policy.lock.is_reviewed else with_image_digests(policy, digests),
        control=_control(opened, policy, recorded, declared, skipped),
        variants=manifests.variants,
        sets=manifests.sets,
        stalled=manifests.stalled | {ObjectKey(GROUP, "PackageVariantSet", *name) for name in names},
        claims=manifests.claims,
        snapshot=snapshot,
        records=state.records,
        set_records=state.set_records,
        rollouts=state.rollouts,
        broken_records=broken,
        refused=state.refused,
        statuses=recorded.statuses,
        locks=state.locks,
        reviewed=recorded.reviewed,
        documents=manifests.documents,
        index=recorded.index_folders.documents,
        images=digests.images,
        problems=tuple(sorted(problems)),
    )
    return _ControlContent(inventory, declared, recorded)


class _Recorded(NamedTuple):
    """State, locks and package index of the control repository."""

    tip: Oid | None
    state: State
    statuses: Mapping[ObjectName, RecordedStatus]
    histories: Mapping[str, PullHistory]
    images: ImageDigests
    index_folders: IndexFolders
    reviewed: ReviewedLock | None

    @property
    def problems(self) -> Iterator[Problem]:
        """Problems except those of the reviewed lock."""
        yield from (*self.index_folders.problems, *self.state.problems)
        if self.images.problem is not None:
            yield self.images.problem


def _read_recorded(
    options: ReadOptions, policy: Policy, paths: Container[str], names: Mapping[ObjectName, DefectError]
) -> _Recorded:
    opened = options.control
    refs = opened.mirror.refs()
    tip, status = refs.get(state_ref(policy.instance)), refs.get(status_ref(policy.instance))
    state = options.reads.get(
        "state",
        (opened.mirror, tip, policy.limits, names),
        lambda: at_addresses(read_state(opened.mirror, tip, policy.limits, names), opened.mirror.remote),
    )
    return _Recorded(
        tip=tip,
        state=state,
        # Ten thousand files, which a plan with nothing in review does not need.
        statuses=LazyMapping(lambda: read_statuses(opened.mirror, status, policy.limits)),
        histories=read_histories(opened.mirror, status, policy.limits),
        images=read_image_digests(opened.mirror, tip, policy.limits.manifest_bytes),
        index_folders=read_index_folders(opened.objects, opened.commit.oid, policy.limits, paths),
        reviewed=read_reviewed_lock(opened, policy, state.wanted_lock),
    )


class _Declared(NamedTuple):
    """Manifests of the control repository, and the Repositories of manifests and cluster."""

    manifests: Manifests
    registrations: tuple[Registration, ...]
    problems: tuple[Problem, ...]


def _read_declared(
    opened: OpenControl, policy: Policy, snapshot: Snapshot, left_out: Mapping[str, DefectError]
) -> _Declared:
    registrations = tuple(_cluster_registrations(snapshot, policy))
    registered = [item for item in registrations if isinstance(item, Sourced)]
    manifests = read_manifests(
        opened.objects,
        opened.commit.oid,
        policy,
        registered=[item.manifest for item in registered],
        is_control=lambda repo: normalise_url(_address(repo, opened.mirror.remote)) == opened.mirror.url,
        left_out=left_out,
    )
    problems = (item for item in registrations if isinstance(item, Problem))
    return _Declared(manifests, tuple(_merged(manifests, registered)), (*manifests.problems, *problems))


def _position(standing: Standing) -> Iterator[str]:
    """Yield how the commit differs from the one that should be applied."""
    if not standing.sentence:
        return
    match standing.position:
        case Position.BEHIND | Position.DROPPED:
            yield f"{standing.sentence}: what newer commits brought is kept, and nothing can be applied"
        case Position.REWOUND:
            yield f"{standing.sentence}. Nothing is applied before the next commit on it"
        case Position.REWRITTEN:
            yield f"{standing.sentence}. Each deletion needs consent"
        case _:
            yield standing.sentence


def _read_commit(opened: OpenControl, policy: Policy) -> Iterator[str]:
    """Yield which commit was read, if a working copy has commits or files that are not published."""
    inputs = (policy.config_path, policy.snapshot.path, INDEX_DIRECTORY, LOCKS_DIRECTORY)
    directories = (*inputs, *policy.manifests)
    uncommitted = [p for p in opened.uncommitted if any(is_below(p, directory) for directory in directories)]
    if opened.pushed and not uncommitted:
        return
    note = f"Commit {opened.commit.oid[:_SHORT]} is read"
    note += "" if opened.pushed else ", which is not pushed"
    if uncommitted:
        count = len(uncommitted)
        files = f"{plural(count, 'uncommitted file')} {verb(count, 'is', 'are')}"
        note += f"; {files} not: {some(uncommitted, _MOST_SETS)}"
    yield note


def _unused_secrets(views: Mapping[ObjectName, RepositoryView]) -> Iterator[str]:
    specs = {str(key): view.manifest.spec.git for key, view in views.items()}
    names = sorted(name for name, git in specs.items() if git and git.secret_ref)
    if names:
        yield f"secretRef is not used, credentials come from the configuration: {', '.join(names)}"


def _other_instances(opened: OpenControl, policy: Policy, state: Oid | None) -> Iterator[str]:
    """Yield a warning if the instance seems renamed: packages are owned by its name."""
    if state is not None:
        return
    for ref in sorted(opened.mirror.refs()):
        if match := _STATE.fullmatch(ref):
            yield (
                f"Instance {policy.instance} has no state yet, but instance {match.group(1)} has: if it was "
                f"renamed, name it {match.group(1)} again, as its packages stay owned under that name"
            )


def _control(
    opened: OpenControl, policy: Policy, recorded: _Recorded, declared: _Declared, skipped: Iterable[Problem]
) -> Control:
    mirror, manifests = opened.mirror, declared.manifests
    standing = read_standing(opened, recorded.state.applied)
    removals = _removals(opened, policy, declared, recorded.state, standing)
    return Control(
        url=mirror.url,
        remote=mirror.remote,
        commit=opened.commit,
        branch=opened.branch,
        state=recorded.tip,
        status=mirror.refs().get(status_ref(policy.instance)),
        readable=True,
        broken=manifests.broken | {problem.location.path for problem in skipped},
        removed=removals.by_key,
        unproven=removals.unproven,
        standing=standing,
        published=opened.published,
    )


def _removals(
    opened: OpenControl, policy: Policy, declared_now: _Declared, state: State, standing: Standing
) -> Removals:
    manifests = declared_now.manifests
    declared = {*(variant_key(item.key) for item in manifests.variants), *manifests.stalled}
    declared |= {set_key(item.key) for item in manifests.sets}
    declared |= {ObjectKey(GROUP, "Repository", *item.key) for item in declared_now.registrations}
    authored = [r for r in state.records.values() if not r.requested_by and not cluster_of(r.key)]
    recorded = {(record.manifest, owner_key(record)) for record in authored}
    recorded |= {
        (place.registration, ObjectKey(GROUP, "Repository", record.namespace, place.repository))
        for record in authored
        for place in record.downstreams
        if place.registration
    }
    absent = {item for item in recorded if item[1] not in declared and item[0] not in manifests.broken}
    if not absent or standing.is_outdated:
        return Removals()

    return find_removals(ControlHistory(opened), opened.commit.oid, absent, standing, policy)


def _recorded_files(state: State) -> set[str]:
    records = state.records.values()
    declared = {record.manifest for record in records}
    declared |= {place.registration for record in records for place in record.downstreams} - {""}
    return declared | {record.manifest for record in state.set_records.values()}


def _cluster_registrations(snapshot: Snapshot, policy: Policy) -> Iterator[Registration | Problem]:
    """Yield the Repositories of the cluster, and the problems of invalid ones."""
    for item in snapshot.of_kind(REPOSITORY, "Repository"):
        key = ObjectName(item.namespace or policy.default_namespace, item.name)
        parsed = parse_model(Repository, {k: v for k, v in item.body.items() if k != "status"})
        parsed = check_keys("Repository", item.body) or parsed
        if isinstance(parsed, Repository):
            yield Sourced(key, parsed, Source(item.location, snapshot.time))
            continue
        for error in parsed:
            problem = Problem(item.location, error.reason, error.message, error.hint)
            yield problem.owned_by(ObjectKey(GROUP, "Repository", *key))


def _merged(manifests: Manifests, registered: Iterable[Registration]) -> list[Registration]:
    """Return every registration; a manifest, even an invalid one, takes precedence over the cluster's."""
    mine = {r.key for r in manifests.repositories}
    mine |= {ObjectName(k.namespace, k.name) for k in manifests.stalled if k.kind == "Repository"}
    return [*manifests.repositories, *(r for r in registered if r.key not in mine)]


def _describe_views(
    content: "_ControlContent", options: ReadOptions, mirrors: Mirrors
) -> Mapping[ObjectName, RepositoryView]:
    """Return the views, opened at their absolute addresses, each with its manifest as written."""
    policy, control = content.inventory.policy, options.control.mirror
    written = {r.key: r for r in content.declared.registrations}
    located = [_located(r, control) for r in written.values()]
    former, broken = find_former(content.inventory, located, written) if options.deep else ({}, {})
    written |= {key: place.registration for key, place in former.items()}
    located += [_located(place.registration, control) for place in former.values()]
    allowed = address_check(policy, control)
    checks = (snapshot_check(policy), allowed, options.check) if options.deep else (snapshot_check(policy),)

    def check(view: RepositoryView) -> Problem | None:
        # The address of a former place is of the state branch, which no proposed change chooses.
        some = (allowed,) if view.key in former else checks
        return next((problem for refuse in some if (problem := refuse(view))), None)

    described = describe_repositories(located, mirrors, policy, check, home=control.url)
    views = {key: replace(view, manifest=written[key].manifest) for key, view in described.items()}
    views |= {key: replace(views[key], former=place.former) for key, place in former.items() if key in views}
    return views | {key: unusable(views[key], error) for key, error in broken.items() if key in views}


def _located(registration: Registration, control: Mirror) -> Registration:
    manifest = registration.manifest
    if manifest.spec.git is None:
        return registration
    git = manifest.spec.git.model_copy(update={"repo": _address(manifest.spec.git.repo, control.remote)})
    spec = manifest.spec.model_copy(update={"git": git})
    return replace(registration, manifest=manifest.model_copy(update={"spec": spec}))


@cache
def _address(remote: str, control: str) -> str:
    # Kept: a thousand registrations may name one repository.
    try:
        return absolute_remote(remote, control)
    except UnavailableError:
        return remote


def _skipped_files(
    opened: OpenControl, policy: Policy, manifests: Manifests, state: State
) -> Iterator[Problem]:
    """Yield a problem for each unread file that declared something: it is unknown, not absent."""
    declared = {p for p in _recorded_files(state) if not is_below(p, policy.snapshot.path)}
    for path in sorted(declared - manifests.files):
        why = next((unread.why for unread in manifests.unread if is_below(path, unread.path)), "")
        if not why and opened.objects.blob_at(opened.commit.oid, path):
            why = "it is not among the manifests any more"
        if why:
            message = f"The file declared manifests and was not read: {why}; what they own is kept"
            hint = f"Add it to spec.manifests of {policy.config_path}, or remove the file."
            yield Problem(Location(path), Reason.MANIFEST_UNREADABLE, message, hint)
    for path in manifests.missing:
        if not any(is_below(file, path) for file in declared):
            hint = "Correct spec.manifests, or create it."
            message = f"Manifest path {path} does not exist"
            where = policy.manifest_location(path)
            yield Problem(where, Reason.MANIFEST_UNREADABLE, message, hint)

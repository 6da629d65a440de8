"""The run of `doctor`: check the set-up of an instance and of every repository. Writes nothing."""

import os
import shutil
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import ConfigurationError, ReconcilerError, UnavailableError, UsageError
from reconciler.base.progress import track
from reconciler.base.reasons import Reason
from reconciler.base.text import Text, plural, time_text
from reconciler.dependencies.catalog.index import read_index
from reconciler.forge.registry import Forges
from reconciler.git.command import run_git
from reconciler.git.push import check_push
from reconciler.git.urls import local_path
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.names.ids import ObjectName
from reconciler.names.refs import HEADS
from reconciler.policy import ForgeKind, Policy, find_rule
from reconciler.read.forges import commit_signing, find_credentials
from reconciler.run.options import RunOptions
from reconciler.run.plan import RunInputs, read_inputs


class Severity(StrEnum):
    """Weight of a finding: an error keeps something from working."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Diagnosis(NamedTuple):
    """Result of one check of one subject, such as a repository; the hint is the next step."""

    check: str
    subject: str
    severity: Severity = Severity.OK
    message: Text = ""
    hint: Text = ""


_RESERVED = ("drafts", "proposed", "reconciler")


_AHEAD_S = 300
"""A commit may be this much newer than the clock: clocks of servers differ."""


_ELSEWHERE = frozenset({Reason.REPOSITORY_UNAVAILABLE, Reason.NO_MATCHING_TARGETS})
"""Problems that are findings of their own, or that the fleet has and no set-up."""


def diagnose(options: RunOptions) -> tuple[Diagnosis, ...]:
    """Return the finding of every check, in the order in which a run needs what they check.

    Raises:
        UsageError: There is no control repository.
    """
    try:
        version = run_git(["--version"]).out.decode(errors="replace").strip()
    except UnavailableError as error:
        return (_error("git", "the git command", error),)
    findings = [Diagnosis("git", version)]
    forges = Forges(writes=False)
    try:
        inputs = read_inputs(options, forges)
    except UsageError:
        raise
    except ConfigurationError as error:
        for part in error.parts:
            where = str(part.location or "reconciler.yaml")
            findings.append(Diagnosis("configuration", where, Severity.ERROR, part.message, part.hint))
        return tuple(findings)
    except ReconcilerError as error:
        return (*findings, _error("control repository", options.control, error))
    inventory = inputs.inventory
    findings += [
        Diagnosis("configuration", f"{inventory.policy.config_path} of instance {inventory.policy.instance}"),
        Diagnosis("control repository", inventory.control.remote),
        *(_warning("control repository", inventory.control.remote, note, "") for note in inventory.notes),
        *_manifests(inputs),
        *_index(inventory),
        *_tokens(inventory.policy),
        *_engines(inventory.policy),
        *_clock(inventory, forges.clock.now()),
        *_snapshots(inventory),
    ]
    urls = sorted({view.url for view in inventory.repositories.values()})
    for url in track(urls, "checking repositories"):
        try:
            with guard(f"repository {url}"):
                findings += [*_repository(url, inputs)]
        except DefectError as error:
            findings.append(_error("repository", url, error))
    return tuple(findings)


def _error(check: str, subject: str, error: ReconcilerError) -> Diagnosis:
    return Diagnosis(check, subject, Severity.ERROR, str(error), error.hint)


def _warning(check: str, subject: str, message: str, hint: str) -> Diagnosis:
    return Diagnosis(check, subject, Severity.WARNING, message, hint)


def _manifests(inputs: RunInputs) -> Iterator[Diagnosis]:
    inventory = inputs.inventory
    problems = [p for p in inventory.problems if p.reason not in _ELSEWHERE]
    for problem in problems:
        yield Diagnosis("manifests", str(problem.location), Severity.ERROR, problem.message, problem.hint)
    if not problems:
        count = len(inventory.variants) + len(inventory.sets) + len(inventory.repositories)
        yield Diagnosis("manifests", f"{plural(count, 'manifest')} read")
    if not inputs.has_manifests:
        hint = "Write some there, or correct spec.manifests: `reconciler init` writes the first ones."
        yield _warning(
            "manifests",
            inventory.policy.manifest_places,
            "There is no manifest, so no repository was checked",
            hint,
        )


def _index(inventory: Inventory) -> Iterator[Diagnosis]:
    """Check the versions of the index; files that cannot be read are among the manifests' problems."""
    contents = read_index(inventory.index)
    for problem in [problem for problem in contents.problems if problem not in inventory.problems]:
        yield Diagnosis("index", str(problem.location), Severity.ERROR, problem.message, problem.hint)
    if inventory.index and not contents.problems:
        yield Diagnosis("index", f"{plural(len(contents.candidates), 'version')} read")


def _tokens(policy: Policy) -> Iterator[Diagnosis]:
    """Check that each credential is there; whether a server accepts it is seen at its repositories."""
    find = find_credentials(policy, os.environ)
    for rule in policy.credentials:
        if rule.app_id:
            continue  # a GitHub App's token is made by the forge, when its repositories are read
        try:
            find(rule.prefix)
        except ReconcilerError as error:
            yield _error("credentials", rule.prefix, error)
        else:
            yield Diagnosis("credentials", rule.prefix)
    if policy.commits.sign:
        try:
            commit_signing(policy.commits, os.environ).check_key()
        except ReconcilerError as error:
            yield _error("signing key", "spec.commits", error)
        else:
            yield Diagnosis("signing key", "spec.commits")


def _engines(policy: Policy) -> Iterator[Diagnosis]:
    engine = policy.functions.runtime
    if engine and shutil.which(engine) is None:
        message = f"The engine {engine} of spec.functions.runtime was not found"
        yield Diagnosis(
            "engines", engine, Severity.ERROR, message, f"Install {engine}, or choose another one."
        )
    elif engine:
        yield Diagnosis("engines", engine)
    for name, path in sorted(policy.functions.exec.items()):
        if os.access(path, os.X_OK) and Path(path).is_file():
            yield Diagnosis("engines", path)
        else:
            message = f"The executable {path} of function {name} is not there, or may not be executed"
            hint = "Install it, or correct spec.functions.exec."
            yield Diagnosis("engines", name, Severity.ERROR, message, hint)


def _clock(inventory: Inventory, now: float) -> Iterator[Diagnosis]:
    heads = ((view.head, view.key.name) for view in inventory.repositories.values() if view.head)
    commit, place = max(
        ((inventory.control.commit, "the control repository"), *heads), key=lambda head: head[0].time
    )
    if commit.time > now + _AHEAD_S:
        message = f"Commit {commit.oid[:8]} of {place} is dated {time_text(commit.time)}, in the future"
        hint = "Set the clock of this machine, or find out which machine made that commit."
        yield Diagnosis("clock", "this machine", Severity.ERROR, message, hint)
    else:
        yield Diagnosis("clock", "this machine")


def _snapshots(inventory: Inventory) -> Iterator[Diagnosis]:
    snapshot = inventory.snapshot
    every = [snapshot, *snapshot.clusters.values()] if snapshot.present else [*snapshot.clusters.values()]
    selects = any(
        target.object_selector for pvs in inventory.sets for target in pvs.manifest.spec.targets or ()
    )
    if not every and selects:
        hint = "Import one with `reconciler snapshot import`: sets select objects of clusters."
        yield _warning("snapshot", inventory.policy.snapshot.path, "There is no snapshot", hint)
    for cluster_snapshot in every:
        taken = cluster_snapshot.time if cluster_snapshot.taken is None else cluster_snapshot.taken
        age = inventory.control.commit.time - taken
        if age > inventory.policy.snapshot.max_age_s:
            message = (
                f"It is {age // 3600} hours older than the control repository, so nothing is deleted by it"
            )
            yield _warning(
                "snapshot",
                cluster_snapshot.path or cluster_snapshot.cluster,
                message,
                "Import the cluster again with `reconciler snapshot import`.",
            )
        elif not cluster_snapshot.complete:
            hint = "Import it with `reconciler snapshot import`, which says what it lists completely."
            message = "It lists no kind completely, so nothing is deleted because an object is not there"
            yield _warning("snapshot", cluster_snapshot.path or cluster_snapshot.cluster, message, hint)
        else:
            yield Diagnosis("snapshot", cluster_snapshot.path or cluster_snapshot.cluster)


def _repository(url: str, inputs: RunInputs) -> Iterable[Diagnosis]:
    inventory = inputs.inventory
    every = sorted((v for v in inventory.repositories.values() if v.url == url), key=lambda view: view.key)
    unread = list(_unread(every))
    views = [view for view in every if view.is_available]
    if not views:
        return unread
    view = views[0]
    return [
        *unread,
        Diagnosis("reach", view.remote),
        *(finding for view in views for finding in _branches(view)),
        *(finding for view in views for finding in _directory(view)),
        *_tags(view),
        *_rights(views, inputs),
        *_forge(view, inventory),
    ]


def _unread(views: Iterable[RepositoryView]) -> Iterator[Diagnosis]:
    """Yield why views of one repository were not read, each reason once."""
    messages = set()
    for view in views:
        if view.problem is not None and view.problem.message not in messages:
            messages.add(view.problem.message)
            message, hint = view.problem.message, view.problem.hint
            yield Diagnosis("reach", f"Repository {view.key}", Severity.ERROR, message, hint)


def _branches(view: RepositoryView) -> Iterator[Diagnosis]:
    subject = f"Repository {view.key}"
    blocking = sorted(name for name in view.branches if name in _RESERVED)
    for name in blocking:
        message = f"The branch {name} is in the way of branches {name}/…, which drafts need"
        yield Diagnosis("branches", subject, Severity.ERROR, message, f"Rename the branch {name}.")
    if not blocking:
        yield Diagnosis("branches", subject)


def _directory(view: RepositoryView) -> Iterator[Diagnosis]:
    """Check that the directory of upstreams is there; the first package of a cluster makes its own."""
    if view.deployment or not view.directory or view.packages or view.directory in view.directories:
        return
    message = f"Branch {view.branch} of {view.remote} has no directory {view.directory}"
    hint = "Correct spec.git.directory, or publish a package there."
    yield _warning("directory", f"Repository {view.key}", message, hint)


def _tags(view: RepositoryView) -> Iterator[Diagnosis]:
    """Check for tags that are prefixes of package revisions: Git has no tag `web` beside `web/v1`."""
    paths = set(view.packages)
    blocking = sorted(name for name in view.tags if name in paths)
    for name in blocking:
        message = f"The tag {name} is in the way of tags {name}/v…, which name the revisions of the package"
        yield Diagnosis("tags", view.remote, Severity.ERROR, message, f"Rename or delete the tag {name}.")
    if not blocking:
        yield Diagnosis("tags", view.remote)


def _rights(views: Iterable[RepositoryView], inputs: RunInputs) -> Iterator[Diagnosis]:
    """Check that this run may push, where packages are written; only reading is needed elsewhere."""
    inventory = inputs.inventory
    downstreams = (
        (variant.key.namespace, variant.manifest.spec.downstream) for variant in inventory.variants
    )
    targets = {ObjectName(namespace, (target and target.repo) or "") for namespace, target in downstreams}
    written = (view for view in views if view.head is not None and (inventory.sets or view.key in targets))
    view = next(written, None)
    if view is None or view.head is None:
        return
    why = check_push(inputs.mirrors.open(view.remote), f"{HEADS}{view.branch}", view.head.oid)
    if why:
        hint = "Give the token or key the right to write, or make the directory writable."
        yield Diagnosis("rights", view.remote, Severity.ERROR, f"It cannot be written: {why}", hint)
    else:
        yield Diagnosis("rights", view.remote)


def _forge(view: RepositoryView, inventory: Inventory) -> Iterator[Diagnosis]:
    rule = find_rule(inventory.policy.forges, view.remote)
    unreadable = inventory.unreadable_pulls.get(view.url, ())
    for pull in unreadable:
        message = f"Pull request {pull.number} cannot be read: {pull.unreadable}"
        yield _warning("forge", view.remote, message, "Update reconciler, or close the pull request.")
    if rule is None and local_path(view.remote) is None:
        message = "No rule of spec.forges matches, so pull requests are kept in Git alone"
        hint = f"Add its prefix to spec.forges, with the `type` of its forge: {', '.join(ForgeKind)}."
        yield _warning("forge", view.remote, message, hint)
    elif not unreadable:
        yield Diagnosis("forge", f"{view.remote} ({rule.kind if rule else ForgeKind.LOCAL})")

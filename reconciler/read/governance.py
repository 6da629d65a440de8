"""Govern a run: only merged configuration decides on credentials, hosts, programs and keys (D25)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Any, TypeVar, cast
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from reconciler.base.errors import ConfigurationError, Location, RefusedError, UnavailableError
from reconciler.base.reasons import Reason
from reconciler.base.values import LazyMapping
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.signing import tag_fault
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import Place, find_place, is_local_host, is_loopback, local_path, without_user
from reconciler.inventory.inventory import (
    ALWAYS_OPEN,
    Control,
    Inventory,
    Opening,
    RepositoryView,
    Trust,
    available_by_url,
)
from reconciler.names.ids import Oid, is_prefix
from reconciler.names.problems import Problem
from reconciler.names.refs import TAGS
from reconciler.policy import Policy, VerifyRule, find_rule, govern
from reconciler.policy.pull_requests import next_opening
from reconciler.read.configuration import FILE, parse_configuration
from reconciler.read.control import OpenControl, absolute_remote, find_default_tip, is_merged, open_commit
from reconciler.read.repositories.discovery import is_of_cluster
from reconciler.read.state import read_image_digests, with_image_digests

T = TypeVar("T")


def read_opening(policy: Policy, now_s: float) -> Opening:
    """Return whether pull requests may be opened now, by the schedule in its time zone."""
    requests = policy.pull_requests
    if not requests.schedule:
        return ALWAYS_OPEN
    now = datetime.fromtimestamp(now_s, UTC).astimezone(ZoneInfo(requests.timezone))
    opens = next_opening(requests.schedule, now)
    if opens is None:
        return Opening(is_open=False)
    if opens <= now:
        return ALWAYS_OPEN
    return Opening(is_open=False, opens=f"{opens:%Y-%m-%d %H:%M} {requests.timezone}")


CONFIG_VARIABLE = "RECONCILER_CONFIG"

RepositoryCheck = Callable[[RepositoryView], Problem | None]
"""Returns the problem of a repository that must not be read."""


class SharedReads:
    """Values that were read at one moment, by what they depend on: both sides of a change read most alike."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, Any]] = {}

    def get(self, name: str, question: object, read: Callable[[], T]) -> T:
        """Return the value that an equal question had; if the last one of that name was another, read it."""
        last = self._last.get(name)
        if last is None or last[0] != question:
            last = self._last[name] = question, read()
        return cast("T", last[1])


class ReadOptions(Struct, frozen=True):
    """How to read one commit of the control repository.

    `govern` returns the policy that applies, given the one of the commit; `check` refuses repositories.
    Without `deep` only the control repository is read. With `is_proposed` the commit is not merged.
    """

    control: OpenControl
    govern: Callable[[Policy], Policy] = lambda policy: policy
    check: RepositoryCheck = lambda _: None
    deep: bool = True
    is_proposed: bool = False
    notes: tuple[str, ...] = ()
    reads: SharedReads = field(default_factory=SharedReads)


def read_options(opened: OpenControl, environment: Mapping[str, str]) -> ReadOptions:
    """Return how a command reads the commit it was started on.

    The tip of the default branch governs itself, and so does the HEAD of a working copy without a remote.
    Any other commit is governed by the tip. Repositories of an unmerged commit are read only on hosts that
    the merged configuration names.
    """
    # The same mirror twice: a bare repository, a URL or a working copy without a remote.
    if opened.mirror is opened.objects or opened.commit.oid == find_default_tip(opened.mirror):
        return ReadOptions(opened)
    merged = read_merged_policy(opened.mirror, environment)
    govern_by = policy_governor(merged)
    if is_merged(opened.mirror, opened.commit.oid):
        return ReadOptions(opened, govern_by)
    branch = opened.mirror.head_branch or "the default branch"
    note = f"Commit {opened.commit.oid} is not merged: credentials, hosts, functions and limits are "
    note += f"those of {branch}" if merged else f"the defaults, as {branch} has no readable configuration"
    return ReadOptions(
        opened, govern_by, repository_check(merged, opened.mirror), is_proposed=True, notes=(note,)
    )


def read_merged_policy(control: Mirror, environment: Mapping[str, str]) -> Policy | None:
    """Return the policy of the default branch, None if it has none or it is unreadable."""
    tip = find_default_tip(control)
    if tip is None:
        return None
    try:
        return read_policy(open_commit(control, tip), environment)
    except ConfigurationError:
        return None


def policy_governor(merged: Policy | None) -> Callable[[Policy], Policy]:
    """Return a function from a proposed policy to the one that applies; defaults govern without `merged`."""
    return lambda policy: govern(merged or Policy(instance=policy.instance), policy)


def registered_in(inventory: Inventory) -> frozenset[str]:
    """Return the normalized URLs of the repositories that a commit registers and that may be read."""
    views = inventory.repositories.values()
    refused = Reason.REPOSITORY_REFUSED
    return frozenset(view.url for view in views if not view.problem or view.problem.reason != refused)


def repository_check(
    merged: Policy | None, control: Mirror, registered: Iterable[str] = ()
) -> RepositoryCheck:
    """Return the check that refuses hosts beyond the merged ones: a change must not choose the host.

    Not refused are the host of `control` and URLs that a merged commit registers; without `merged` the
    defaults govern.
    """
    merged_urls = frozenset(registered)
    home = control.url.partition("/")[0]
    policy = merged or Policy()

    def check(view: RepositoryView) -> Problem | None:
        same_host = view.url.partition("/")[0] == home and (control.is_local or home)
        named = find_rule(policy.credentials, view.remote) or find_rule(policy.forges, view.remote)
        if view.url in merged_urls or same_host or named:
            return None
        message = f"{view.remote} is on a host that the merged configuration does not name; it was not read"
        hint = "Name its prefix in spec.credentials or spec.forges first, or merge without this comparison."
        return view.problem_at(Reason.REPOSITORY_REFUSED, message, hint)

    return check


def address_check(policy: Policy, control: Mirror) -> RepositoryCheck:
    """Return the check that refuses addresses beyond `spec.addresses`; the control repository is allowed."""

    def check(view: RepositoryView) -> Problem | None:
        if view.url == control.url or is_allowed(view.remote, policy, control):
            return None
        message = f"{view.remote} is not an address that the configuration allows; it was not read"
        hint = f"Add its prefix to spec.addresses of {policy.config_path}, if that is meant."
        return view.problem_at(Reason.REPOSITORY_REFUSED, message, hint)

    return check


def is_allowed(remote: str, policy: Policy, control: Mirror | None) -> bool:
    """Tell whether `spec.addresses` allows the address of a repository.

    Without that list https and ssh are allowed anywhere, paths and loopback addresses only if the control
    repository is on this machine too, and plain http never. What a person names, with no control repository
    at all, is allowed then.
    """
    if policy.addresses:
        return any(is_prefix(prefix, remote) for prefix in policy.addresses)
    if control is None:
        return True
    place = find_place(remote)
    if place.scheme == "file" or is_local_host(place.host):
        return control.is_local or is_loopback(control.remote)
    return not remote.lower().startswith("http://")


def open_allowed(remote: str, policy: Policy, mirrors: Mirrors, control: Mirror | None = None) -> Mirror:
    """Return the mirror of a repository that no Repository registers, without reading it.

    Raises:
        RefusedError: Its address is not allowed.
        UnavailableError: It is unusable.
    """
    if not is_allowed(remote, policy, control):
        hint = "Add its prefix to spec.addresses of reconciler.yaml, if that is meant."
        raise RefusedError(
            f"{without_user(remote)} is not an address that the configuration allows", hint=hint
        )
    return mirrors.open(remote)


def snapshot_check(policy: Policy) -> RepositoryCheck:
    """Return the check that refuses repositories which only a snapshot names, unless they are allowed.

    Whoever may publish in a cluster would else choose where packages are pushed to.
    """

    def check(view: RepositoryView) -> Problem | None:
        if policy.snapshot.repositories or not is_of_cluster(view, policy):
            return None
        message = f"Only a snapshot names {view.remote}, which the configuration does not allow"
        hint = (
            f"Add its Repository to the manifests, or write `spec: {{snapshot: {{repositories: true}}}}` in "
            f"{policy.config_path} to use whatever repositories the clusters name."
        )
        return view.problem_at(Reason.REPOSITORY_REFUSED, message, hint)

    return check


def read_policy(opened: OpenControl, environment: Mapping[str, str]) -> Policy:
    """Return the policy of the opened commit.

    Raises:
        ConfigurationError: There is no configuration, or it cannot be trusted.
    """
    path = environment.get(CONFIG_VARIABLE) or FILE
    blob = opened.objects.blob_at(opened.commit.oid, path)
    data = None
    if blob is not None:
        opened.objects.ensure([blob])
        try:
            data = opened.objects.blob(blob, Policy().limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The configuration was not read: {error.reason}"
            raise ConfigurationError(message, location=Location(path)) from error
    policy = parse_configuration(data, path, environment)
    return _with_reviewed_images(opened, policy) if policy.lock.is_reviewed else policy


def _with_reviewed_images(opened: OpenControl, policy: Policy) -> Policy:
    # Like the policy, locked digests decide which code runs: without them nothing may.
    images = read_image_digests(opened.objects, opened.commit.oid, policy.limits.manifest_bytes)
    if (problem := images.problem) is not None:
        raise ConfigurationError(problem.message, location=problem.location, hint=problem.hint)
    return with_image_digests(policy, images.lock)


_MOST_BYTES = 1 << 20


def read_trust(inventory: Inventory, mirrors: Mirrors) -> Mapping[str, Trust]:
    """Return what is verified of every repository that a rule of `spec.verify` is about, by URL."""
    rules = [(_places(rule, inventory.control), rule) for rule in inventory.policy.verify]
    if not rules:
        return {}
    trust = {}
    locked = sorted({Oid(lock.commit) for lock in inventory.locks.values()})
    for url, views in available_by_url(inventory.repositories.values()).items():
        mirror = mirrors.open(views[0].remote)
        if fitting := _find_rules(rules, _places_of(mirror)):
            trust[url] = _read(mirror, fitting, locked)
    return trust


def unused_rules(policy: Policy, control: Control, views: Iterable[RepositoryView]) -> Iterator[str]:
    """Yield a note on every rule of `spec.verify` that is about no registered repository."""
    remotes = sorted({view.remote for view in views if view.remote}) if policy.verify else []
    places = [find_place(remote) for remote in remotes]
    for rule in policy.verify:
        prefixes = _places(rule, control)
        if any(prefix.covers(place) for prefix in prefixes for place in places):
            continue
        closest = max(
            remotes, key=lambda remote: SequenceMatcher(None, rule.prefix, remote).ratio(), default=""
        )
        nearest = f"the nearest registered address is {closest}" if closest else "none is registered"
        yield (
            f"{policy.config_path}:{rule.line}: the rule of spec.verify for {rule.prefix} is about no "
            f"registered repository, so it verifies nothing; {nearest}"
        )


def _places(rule: VerifyRule, control: Control) -> tuple[Place, ...]:
    """Return what the prefix of a rule means: an address, relative to the control repository like any.

    `host/path` may mean a server, too.
    """
    text = rule.prefix.strip()
    try:
        place = find_place(absolute_remote(text, control.remote))
    except UnavailableError:
        place = find_place(text)
    is_bare = local_path(text) is not None and not text.startswith((".", "/", "file:"))
    return (place, find_place(f"https://{text}")) if is_bare else (place,)


def _places_of(mirror: Mirror) -> tuple[Place, ...]:
    here = find_place(mirror.remote)
    return (here, find_place(mirror.open().path)) if mirror.is_local else (here,)


def _find_rules(
    rules: Iterable[tuple[tuple[Place, ...], VerifyRule]], places: tuple[Place, ...]
) -> tuple[VerifyRule, ...]:
    """Return the rules with the longest prefix of a repository: of several every one must be satisfied."""
    fitting: dict[int, list[VerifyRule]] = {}
    for prefixes, rule in rules:
        lengths = [len(p.steps) for p in prefixes if any(p.covers(place) for place in places)]
        if lengths:
            fitting.setdefault(max(lengths), []).append(rule)
    return tuple(fitting[max(fitting)]) if fitting else ()


def _read(mirror: Mirror, rules: Iterable[VerifyRule], locked: Iterable[Oid]) -> Trust:
    tags = {ref.removeprefix(TAGS): oid for ref, oid in mirror.refs().items() if ref.startswith(TAGS)}
    faults = {(name, oid): _fault(mirror, name, rules) for name, oid in sorted(tags.items())}
    return Trust(
        tags=frozenset(key for key, fault in faults.items() if not fault),
        faults={key: fault for key, fault in faults.items() if fault},
        # A walk through the history for each, which a plan that only moves forward does not need.
        older=LazyMapping(lambda: dict(_older(mirror, frozenset(tags.values()), locked))),
    )


def _older(
    mirror: Mirror, tagged: frozenset[Oid], locked: Iterable[Oid]
) -> Iterator[tuple[Oid, frozenset[Oid]]]:
    """Yield the tagged commits that each locked commit of a repository contains."""
    for oid in locked:
        if mirror.has(oid):
            yield oid, (mirror.ancestry(oid) & tagged) - {oid}


def _fault(mirror: Mirror, name: str, rules: Iterable[VerifyRule]) -> str:
    tag = mirror.tag_object(f"{TAGS}{name}")
    if tag is None:
        return f"{name} is no signed tag"
    try:
        data = mirror.blob(tag, _MOST_BYTES)
    except (PackageRefusedError, UnavailableError) as error:
        return f"tag {name} cannot be read: {error}"
    fault = next((fault for rule in rules if (fault := tag_fault(data, name, rule))), "")
    return f"tag {name} {fault}" if fault else ""

"""Verified revisions of upstream repositories: which tags are signed with the configured keys."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from functools import partial

from reconciler.base.errors import UnavailableError
from reconciler.base.lazy import LazyMapping
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.signatures import tag_fault
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import Place, find_place, local_path
from reconciler.inventory.inventory import Control, Inventory, RepositoryView, Trust, available_by_url
from reconciler.names.ids import Oid
from reconciler.names.refs import TAGS
from reconciler.policy import Policy, VerifyRule
from reconciler.read.control import absolute_remote

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
        closest = max(remotes, key=partial(_similarity, rule.prefix), default="")
        nearest = f"the nearest registered address is {closest}" if closest else "none is registered"
        yield (
            f"{policy.config_path}:{rule.line}: the rule of spec.verify for {rule.prefix} is about no "
            f"registered repository, so it verifies nothing; {nearest}"
        )


def _similarity(prefix: str, remote: str) -> float:
    return SequenceMatcher(None, prefix, remote, autojunk=False).ratio()


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
    """Return where a repository is: a local one also where its Git directory is."""
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

"""Who needs what, naively: a model of installs and packages that knows nothing of the resolver.

A catalogue is drawn, installs come and go, and `objections` judges the step from one lock to the next
by reading requirements off the model alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from reconciler.dependencies.model.instances import Resolved
from tests.support.dependency_manifests import install, needs, package

NAMES = tuple("abcdef")
KINDS = {"e": "Issuer", "f": "Queue"}


@dataclass(frozen=True)
class Choice:
    """One alternative of a requirement: a package between two versions, or an API."""

    name: str = ""
    low: int = 1
    high: int = 9
    kind: str = ""

    def text(self) -> str:
        if self.kind:
            return f"{{gvk: {{apiVersion: x.io/v1, kind: {self.kind}}}}}"
        return needs(f"{self.name}.io", f">={self.low}.0.0 <={self.high}.0.0")


Need = tuple[Choice, ...]
Catalogue = dict[tuple[str, int], tuple[Need, ...]]


def draw_catalogue(seed: int) -> Catalogue:
    """Draw packages that need later ones, by name, by API or by either of two."""
    random = Random(seed)

    def choice(name: str) -> Choice:
        if random.random() < 0.45:
            return Choice(kind=random.choice(sorted(KINDS.values())))
        later = [other for other in NAMES if other > name]
        low, high = sorted(random.choices((1, 2, 3), (5, 3, 1), k=2))
        return Choice(random.choice(later), low, random.choice((high, 9)))

    catalogue: Catalogue = {}
    for name in NAMES:
        for version in range(1, random.randint(2, 3)):
            count = random.choice((0, 1, 2)) if name not in KINDS else 0
            catalogue[name, version] = tuple(
                tuple(choice(name) for _ in range(random.choice((1, 1, 2)))) for _ in range(count)
            )
    return catalogue


def catalogue_text(catalogue: Catalogue) -> str:
    texts = []
    for (name, version), required in catalogue.items():
        lines = [
            need[0].text() if len(need) == 1 else "{or: [" + ", ".join(c.text() for c in need) + "]}"
            for need in required
        ]
        kind = KINDS.get(name)
        provides = [f"provides: [{{apiVersion: x.io/v1, kind: {kind}}}]"] if kind else []
        texts.append(package(f"{name}.io", f"{version}.0.0", *lines, *provides))
    return "".join(texts)


@dataclass(frozen=True)
class Ask:
    """A user's install of a package."""

    name: str
    high: int = 9
    declined: frozenset[str] = frozenset()
    orphans: bool = False

    def text(self) -> str:
        overrides = ", ".join(f"{{refName: {name}.io, install: false}}" for name in sorted(self.declined))
        policy = ", deletePolicy: orphan" if self.orphans else ""
        return install(
            f"my-{self.name}",
            f"{self.name}.io",
            f"<={self.high}.0.0",
            f"dependencies: {{override: [{overrides}]{policy}}}",
        )


@dataclass
class Cluster:
    """What the users of one cluster ask for, and what it serves itself."""

    asks: dict[str, Ask] = field(default_factory=dict)
    served: frozenset[str] = frozenset()

    def text(self) -> str:
        served = ", ".join(f"x.io/v1/{kind}" for kind in sorted(self.served))
        return (
            "".join(ask.text() for ask in self.asks.values()) + f"---\n{{kind: Cluster, apis: [{served}]}}\n"
        )


@dataclass(frozen=True)
class Locked:
    """The packages of a lock by name with their major versions, those of users, and those that are unused."""

    versions: Mapping[str, int] = field(default_factory=dict)
    users: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()

    @property
    def generated(self) -> frozenset[str]:
        return frozenset(self.versions) - self.users


def read_locked(packages: Iterable[Resolved], unused: Iterable[str]) -> Locked:
    """Read a lock; of a package that is there twice the user's own counts."""
    ordered = sorted(packages, key=lambda one: one.by_user)
    versions = {one.instance.name.removesuffix(".io"): int(one.version.split(".")[0]) for one in ordered}
    users = {one.instance.name.removesuffix(".io") for one in ordered if one.by_user}
    return Locked(versions, frozenset(users), frozenset(name.removesuffix(".io") for name in unused))


def is_met(need: Need, locked: Mapping[str, int], served: frozenset[str]) -> bool:
    """Whether a requirement is satisfied by what is locked or served."""
    return any(
        choice.kind in served or any(KINDS.get(name) == choice.kind for name in locked)
        if choice.kind
        else choice.low <= locked.get(choice.name, 0) <= choice.high
        for choice in need
    )


def users_of(name: str, locked: Locked, catalogue: Catalogue) -> Iterator[tuple[str, Need]]:
    """Yield the locked packages that a package can satisfy, with the requirement."""
    for parent, version in locked.versions.items():
        for need in catalogue.get((parent, version), ()):
            if any(
                choice.name == name or (choice.kind and choice.kind == KINDS.get(name)) for choice in need
            ):
                yield parent, need


def is_sound(locked: Mapping[str, int], catalogue: Catalogue, served: frozenset[str]) -> bool:
    """Whether everything that locked packages need is there."""
    return all(is_met(need, locked, served) for item in locked.items() for need in catalogue.get(item, ()))


def objections(
    before: Locked, after: Locked, cluster: Cluster, catalogue: Catalogue, *, solved: bool, upgrade: str = ""
) -> Iterator[str]:
    """Yield what a step did that no reader of the manifests would expect."""
    for parent, version in after.versions.items():
        for need in catalogue.get((parent, version), ()) if parent not in after.unused else ():
            held = before.versions.get(parent) == version and is_met(need, before.versions, frozenset())
            if (solved or held) and not is_met(need, after.versions, cluster.served):
                yield f"{parent} {version} needs {need}, which is gone"
    for name in sorted(after.generated - after.unused):
        parents = [parent for parent, _ in users_of(name, after, catalogue)]
        if not parents and solved:
            yield f"{name} is required by nothing"
        declining = [p for p in parents if name in (cluster.asks[p].declined if p in cluster.asks else ())]
        if name not in before.versions and parents and declining == parents:
            yield f"{name} was declined by {declining} and is installed"
    if not solved:
        return
    for name, ask in cluster.asks.items():
        if not 1 <= after.versions.get(name, 0) <= ask.high:
            yield f"{name} <= {ask.high} is asked for, and {after.versions.get(name)} is locked"
    for name in sorted(before.generated & after.generated):
        old = {**after.versions, name: before.versions[name]}
        moved = before.versions[name] != after.versions[name] and name != upgrade
        if moved and is_sound(old, catalogue, cluster.served):
            yield f"{name} moved from {before.versions[name]} to {after.versions[name]} without need"


def with_need(catalogue: Catalogue, *, name: str = "", kind: str = "") -> list[str]:
    """Return the packages that in their highest version need a package or an API alone; or any of them."""
    highest = {own: max(v for other, v in catalogue if other == own) for own, _ in catalogue}
    return sorted(
        own
        for own, version in highest.items()
        for need in catalogue[own, version]
        if len(need) == 1
        and need[0].kind == kind
        and (need[0].name == name or not (name or kind))
        and own not in KINDS
    )


def orphans_of(ask: Ask, locked: Locked, catalogue: Catalogue) -> frozenset[str]:
    """Return the generated packages that a removed install leaves behind: those that only it required."""
    if not ask.orphans:
        return frozenset()
    required = {
        choice.name
        for need in catalogue.get((ask.name, locked.versions.get(ask.name, 0)), ())
        for choice in need
        if len(need) == 1 and choice.name
    }
    return frozenset(required) & locked.generated

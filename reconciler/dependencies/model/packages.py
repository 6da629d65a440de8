"""Packages in versions, what they need and what they provide, in the terms of every dialect."""

import functools
import re
from enum import StrEnum
from typing import NamedTuple, Self

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from reconciler.base.errors import Location
from reconciler.base.values import PartlyCompared
from reconciler.dependencies.versions import (
    Constraint,
    Grammar,
    Prereleases,
    Version,
    VersionPolicy,
    carvel_keeps,
    is_digest,
    parse_constraint,
)
from reconciler.inventory.snapshot import StoredKind
from reconciler.names.ids import GroupKind

Pairs = tuple[tuple[str, str], ...]
"""A small map as a sorted tuple, so that it can be part of an identity."""


class Dialect(StrEnum):
    """Ecosystem of the manifest of a requirement; it decides how versions are parsed and compared."""

    CROSSPLANE = "crossplane"
    CARVEL = "carvel"
    PORTER = "porter"
    KPT = "kpt"

    @property
    def grammar(self) -> Grammar:
        """The constraint grammar of this dialect; kpt packages declare needs in Carvel's words."""
        masterminds = self in (Dialect.CROSSPLANE, Dialect.PORTER)
        return Grammar.MASTERMINDS if masterminds else Grammar.CARVEL


class Ecosystem(StrEnum):
    """Where names of packages come from; no two ecosystems share a name."""

    XPKG = "xpkg"
    CARVEL = "carvel"
    BUNDLE = "bundle"
    KPT = "kpt"

    @property
    def dialect(self) -> Dialect:
        """The dialect of the manifests that install packages of this ecosystem."""
        named = {Ecosystem.XPKG: Dialect.CROSSPLANE, Ecosystem.BUNDLE: Dialect.PORTER}
        return named.get(self) or Dialect(self)


class PackageId(NamedTuple):
    """A package regardless of version."""

    ecosystem: Ecosystem
    name: str

    def __str__(self) -> str:
        return f"{self.ecosystem}:{self.name}"


class Gvk(NamedTuple):
    """One served API."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> Self:
        """Return the API of a manifest."""
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind)

    def __str__(self) -> str:
        return f"{'/'.join(part for part in (self.group, self.version) if part)}/{self.kind}"

    @property
    def group_kind(self) -> GroupKind:
        """The group and kind that a single CustomResourceDefinition defines, in all of its versions."""
        return GroupKind(self.group, self.kind)


LABEL_LENGTH = 63
"""The most bytes of a DNS label."""
VARIANT_KIND = "PackageVariant"
"""The kind of installs that represent variants."""


def dns_label(image: str) -> str:
    """Return the name that Crossplane's package manager gives a dependency: its path in the registry.

    Source: crossplane internal/xpkg, ToDNSLabel.
    """
    address = image.partition("://")[2] or image
    _, slash, path = address.partition("/")
    label = re.sub(r"[^a-z0-9]+", "-", (path if slash else address).lower()).strip("-")
    return label[:LABEL_LENGTH].strip("-")


class Platform(StrEnum):
    """Platforms that packages of a cluster depend on."""

    KUBERNETES = "kubernetes"
    CROSSPLANE = "crossplane"
    KAPP_CONTROLLER = "kapp-controller"


class InstallationType(StrEnum):
    """How often a package may be installed in one cluster, in the terms of Carvel."""

    ONE_PER_CLUSTER = "onePerCluster"
    ONE_PER_NAMESPACE = "onePerNamespace"
    NO_RESTRICTIONS = "noRestrictions"


class VersionRange(PartlyCompared, frozen=True):
    """Which versions satisfy a requirement, in the words and by the rules of its dialect.

    An empty text means any version. `releases_only` is Porter's rule for its second generation:
    no pre-release, even where the range names one.
    """

    UNCOMPARED = frozenset({"constraint"})

    dialect: Dialect
    text: str = ""
    prereleases: Prereleases = None
    releases_only: bool = False
    constraint: Constraint | None = None

    def __str__(self) -> str:
        return self.text or "any version"

    def allows(self, version: Version, digest: str = "") -> bool:
        """Whether a package of this version and content satisfies the range."""
        if self.releases_only and version.prerelease:
            return False
        if self.dialect is Dialect.CARVEL or self.dialect is Dialect.KPT:
            return carvel_keeps(self.constraint, self.prereleases, version)
        return self.constraint is None or self.constraint.allows(version, digest=digest)


@functools.lru_cache(maxsize=4096)  # versions of one package ask for the same ranges
def version_range(
    dialect: Dialect, text: str, *, prereleases: Prereleases = None, releases_only: bool = False
) -> VersionRange:
    """Read a requirement's version in its dialect.

    Raises:
        VersionError: The text is neither a constraint nor, for Crossplane, a digest.
    """
    if dialect is Dialect.CROSSPLANE and is_digest(text):
        parsed: Constraint | None = Constraint(text, Grammar.MASTERMINDS, digest=text)
    else:
        parsed = parse_constraint(text, dialect.grammar) if text else None
    return VersionRange(dialect, text, prereleases, releases_only, parsed)


def exact_range(dialect: Dialect, text: str) -> VersionRange:
    """Return the range of one version or digest that its author named, whatever else the grammar would admit.

    Raises:
        VersionError: The text is no version in this dialect.
    """
    if is_digest(text):
        return VersionRange(dialect, text, (), constraint=Constraint(text, Grammar.MASTERMINDS, digest=text))
    return version_range(dialect, f"={text}" if dialect.grammar is Grammar.MASTERMINDS else text)


class PackageNeed(PartlyCompared, frozen=True):
    """A package in a range of versions; `location` is where that range is written.

    `kind` is the kind that installs the package, where the need has one.
    """

    UNCOMPARED = frozenset({"location", "kind"})

    id: PackageId
    range: VersionRange
    location: Location = Location("")
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.id.name} {self.range}" if self.range.text else self.id.name


class ApiNeed(PartlyCompared, frozen=True):
    """A served API; an empty version means any version of that kind.

    `provider` narrows who may serve it: the fields of an API can grow without a new version of
    it, and then only the version of the package that brings it tells whether they are there.
    """

    UNCOMPARED = frozenset({"location"})

    gvk: Gvk
    provider: PackageNeed | None = None
    location: Location = Location("")

    def __str__(self) -> str:
        return f"the API {self.gvk} of {self.provider}" if self.provider else f"the API {self.gvk}"


class InterfaceNeed(Struct, frozen=True):
    """Any package that implements an interface: version is the interface's, not the package's."""

    id: str
    range: VersionRange
    outputs: Pairs = ()
    parameters: Pairs = ()
    credentials: Pairs = ()

    def __str__(self) -> str:
        return f"the interface {self.id} {self.range}" if self.range.text else f"the interface {self.id}"


Need = PackageNeed | ApiNeed | InterfaceNeed


class PlatformNeed(PartlyCompared, frozen=True):
    """A range of versions of a platform."""

    UNCOMPARED = frozenset({"location"})

    platform: Platform
    range: VersionRange
    location: Location = Location("")

    def __str__(self) -> str:
        return f"{self.platform} {self.range}"


class Sharing(StrEnum):
    """Scope in which requirements share one instance."""

    DIALECT = "dialect"
    EXCLUSIVE = "exclusive"
    NAMESPACE = "namespace"
    GLOBAL = "global"


class Share(Struct, frozen=True):
    """How an existing installation is matched, and how a new one is made."""

    scope: Sharing = Sharing.DIALECT
    group: str = ""
    labels: Pairs = ()
    inputs: Pairs = ()


class Actions(Struct, frozen=True):
    """Which actions on a package also reach its dependency."""

    upgrade: bool = True
    invoke: bool = True
    uninstall: bool = True


DEFAULT_ACTIONS = Actions(upgrade=False)
"""Actions of dialects without own ones: versions stay while they fit, unused dependencies are removed."""


class InputKind(StrEnum):
    """Kinds of inputs of a bundle: values, and secrets by reference."""

    PARAMETER = "parameter"
    CREDENTIAL = "credential"


class BundleInput(NamedTuple):
    """An input of a bundle."""

    kind: InputKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Requirement(PartlyCompared, frozen=True):
    """One dependency: one of several alternatives, tried in order.

    `aliases` are those of the single alternatives, where one has its own.
    `default` is the package to create where only an interface is asked for. `install` False
    means that only what is there or planned for other reasons counts; of the alternatives in `declined`
    it is true one by one. `wired` tells that data flows from the dependency, so that the two have an
    order; `after` are the aliases of further dependencies that give it outputs. `gives` are the credentials
    that it gets when the bundle of its parent runs, `parameters` the parameters, with their values as JSON,
    `uses` the outputs of it, and the parameters, that the one who needs it works with.
    """

    UNCOMPARED = frozenset({"location"})

    alternatives: tuple[Need, ...]
    alias: str = ""
    aliases: tuple[str, ...] = ()
    optional: bool = False
    install: bool = True
    share: Share = Share()
    actions: Actions = Actions()
    default: PackageNeed | None = None
    wired: bool = False
    after: tuple[str, ...] = ()
    gives: tuple[BundleInput, ...] = ()
    parameters: Pairs = ()
    uses: tuple[str, ...] = ()
    declined: tuple[int, ...] = ()
    location: Location = Location("")

    def __str__(self) -> str:
        return " or ".join(map(str, self.alternatives))

    def alias_of(self, alternative: int) -> str:
        """Return the alias of one alternative: its own, else that of the dependency."""
        return (self.aliases[alternative] if self.aliases else "") or self.alias

    @property
    def may_install_all(self) -> bool:
        """Whether something may be installed to satisfy any of the alternatives."""
        return self.install and not self.declined

    def may_install(self, alternative: int) -> bool:
        """Whether something may be installed to satisfy this alternative."""
        return self.install and alternative not in self.declined


class Interface(Struct, frozen=True):
    """An interface that a package implements, with the version of what it installs.

    `is_declared` means that the index alone names it: the shape, and a version that is missing, are
    taken on trust.
    """

    id: str
    version: Version | None = None
    outputs: Pairs = ()
    parameters: Pairs = ()
    credentials: Pairs = ()
    is_declared: bool = False

    def meets(self, need: InterfaceNeed) -> bool:
        """Whether this implementation has the name, the version and the shape that is needed."""
        return self.has_shape(need) and self.has_version(need)

    def has_version(self, need: InterfaceNeed) -> bool:
        """Whether this implementation has a version that is asked for."""
        if self.version is None:
            return self.is_declared or not need.range.text
        return not need.range.text or need.range.allows(self.version)

    def has_shape(self, need: InterfaceNeed) -> bool:
        """Whether this implementation has the name and the shape that is needed, whatever its version."""
        if self.id != need.id or self.is_declared:
            return self.id == need.id
        provided = (self.outputs, self.parameters, self.credentials)
        required = (need.outputs, need.parameters, need.credentials)
        return all(_covers(have, want) for have, want in zip(provided, required, strict=True))


def _covers(provided: Pairs, required: Pairs) -> bool:
    types = dict(provided)
    return all(name in types and (not kind or types[name] in ("", kind)) for name, kind in required)


class Candidate(PartlyCompared, frozen=True):
    """One version of a package that could be installed.

    `kind` is what installs it where a dialect has several kinds. `names` are further names that
    requirements may use. `withdrawn` is the reason not to choose it newly, `unavailable` means that
    only the lock still has it, `retain` that it has data worth keeping when nothing needs it.
    `inputs` are the required ones: parameters without a default, and credentials. `defaults` are the
    defaults of the other parameters, as JSON. `has` are all outputs and parameters, None if they are unknown.
    `functions` are the compositions with the names of the Functions that they run.
    `namespace` is the only one where it can be installed, empty for all of them.
    """

    UNCOMPARED = frozenset({"location", "functions", "_hash"})

    id: PackageId
    version: Version
    digest: str = ""
    requires: tuple[Requirement, ...] = ()
    provides: tuple[Gvk, ...] = ()
    defined: tuple[Gvk, ...] = ()
    """The kinds of its definitions, in every version, served or not."""
    interfaces: tuple[Interface, ...] = ()
    compositions: tuple[str, ...] = ()
    functions: Pairs = ()
    installation: InstallationType = InstallationType.NO_RESTRICTIONS
    platforms: tuple[PlatformNeed, ...] = ()
    names: tuple[str, ...] = ()
    withdrawn: str = ""
    unavailable: bool = False
    source: str = ""
    kind: str = ""
    inputs: tuple[BundleInput, ...] = ()
    defaults: Pairs = ()
    has: tuple[str, ...] | None = None
    labels: Pairs = ()
    keywords: tuple[str, ...] = ()
    retain: bool = False
    namespace: str = ""
    location: Location = Location("")

    _hash: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "_hash", super().__hash__())

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{self.id.name} {self.version}"

    @property
    def owned_names(self) -> list[str]:
        """The kinds and compositions that this version brings."""
        return sorted({*(str(gvk.group_kind) for gvk in self.provides), *self.compositions})

    def drops(self, stored: StoredKind) -> tuple[str, ...]:
        """Return the stored versions of a kind that its definition does not have; none without one."""
        versions = {api.version for api in self.defined if api.group_kind == stored.kind}
        return stored.dropped_by(versions) if versions else ()


class RevisionPolicy(Struct, frozen=True):
    """Revision policy of a Crossplane package.

    Unless it is `manual`, the revision that is asked for becomes the active one at once. Of the
    inactive ones the `history_limit` newest stay, all of them if it is 0. `take_over` names the packages
    that hand over their CRDs to this one; with `prune_kinds` CRDs go with the last revision that has them.
    """

    manual: bool = False
    history_limit: int = 1
    take_over: tuple[str, ...] = ()
    prune_kinds: bool = False


class ActivationRequest(PartlyCompared, frozen=True):
    """Requested state of one revision: active or inactive.

    It is the revision of this name, or the one of package object `package` with this image or digest.
    """

    UNCOMPARED = frozenset({"location"})

    kind: str
    name: str
    active: bool
    package: str = ""
    image: str = ""
    digest: str = ""
    location: Location = Location("")

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


DEFAULT_REVISION_POLICY = RevisionPolicy()
"""Policy of packages without one."""


class Override(PartlyCompared, frozen=True):
    """A user's override of one dependency: another range, or whether to install it at all."""

    UNCOMPARED = frozenset({"location"})

    name: str
    range: VersionRange | None = None
    install: bool | None = None
    location: Location = Location("")

    def applied_to(self, need: PackageNeed) -> PackageNeed:
        """Return a need in the range of this override; without one the author's stays."""
        if self.range is None:
            return need
        own_range = self.range if self.range.text else replace(need.range, prereleases=self.range.prereleases)
        return replace(need, range=own_range)


class Values(Struct, frozen=True):
    """A Secret with values for one dependency, selected by alias or by package name."""

    name: str
    secret: str
    key: str = ""


class Install(PartlyCompared, frozen=True):
    """An installation that a manifest requests, or an external one that exists already.

    `kind` and `api_version` are those of the manifest; `external` means that nothing is installed and
    only its provided APIs and interfaces count. `inherit` are settings that generated dependencies take over.
    Without `prune_dependencies` they stay when this install goes. `gives` are inputs of dependencies,
    as `alias#name`; which ones `gives_credentials` brings is not known here. `target` is the kubeconfig
    of the cluster that it installs into, `NAMESPACE/SECRET`, where that is another one. `requested` is what
    the manifest names, where it has no solution and this is what is locked for it: it keeps its locked
    version. `label` is how people call what requests it, where that is not its kind and name; no other
    install has it. `tag` is what is written beside a digest, and decides nothing.
    """

    UNCOMPARED = frozenset({"label", "location", "tag", "_hash"})

    namespace: str
    name: str
    dialect: Dialect
    need: PackageNeed
    kind: str = ""
    api_version: str = ""
    labels: Pairs = ()
    external: bool = False
    interfaces: tuple[Interface, ...] = ()
    install_dependencies: bool = True
    skip_dependencies: bool = False
    overrides: tuple[Override, ...] = ()
    bindings: Pairs = ()
    values: tuple[Values, ...] = ()
    inherit: Pairs = ()
    policy: VersionPolicy = VersionPolicy.HIGHEST
    origin: Version | None = None
    allow_downgrade: bool = False
    ignore_platforms: frozenset[Platform] = frozenset()
    revisions: RevisionPolicy = DEFAULT_REVISION_POLICY
    prune_dependencies: bool = True
    gives: tuple[str, ...] = ()
    gives_credentials: bool = False
    target: str = ""
    requested: PackageNeed | None = None
    label: str = ""
    tag: str = ""
    location: Location = Location("")

    _hash: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "_hash", super().__hash__())

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return self.label or f"{self.kind or self.dialect} {where}"

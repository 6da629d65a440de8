"""Requests of manifests: packages to be installed, and revisions to be active."""

from dataclasses import dataclass, field

from reconciler.dependencies.model.packages import (
    Dialect,
    Interface,
    PackageNeed,
    Pairs,
    Platform,
    VersionRange,
    compared_hash,
)
from reconciler.dependencies.versions import Version, VersionPolicy
from reconciler.errors import Location


@dataclass(frozen=True, slots=True)
class RevisionPolicy:
    """Revision policy of a Crossplane package.

    Unless it is `manual`, the revision that is asked for becomes the active one at once. Of the
    inactive ones the `history_limit` newest stay, all of them if it is 0. `take_over` names the packages
    that hand over their CRDs to this one; with `prune_kinds` CRDs go with the last revision that has them.
    """

    manual: bool = False
    history_limit: int = 1
    take_over: tuple[str, ...] = ()
    prune_kinds: bool = False


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """Requested state of one revision: active or inactive.

    It is the revision of this name, or the one of package object `package` with this image or digest.
    """

    kind: str
    name: str
    active: bool
    package: str = ""
    image: str = ""
    digest: str = ""
    location: Location = field(default=Location(""), compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


DEFAULT_REVISION_POLICY = RevisionPolicy()
"""Policy of packages without one."""


@dataclass(frozen=True, slots=True)
class Override:
    """A user's override of one dependency: another range, or whether to install it at all."""

    name: str
    range: VersionRange | None = None
    install: bool | None = None
    location: Location = field(default=Location(""), compare=False)


@dataclass(frozen=True, slots=True)
class Values:
    """A Secret with values for one dependency, selected by alias or by package name."""

    name: str
    secret: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Install:
    """An installation that a manifest requests, or an external one that exists already.

    `kind` and `api_version` are those of the manifest; `external` means that nothing is installed and
    only its provided APIs and interfaces count. `inherit` are settings that generated dependencies take over.
    Without `prune_dependencies` they stay when this install goes. `gives` are inputs of dependencies,
    as `alias#name`; which ones `gives_credentials` brings is not known here.
    """

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
    location: Location = field(default=Location(""), compare=False)

    _hash: int = field(init=False, default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", compared_hash(self))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind or self.dialect} {where}"

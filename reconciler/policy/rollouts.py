"""Settings of rollouts: the waves in which a new upstream revision travels through the packages of a set."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.base.reasons import Reason
from reconciler.names.ids import KNOWN_VERSIONS, GroupKind, group_of
from reconciler.names.problems import Problem
from reconciler.policy.pull_requests import SELECTOR_SCHEMA
from reconciler.policy.settings import (
    Amount,
    Duration,
    Flag,
    Internal,
    Label,
    SettingsGroup,
    SomeAmount,
    SortedSet,
)

_PLACEHOLDER = regex(r"\{([^{}]*)\}")
PLACEHOLDERS = ("cluster", "namespace", "package", "repository", "variant")
"""Words in braces that a gate may have; `package` is the last step of the package's path."""

HEALTH_KINDS = (
    *(GroupKind("apps", kind) for kind in ("DaemonSet", "Deployment", "StatefulSet")),
    GroupKind("argoproj.io", "Application"),
    GroupKind("helm.toolkit.fluxcd.io", "HelmRelease"),
    GroupKind("kustomize.toolkit.fluxcd.io", "Kustomization"),
)
"""Kinds of objects with a health that a gate can read: a snapshot keeps their status."""

UNLISTED = "rest"
"""Name of the wave of all targets that no configured wave has."""


def _template(text: str) -> str:
    unknown = sorted(set(_PLACEHOLDER.findall(text)) - set(PLACEHOLDERS))
    if unknown:
        words = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"{{{unknown[0]}}} is not known here; write {words}")
    return text


Template = Annotated[str, AfterValidator(_template)]
Selector = Annotated[dict[str, Any], Field(json_schema_extra=SELECTOR_SCHEMA)]


@dataclass(frozen=True)
class ObjectGate(SettingsGroup):
    """An object of the snapshot that must be healthy for each package of the wave."""

    api_version: str
    """apiVersion of the object, as in the snapshot."""
    kind: str
    """Application, Kustomization, HelmRelease, Deployment, StatefulSet or DaemonSet."""
    name: Template = "{package}"
    """Name; `{cluster}`, `{namespace}`, `{package}`, `{repository}` and `{variant}` are replaced."""
    namespace: Template = ""
    """Namespace, with the same words in braces."""
    cluster: Template = ""
    """Cluster with the object; empty: the one of the package's Repository."""

    @model_validator(mode="after")
    def _has_health(self) -> Self:
        kind = GroupKind(group_of(self.api_version), self.kind)
        if kind not in HEALTH_KINDS or self.api_version not in KNOWN_VERSIONS[kind]:
            kinds = ", ".join(f"{KNOWN_VERSIONS[k][0]} {k.kind}" for k in HEALTH_KINDS)
            raise ValueError(f"the health of {self.api_version} {self.kind} is not known; known are {kinds}")
        return self


@dataclass(frozen=True)
class Gates(SettingsGroup):
    """Conditions of a complete wave, beside that its packages are published."""

    objects: tuple[ObjectGate, ...] = ()
    """Objects that must be healthy, in a snapshot taken after a run first saw the package on main."""
    checks: SortedSet = ()
    """Commit statuses and check runs that must have passed on main; the local forge has none."""
    approval: Flag = False
    """A person lets the next wave begin, by the annotation `reconciler.dev/rollout-go` on the set."""


@dataclass(frozen=True)
class Wave(SettingsGroup):
    """Targets that move together. Those that an earlier wave has are not in a later one."""

    name: Label
    """Name in plans and annotations."""
    selector: Selector = field(default_factory=dict)
    """Label selector of the downstream Repositories; their cluster is the label `reconciler.dev/cluster`."""
    size: SomeAmount = "100%"
    """Most targets: a number, or a share of all targets of the set, rounded up; the first ones by name."""
    max_open: SomeAmount = "100%"
    """Packages in review at one time: a number, or a share of the wave, rounded up."""
    failure_budget: Amount = "0"
    """Failed packages with which the wave still completes: a number, or a share of it, rounded down."""
    soak_s: Annotated[Duration, Field(alias="soak")] = 0
    """Time (`30m`, `1d`) after a run first saw the whole wave on main, before it is complete."""
    gates: Gates = Gates()
    start_approval: Flag = False
    """A person lets this wave begin, by the annotation `reconciler.dev/rollout-start` on the set."""
    approval_line: Internal[int] = 0


def _unlike(waves: tuple[Wave, ...]) -> tuple[Wave, ...]:
    names = [wave.name for wave in waves]
    if len(set(names)) < len(names):
        raise ValueError("two waves have one name")
    if UNLISTED in names[:-1]:
        raise ValueError(f"{UNLISTED} is the name of the last wave")
    last = waves[-1]
    if last.name == UNLISTED and (last.selector or last.size != Wave(UNLISTED).size):
        raise ValueError(f"{UNLISTED} takes all that no other wave has: remove its selector and size")
    return waves


@dataclass(frozen=True)
class RolloutPolicy(SettingsGroup):
    """The waves of some sets; of several policies the first one with a matching selector applies."""

    waves: Annotated[tuple[Wave, ...], Field(min_length=1), AfterValidator(_unlike)]
    """Waves in their order; targets that none of them has are a last wave called `rest`."""
    selector: Selector = field(default_factory=dict)
    """Label selector of the PackageVariantSets; empty: all of them."""

    @property
    def uses_time(self) -> bool:
        """Whether a wave waits for a time, or for a snapshot that is newer than a package."""
        return any(wave.soak_s or wave.gates.objects for wave in self.waves)


def idle_approvals(policies: Iterable[RolloutPolicy], path: str) -> Iterator[Problem]:
    """Yield the approvals that guard nothing: no wave comes after theirs. They have no effect."""
    for policy in policies:
        last = policy.waves[-1]
        takes_all = last.name == UNLISTED or (not last.selector and last.size == "100%")
        if last.gates.approval and takes_all:
            message = f"gates.approval of wave {last.name} guards nothing: nothing comes after the last wave"
            hint = f"Write startApproval: true there instead, and a person lets wave {last.name} begin."
            yield Problem(Location(path, last.approval_line), Reason.INVALID_MANIFEST, message, hint)

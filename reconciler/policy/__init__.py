"""Settings of registries: where they are read, and how much of them."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from reconciler.base.errors import Location
from reconciler.base.lazy import regex
from reconciler.policy.pull_requests import (
    ApprovalPolicy,
    ApprovalRule,
    Author,
    CommitPolicy,
    CredentialRule,
    ForgeKind,
    ForgeRule,
    GroupBy,
    MergeMethod,
    OpenOn,
    PullRequestPolicy,
    ReviewRule,
    WriteLimits,
    find_rule,
)
from reconciler.policy.rollouts import RolloutPolicy
from reconciler.policy.settings import (
    SETTINGS,
    Bound,
    Count,
    Directory,
    Duration,
    Flag,
    Internal,
    Label,
    NamedDirectory,
    NonEmpty,
    Number,
    Prefix,
    SettingsGroup,
    Share,
    SortedSet,
    address,
    matching,
    refuse_field,
    sorted_set,
)


@dataclass(frozen=True)
class RegistryPolicy(SettingsGroup):
    """Registries, which `index sync` and `package from-chart` read, and no other command."""

    mirrors: dict[
        str,
        Annotated[
            str,
            *address(r"^(https?://[^/:]|[^/:]+(:[0-9]|/|$))", "a registry, such as mirror.example.com/xpkg"),
        ],
    ] = field(default_factory=dict)
    """Where names below a prefix are read, by prefix: `xpkg.crossplane.io: mirror.example.com/xpkg`.

    `http://` before a mirror reads it without encryption. The names of packages stay what they are.
    """
    at_once: Bound = 4
    """Requests side by side."""
    silence_s: Annotated[Bound, Field(alias="silence")] = 30
    """Longest silence of a registry within one answer, in seconds."""
    answer_s: Annotated[Bound, Field(alias="answer")] = 300
    """Longest time of one answer, in seconds."""
    wait_s: Annotated[Bound, Field(alias="wait")] = 120
    """Longest wait that a registry may ask for with Retry-After, in seconds."""
    tags: Bound = 50_000
    """Tags of one package."""
    versions: Bound = 10_000
    """New versions of one run; the next run continues."""
    layer_bytes: Bound = 64 << 20
    """Size of one layer or configuration, as it is sent, in bytes."""
    unpacked_bytes: Bound = 256 << 20
    """Size of the layers of one image when they are unpacked, in bytes."""


LOSS: Final = "loss"
DELETION: Final = "deletion"
CONFLICT: Final = "conflict"
REMOVAL: Final = "removal"
REGISTRY: Final = "registry"
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rbac": ("*.rbac.authorization.k8s.io", "ServiceAccount"),
    "crd": ("CustomResourceDefinition.apiextensions.k8s.io", "APIService.apiregistration.k8s.io"),
    "namespace": ("Namespace",),
    "storage": ("PersistentVolume", "PersistentVolumeClaim", "*.storage.k8s.io"),
    "admission": ("*.admissionregistration.k8s.io",),
}
"""Kinds of resources by class, the most dangerous first."""


@dataclass(frozen=True)
class RiskPolicy(SettingsGroup):
    """Changes that reports list first."""

    kinds: dict[str, tuple[NonEmpty, ...]] = field(default_factory=dict)
    """Kinds of resources by class, as `Kind.group` with `*`; a class of this name is replaced, or added."""
    registries: tuple[NonEmpty, ...] = ()
    """Prefixes of the images in use; images of other registries are the class `registry`. Empty: those
    that the package has on main."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class, the most dangerous first: deletions, built-in classes, registries, further classes."""
        added = (name for name in self.kinds if name not in KINDS)
        return tuple(dict.fromkeys((DELETION, REMOVAL, *KINDS, REGISTRY, *added)))

    def of_kind(self, group_kind: str) -> tuple[str, ...]:
        """Return the classes of a kind of resource, written as `Kind.group`."""
        patterns = {**KINDS, **self.kinds}
        return tuple(
            name for name in self.classes if any(fnmatchcase(group_kind, p) for p in patterns.get(name, ()))
        )


_SSH_KEY = r"^(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( [^\r\n]*)?$"
_ARMOUR = regex(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+: [^\n]*\n)*\n"
    r"([A-Za-z0-9+/=\n]+?)\n(?:=[A-Za-z0-9+/]{4}\n)?-----END PGP PUBLIC KEY BLOCK-----"
)


def parse_gpg_keys(text: str) -> bytes:
    """Return the packets of armoured public keys, as `gpg --export` without `--armor` writes them.

    Raises:
        ValueError: The text is no armoured public key.
    """
    lines = "\n".join(line.strip() for line in text.strip().splitlines())
    blocks = _ARMOUR.findall(lines)
    if not blocks or _ARMOUR.sub("", lines).strip():
        raise ValueError("this is no public key as `gpg --armor --export` writes it")
    try:
        return b"".join(base64.b64decode(block.replace("\n", ""), validate=True) for block in blocks)
    except binascii.Error as error:
        raise ValueError(f"this public key is damaged: {error}") from error


def _gpg_key(text: str) -> str:
    parse_gpg_keys(text)
    return text


@dataclass(frozen=True)
class VerifyRule(SettingsGroup):
    """Keys that the tags of upstream revisions must be signed with, in the repositories below one URL."""

    prefix: Prefix
    """Prefix of the repository URLs, by any scheme and spelling; the longest match wins."""
    signed: Literal["tag"] = "tag"
    """Object that must be signed: the tag, because a signed commit has no name of a revision."""
    ssh_keys: tuple[
        Annotated[str, *matching(_SSH_KEY, "a public key of OpenSSH, such as `ssh-ed25519 AAAA…`")], ...
    ] = ()
    """Public keys of OpenSSH, one line each."""
    gpg_keys: tuple[Annotated[str, AfterValidator(_gpg_key)], ...] = ()
    """Public keys of GnuPG, armoured."""
    line: Internal[int] = 0
    """Line of the rule in the configuration."""

    @model_validator(mode="after")
    def _any_key(self) -> Self:
        if not self.ssh_keys and not self.gpg_keys:
            raise ValueError("set sshKeys, gpgKeys or both; without a key nothing can be verified")
        return self


__all__ = [
    "PROPOSED",
    "SETTINGS",
    "AdmissionPolicy",
    "ApprovalPolicy",
    "ApprovalRule",
    "Author",
    "CommitPolicy",
    "CredentialRule",
    "DeletionGuard",
    "DependencyPolicy",
    "Discovery",
    "Engine",
    "ForgeKind",
    "ForgeRule",
    "FunctionPolicy",
    "GroupBy",
    "Limits",
    "LockMode",
    "LockPolicy",
    "MergeMethod",
    "MergeMode",
    "OnConflict",
    "OnRefused",
    "OnUnavailable",
    "OpenOn",
    "Policy",
    "PublishPolicy",
    "PullRequestPolicy",
    "RegistryPolicy",
    "ReviewRule",
    "ReviewedLockPolicy",
    "RiskPolicy",
    "RolloutPolicy",
    "SelectPolicy",
    "Selection",
    "SnapshotPolicy",
    "Strategy",
    "VerifyRule",
    "WriteLimits",
    "find_rule",
    "govern",
    "refuse_field",
]

_CHECKSUM = regex(r"[0-9a-f]{64}")
_DIGEST = regex(r"(?:id:)?sha256:[0-9a-f]{64}")
Engine = Literal["", "docker", "podman", "nerdctl"]


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no absolute path")
    return path


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest; write sha256: and 64 hexadecimal digits")
    return text


def _checksum(text: str) -> str:
    if not _CHECKSUM.fullmatch(text):
        raise ValueError(f"{text[:60]!r} is not the whole checksum of a plan that was refused")
    return text


class OnUnavailable(StrEnum):
    """Effect of an unreachable repository on the exit code."""

    FAIL = "fail"
    WARN = "warn"


class Strategy(StrEnum):
    """How a package takes a new upstream, as a Kptfile's `updateStrategy` spells it."""

    RESOURCE_MERGE = "resource-merge"
    FAST_FORWARD = "fast-forward"
    FORCE_DELETE_REPLACE = "force-delete-replace"
    COPY_MERGE = "copy-merge"


class MergeMode(StrEnum):
    """Whether a merge loses what kpt loses: `compatible` does, `default` does not."""

    DEFAULT = "default"
    COMPATIBLE = "compatible"


class OnConflict(StrEnum):
    """Winner of a value that both sides changed differently.

    `ask` keeps the local value and reports both; `fail` updates nothing.
    """

    ASK = "ask"
    UPSTREAM = "upstream"
    LOCAL = "local"
    FAIL = "fail"


class LockMode(StrEnum):
    """How a pin changes: with the run that finds another commit, or by a pull request first."""

    AUTOMATIC = "automatic"
    REVIEWED = "reviewed"


@dataclass(frozen=True)
class Limits(SettingsGroup):
    """Bounds on every input."""

    read_seconds: Bound = 300
    """Longest wait for one answer of a Git server or of the file system of a repository, in seconds.

    A silent HTTP server has at most 60. Only the environment variable applies to the control repository,
    which is read before this file.
    """
    forge_pages: Bound = 20_000
    """Pages of one list of a forge."""
    repositories_at_once: Bound = 16
    """Repositories that a run reads or writes side by side; each of them gets one command at a time."""
    manifest_bytes: Bound = 1 << 20
    """Size of one manifest file, in bytes."""
    snapshot_file_bytes: Bound = 256 << 20
    """Size of one snapshot file, in bytes."""
    package_file_bytes: Bound = 16 << 20
    """Size of one file of a package, in bytes."""
    package_files: Bound = 10_000
    """Files of one package."""
    package_bytes: Bound = 16 << 20
    """Size of all files of one package, in bytes; an update takes about sixty times that of memory."""
    run_bytes: Bound = 256 << 20
    """Size of the distinct files that one run holds, in bytes; packages beyond it wait for the next run."""
    base_candidates: Bound = 20
    """Published revisions that an adopted package without upstreamLock is compared with, the newest ones."""
    record_versions: Bound = 20
    """Earlier versions of a damaged record that are tried, the newest first."""
    path_depth: Bound = 50
    """Directories above a file."""
    yaml_depth: Bound = 100
    """Nesting of mappings and lists."""
    yaml_documents: Bound = 10_000
    """Documents of one file."""
    yaml_nodes: Bound = 2_000_000
    """Values of one document."""
    targets_per_set: Bound = 100_000
    """Variants of one set."""
    expression_bytes: Bound = 4096
    """Size of one CEL expression, in bytes."""
    expression_depth: Annotated[int, Field(ge=1, le=31), Number] = 31
    """Nested or chained terms of one CEL expression."""
    expression_cost: Bound = 1_000_000
    """Estimated cost of one CEL expression."""


@dataclass(frozen=True)
class SnapshotPolicy(SettingsGroup):
    """The cluster snapshot."""

    path: Directory = "snapshot"
    """Directory of the snapshot in the control repository."""
    max_age_s: Annotated[Duration, Field(alias="maxAge")] = 7 * 24 * 3600
    """Older than the commit of the control repository by more than this (`7d`, `12h`): nothing is deleted."""
    repositories: Flag = False
    """Read and write repositories that only a snapshot names; otherwise a manifest has to register them."""


class OnRefused(StrEnum):
    """Effect on `check` of a change that a cluster would refuse."""

    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class AdmissionPolicy(SettingsGroup):
    """Changes that clusters would refuse."""

    refused: OnRefused = OnRefused.NOTE
    """`note`: `check` lists what a change adds; `problem`: it ends with 3, too."""
    snapshots: Flag = False
    """Every cluster has a snapshot of its policies and definitions: `snapshot kinds` names their kinds, and
    reports name the clusters that lack them. As if it were set where any snapshot lists such a kind."""


@dataclass(frozen=True)
class PublishPolicy(SettingsGroup):
    """Publication of merged drafts."""

    tags: Flag = True
    """Tag merged packages as `<package>/vN`, hotfixes too."""


@dataclass(frozen=True)
class DeletionGuard(SettingsGroup):
    """How much one plan may delete without consent."""

    share: Share = 0.3
    """Largest share of the owned packages, in [0, 1]."""
    minimum: Count = 10
    """Below this many owned packages the share does not count."""
    count: Count = 100
    """Largest number of deletions, whatever is owned."""


@dataclass(frozen=True)
class ReviewedLockPolicy(SettingsGroup):
    """Reviewed locks."""

    strict: Flag = False
    """A new variant waits until its first pin is merged; otherwise it takes that one at once."""


@dataclass(frozen=True)
class LockPolicy(SettingsGroup):
    """How pins of floating upstreams and of dependencies change."""

    mode: LockMode = LockMode.AUTOMATIC
    """`automatic`: with the run that finds another commit; `reviewed`: by a pull request here first."""
    reviewed: ReviewedLockPolicy = ReviewedLockPolicy()

    @property
    def is_reviewed(self) -> bool:
        """Whether the lock is on main of the control repository and changes by pull request."""
        return self.mode is LockMode.REVIEWED


class Discovery(StrEnum):
    """Where a package is looked for that brings an API or an interface which is needed."""

    NONE = "none"
    INDEX = "index"


class Selection(StrEnum):
    """Which of the versions that all needs allow is taken; the last three count from the locked one."""

    HIGHEST = "highest"
    LOWEST = "lowest"
    NEAREST = "nearest"
    MAX_PATCH = "max-patch"
    MAX_MINOR = "max-minor"


@dataclass(frozen=True)
class SelectPolicy(SettingsGroup):
    """Which of the versions that all needs allow is taken: counted from the locked one where there is one."""

    crossplane: Selection = Selection.HIGHEST
    """Of Crossplane's packages: `highest`, `lowest`, `nearest`, `max-patch` or `max-minor`."""
    carvel: Selection = Selection.HIGHEST
    """Of Carvel's packages."""
    porter: Selection = Selection.HIGHEST
    """Of Porter's bundles, unless the installation sets it."""
    kpt: Selection = Selection.HIGHEST
    """Of kpt packages."""


@dataclass(frozen=True)
class DependencyPolicy(SettingsGroup):
    """Choice of dependencies, and the place of the manifests that are generated for them."""

    discovery: Discovery = Discovery.NONE
    """`index`: any package of the index may provide an API or interface; `none`: only a named package."""
    allow_downgrade: Flag = False
    """A package may go below its locked version where nothing else fits."""
    reconsider: Flag = False
    """Alternatives are chosen anew by every run; otherwise the one that was chosen stays while it can."""
    select: SelectPolicy = SelectPolicy()
    steps: Bound = 200_000
    """Steps of the solver for one part of one cluster; beyond them it has no answer."""
    explain_steps: Bound = 2000
    """Questions to the solver that shorten one explanation; beyond them it may name more than is needed."""
    path: Directory = "dependencies"
    """Package that they become in the repository of their cluster; empty: only the lock is written."""
    shared_namespace: Label = "default"
    """Namespace of packages that can be installed only once per cluster."""
    packaging_namespace: Label = "kapp-controller-packaging-global"
    """Namespace with the Carvel packages for all namespaces of a cluster: `-packaging-global-namespace`."""


@dataclass(frozen=True)
class FunctionPolicy(SettingsGroup):
    """Functions of packages: built-in functions always run, others only if they are listed here."""

    runtime: Engine = ""
    """Engine that runs pinned images; none: containers are off."""
    engine_arguments: tuple[str, ...] = ()
    """Further arguments of the engine's `run`."""
    images: dict[str, Annotated[str, AfterValidator(_digest)]] = field(default_factory=dict)
    """Digest of each image by its name and tag; `reconciler functions pull` writes them."""
    exec: dict[str, Annotated[str, AfterValidator(_absolute)]] = field(default_factory=dict)
    """Executables by the name that a package gives: absolute paths."""
    network: SortedSet = ()
    """Images, without a tag, that may use the network."""
    parallel: Bound = 2
    """Executables and containers at one time."""
    claim_floating: Flag = True
    """Run built-in functions also for images tagged `latest` or without a tag."""
    compatible: Flag = False
    """Copy the faults of the functions that are reproduced."""
    timeout_s: Annotated[Bound, Field(alias="timeout")] = 300
    """Longest time of one function, in seconds."""
    run_timeout_s: Annotated[Bound, Field(alias="runTimeout")] = 900
    """Longest time of all functions of one run, in seconds; packages beyond it wait for the next run."""
    memory_bytes: Annotated[int, Field(ge=1 << 24), Number] = 512 << 20
    """Memory of one function, in bytes."""
    output_bytes: Annotated[int, Field(ge=1 << 10), Number] = 64 << 20
    """Output of one function, in bytes."""
    starlark_steps: Annotated[int, Field(ge=1000), Number] = 100_000_000
    """Steps of one Starlark script."""

    def executable_of(self, function: str) -> str:
        """Return the executable of a function, by its name or its image with or without a tag, or ""."""
        return self.exec.get(function, "") or self.exec.get(function.rpartition(":")[0], "")


def _number(value: object) -> object:
    """Return the number that a variable of the environment holds as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


@dataclass(frozen=True)
class ExitPolicy(SettingsGroup):
    """Exit codes of `plan`, `apply` and the action; JSON always lists every class that applies."""

    waiting: Annotated[Literal[0, 7], BeforeValidator(_number)] = 7
    """Exit code while packages wait for people and nothing else is wrong: `7`, or `0` for no failure."""


@dataclass(frozen=True)
class Policy(SettingsGroup):
    """Every choice of one instance."""

    instance: Annotated[str, Field(json_schema_extra={"default": ""})] = "default"
    """Name of the instance; it owns packages under this name, so it must never change."""
    manifests: Annotated[tuple[NamedDirectory, ...], Field(min_length=1), AfterValidator(sorted_set)] = ("",)
    """Files and directories of manifests, from the repository's root; `.` is all of it."""
    default_namespace: Label = "default"
    """Namespace of manifests that name none."""
    snapshot: SnapshotPolicy = SnapshotPolicy()
    pull_requests: PullRequestPolicy = PullRequestPolicy()
    approval: ApprovalPolicy = ApprovalPolicy()
    publish: PublishPolicy = PublishPolicy()
    lock: LockPolicy = LockPolicy()
    deletions: DeletionGuard = DeletionGuard()
    consents: dict[Annotated[str, AfterValidator(_checksum)], NonEmpty] = field(default_factory=dict)
    """Consent to one unsafe plan: its checksum, and why it is meant."""
    commits: CommitPolicy = CommitPolicy()
    dependencies: DependencyPolicy = DependencyPolicy()
    limits: Limits = Limits()
    risks: RiskPolicy = RiskPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    rollouts: tuple[RolloutPolicy, ...] = ()
    """Waves in which new upstream revisions travel; sets without a policy move at once."""
    on_conflict: OnConflict = OnConflict.ASK
    """Winner of conflicting changes: `ask`, `upstream`, `local` or `fail`; packages may override it."""
    unavailable: OnUnavailable = OnUnavailable.FAIL
    """Effect of an unreachable repository: `fail` (exit 5) or `warn`."""
    exit: ExitPolicy = ExitPolicy()
    suspend: Flag = False
    """Plan, and change nothing."""
    functions: FunctionPolicy = FunctionPolicy()
    forges: tuple[ForgeRule, ...] = ()
    """Forges by URL prefix; what matches none is kept in Git alone."""
    credentials: tuple[CredentialRule, ...] = ()
    """Credentials by URL prefix."""
    verify: tuple[VerifyRule, ...] = ()
    """Keys that upstream revisions must be signed with, by URL prefix; others need no signature."""
    addresses: tuple[
        Annotated[str, *address(r"^((https?|ssh)://[^/]|/)", "a URL with its scheme, or an absolute path")],
        ...,
    ] = ()
    """Prefixes below which repositories may be: URLs with their scheme, or absolute paths. Empty: https and
    ssh anywhere; paths, and http to this machine, where the control repository is on this machine too."""
    registries: RegistryPolicy = RegistryPolicy()
    config_path: Internal[str] = "reconciler.yaml"
    """Path of the configuration in the control repository."""
    manifest_locations: Internal[Mapping[str, Location]] = field(default_factory=dict)
    """Where the configuration or a variable names each place of manifests."""

    @model_validator(mode="after")
    def _manifests_are_outside_of_the_snapshot(self) -> Self:
        path = self.snapshot.path
        inside = [place for place in self.manifests if f"{place}/".startswith(f"{path}/" if path else "")]
        if inside:
            raise ValueError(
                f"the manifests {inside[0] or '.'} are in snapshot.path: nothing in it is read as a manifest"
            )
        return self

    def manifest_location(self, place: str) -> Location:
        """Return where a place of manifests is named, the whole configuration where that is not known."""
        return self.manifest_locations.get(place, Location(self.config_path))

    @property
    def manifest_places(self) -> str:
        """Where manifests are, in words."""
        return ", ".join(place or "this repository" for place in self.manifests)

    @property
    def uses_time(self) -> bool:
        """Whether a plan depends on the time of the run."""
        return any(rollout.uses_time for rollout in self.rollouts)


PROPOSED = (
    "default_namespace",
    "manifests",
    "publish",
    "suspend",
    "deletions",
    "unavailable",
    "consents",
    "on_conflict",
    "lock",
    "rollouts",
)
"""Settings of a proposed configuration that apply to the check of itself; the base decides all others."""


def govern(trusted: Policy, proposed: Policy) -> Policy:
    """Return the policy under which a proposed change is checked (D8).

    The author of a change must not choose which credentials are used and for whom, what is executed, or how
    much a check may take: those come from what was merged.
    """
    requests = proposed.pull_requests
    steps = min(trusted.dependencies.steps, proposed.dependencies.steps)
    explain_steps = min(trusted.dependencies.explain_steps, proposed.dependencies.explain_steps)
    return replace(
        trusted,
        **{name: getattr(proposed, name) for name in PROPOSED},
        dependencies=replace(proposed.dependencies, steps=steps, explain_steps=explain_steps),
        manifest_locations=proposed.manifest_locations,
        snapshot=replace(proposed.snapshot, repositories=trusted.snapshot.repositories),
        pull_requests=replace(
            trusted.pull_requests,
            open_on=requests.open_on,
            group_by=requests.group_by,
            labels=requests.labels,
        ),
    )

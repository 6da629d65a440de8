"""Limits and choices of a run: frozen values with safe defaults, parsed by `config` and read everywhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from reconciler.ids import normalise_url


class OpenOn(StrEnum):
    """When a draft gets its pull request."""

    DRAFT = "draft"
    PROPOSE = "propose"


class OnUnavailable(StrEnum):
    """What one unreachable repository means for the exit code."""

    FAIL = "fail"
    WARN = "warn"


class Strategy(StrEnum):
    """How a package takes a new upstream, as a Kptfile's `updateStrategy` spells it."""

    RESOURCE_MERGE = "resource-merge"
    FAST_FORWARD = "fast-forward"
    FORCE_DELETE_REPLACE = "force-delete-replace"
    COPY_MERGE = "copy-merge"


class MergeMode(StrEnum):
    """Whether a merge loses what kpt loses: `compatible` does, `default` does not (D10)."""

    DEFAULT = "default"
    COMPATIBLE = "compatible"


class OnConflict(StrEnum):
    """Who wins where both sides changed one value differently.

    `ask` keeps the local value and reports both; `fail` updates nothing.
    """

    ASK = "ask"
    UPSTREAM = "upstream"
    LOCAL = "local"
    FAIL = "fail"


class GroupBy(StrEnum):
    """What shares one pull request (D4)."""

    PACKAGE = "package"
    SET = "set"
    REPOSITORY = "repository"
    WAVE = "wave"


class LockMode(StrEnum):
    """How a pin changes: with the run that finds another commit, or by a pull request first (D3)."""

    AUTOMATIC = "automatic"
    REVIEWED = "reviewed"


class ForgeKind(StrEnum):
    """Who keeps the pull requests of a repository; `local` is the repository itself."""

    LOCAL = "local"
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


@dataclass(frozen=True, slots=True)
class ForgeRule:
    """Which forge has the repositories whose URL starts with `prefix`; `api` is empty for its default."""

    prefix: str
    kind: ForgeKind
    api: str = ""


@dataclass(frozen=True, slots=True)
class CredentialRule:
    """Where the credential for URLs that start with `prefix` is found: names, never a secret itself."""

    prefix: str
    username: str = ""
    token_env: str = ""
    token_file: str = ""
    ssh_key_file: str = ""
    known_hosts_file: str = ""
    app_id: str = ""
    installation_id: str = ""
    app_key_env: str = ""
    app_key_file: str = ""


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """How fast one identity writes to a forge: 60 a minute and 400 an hour are below GitHub's limits.

    A run whose next write is due later than `max_wait_s` seconds from now ends, and the next goes on.
    """

    per_minute: int = 60
    per_hour: int = 400
    max_wait_s: float = 120.0


R = TypeVar("R", ForgeRule, CredentialRule)


def find_rule(rules: Iterable[R], remote: str) -> R | None:
    """Return the rule with the longest prefix of `remote`, None if no rule matches.

    A prefix ends at a slash or at the end of the remote: `host/acme` is no prefix of `host/acme-evil`.
    Its scheme, if it has one, must be the remote's: a token for https is not sent over http.
    """
    fitting = (rule for rule in rules if is_prefix(rule.prefix, remote))
    return max(fitting, key=lambda rule: len(normalise_url(rule.prefix)), default=None)


def is_prefix(prefix: str, remote: str) -> bool:
    """Tell whether an address is a prefix or below it; a prefix with a scheme is for that scheme alone."""
    scheme, separator, _ = prefix.partition("://")
    if separator and scheme.lower() != _scheme(remote):
        return False
    short, url = normalise_url(prefix).rstrip("/"), normalise_url(remote)
    return not short or url == short or url.startswith(f"{short}/")


def _scheme(remote: str) -> str:
    """Return how a remote is reached; `user@host:path` is short for ssh, a path is reached by none."""
    scheme, separator, _ = remote.partition("://")
    if separator:
        return scheme.lower()
    return "ssh" if ":" in remote.partition("/")[0] else ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on every input; each one is a setting."""

    read_seconds: int = 300
    manifest_bytes: int = 1 << 20
    snapshot_file_bytes: int = 256 << 20
    package_file_bytes: int = 16 << 20
    package_files: int = 10_000
    package_bytes: int = 16 << 20
    run_bytes: int = 256 << 20
    base_candidates: int = 20
    record_versions: int = 20
    path_depth: int = 50
    yaml_depth: int = 100
    yaml_documents: int = 10_000
    yaml_nodes: int = 2_000_000
    targets_per_set: int = 100_000
    expression_bytes: int = 4096
    expression_depth: int = 31
    expression_cost: int = 1_000_000


@dataclass(frozen=True, slots=True)
class DeletionGuard:
    """Refuse a plan that deletes too much of what we own, unless somebody consented (D17).

    `share` is a fraction in [0, 1] and counts only from `minimum` owned packages on;
    `count` bounds the deletions of one plan whatever is owned.
    """

    share: float = 0.3
    minimum: int = 10
    count: int = 100
    allowed: int = 0


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


@dataclass(frozen=True, slots=True)
class ResolutionPolicy:
    """What dependencies may be resolved to; `steps` of the solver bound one part of one cluster."""

    discovery: Discovery = Discovery.NONE
    allow_downgrade: bool = False
    reconsider: bool = False
    steps: int = 200_000
    crossplane: Selection = Selection.HIGHEST
    carvel: Selection = Selection.HIGHEST
    porter: Selection = Selection.HIGHEST
    kpt: Selection = Selection.HIGHEST


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """Where what is generated for a cluster goes: the package at `path` of the cluster's repository.

    Nothing is delivered where `path` is empty. `shared_namespace` gets what may stand once in a cluster.
    """

    path: str = "dependencies"
    shared_namespace: str = "default"


class Author(NamedTuple):
    """The author of commits to the packages below a directory of a repository."""

    directory: str
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """How our commits are made; the committer is how we recognise them later.

    `signing_key_env` and `signing_key_file` say where the key is, never what it is. `authors` are those
    that Repositories name, the most specific directory first.
    """

    name: str = "Package Reconciler"
    email: str = "package-reconciler@reconciler.dev"
    sign: str = ""
    signing_key_env: str = ""
    signing_key_file: str = ""
    sign_off: bool = False
    authors: tuple[Author, ...] = ()

    def author(self, path: str) -> tuple[str, str]:
        """Return name and email of the author of a commit to what stands at `path`."""
        inside = (a for a in self.authors if not a.directory or f"{path}/".startswith(f"{a.directory}/"))
        found = next(inside, None)
        return (found.name, found.email) if found else (self.name, self.email)


@dataclass(frozen=True, slots=True)
class LockPolicy:
    """How pins change. `strict`: where they are reviewed, a new variant waits for its first one too."""

    mode: LockMode = LockMode.AUTOMATIC
    strict: bool = False

    @property
    def is_reviewed(self) -> bool:
        """Whether the lock stands on main of the control repository and changes by pull request."""
        return self.mode is LockMode.REVIEWED


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """How containers are run: off where `engine` is empty. `arguments` go to `run` as they are."""

    engine: str = ""
    arguments: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    parallel: int = 2


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """Which functions may run, and within what limits (D11).

    `claim_floating`: a builtin answers for `latest` and for no tag. `compatible`: upstream's faults
    are copied. `exec` maps names to absolute paths; `images` an image's name and tag to its digest.
    """

    claim_floating: bool = True
    compatible: bool = False
    exec: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    container: ContainerPolicy = ContainerPolicy()
    timeout_s: int = 300
    memory_bytes: int = 512 << 20
    output_bytes: int = 64 << 20
    starlark_steps: int = 100_000_000


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """What may be approved without a person: drafts in the repositories that `selector` selects by labels.

    `checks` are the commit statuses that must have passed; `edited` lets drafts pass that people
    committed to.
    """

    selector: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    edited: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Every choice of one instance, as `reconciler.yaml` and the command line make it."""

    instance: str = "default"
    default_namespace: str = "default"
    manifest_paths: tuple[str, ...] = ("",)
    snapshot_path: str = "snapshot"
    open_on: OpenOn = OpenOn.DRAFT
    publish_tags: bool = True
    suspend: bool = False
    snapshot_max_age_s: int = 7 * 24 * 3600
    deletions: DeletionGuard = DeletionGuard()
    commits: CommitPolicy = CommitPolicy()
    limits: Limits = Limits()
    unavailable: OnUnavailable = OnUnavailable.FAIL
    consents: Mapping[str, str] = field(default_factory=dict)
    config_path: str = "reconciler.yaml"
    group_by: GroupBy = GroupBy.PACKAGE
    forges: tuple[ForgeRule, ...] = ()
    credentials: tuple[CredentialRule, ...] = ()
    addresses: tuple[str, ...] = ()
    writes: WriteLimits = WriteLimits()
    labels: tuple[str, ...] = ()
    dashboard: bool = False
    approvals: tuple[ApprovalRule, ...] = ()
    functions: FunctionPolicy = FunctionPolicy()
    delivery: DeliveryPolicy = DeliveryPolicy()
    resolution: ResolutionPolicy = ResolutionPolicy()
    lock: LockPolicy = LockPolicy()
    on_conflict: OnConflict = OnConflict.ASK


PROPOSED = (
    "default_namespace",
    "manifest_paths",
    "snapshot_path",
    "snapshot_max_age_s",
    "open_on",
    "publish_tags",
    "suspend",
    "deletions",
    "unavailable",
    "consents",
    "group_by",
    "on_conflict",
    "labels",
    "delivery",
    "resolution",
    "lock",
)
"""What a proposed configuration decides about the check of itself; everything else the base decides."""


def govern(trusted: Policy, proposed: Policy) -> Policy:
    """Return the policy under which a proposed change is checked (D8).

    Whoever may propose a change must not choose which credentials are used and for whom, what is
    executed, or how much a check may take: those come from what was merged.
    """
    chosen = {name: getattr(proposed, name) for name in PROPOSED}
    steps = min(trusted.resolution.steps, proposed.resolution.steps)
    return replace(trusted, **chosen | {"resolution": replace(proposed.resolution, steps=steps)})

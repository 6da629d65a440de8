"""Settings of one instance: the model of `reconciler.yaml`, which is the policy that every stage reads.

A new setting is one field here: its type is validated, its docstring is in the JSON schema, and its
environment variable follows from its name. Values that are made in Python are not validated.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from reconciler.ids import is_prefix, normalise_url

_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS_S = (7 * 24 * 3600, 24 * 3600, 3600, 60, 1)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile(r"(?:id:)?sha256:[0-9a-f]{64}")
_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _seconds(value: object) -> object:
    """Read `7d`, `12h30m` or a plain number of seconds."""
    if not isinstance(value, str) or value.isdigit():
        return value
    match = _DURATION.fullmatch(value)
    if not value or match is None:
        raise ValueError(f"{value!r} is not a duration; write 7d, 12h30m or 90s")
    return sum(int(n) * unit for n, unit in zip(match.groups(default="0"), _UNITS_S, strict=True))


def _directory(value: object) -> object:
    """Read a path from the repository's root; `.` is the root."""
    if not isinstance(value, str):
        return value
    steps = [step for step in value.split("/") if step not in ("", ".")]
    if value.startswith("/") or ".." in steps or "\\" in value:
        raise ValueError(f"{value!r} is not a path inside the repository")
    return "/".join(steps)


def _environment_name(value: object) -> object:
    if isinstance(value, str) and value and not _ENVIRONMENT_NAME.fullmatch(value):
        raise ValueError("this must be the name of an environment variable, never a secret itself")
    return value


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is no absolute path")
    return path


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest; write sha256: and 64 hexadecimal digits")
    return text


def refuse_field(_: object) -> NoReturn:
    """Refuse a field that only a run sets, like any unknown field."""
    raise PydanticCustomError("unexpected_keyword_argument", "Unexpected keyword argument")


def _sorted_set(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


T = TypeVar("T")
Duration = Annotated[
    int, BeforeValidator(_seconds), Field(ge=0, json_schema_extra={"type": ["integer", "string"]})
]
Directory = Annotated[str, BeforeValidator(_directory)]
VariableName = Annotated[str, BeforeValidator(_environment_name)]
SortedSet = Annotated[tuple[str, ...], AfterValidator(_sorted_set)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Bound = Annotated[int, Field(ge=1)]
Engine = Literal["", "docker", "podman", "nerdctl"]
Internal = SkipJsonSchema[Annotated[T, BeforeValidator(refuse_field)]]
"""A field that the file cannot set."""

SETTINGS = ConfigDict(
    alias_generator=to_camel, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
)
"""Names on disk are in camelCase, and unknown fields are refused. Numbers may be quoted, as in variables."""


class _Settings:
    """Base of every group of settings."""

    __slots__ = ()
    __pydantic_config__ = SETTINGS


class OpenOn(StrEnum):
    """When a draft gets its pull request."""

    DRAFT = "draft"
    PROPOSE = "propose"


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
    """Whether a merge loses what kpt loses: `compatible` does, `default` does not (D10)."""

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


class GroupBy(StrEnum):
    """Packages that share one pull request (D4)."""

    PACKAGE = "package"
    SET = "set"
    REPOSITORY = "repository"
    WAVE = "wave"


class LockMode(StrEnum):
    """How a pin changes: with the run that finds another commit, or by a pull request first (D3)."""

    AUTOMATIC = "automatic"
    REVIEWED = "reviewed"


class ForgeKind(StrEnum):
    """Product that keeps the pull requests of a repository; `local` is the repository itself."""

    LOCAL = "local"
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"


MergeMethod = Literal["", "merge", "squash", "rebase"]


@dataclass(frozen=True, slots=True)
class ForgeRule(_Settings):
    """The forge of the repositories below one URL."""

    prefix: Annotated[str, Field(min_length=1)]
    """Prefix of the repository URLs; the longest match wins."""
    kind: Annotated[ForgeKind, Field(alias="type")]
    """Product of the forge, which determines its API."""
    api: str = ""
    """URL of its API, where that is not the usual one."""
    merge_method: MergeMethod = ""
    """How approved pull requests are merged: `merge`, `squash` or `rebase`; empty: as the repository prefers.
    """
    draft_prefix: str = "WIP: "
    """Prefix that makes a title a draft's on Gitea and Forgejo, one of WORK_IN_PROGRESS_PREFIXES there."""


@dataclass(frozen=True, slots=True)
class CredentialRule(_Settings):
    """Source of one credential: names of variables and files, never a secret itself."""

    prefix: Annotated[str, Field(pattern=r"^(https?|ssh)://")]
    """Prefix of the repository URLs, with the scheme; the longest match wins."""
    username: str = ""
    """User of the token, if the forge needs it."""
    token_env: VariableName = ""
    """Environment variable that holds the token."""
    token_file: str = ""
    """File that holds the token, for example a mounted Secret."""
    ssh_key_file: str = ""
    """File that holds the private key."""
    known_hosts_file: str = ""
    """File with the host's key, beside the keys of github.com, gitlab.com and codeberg.org."""
    app_id: str = ""
    """Number or client id of a GitHub App, which then needs `installationId` and its private key."""
    installation_id: str = ""
    """Number of the App's installation."""
    app_key_env: VariableName = ""
    """Environment variable that holds the App's private key, in PEM."""
    app_key_file: str = ""
    """File that holds the App's private key, in PEM."""

    @model_validator(mode="after")
    def _exactly_one_place(self) -> Self:
        keys = (self.app_key_env, self.app_key_file)
        if sum(map(bool, (self.token_env, self.token_file, self.ssh_key_file, *keys))) != 1:
            raise ValueError("set exactly one of tokenEnv, tokenFile, sshKeyFile, appKeyEnv, appKeyFile")
        if any(keys) != bool(self.app_id) or any(keys) != bool(self.installation_id):
            raise ValueError("appId, installationId and one of appKeyEnv, appKeyFile belong together")
        return self


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """How fast one identity writes to a forge: 60 a minute and 400 an hour are below GitHub's limits.

    If the next write is due later than `max_wait_s` seconds from now, the next run continues.
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
    # The most specific rule wins, whatever the order in the file.
    fitting = (rule for rule in rules if is_prefix(rule.prefix, remote))
    return max(fitting, key=lambda rule: len(normalise_url(rule.prefix)), default=None)


@dataclass(frozen=True, slots=True)
class Limits(_Settings):
    """Bounds on every input."""

    read_seconds: Bound = 300
    """Longest wait for one answer of a Git server, in seconds; a silent HTTP server has at most 60.

    Only the environment variable applies to the control repository, which is read before this file.
    """
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
    """Size of all packages that one run reads, in bytes; packages beyond it are kept unchanged."""
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
    expression_depth: Annotated[Bound, Field(le=31)] = 31
    """Nested or chained terms of one CEL expression."""
    expression_cost: Bound = 1_000_000
    """Estimated cost of one CEL expression."""


@dataclass(frozen=True, slots=True)
class SnapshotPolicy(_Settings):
    """The cluster snapshot."""

    path: Directory = "snapshot"
    """Directory of the snapshot in the control repository."""
    max_age_s: Annotated[Duration, Field(alias="maxAge")] = 7 * 24 * 3600
    """Older than the newest input commit by more than this (`7d`, `12h`, seconds): nothing is deleted."""


@dataclass(frozen=True, slots=True)
class PullRequestPolicy(_Settings):
    """When and how changes become pull requests."""

    open_on: OpenOn = OpenOn.DRAFT
    """`draft`: when the draft is created; `propose`: when a person proposes it."""
    group_by: GroupBy = GroupBy.PACKAGE
    """Packages of one branch and pull request: one `package`, those of a `set`, or of a `repository`."""
    labels: SortedSet = ()
    """Labels of every pull request; setting them is one write more. Commas separate them in the variable."""
    dashboard: bool = False
    """Issue in the control repository with everything that waits for a person; without a forge, a file."""
    writes_per_minute: Bound = 60
    """Writes to one forge as one identity, a minute."""
    writes_per_hour: Bound = 400
    """Writes to one forge as one identity, an hour."""
    max_wait_s: Annotated[Duration, Field(alias="maxWait")] = 120
    """End the run if its next write is due later than this; the next run continues (exit 6)."""

    @property
    def writes(self) -> WriteLimits:
        """The limits of writes to one forge."""
        return WriteLimits(self.writes_per_minute, self.writes_per_hour, float(self.max_wait_s))


_SELECTOR_SCHEMA = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ApprovalRule(_Settings):
    """One rule of automatic approval; drafts with unmet gates or open conflicts are never approved."""

    selector: Annotated[dict[str, Any], Field(json_schema_extra=_SELECTOR_SCHEMA)] = field(
        default_factory=dict
    )
    """Label selector of the Repositories of this rule; empty: all of them."""
    checks: SortedSet = ()
    """Commit statuses and check runs that must have passed; the local forge has none."""
    edited: bool = False
    """Approve drafts with commits of people, too."""


@dataclass(frozen=True, slots=True)
class ApprovalPolicy(_Settings):
    """Automatic approval."""

    auto: tuple[ApprovalRule, ...] = ()
    """Rules; a draft that passes one of them is merged, pinned to its commit."""


@dataclass(frozen=True, slots=True)
class PublishPolicy(_Settings):
    """Publication of merged drafts."""

    tags: bool = True
    """Tag merged packages as `<package>/vN`, hotfixes too."""


@dataclass(frozen=True, slots=True)
class DeletionGuard(_Settings):
    """How much one plan may delete without consent (D17)."""

    share: Share = 0.3
    """Largest share of the owned packages, in [0, 1]."""
    minimum: Count = 10
    """Below this many owned packages the share does not count."""
    count: Count = 100
    """Largest number of deletions, whatever is owned."""
    allowed: Internal[int] = 0
    """Deletions that a person consented to on the command line."""


@dataclass(frozen=True, slots=True)
class ReviewedLockPolicy(_Settings):
    """Reviewed locks."""

    strict: bool = False
    """A new variant waits until its first pin is merged; otherwise it takes that one at once."""


@dataclass(frozen=True, slots=True)
class LockPolicy(_Settings):
    """How pins of floating upstreams and of dependencies change (D3)."""

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


@dataclass(frozen=True, slots=True)
class SelectPolicy(_Settings):
    """Which of the versions that all needs allow is taken: counted from the locked one where there is one."""

    crossplane: Selection = Selection.HIGHEST
    """Of Crossplane's packages: `highest`, `lowest`, `nearest`, `max-patch` or `max-minor`."""
    carvel: Selection = Selection.HIGHEST
    """Of Carvel's packages."""
    porter: Selection = Selection.HIGHEST
    """Of Porter's bundles, unless the installation sets it."""
    kpt: Selection = Selection.HIGHEST
    """Of kpt packages."""


@dataclass(frozen=True, slots=True)
class DependencyPolicy(_Settings):
    """Choice of dependencies, and the place of the manifests that are generated for them."""

    discovery: Discovery = Discovery.NONE
    """`index`: any package of the index may provide an API or interface; `none`: only a named package."""
    allow_downgrade: bool = False
    """A package may go below its locked version where nothing else fits."""
    reconsider: bool = False
    """Alternatives are chosen anew by every run; otherwise the one that was chosen stays while it can."""
    select: SelectPolicy = SelectPolicy()
    steps: Bound = 200_000
    """Steps of the solver for one part of one cluster; beyond them it has no answer."""
    explain_steps: Bound = 2000
    """Questions to the solver that shorten one explanation; beyond them it may name more than is needed."""
    path: Directory = "dependencies"
    """Package that they become in the repository of their cluster; empty: only the lock is written."""
    shared_namespace: Annotated[str, Field(pattern=_LABEL)] = "default"
    """Namespace of packages that can be installed only once per cluster."""


class Author(NamedTuple):
    """The author of commits to the packages below a directory of a repository."""

    directory: str
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class CommitPolicy(_Settings):
    """How commits are made."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^<>\x00-\x1f\x7f]+$")] = "Package Reconciler"
    """Name of author and committer."""
    email: Annotated[str, Field(min_length=3, pattern=r"^[^<>\s\x00-\x1f\x7f]+@[^<>\s\x00-\x1f\x7f]+$")] = (
        "package-reconciler@reconciler.dev"
    )
    """Address of author and committer; how our own commits are recognised later."""
    sign: Literal["", "ssh"] = ""
    """`ssh` signs every commit with an Ed25519 key, the same commit always alike."""
    signing_key_env: VariableName = ""
    """Environment variable that holds the private key, in OpenSSH's format and without a passphrase."""
    signing_key_file: str = ""
    """File that holds the private key."""
    sign_off: bool = False
    """Add a Signed-off-by line."""
    authors: Internal[tuple[Author, ...]] = ()
    """Authors that Repository manifests name, the most specific directory first."""

    @model_validator(mode="after")
    def _one_key_to_sign(self) -> Self:
        if sum(map(bool, (self.signing_key_env, self.signing_key_file))) != bool(self.sign):
            raise ValueError("sign and one of signingKeyEnv, signingKeyFile belong together")
        return self

    def author(self, path: str) -> tuple[str, str]:
        """Return name and email of the author of a commit to the package at `path`."""
        inside = (a for a in self.authors if not a.directory or f"{path}/".startswith(f"{a.directory}/"))
        author = next(inside, None)
        return (author.name, author.email) if author else (self.name, self.email)


@dataclass(frozen=True, slots=True)
class FunctionPolicy(_Settings):
    """Functions of packages: built-in functions always run, others only if they are listed here (D11)."""

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
    """Containers at one time."""
    claim_floating: bool = True
    """Run built-in functions also for images tagged `latest` or without a tag."""
    compatible: bool = False
    """Copy the faults of the functions that are reproduced."""
    timeout_s: Annotated[Bound, Field(alias="timeout")] = 300
    """Longest time of one function, in seconds."""
    memory_bytes: Annotated[int, Field(ge=1 << 24)] = 512 << 20
    """Memory of one function, in bytes."""
    output_bytes: Annotated[int, Field(ge=1 << 10)] = 64 << 20
    """Output of one function, in bytes."""
    starlark_steps: Annotated[int, Field(ge=1000)] = 100_000_000
    """Steps of one Starlark script."""


@dataclass(frozen=True, slots=True)
class Policy(_Settings):
    """Every choice of one instance."""

    instance: Annotated[str, Field(json_schema_extra={"default": ""})] = "default"
    """Name of the instance; it owns packages under this name, so it must never change."""
    manifests: Annotated[tuple[Directory, ...], Field(min_length=1), AfterValidator(_sorted_set)] = ("",)
    """Files and directories of manifests, from the repository's root; `.` is all of it."""
    default_namespace: Annotated[str, Field(pattern=_LABEL)] = "default"
    """Namespace of manifests that name none."""
    snapshot: SnapshotPolicy = SnapshotPolicy()
    pull_requests: PullRequestPolicy = PullRequestPolicy()
    approval: ApprovalPolicy = ApprovalPolicy()
    publish: PublishPolicy = PublishPolicy()
    lock: LockPolicy = LockPolicy()
    deletions: DeletionGuard = DeletionGuard()
    consents: dict[str, str] = field(default_factory=dict)
    """Consent to one unsafe plan: its checksum, and why it is meant."""
    commits: CommitPolicy = CommitPolicy()
    dependencies: DependencyPolicy = DependencyPolicy()
    limits: Limits = Limits()
    on_conflict: OnConflict = OnConflict.ASK
    """Winner of conflicting changes: `ask`, `upstream`, `local` or `fail`; packages may override it."""
    unavailable: OnUnavailable = OnUnavailable.FAIL
    """Effect of an unreachable repository: `fail` (exit 5) or `warn`."""
    suspend: bool = False
    """Plan, and change nothing."""
    functions: FunctionPolicy = FunctionPolicy()
    forges: tuple[ForgeRule, ...] = ()
    """Forges by URL prefix; what matches none is kept in Git alone."""
    credentials: tuple[CredentialRule, ...] = ()
    """Credentials by URL prefix."""
    addresses: tuple[Annotated[str, Field(pattern=r"^((https?|ssh)://[^/]|/)")], ...] = ()
    """Prefixes below which repositories may be: URLs with their scheme, or absolute paths. Empty: https and
    ssh anywhere; paths, and http to this machine, where the control repository is on this machine too."""
    config_path: Internal[str] = "reconciler.yaml"
    """Path of the configuration in the control repository."""


PROPOSED = (
    "default_namespace",
    "manifests",
    "snapshot",
    "publish",
    "suspend",
    "deletions",
    "unavailable",
    "consents",
    "on_conflict",
    "lock",
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
        pull_requests=replace(
            trusted.pull_requests,
            open_on=requests.open_on,
            group_by=requests.group_by,
            labels=requests.labels,
        ),
    )

"""Schema of `reconciler.yaml`, the configuration of one instance."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from reconciler.api.meta import LabelSelector
from reconciler.policy import (
    Discovery,
    ForgeKind,
    FunctionPolicy,
    GroupBy,
    LockMode,
    OnConflict,
    OnUnavailable,
    OpenOn,
    Policy,
    Selection,
)

API_VERSION = "reconciler.dev/v1alpha1"
KIND = "Reconciler"
_POLICY = Policy()
_LIMITS = _POLICY.limits
_FUNCTION_POLICY: Final = FunctionPolicy()
_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS_S = (7 * 24 * 3600, 24 * 3600, 3600, 60, 1)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST: Final = re.compile(r"(?:id:)?sha256:[0-9a-f]{64}")


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


Duration = Annotated[
    int, BeforeValidator(_seconds), Field(ge=0, json_schema_extra={"type": ["integer", "string"]})
]
Directory = Annotated[str, BeforeValidator(_directory)]
VariableName = Annotated[str, BeforeValidator(_environment_name)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Bound = Annotated[int, Field(ge=1)]


class _Settings(BaseModel):
    """Base of all settings: unknown fields are refused, numbers may be quoted as in environment variables."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class ConfigMetadata(_Settings):
    """Metadata of the configuration."""

    name: str = ""
    """Name of the instance, unless `spec.instance` gives it."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class SnapshotSettings(_Settings):
    """The cluster snapshot."""

    path: Directory = _POLICY.snapshot_path
    """Directory of the snapshot in the control repository."""
    max_age: Duration = _POLICY.snapshot_max_age_s
    """Older than the newest input commit by more than this (`7d`, `12h`, seconds): nothing is deleted."""


class PullRequestSettings(_Settings):
    """When and how changes become pull requests."""

    open_on: OpenOn = _POLICY.open_on
    """`draft`: when the draft is created; `propose`: when a person proposes it."""
    group_by: GroupBy = _POLICY.group_by
    """Packages of one branch and pull request: one `package`, those of a `set`, or of a `repository`."""
    labels: tuple[str, ...] = _POLICY.labels
    """Labels of every pull request; setting them is one write more. Commas separate them in the variable."""
    dashboard: bool = _POLICY.dashboard
    """Issue in the control repository with everything that waits for a person; without a forge, a file."""
    writes_per_minute: Bound = _POLICY.writes.per_minute
    """Writes to one forge as one identity, a minute."""
    writes_per_hour: Bound = _POLICY.writes.per_hour
    """Writes to one forge as one identity, an hour."""
    max_wait: Duration = int(_POLICY.writes.max_wait_s)
    """End the run if its next write is due later than this; the next run continues (exit 6)."""


class AutoApprovalSettings(_Settings):
    """One rule of automatic approval; drafts with unmet gates or open conflicts are never approved."""

    selector: LabelSelector = LabelSelector()
    """Label selector of the Repositories of this rule; empty: all of them."""
    checks: tuple[str, ...] = ()
    """Commit statuses and check runs that must have passed; the local forge has none."""
    edited: bool = False
    """Approve drafts with commits of people, too."""


class ApprovalSettings(_Settings):
    """Automatic approval."""

    auto: tuple[AutoApprovalSettings, ...] = ()
    """Rules; a draft that passes one of them is merged, pinned to its commit."""


class PublishSettings(_Settings):
    """Publication of merged drafts."""

    tags: bool = _POLICY.publish_tags
    """Tag merged packages as `<package>/vN`, hotfixes too."""


class DeletionSettings(_Settings):
    """How much one plan may delete without consent."""

    share: Share = _POLICY.deletions.share
    """Largest share of the owned packages, in [0, 1]."""
    minimum: Count = _POLICY.deletions.minimum
    """Below this many owned packages the share does not count."""
    count: Count = _POLICY.deletions.count
    """Largest number of deletions, whatever is owned."""


class ReviewedSettings(_Settings):
    """Reviewed locks."""

    strict: bool = _POLICY.lock.strict
    """A new variant waits until its first pin is merged; otherwise it uses the pin at once."""


class LockSettings(_Settings):
    """How pins of floating upstreams and of dependencies change."""

    mode: LockMode = _POLICY.lock.mode
    """`automatic`: with the run that finds another commit; `reviewed`: by a pull request here first."""
    reviewed: ReviewedSettings = ReviewedSettings()


class SelectSettings(_Settings):
    """Choice among the versions that satisfy all requirements, relative to the locked one."""

    crossplane: Selection = _POLICY.resolution.crossplane
    """Of Crossplane's packages: `highest`, `lowest`, `nearest`, `max-patch` or `max-minor`."""
    carvel: Selection = _POLICY.resolution.carvel
    """Of Carvel's packages."""
    porter: Selection = _POLICY.resolution.porter
    """Of Porter's bundles, unless the installation sets it."""
    kpt: Selection = _POLICY.resolution.kpt
    """Of kpt packages."""


class DependencySettings(_Settings):
    """Choice of dependencies, and the place of the manifests that are generated for them."""

    discovery: Discovery = _POLICY.resolution.discovery
    """`index`: any package of the index may provide an API or interface; `none`: only a named package."""
    allow_downgrade: bool = _POLICY.resolution.allow_downgrade
    """A package may go below its locked version where nothing else fits."""
    reconsider: bool = _POLICY.resolution.reconsider
    """Alternatives are chosen anew by every run; otherwise the one that was chosen stays while it can."""
    select: SelectSettings = SelectSettings()
    steps: Bound = _POLICY.resolution.steps
    """Steps of the solver for one part of one cluster; beyond them it has no answer."""

    path: Directory = _POLICY.delivery.path
    """Package that they become in the repository of their cluster; empty: only the lock is written."""
    shared_namespace: str = Field(
        _POLICY.delivery.shared_namespace, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
    )
    """Namespace of packages that can be installed only once per cluster."""


class CommitSettings(_Settings):
    """How commits are made."""

    name: str = Field(_POLICY.commits.name, min_length=1, pattern=r"^[^<>\n]+$")
    """Name of author and committer."""
    email: str = Field(_POLICY.commits.email, min_length=3, pattern=r"^[^<>\s]+@[^<>\s]+$")
    """Address of author and committer; how our own commits are recognised later."""
    sign: Literal["", "ssh"] = ""
    """`ssh` signs every commit with an Ed25519 key, the same commit always alike."""
    signing_key_env: VariableName = ""
    """Environment variable that holds the private key, in OpenSSH's format and without a passphrase."""
    signing_key_file: str = ""
    """File that holds the private key."""
    sign_off: bool = _POLICY.commits.sign_off
    """Add a Signed-off-by line."""

    @model_validator(mode="after")
    def _one_key_to_sign(self) -> Self:
        if sum(map(bool, (self.signing_key_env, self.signing_key_file))) != bool(self.sign):
            raise ValueError("sign and one of signingKeyEnv, signingKeyFile belong together")
        return self


class LimitSettings(_Settings):
    """Bounds on every input."""

    read_seconds: Bound = _LIMITS.read_seconds
    """Longest wait for one answer of a Git server, in seconds; a silent HTTP server has at most 60.

    Only the environment variable applies to the control repository, which is read before this file.
    """
    manifest_bytes: Bound = _LIMITS.manifest_bytes
    """Size of one manifest file, in bytes."""
    snapshot_file_bytes: Bound = _LIMITS.snapshot_file_bytes
    """Size of one snapshot file, in bytes."""
    package_file_bytes: Bound = _LIMITS.package_file_bytes
    """Size of one file of a package, in bytes."""
    package_files: Bound = _LIMITS.package_files
    """Files of one package."""
    package_bytes: Bound = _LIMITS.package_bytes
    """Size of all files of one package, in bytes; an update takes about sixty times that of memory."""
    run_bytes: Bound = _LIMITS.run_bytes
    """Size of all packages that one run reads, in bytes; packages beyond it are kept unchanged."""
    base_candidates: Bound = _LIMITS.base_candidates
    """Published revisions that an adopted package without upstreamLock is compared with, the newest ones."""
    record_versions: Bound = _LIMITS.record_versions
    """Earlier versions of a damaged record that are tried, the newest first."""
    path_depth: Bound = _LIMITS.path_depth
    """Directories above a file."""
    yaml_depth: Bound = _LIMITS.yaml_depth
    """Nesting of mappings and lists."""
    yaml_documents: Bound = _LIMITS.yaml_documents
    """Documents of one file."""
    yaml_nodes: Bound = _LIMITS.yaml_nodes
    """Values of one document."""
    targets_per_set: Bound = _LIMITS.targets_per_set
    """Variants of one set."""
    expression_bytes: Bound = _LIMITS.expression_bytes
    """Size of one CEL expression, in bytes."""
    expression_depth: Bound = Field(_LIMITS.expression_depth, le=_LIMITS.expression_depth)
    """Nested or chained terms of one CEL expression."""
    expression_cost: Bound = _LIMITS.expression_cost
    """Estimated cost of one CEL expression."""


class ForgeSettings(_Settings):
    """The forge of the repositories below one URL."""

    prefix: str = Field(min_length=1)
    """Prefix of the repository URLs; the longest match wins."""
    type: ForgeKind
    """Product of the forge, which determines its API."""
    api: str = ""
    """URL of its API, where that is not the usual one."""


class CredentialSettings(_Settings):
    """Source of one credential: names of variables and files, never a secret itself."""

    prefix: str = Field(pattern=r"^(https?|ssh)://")
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


class FunctionSettings(_Settings):
    """Functions of packages: built-in functions always run, others only if they are listed here."""

    runtime: Literal["", "docker", "podman", "nerdctl"] = ""
    """Engine that runs pinned images; none: containers are off."""
    engine_arguments: tuple[str, ...] = ()
    """Further arguments of the engine's `run`."""
    images: dict[str, Annotated[str, AfterValidator(_digest)]] = {}
    """Digest of each image by its name and tag; `reconciler functions pull` writes them."""
    exec: dict[str, Annotated[str, AfterValidator(_absolute)]] = {}
    """Executables by the name that a package gives: absolute paths."""
    network: tuple[str, ...] = ()
    """Images, without a tag, that may use the network."""
    parallel: int = Field(_FUNCTION_POLICY.container.parallel, ge=1)
    """Containers at one time."""
    claim_floating: bool = _FUNCTION_POLICY.claim_floating
    """Run built-in functions also for images tagged `latest` or without a tag."""
    compatible: bool = _FUNCTION_POLICY.compatible
    """Copy the faults of the functions that are reproduced."""
    timeout: int = Field(_FUNCTION_POLICY.timeout_s, ge=1)
    """Longest time of one function, in seconds."""
    memory_bytes: int = Field(_FUNCTION_POLICY.memory_bytes, ge=1 << 24)
    """Memory of one function, in bytes."""
    output_bytes: int = Field(_FUNCTION_POLICY.output_bytes, ge=1 << 10)
    """Output of one function, in bytes."""
    starlark_steps: int = Field(_FUNCTION_POLICY.starlark_steps, ge=1000)
    """Steps of one Starlark script."""


class Spec(_Settings):
    """Every choice of the instance."""

    instance: str = ""
    """Name of the instance; it owns packages under this name, so it must never change."""
    manifests: tuple[Directory, ...] = Field(("",), min_length=1)
    """Files and directories of manifests, from the repository's root; `.` is all of it."""
    default_namespace: str = Field(_POLICY.default_namespace, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """Namespace of manifests that name none."""
    snapshot: SnapshotSettings = SnapshotSettings()
    pull_requests: PullRequestSettings = PullRequestSettings()
    approval: ApprovalSettings = ApprovalSettings()
    publish: PublishSettings = PublishSettings()
    lock: LockSettings = LockSettings()
    deletions: DeletionSettings = DeletionSettings()
    consents: dict[str, str] = {}
    """Consent to one unsafe plan: its checksum, and why it is meant."""
    commits: CommitSettings = CommitSettings()
    dependencies: DependencySettings = DependencySettings()
    limits: LimitSettings = LimitSettings()
    on_conflict: OnConflict = _POLICY.on_conflict
    """Winner of conflicting changes: `ask`, `upstream`, `local` or `fail`; packages may override it."""
    unavailable: OnUnavailable = _POLICY.unavailable
    """Effect of an unreachable repository: `fail` (exit 5) or `warn`."""
    suspend: bool = _POLICY.suspend
    """Plan, and change nothing."""
    functions: FunctionSettings = FunctionSettings()
    forges: tuple[ForgeSettings, ...] = ()
    """Forges by URL prefix; other repositories have the local forge, in Git alone."""
    credentials: tuple[CredentialSettings, ...] = ()
    """Credentials by URL prefix."""
    addresses: tuple[Annotated[str, Field(pattern=r"^((https?|ssh)://[^/]|/)")], ...] = ()
    """Prefixes below which repositories may be: URLs with their scheme, or absolute paths. Empty: https and
    ssh anywhere; paths, and http to this machine, where the control repository is on this machine too."""


class Configuration(_Settings):
    """One instance of the reconciler: `reconciler.yaml` of the control repository."""

    api_version: Literal["reconciler.dev/v1alpha1"]
    kind: Literal["Reconciler"]
    metadata: ConfigMetadata = ConfigMetadata()
    spec: Spec = Spec()

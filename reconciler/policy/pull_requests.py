"""Settings of forges, credentials and pull requests: approval, commits, and when they are opened."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from reconciler.names.ids import is_prefix, normalise_url
from reconciler.policy.settings import (
    Bound,
    Count,
    Duration,
    Flag,
    Internal,
    NonEmpty,
    Prefix,
    SettingsGroup,
    SortedSet,
    VariableName,
    address,
    matching,
    sorted_set,
)


class ForgeKind(StrEnum):
    """Product that keeps the pull requests of a repository; `local` is the repository itself."""

    LOCAL = "local"
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    AZURE = "azure"
    BITBUCKET = "bitbucket"


MergeMethod = Literal["", "merge", "squash", "rebase"]


@dataclass(frozen=True)
class ForgeRule(SettingsGroup):
    """The forge of the repositories below one URL."""

    prefix: Prefix
    """Prefix of the repository URLs; the longest match wins."""
    kind: Annotated[ForgeKind, Field(alias="type")]
    """Product of the forge, which determines its API."""
    api: Annotated[str, *address(r"^(https?://[^/].*)?$", "a URL that starts with https://")] = ""
    """URL of its API, where that is not the usual one."""
    merge_method: MergeMethod = ""
    """How approved pull requests are merged: `merge`, `squash` or `rebase`; empty: as the repository prefers.
    """
    draft_prefix: str = "WIP: "
    """Prefix that makes a title a draft's on Gitea and Forgejo, one of WORK_IN_PROGRESS_PREFIXES there."""


@dataclass(frozen=True)
class CredentialRule(SettingsGroup):
    """Source of one credential: names of variables and files, never a secret itself."""

    prefix: Annotated[str, *address(r"^(https?|ssh)://", "a URL that starts with https:// or ssh://")]
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


@dataclass(frozen=True)
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


_FIELDS = 5
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def check_cron(text: str) -> None:
    """Check that a text is a cron expression of five fields, and that some day matches.

    Raises:
        ValueError: It is none.
    """
    # Few configurations have a schedule, and all commands start by reading one.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    hint = "write five fields, such as `* 6-17 * * 1-5`"
    if len(text.split()) != _FIELDS:
        raise ValueError(f"{text!r} is no cron expression; {hint}")
    try:
        CronSim(text, _ANY_TIME)
    except CronSimError as error:
        reason = str(error)
        raise ValueError(
            f"{text!r} is no cron expression: {reason[:1].lower()}{reason[1:]}; {hint}"
        ) from error


def next_opening(schedule: Sequence[str], now: datetime) -> datetime | None:
    """Return the minute of `now` if any cron expression matches, else the next one; None if there is none.

    The expressions are about the zone of `now`.
    """
    from cronsim import CronSim  # noqa: PLC0415

    # By way of UTC: a minute before the end of an hour that daylight saving time skips is none.
    minute_before = (now.astimezone(UTC) - timedelta(minutes=1)).astimezone(now.tzinfo)
    times = [next(CronSim(text, minute_before), None) for text in schedule]
    return min((time for time in times if time is not None), default=None)


class OpenOn(StrEnum):
    """When a draft gets its pull request."""

    DRAFT = "draft"
    PROPOSE = "propose"


class GroupBy(StrEnum):
    """Packages that share one pull request."""

    PACKAGE = "package"
    SET = "set"
    UPSTREAM = "upstream"
    REPOSITORY = "repository"
    WAVE = "wave"


SELECTOR_SCHEMA = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": False,
}
_PERSON = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$"
Person = Annotated[str, *matching(_PERSON, "a user, or a team as owner/team")]


@dataclass(frozen=True)
class ReviewRule(SettingsGroup):
    """People who are asked for some pull requests; a rule applies where all that it names matches."""

    selector: Annotated[dict[str, Any], Field(json_schema_extra=SELECTOR_SCHEMA)] = field(
        default_factory=dict
    )
    """Label selector of the Repositories of this rule; empty: all of them."""
    repositories: SortedSet = ()
    """Names of Repositories, with `*` for any text; none: all of them."""
    sets: SortedSet = ()
    """Names of PackageVariantSets, with `*` for any text; none: variants of no set, too."""
    reviewers: Annotated[tuple[Person, ...], AfterValidator(sorted_set)] = ()
    """Users and teams (`owner/team`) that are asked for a review."""
    assignees: Annotated[tuple[Person, ...], AfterValidator(sorted_set)] = ()
    """Users that pull requests are assigned to."""


def _cron(text: str) -> str:
    check_cron(text)
    return text


@dataclass(frozen=True)
class PullRequestPolicy(SettingsGroup):
    """When and how changes become pull requests."""

    open_on: OpenOn = OpenOn.DRAFT
    """`draft`: when the draft is created; `propose`: when a person proposes it."""
    group_by: GroupBy = GroupBy.PACKAGE
    """Packages of one branch and pull request: one `package`, or those of a `set`, of an `upstream` package,
    of a `repository`, or of a `wave`."""
    labels: SortedSet = ()
    """Labels of every pull request; setting them is one write more. Commas separate them in the variable."""
    reviews: tuple[ReviewRule, ...] = ()
    """Rules about reviewers and assignees; every rule that applies counts."""
    code_owners: Flag = False
    """Also ask the owners that CODEOWNERS of the repository names for the package."""
    max_open: Count = 0
    """Open pull requests at one time, in all repositories together; 0: any number."""
    max_open_per_repository: Count = 0
    """Open pull requests at one time, in each repository; 0: any number."""
    max_new: Count = 0
    """Pull requests that one run opens, in all repositories together; 0: any number."""
    max_new_per_repository: Count = 0
    """Pull requests that one run opens in each repository; 0: any number."""
    schedule: tuple[Annotated[str, AfterValidator(_cron)], ...] = ()
    """Cron expressions of the minutes in which pull requests are opened; none: always. Semicolons separate
    them in the variable."""
    timezone: NonEmpty = "UTC"
    """Time zone of the schedule, such as `Europe/Berlin`."""
    status: Annotated[str, *matching(r"^[^\x00-\x1f\x7f]{0,100}$", "one line of at most 100 characters")] = ""
    """Name of a commit status that tells on each draft whether it may be merged; empty: none."""
    dashboard: Flag = False
    """Issue in the control repository with everything that waits for a person; without a forge, a file."""
    report_url: Annotated[
        str,
        *address(
            r"^(https?://[^\s<>()\[\]`\x00-\x20\x7f]{1,500})?$",
            "a URL that starts with https://, without spaces and brackets",
        ),
    ] = ""
    """Address where the HTML report is published; dashboard and job summaries link to it. Empty: no link."""
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


@dataclass(frozen=True)
class ApprovalRule(SettingsGroup):
    """One rule of automatic approval; drafts with unmet gates or open conflicts are never approved."""

    selector: Annotated[dict[str, Any], Field(json_schema_extra=SELECTOR_SCHEMA)] = field(
        default_factory=dict
    )
    """Label selector of the Repositories of this rule; empty: all of them."""
    checks: SortedSet = ()
    """Commit statuses and check runs that must have passed; the local forge has none."""
    edited: Flag = False
    """Approve drafts with commits of people, too."""
    auto_merge: Flag = False
    """The forge merges, when its own rules and checks are met; the local forge has no auto-merge."""

    @model_validator(mode="after")
    def _checks_once(self) -> Self:
        if self.auto_merge and self.checks:
            raise ValueError("with autoMerge the forge decides which checks count; leave out checks")
        return self


@dataclass(frozen=True)
class ApprovalPolicy(SettingsGroup):
    """Automatic approval."""

    auto: tuple[ApprovalRule, ...] = ()
    """Rules; a draft that passes one of them is merged, pinned to its commit."""


class Author(NamedTuple):
    """The author of commits to the packages below a directory of a repository."""

    directory: str
    name: str
    email: str


@dataclass(frozen=True)
class CommitPolicy(SettingsGroup):
    """How commits are made."""

    name: Annotated[str, *matching(r"^[^<>\x00-\x1f\x7f]+$", "a name without < and >")] = "Package Reconciler"
    """Name of author and committer."""
    email: Annotated[str, *matching(r"^[^<>\s\x00-\x1f\x7f]+@[^<>\s\x00-\x1f\x7f]+$", "an email address")] = (
        "package-reconciler@reconciler.dev"
    )
    """Address of author and committer; how our own commits are recognised later."""
    sign: Literal["", "ssh"] = ""
    """`ssh` signs every commit with an Ed25519 key; the same commit always alike."""
    signing_key_env: VariableName = ""
    """Environment variable with the private key of OpenSSH, without a passphrase."""
    signing_key_file: str = ""
    """File that holds the private key."""
    sign_off: Flag = False
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

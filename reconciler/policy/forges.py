"""Settings of forges and credentials, both matched by URL prefix."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from reconciler.names.ids import is_prefix, normalise_url
from reconciler.policy.settings import SettingsGroup, VariableName


class ForgeKind(StrEnum):
    """Product that keeps the pull requests of a repository; `local` is the repository itself."""

    LOCAL = "local"
    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    AZURE = "azure"
    BITBUCKET = "bitbucket"


MergeMethod = Literal["", "merge", "squash", "rebase"]


@dataclass(frozen=True, slots=True)
class ForgeRule(SettingsGroup):
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
class CredentialRule(SettingsGroup):
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

"""Which forge keeps the pull requests of a repository, as whom, within which budget."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.errors import UnavailableError
from reconciler.forge import gitea, github, gitlab
from reconciler.forge.answers import checked
from reconciler.forge.app import (
    CHECK_PERMISSIONS,
    DASHBOARD_PERMISSIONS,
    PERMISSIONS,
    READ_PERMISSIONS,
    App,
    AppToken,
)
from reconciler.forge.base import Forge
from reconciler.forge.budget import SYSTEM_CLOCK, Budget, Clock, split
from reconciler.forge.http import Authorization, StaticToken, Transport
from reconciler.forge.local import LocalForge
from reconciler.forge.remote import Dialect, RemoteForge
from reconciler.git.repository import Mirror
from reconciler.git.urls import Credential
from reconciler.inventory import RepositoryView
from reconciler.plan.authors import repository_commits
from reconciler.plan.shard import WHOLE, Shard
from reconciler.policy import CommitPolicy, CredentialRule, ForgeKind, ForgeRule, Policy, find_rule

Find = Callable[[str], Credential | None]

_APIS: Mapping[ForgeKind, Callable[[str], str]] = {
    ForgeKind.GITHUB: github.default_api,
    ForgeKind.GITLAB: gitlab.default_api,
    ForgeKind.GITEA: gitea.default_api,
}
_DIALECTS: Mapping[ForgeKind, Callable[[Transport, str], Dialect]] = {
    ForgeKind.GITHUB: github.GitHub,
    ForgeKind.GITLAB: gitlab.GitLab,
    ForgeKind.GITEA: gitea.Gitea,
}
_HEADERS: Mapping[ForgeKind, Mapping[str, str]] = {ForgeKind.GITHUB: github.HEADERS}


class Forges:
    """The forges of one run: one connection and one budget for each API and identity.

    A shard has its share of the budget, and spends it in its own repositories alone. A run that does not
    write asks for a GitHub App's token that cannot write either.

    `configure` comes once the configuration is read; until then every repository is its own forge.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        shard: Shard = WHOLE,
        timeout_s: float = 30.0,
        *,
        writes: bool = True,
    ) -> None:
        self.clock = clock
        self._writes = writes
        self.shard = shard
        self._timeout_s = timeout_s
        self._policy = Policy()
        self._find: Find = lambda _: None
        self._environment: Mapping[str, str] = {}
        self._transports: dict[tuple[str, str], Transport] = {}
        self._apps: dict[CredentialRule, AppToken] = {}
        self._forges: dict[str, Forge] = {}
        self._commits: dict[str, CommitPolicy] = {}

    def configure(self, policy: Policy, find: Find, environment: Mapping[str, str]) -> None:
        """Take the configuration; `find` answers with the credential for an address."""
        self._policy, self._find, self._environment = policy, find, environment

    def sign(self, views: Iterable[RepositoryView]) -> None:
        """Take whom commits name as their author, from the registrations of each repository."""
        by_url: dict[str, list[RepositoryView]] = {}
        for view in views:
            by_url.setdefault(view.url, []).append(view)
        self._commits = {url: repository_commits(v, self._policy.commits) for url, v in by_url.items()}

    def of(self, mirror: Mirror) -> Forge:
        """Return the forge of a repository: what the longest matching rule says, else the repository itself.

        Raises:
            UnavailableError: Its credential is not there.
        """
        if mirror.url not in self._forges:
            self._forges[mirror.url] = self._make(mirror)
        return self._forges[mirror.url]

    def asks(self, mirror: Mirror) -> bool:
        """Tell whether this run asks for a repository's pull requests: not for those of another shard.

        Asking costs a quota, and what other shards wrote is of their share of the budget.
        """
        return self.shard.holds(mirror.url) or isinstance(self.of(mirror), LocalForge)

    def app_credential(self, rule: CredentialRule) -> Credential:
        """Return what git authenticates with as a GitHub App: an installation token of an hour."""
        return Credential("x-access-token", self._app(rule).token())

    def unread(self, remote: str, url: str) -> None:
        """Note that a repository could not be read at all: what it may have cost counts as spent."""
        rule = find_rule(self._policy.forges, remote)
        if rule is not None and rule.kind is not ForgeKind.LOCAL and self.shard.holds(url):
            try:
                self._transport(rule, url).budget.unknown(url)
            except UnavailableError:
                return

    def _make(self, mirror: Mirror) -> Forge:
        rule = find_rule(self._policy.forges, mirror.remote)
        if rule is None or rule.kind is ForgeKind.LOCAL:
            return LocalForge(mirror, self._commits.get(mirror.url, self._policy.commits))
        transport = self._transport(rule, mirror.url)
        name = mirror.url.partition("/")[2]
        dialect = checked(_DIALECTS[rule.kind](transport, name))
        return RemoteForge(dialect, transport, self._policy.instance)

    def _transport(self, rule: ForgeRule, url: str) -> Transport:
        api = rule.api or _APIS[rule.kind](url.partition("/")[0])
        web = f"{urlsplit(api).scheme}://{url}"
        known = find_rule(self._policy.credentials, web)
        key = (api, known.prefix if known else "")
        if key not in self._transports:
            budget = Budget(split(self._policy.writes, self.shard.parts), self.clock)
            self._transports[key] = Transport(
                api,
                self._authorization(known, web),
                budget,
                clock=self.clock,
                headers=_HEADERS.get(rule.kind),
                timeout_s=self._timeout_s,
            )
        return self._transports[key]

    def _authorization(self, rule: CredentialRule | None, web: str) -> Authorization:
        if rule is not None and rule.app_id:
            return self._app(rule)
        credential = self._find(web)
        return StaticToken(credential.password if credential else "")

    def _app(self, rule: CredentialRule) -> AppToken:
        if rule not in self._apps:
            forge = find_rule(self._policy.forges, f"{rule.prefix.rstrip('/')}/")
            host = urlsplit(rule.prefix).netloc
            api = (forge.api if forge else "") or github.default_api(host)
            app = App(rule.app_id, rule.installation_id, _read_key(rule, self._environment))
            self._apps[rule] = AppToken(api, app, self.clock, self._permissions())
        return self._apps[rule]

    def _permissions(self) -> Mapping[str, str]:
        """Return what a token is asked for: an App that lacks one of these gets no token at all."""
        waits = any(approval.checks for approval in self._policy.approvals)
        checks = CHECK_PERMISSIONS if waits else {}
        if self._writes:
            return PERMISSIONS | checks
        return READ_PERMISSIONS | checks | (DASHBOARD_PERMISSIONS if self._policy.dashboard else {})


def _read_key(rule: CredentialRule, environment: Mapping[str, str]) -> str:
    if rule.app_key_env:
        key = environment.get(rule.app_key_env, "")
        if not key:
            raise UnavailableError(f"The key of App {rule.app_id} is missing: {rule.app_key_env} is not set")
        return key
    try:
        return Path(rule.app_key_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"The key of App {rule.app_id} is missing: {rule.app_key_file} cannot be read"
        ) from error

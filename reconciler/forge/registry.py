"""The forge of each repository of a run, with its credential and its budget of writes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from reconciler.base.errors import UnavailableError
from reconciler.forge.api import github
from reconciler.forge.api.dialect import validated
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.api.products import PRODUCTS
from reconciler.forge.http import Budget, Transport, split
from reconciler.forge.local.forge import LocalForge
from reconciler.git.local import read_secret
from reconciler.git.repository import Mirror
from reconciler.git.urls import Credential, is_loopback
from reconciler.http.client import SYSTEM_CLOCK, Authorization, Clock
from reconciler.inventory.inventory import CheckState, PullRequest, RepositoryView, repository_commits
from reconciler.inventory.shard import WHOLE, Shard
from reconciler.policy import CommitPolicy, CredentialRule, ForgeKind, ForgeRule, Policy, find_rule

FindCredential = Callable[[str], Credential | None]


class Forge(Protocol):
    """Pull requests of one repository. Every method is safe to repeat.

    A method that cannot know whether its effect happened looks first and acts after (D14).

    Raises: every method raises UnavailableError when the forge cannot be read or written.
    """

    def list_pulls(self) -> tuple[PullRequest, ...]:
        """Return the pull requests of our branches, open or not, sorted by number.

        An unreadable one is included, with `unreadable` set: it stalls the package of its head.
        """
        ...

    def ensure(self, desired: PullRequest) -> PullRequest:
        """Open a pull request for `desired.head`, or update the open one; return it."""
        ...

    def mark_ready(self, number: int) -> None:
        """Mark an open draft as ready for review."""
        ...

    def mark_draft(self, number: int) -> None:
        """Turn an open pull request that is ready into a draft."""
        ...

    def close(self, number: int, *, comment: str, duplicate_of: int = 0) -> None:
        """Close a pull request with a comment, unless it is closed or merged.

        A closed duplicate of another pull request is never listed again: it was not rejected.
        """
        ...

    def comment(self, number: int, *, key: str, body: str) -> None:
        """Write the comment with this hidden key, or update its text."""
        ...

    def approve(self, number: int, *, expect: str) -> str:
        """Mark a draft as ready, and merge it if its head is still `expect`; return the merge commit's id."""
        ...

    def enable_auto_merge(self, number: int, *, expect: str) -> bool:
        """Mark a draft as ready, and let the forge merge this head by itself; tell whether it did at once.

        A draft stays one if the forge refuses.
        """
        ...

    def checks(self, commit: str) -> Mapping[str, CheckState]:
        """Return the checks of a commit by name; none where the forge has no checks."""
        ...


class OwnTools(NamedTuple):
    """The page that a hosted forge has for the pull requests of a repository, and its command line."""

    page: str
    command: str
    reopens: bool

    def way(self, page: str = "") -> str:
        """Return where to decide about a pull request with this page, by default about all of them."""
        with_command = f", or with `{self.command}`" if self.command else ""
        return f"on {page or self.page}{with_command}"


def find_tools(policy: Policy, remote: str, url: str) -> OwnTools | None:
    """Return what the forge of a repository has for its pull requests, None where Git alone keeps them."""
    rule = find_rule(policy.forges, remote)
    if rule is None or rule.kind is ForgeKind.LOCAL:
        return None
    product = PRODUCTS[rule.kind]
    scheme = "http" if remote.startswith("http://") else "https"
    return OwnTools(f"{scheme}://{url}/{product.pages}", product.command, product.reopens)


class Forges:
    """The forges of one run: one connection and one budget for each API and identity.

    A shard has its share of the budget, and spends it in its own repositories only. A run that does not
    write requests a read-only token of a GitHub App. Pull requests that ended long ago are listed only with
    `lists_ended`: plans need no more of them than earlier runs recorded.

    Until `configure` is called, each repository is its own forge.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        shard: Shard = WHOLE,
        timeout_s: float = 30.0,
        *,
        writes: bool = True,
        lists_ended: bool = False,
    ) -> None:
        self.clock = clock
        self.lists_ended = lists_ended
        self._writes = writes
        self.shard = shard
        self._timeout_s = timeout_s
        self._policy = Policy()
        self._find_credential: FindCredential = lambda _: None
        self._environment: Mapping[str, str] = {}
        self._transports: dict[tuple[str, str], Transport] = {}
        self._apps: dict[CredentialRule, github.AppToken] = {}
        self._forges: dict[str, Forge] = {}
        self._commits: dict[str, CommitPolicy] = {}

    def configure(
        self, policy: Policy, find_credential: FindCredential, environment: Mapping[str, str]
    ) -> None:
        """Set the policy, the function that returns the credential of an address, and the environment."""
        self._policy, self._find_credential, self._environment = policy, find_credential, environment

    def set_authors(self, views: Iterable[RepositoryView]) -> None:
        """Set the authors of commits from the Repository manifests of each repository."""
        by_url: dict[str, list[RepositoryView]] = {}
        for view in views:
            by_url.setdefault(view.url, []).append(view)
        self._commits = {url: repository_commits(v, self._policy.commits) for url, v in by_url.items()}

    def of(self, mirror: Mirror) -> Forge:
        """Return the forge of the longest matching rule, else the repository itself as a local forge.

        Raises:
            UnavailableError: The forge's credential is missing.
        """
        if mirror.url not in self._forges:
            self._forges[mirror.url] = self._make(mirror)
        return self._forges[mirror.url]

    def budgets(self) -> Iterator[tuple[str, int, int]]:
        """Yield the API of each budget, its writes of the last hour, and those that it permits an hour."""
        for (api, _), transport in sorted(self._transports.items(), key=lambda item: item[0]):
            yield api, transport.budget.spent, transport.budget.limits.per_hour

    def lists_pulls(self, mirror: Mirror) -> bool:
        """Tell whether this run lists a repository's pull requests: not those of another shard.

        Listing costs quota, and the writes of other shards count in their own budgets.
        """
        return self.shard.holds(mirror.url) or isinstance(self.of(mirror), LocalForge)

    def app_credential(self, rule: CredentialRule) -> Credential:
        """Return the credential of git as a GitHub App: an installation token, valid for an hour."""
        # GitHub takes an installation token as the password of this user, over https only.
        return Credential("x-access-token", self._app(rule).token())

    def mark_unread(self, remote: str, url: str) -> None:
        """Count the budget's share of a repository that could not be read as spent."""
        rule = find_rule(self._policy.forges, remote)
        if rule is not None and rule.kind is not ForgeKind.LOCAL and self.shard.holds(url):
            try:
                self._transport(rule, url).budget.mark_unread(url)
            except UnavailableError:
                return

    def _make(self, mirror: Mirror) -> Forge:
        rule = find_rule(self._policy.forges, mirror.remote)
        if rule is None or rule.kind is ForgeKind.LOCAL:
            return LocalForge(mirror, self._commits.get(mirror.url, self._policy.commits))
        transport = self._transport(rule, mirror.url)
        name = mirror.url.partition("/")[2]
        dialect = validated(PRODUCTS[rule.kind].dialect(transport, name, rule))
        return ApiForge(dialect, transport, self._policy.instance)

    def _transport(self, rule: ForgeRule, url: str) -> Transport:
        api = rule.api or default_api(rule.kind, url.partition("/")[0], rule.prefix)
        web = f"{urlsplit(api).scheme}://{url}"
        credentials = find_rule(self._policy.credentials, web)
        # Forges limit the writes of a user or an App, not those in a repository.
        key = (api, credentials.prefix if credentials else "")
        if key not in self._transports:
            budget = Budget(split(self._policy.pull_requests.writes, self.shard.parts), self.clock)
            self._transports[key] = Transport(
                api,
                self._authorization(credentials, web, rule.kind),
                budget,
                clock=self.clock,
                headers=PRODUCTS[rule.kind].headers,
                timeout_s=self._timeout_s,
                limits=self._policy.limits,
            )
        return self._transports[key]

    def _authorization(self, rule: CredentialRule | None, web: str, kind: ForgeKind) -> Authorization:
        if rule is not None and rule.app_id:
            return self._app(rule)
        return PRODUCTS[kind].token(self._find_credential(web) or Credential())

    def _app(self, rule: CredentialRule) -> github.AppToken:
        if rule not in self._apps:
            forge = find_rule(self._policy.forges, f"{rule.prefix.rstrip('/')}/")
            host = urlsplit(rule.prefix).netloc
            api = (forge.api if forge else "") or default_api(ForgeKind.GITHUB, host, rule.prefix)
            app = github.App(rule.app_id, rule.installation_id, _read_key(rule, self._environment))
            self._apps[rule] = github.AppToken(api, app, self.clock, self._permissions())
        return self._apps[rule]

    def _permissions(self) -> Mapping[str, str]:
        """Return the permissions of a token: an App that lacks one of them gets no token at all."""
        base, issues = (github.PERMISSIONS, "write") if self._writes else (github.READ_PERMISSIONS, "read")
        awaits_checks = any(approval.checks for approval in self._policy.approval.auto)
        checks = github.CHECK_PERMISSIONS if awaits_checks else {}
        is_setting = self._writes and self._policy.pull_requests.status
        statuses = github.STATUS_PERMISSIONS if is_setting else {}
        dashboard = {"issues": issues} if self._policy.pull_requests.dashboard else {}
        return base | checks | statuses | dashboard


def default_api(kind: ForgeKind, host: str, prefix: str) -> str:
    """Return the usual address of a host's API; on this machine it has the scheme of the rule."""
    api = PRODUCTS[kind].default_api(host)
    # Servers of tests and demos have no certificate.
    is_clear = prefix.startswith("http://") and is_loopback(prefix)
    return f"http://{api.removeprefix('https://')}" if is_clear else api


def _read_key(rule: CredentialRule, environment: Mapping[str, str]) -> str:
    if rule.app_key_env:
        key = environment.get(rule.app_key_env, "")
        if not key:
            raise UnavailableError(
                f"The key of App {rule.app_id} is missing: {rule.app_key_env} is not set",
                hint=f"Set {rule.app_key_env} to the private key of the App.",
            )
        return key
    try:
        return read_secret(rule.app_key_file).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is no text")
        raise UnavailableError(
            f"The key of App {rule.app_id} is missing: {rule.app_key_file} cannot be read: {why}",
            hint="Check appKeyFile of the credentials, and the permissions of the file.",
        ) from error

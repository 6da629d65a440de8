"""Read the forges of a run: pull requests, passed checks and requests on the dashboard."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.errors import Location, ReconcilerError, UnavailableError
from reconciler.base.progress import open_task
from reconciler.base.reasons import Reason
from reconciler.base.redact import learn_credential
from reconciler.forge.api.forge import ApiForge
from reconciler.forge.registry import Forge, Forges
from reconciler.git.local import read_secret
from reconciler.git.repository import Mirror, Mirrors
from reconciler.git.signing import CommitSigning
from reconciler.git.urls import Credential
from reconciler.inventory.inventory import (
    CheckState,
    PullRequest,
    PullState,
    RepositoryView,
    ReviewedLock,
    available_by_url,
    unreadable_problem,
)
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import HEADS, lock_ref, short_branch
from reconciler.names.trailers import KEEPS, TAKES
from reconciler.plan.approvals import wanted_checks
from reconciler.plan.rejection import asked_keys, dashboard_key, dashboard_title
from reconciler.policy import CommitPolicy, CredentialRule, Policy
from reconciler.read.repositories import unread
from reconciler.records.state import LOCKS_DIRECTORY, PullHistory

Pulls = Mapping[str, tuple[PullRequest, ...]]
"""Pull requests by normalized URL; repositories that were not listed are missing."""


class ForgeState(Struct, frozen=True):
    """Pull requests, checks and requests of all forges, and the views and lock updated accordingly.

    `histories` are the recorded histories of pull requests by URL, and afterwards those to record;
    `is_history_due` tells that one of them was of no use.
    `unreadable` are pull requests of which little more than the head is known. `retry_requests` are keys of
    boxes ticked on the dashboard. `passed_checks` are names of checks by URL and commit, `other_checks` have
    the state of every other check. A commit is in neither if its checks are unreadable.
    """

    views: Mapping[ObjectName, RepositoryView]
    reviewed: ReviewedLock | None = None
    histories: Mapping[str, PullHistory] = field(default_factory=dict)
    is_history_due: bool = False
    pulls: Pulls = field(default_factory=dict)
    unreadable: Pulls = field(default_factory=dict)
    retry_requests: frozenset[str] = frozenset()
    passed_checks: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    other_checks: Mapping[tuple[str, str], Mapping[str, CheckState]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the reviewed lock; those of a repository are in its view."""
        return self.reviewed.problems if self.reviewed else ()


def read_forges(
    state: ForgeState, control: Mirror, mirrors: Mirrors, forges: Forges, policy: Policy
) -> ForgeState:
    """Return the state completed by the forges. Total: an unreachable forge affects only its repositories."""
    reader = _PullReader(forges, dict(state.histories))
    listed, views = _read_pulls(state.views, mirrors, reader)
    reviewed = state.reviewed
    if reviewed is not None:
        reviewed, listed = _with_lock_pulls(reviewed, listed, control, reader)
        reviewed = _with_unreadable_pulls(reviewed, listed.get(control.url, ()), policy.instance)
    unreadable = {url: broken for url, pulls in listed.items() if (broken := _unreadable(pulls))}
    pulls = {url: tuple(p for p in pulls if not p.unreadable) for url, pulls in listed.items()}
    urls = {control.url, *(view.url for view in views.values())}
    checks = dict(_read_checks(views, pulls, forges, mirrors, policy))
    requests, notes = (
        _read_retry_requests(forges.of(control), policy)
        if policy.pull_requests.dashboard
        else (frozenset(), ())
    )
    # A repository that is not registered any more needs no history.
    histories = {url: reader.histories[url] for url in sorted(reader.histories.keys() & urls)}
    return ForgeState(
        views,
        reviewed,
        histories,
        bool(reader.due),
        pulls,
        unreadable,
        requests,
        passed_checks={
            key: frozenset(name for name, state in states.items() if state is CheckState.PASSED)
            for key, states in checks.items()
        },
        other_checks={
            key: {name: state for name, state in states.items() if state is not CheckState.PASSED}
            for key, states in checks.items()
        },
        notes=(*notes, *_double_ticks(views, pulls)),
    )


def _double_ticks(views: Mapping[ObjectName, RepositoryView], pulls: Pulls) -> Iterator[str]:
    """Tell of each conflict with both boxes ticked: it stays open."""
    names = {view.url: key.name for key, view in views.items()}
    ticked = [(names.get(url, url), pull) for url in sorted(pulls) for pull in pulls[url] if pull.ticks]
    for repository, pull in ticked:
        where = f"pull request #{pull.number} of {repository}"
        both = [name for choice, name in sorted(pull.ticks or ()) if choice == KEEPS]
        for name in (name for name in both if (TAKES, name) in (pull.ticks or ())):
            yield f"Both boxes of a conflict are ticked in {where}, so neither counts. Untick one: {name}"


def _unreadable(pulls: Iterable[PullRequest]) -> tuple[PullRequest, ...]:
    return tuple(pull for pull in pulls if pull.unreadable)


class _PullReader(Struct, frozen=True):
    """Lists pull requests of repositories, and replaces the recorded histories by the ones to record.

    `due` are the repositories with a history that was of no use.
    """

    forges: Forges
    histories: dict[str, PullHistory]
    due: set[str] = field(default_factory=set)

    def list_pulls(self, mirror: Mirror) -> tuple[PullRequest, ...]:
        """Return the pull requests of a repository as its branches are here.

        Raises:
            UnavailableError: The forge cannot be read, or another run is writing.
        """
        forge = self.forges.of(mirror)
        if self.forges.lists_ended or not isinstance(forge, ApiForge):
            return _current(forge.list_pulls(), mirror)
        branches = {short_branch(ref) for ref in mirror.refs() if ref.startswith(HEADS)}
        listing = forge.list_known(mirror.url, self.histories.get(mirror.url), branches)
        pulls = _current(listing.pulls, mirror)
        self.histories.pop(mirror.url, None)
        if listing.history is not None:
            self.histories[mirror.url] = listing.history
        if listing.is_due:
            self.due.add(mirror.url)
        return pulls


def _read_pulls(
    views: Mapping[ObjectName, RepositoryView], mirrors: Mirrors, reader: _PullReader
) -> tuple[dict[str, tuple[PullRequest, ...]], dict[ObjectName, RepositoryView]]:
    pulls: dict[str, tuple[PullRequest, ...]] = {}
    unreachable: dict[str, UnavailableError | DefectError] = {}
    with open_task("listing pull requests", len(available_by_url(views.values()))) as task:
        for view in views.values():
            if view.url in pulls or view.url in unreachable:
                continue
            try:
                with guard(f"pull requests of {view.remote}"):
                    if not view.is_available:
                        if (
                            view.former is None
                        ):  # one that is gone for good would take its share of every budget
                            reader.forges.mark_unread(view.remote, view.url)
                        continue
                    mirror = mirrors.open(view.remote)
                    # Listing costs API quota: a shard lists only where it writes.
                    if reader.forges.lists_pulls(mirror):
                        pulls[view.url] = reader.list_pulls(mirror)
                        task.advance()
            except (UnavailableError, DefectError) as error:
                unreachable[view.url] = error
                task.advance()
    updated = {
        key: unread(view, unreachable[view.url]) if view.url in unreachable else view
        for key, view in views.items()
    }
    return pulls, updated


def _current(pulls: tuple[PullRequest, ...], mirror: Mirror) -> tuple[PullRequest, ...]:
    """Return the pull requests if they match the branches that were fetched before them.

    Raises:
        UnavailableError: The branch of an open one is not here: another run pushed it meanwhile.
    """
    # Without its branch, this run would take the name of the draft as in use and propose the package twice.
    refs = mirror.refs()
    newer = [p.head for p in pulls if p.state is PullState.OPEN and f"{HEADS}{p.head}" not in refs]
    if newer:
        message = f"Branch {newer[0]} of {mirror.remote} came while it was read: another run is writing"
        raise UnavailableError(message, hint="Run again.")
    return pulls


def _with_lock_pulls(
    reviewed: ReviewedLock, pulls: dict[str, tuple[PullRequest, ...]], control: Mirror, reader: _PullReader
) -> tuple[ReviewedLock, dict[str, tuple[PullRequest, ...]]]:
    """Add the pull requests of the control repository; close the lock to proposals if that fails."""
    if control.url in pulls:
        return reviewed, pulls
    try:
        with guard("pull requests of the control repository"):
            return reviewed, {**pulls, control.url: reader.list_pulls(control)}
    except (UnavailableError, DefectError) as error:
        message = f"The pull requests of the control repository cannot be listed: {error}"
        where = Location(LOCKS_DIRECTORY)
        problem = Problem(where, Reason.REPOSITORY_UNAVAILABLE, message, error.hint)
        if isinstance(error, DefectError):
            problem = defect_problem(error, where, subject="the control repository")
        return replace(reviewed, is_open=False, problems=(*reviewed.problems, problem)), pulls


def _with_unreadable_pulls(
    reviewed: ReviewedLock, pulls: Iterable[PullRequest], instance: str
) -> ReviewedLock:
    """Close the lock to proposals if the pull request that proposes another lock is unreadable."""
    head = short_branch(lock_ref(instance))
    broken = [pull for pull in _unreadable(pulls) if pull.head == head]
    if not broken:
        return reviewed
    where = Location(LOCKS_DIRECTORY)
    problems = (unreadable_problem(where, "the control repository", pull) for pull in broken)
    return replace(reviewed, is_open=False, problems=(*reviewed.problems, *problems))


def _read_checks(
    views: Mapping[ObjectName, RepositoryView], pulls: Pulls, forges: Forges, mirrors: Mirrors, policy: Policy
) -> Iterator[tuple[tuple[str, str], Mapping[str, CheckState]]]:
    """Yield the checks by URL and commit, for the commits that an approval rule or a gate needs."""
    gated = any(wave.gates.checks for rollout in policy.rollouts for wave in rollout.waves)
    if not gated and not any(rule.checks for rule in policy.approval.auto):
        return
    for url, siblings in available_by_url(views.values()).items():
        forge = forges.of(mirrors.open(siblings[0].remote))
        heads = {view.head.oid for view in siblings if view.head} if gated else set()
        for commit in sorted({*wanted_checks(siblings, pulls.get(url, ()), policy), *heads}):
            # A failed request approves nothing.
            with suppress(ReconcilerError), guard(f"checks of commit {commit}"):
                yield (url, commit), forge.checks(commit)


def _read_retry_requests(forge: Forge, policy: Policy) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the keys of ticked boxes on the dashboard, and a note if it is unreadable. Total."""
    if not isinstance(forge, ApiForge):
        return frozenset(), ()
    try:
        with guard("the dashboard"):
            issues = forge.find_issues(dashboard_key(policy.instance), dashboard_title(policy.instance))
            return frozenset().union(*(asked_keys(issue.body) for issue in issues if issue.is_open)), ()
    except (UnavailableError, DefectError) as error:
        return frozenset(), (f"The dashboard cannot be read: {error}",)


CONTROL_TOKEN = "RECONCILER_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
CONTROL_KEY = "RECONCILER_CONTROL_SSH_KEY_FILE"
CONTROL_KNOWN_HOSTS = "RECONCILER_CONTROL_KNOWN_HOSTS_FILE"


def control_credential(environment: Mapping[str, str]) -> Callable[[str], Credential | None]:
    """Return the credential lookup for the control repository, which is opened before its configuration."""
    token = environment.get(CONTROL_TOKEN, "")
    key, known_hosts = environment.get(CONTROL_KEY, ""), environment.get(CONTROL_KNOWN_HOSTS, "")
    learn_credential(token, f"the variable {CONTROL_TOKEN}")
    _learn_key(key)
    is_set = token or key or known_hosts
    credential = Credential("", token, _path(key), _path(known_hosts)) if is_set else None
    return lambda _: credential


def find_credentials(
    policy: "Policy",
    environment: Mapping[str, str],
    app: Callable[[CredentialRule], Credential] | None = None,
) -> Callable[[str], Credential | None]:
    """Return the credential lookup by address: the longest matching rule counts.

    The lookup raises UnavailableError if the variable or file of a rule is missing, so that only the
    repositories of that rule are unreadable. `app` creates the credential of a rule for a GitHub App.
    """

    def find(remote: str) -> Credential | None:
        from reconciler.policy import find_rule  # noqa: PLC0415 - the control repository is opened without it

        rule = find_rule(policy.credentials, remote)
        if rule is not None and rule.app_id and app is not None:
            return app(rule)
        return None if rule is None else _credential(rule, environment)

    return find


def lacks_credential(policy: "Policy", environment: Mapping[str, str], remote: str) -> bool:
    """Tell whether the rule of an address names a variable that is not set, or a file that is not there."""
    from reconciler.policy import find_rule  # noqa: PLC0415 - as above

    rule = find_rule(policy.credentials, remote)
    if rule is None:
        return False
    variables = filter(None, (rule.token_env, rule.app_key_env))
    files = filter(None, (rule.token_file, rule.app_key_file, rule.ssh_key_file))
    return not (all(map(environment.get, variables)) and all(Path(file).is_file() for file in files))


def commit_signing(policy: CommitPolicy, environment: Mapping[str, str]) -> CommitSigning:
    """Return the signing of commits. The key is read when the first one is signed.

    Reading it raises UnavailableError if its variable or file is missing.
    """
    if not policy.sign:
        return CommitSigning(policy.sign_off)
    return CommitSigning(policy.sign_off, lambda: _signing_key(policy, environment))


def _signing_key(policy: CommitPolicy, environment: Mapping[str, str]) -> bytes:
    hint = "Set it, or correct spec.commits of reconciler.yaml."
    if policy.signing_key_env:
        if key := environment.get(policy.signing_key_env, ""):
            return key.encode()
        message = f"Commits cannot be signed: environment variable {policy.signing_key_env} is not set"
        raise UnavailableError(message, hint=hint)
    try:
        return read_secret(policy.signing_key_file)
    except OSError as error:
        message = f"Commits cannot be signed: file {policy.signing_key_file} cannot be read: {error.strerror}"
        raise UnavailableError(message, hint=hint) from error


def _credential(rule: CredentialRule, environment: Mapping[str, str]) -> Credential:
    if rule.ssh_key_file:
        _learn_key(rule.ssh_key_file)
        known_hosts = _path(rule.known_hosts_file)
        return Credential(rule.username, ssh_key=Path(rule.ssh_key_file), known_hosts=known_hosts)
    token = _token(rule, environment)
    origin = f"the variable {rule.token_env}" if rule.token_env else f"the file {rule.token_file}"
    learn_credential(token, origin)
    return Credential(rule.username, token)


def _token(rule: CredentialRule, environment: Mapping[str, str]) -> str:
    if rule.token_env:
        if token := environment.get(rule.token_env, ""):
            return token
        raise _missing(rule, f"environment variable {rule.token_env} is not set")
    try:
        token = read_secret(rule.token_file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is no text")
        raise _missing(rule, f"file {rule.token_file} cannot be read: {why}") from error
    if not token:
        raise _missing(rule, f"file {rule.token_file} is empty")
    return token


def _learn_key(path: str) -> None:
    """Mask a private key that ssh reads by itself; ssh reports one that is unreadable."""
    if path:
        with suppress(OSError, UnicodeDecodeError):
            learn_credential(read_secret(path).decode(), f"the file {path}")


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _missing(rule: CredentialRule, why: str) -> UnavailableError:
    hint = "Set it, or correct spec.credentials of reconciler.yaml."
    return UnavailableError(f"The credential for {rule.prefix} is missing: {why}", hint=hint)

"""Texts that are written in place, after everything else: the dashboard, and the comment of `check`."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from reconciler.apply.outcome import EffectKind, Result, Target, failed_result
from reconciler.apply.state import MOST_TRIES
from reconciler.base.defects import guard
from reconciler.base.errors import ReconcilerError
from reconciler.forge.api.dialect import Issue
from reconciler.forge.api.forge import ApiForge, has_issues
from reconciler.forge.registry import Forge, Forges
from reconciler.git.repository import Mirror
from reconciler.git.urls import Credential
from reconciler.http.client import duration_text
from reconciler.inventory.shard import WHOLE, Shard, dashboard_file
from reconciler.names.problems import Problem
from reconciler.plan.changes import Effect, Plan
from reconciler.plan.context import PlanContext
from reconciler.plan.rejection import dashboard_key, dashboard_title
from reconciler.plan.set_diff import claimed_packages
from reconciler.plan.status import PackageStatus
from reconciler.policy import ForgeKind, ForgeRule, Policy, find_rule
from reconciler.read.forges import control_credential, find_credentials, lacks_credential
from reconciler.report.markdown import Dashboard, make_dashboard, merge_parts
from reconciler.report.report import Names

EMPTY = "There is no package."


class DashboardWriter(Struct, frozen=True):
    """Where the dashboard of an instance is kept, and what packages are called there.

    Each shard writes its part: a section of the one issue, or a file of its own.
    """

    forge: Forge
    names: Names
    shard: Shard = WHOLE

    def make(
        self,
        plan: Plan,
        statuses: Sequence[PackageStatus],
        results: Mapping[str, Result],
        targets: Mapping[str, Target],
    ) -> Dashboard:
        """Return the dashboard after these results."""
        if plan.context is not None:
            statuses = _statuses_of(self.shard, statuses, plan.context)
            refusals = plan.refusals if self.shard.part == 0 else ()
            plan = replace(plan, problems=_problems_of(self.shard, plan), refusals=refusals)
        return make_dashboard(plan, statuses, self.names, _eta(results, targets))

    def files(self, dashboard: Dashboard) -> Mapping[str, bytes]:
        """Return the dashboard as files of the status branch; none where it is an issue of one run."""
        if not dashboard.text or (has_issues(self.forge) and not self.is_shared):
            return {}
        return {dashboard_file(self.shard): dashboard.text.encode()}

    @property
    def is_shared(self) -> bool:
        """Whether several shards write the dashboard."""
        return self.shard.parts > 1

    def write(self, dashboard: Dashboard, read_parts: Callable[[], Mapping[int, str]] = dict) -> Result:
        """Update the issue; one is opened only if something needs attention. A failure stops nothing else.

        `read_parts` returns the parts of all shards, as the status branch has them now.
        """
        if not has_issues(self.forge):
            return Result()
        forge, instance = self.forge, self.names.instance
        key, title = dashboard_key(instance), dashboard_title(instance)
        forge.transport.budget.reserve(0)
        try:
            with guard("the dashboard"):
                if not dashboard.calls and not forge.find_issues(key, title):
                    return Result()
                if self.is_shared:
                    issue = self._write_parts(forge, dashboard, read_parts)
                else:
                    issue = forge.write_issue(key, title, dashboard.text or EMPTY)
        except ReconcilerError as error:
            return failed_result(forge.dialect.name, error, (), title, kind=EffectKind.UPDATED)
        effects = (
            (Effect(forge.dialect.name, EffectKind.UPDATED, f"#{issue.number} {title}"),) if issue else ()
        )
        return Result(effects)

    def _write_parts(
        self, forge: ApiForge, dashboard: Dashboard, read_parts: Callable[[], Mapping[int, str]]
    ) -> Issue | None:
        """Write the parts of all shards; return the issue if that changed it.

        An issue has no compare-and-swap: of two writers side by side the second replaces what the first
        wrote. The status branch has it, and every shard moves that first. Who writes last and then finds
        the parts unchanged has written all of them; any other writer writes again.
        """
        key, title = dashboard_key(self.names.instance), dashboard_title(self.names.instance)
        written, parts = None, read_parts()
        for _ in range(MOST_TRIES):
            issues = forge.find_issues(key, title)
            texts = {**parts, self.shard.part: dashboard.text}
            text = merge_parts(issues[0].body if issues else "", texts, self.shard.part, self.shard.parts)
            written = forge.write_issue(key, title, text or EMPTY) or written
            before, parts = parts, read_parts()
            if parts == before:
                break
        return written


def reserve_dashboard_write(forges: Iterable[Forge]) -> None:
    """Keep one write of each forge for the dashboard, which matters most where a limit ends a run."""
    for forge in forges:
        if isinstance(forge, ApiForge):
            forge.transport.budget.reserve(1)


def _eta(results: Mapping[str, Result], targets: Mapping[str, Target]) -> str:
    """Return how long what is left takes, on the forge where that is longest; empty if nothing is left."""
    counts: dict[ApiForge, int] = {}
    for url, result in results.items():
        forge = targets[url].forge if url in targets else None
        if isinstance(forge, ApiForge) and result.remaining:
            same = next((other for other in counts if other.transport is forge.transport), forge)
            counts[same] = counts.get(same, 0) + result.remaining
    waits = [forge.transport.budget.eta_s(count) for forge, count in counts.items()]
    return duration_text(max(waits)) if waits else ""


def _statuses_of(
    shard: Shard, statuses: Iterable[PackageStatus], context: PlanContext
) -> tuple[PackageStatus, ...]:
    """Return the statuses that a shard tells of: those of its packages; the first one also what has none."""
    packages = {v.key: package for package, variants in context.downstreams.items() for v in variants}

    def is_own(status: PackageStatus) -> bool:
        package = status.package or (packages.get(status.variant) if status.variant else None)
        return shard.holds(package.url) if package else shard.part == 0

    return tuple(filter(is_own, statuses))


def _problems_of(shard: Shard, plan: Plan) -> tuple[Problem, ...]:
    """Return the problems that a shard tells of: those of its packages; the first one also what has none."""
    context = plan.context
    if context is None:
        return plan.problems
    urls = {f"PackageVariant {v.key}": p.url for p, variants in context.downstreams.items() for v in variants}
    claims = claimed_packages(context.stalled, context.inventory)
    urls |= {f"PackageVariant {key}": package.url for package, key in claims.items()}
    urls |= {f"Repository {key}": view.url for key, view in context.inventory.repositories.items()}
    here = (shard.holds(urls[p.subject]) if p.subject in urls else shard.part == 0 for p in plan.problems)
    return tuple(problem for problem, is_own in zip(plan.problems, here, strict=True) if is_own)


KEY = "check"


def write_check_comment(
    control: Mirror, trusted: Policy, environment: Mapping[str, str], number: int, body: str
) -> str:
    """Write or update the comment; return why it is not there, empty if it is. Safe to repeat.

    Whom it is sent to, and as whom, is decided by the merged configuration, and by the runner for its
    own repository. A run for a fork may not write, and that is no fault of the change: nothing is raised.
    """
    policy = _with_runner(control, trusted, environment)
    control_secret = control_credential(environment)(control.remote)
    if control_secret and lacks_credential(policy, environment, control.remote):
        # A check of pull requests has no secret; the runner's own token may comment all the same.
        policy = dataclasses.replace(policy, credentials=())
    forges = Forges()
    try:
        with guard(f"comment on pull request {number}"):
            forges.configure(policy, _Find(policy, environment, forges), environment)
            forges.of(control).comment(number, key=KEY, body=body)
    except ReconcilerError as error:
        return str(error)
    return ""


class _Find:
    """The credential for an address: what the configuration names, else the control repository's own."""

    def __init__(self, policy: Policy, environment: Mapping[str, str], forges: Forges) -> None:
        self._named = find_credentials(policy, environment, forges.app_credential)
        self._own = control_credential(environment)

    def __call__(self, remote: str) -> Credential | None:
        return self._named(remote) or self._own(remote)


def _with_runner(control: Mirror, policy: Policy, environment: Mapping[str, str]) -> Policy:
    """Return the policy with the forge of this runner, if it hosts the control repository."""
    server, api = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_API_URL")
    rule = find_rule(policy.forges, control.remote)
    if rule or not server or not api or control.is_local:
        return policy
    gitea = "true" in (environment.get("GITEA_ACTIONS"), environment.get("FORGEJO_ACTIONS"))
    rule = ForgeRule(server, ForgeKind.GITEA if gitea else ForgeKind.GITHUB, api)
    return (
        dataclasses.replace(policy, forges=(*policy.forges, rule))
        if find_rule([rule], control.remote)
        else policy
    )

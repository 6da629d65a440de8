"""Results of effects per repository, and the repositories that effects write to."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from reconciler.apply.links import NO_LINKS, Links, UpstreamLog
from reconciler.base import effects
from reconciler.base.defects import DefectError
from reconciler.base.errors import Exit, ReconcilerError
from reconciler.forge.registry import Forge
from reconciler.git.repository import Mirror
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import Oid, PackageKey
from reconciler.names.objects import Files
from reconciler.plan.changes import Effect, Unfinished
from reconciler.policy import CommitPolicy, RiskPolicy
from reconciler.report.diff import DifferenceReader
from reconciler.report.report import Names


class EffectKind(StrEnum):
    """Kind of an effect, as reports name it."""

    PUSHED = "pushed"
    DELETED = "deleted"
    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"
    AUTO_MERGE = "auto-merge"
    QUEUED = "queued"
    RECORDED = "recorded"


class Result(NamedTuple):
    """Result for one repository: effects in order, packages with missing effects, classes of exit.

    `remaining` counts the pull requests that a budget left to the next run, `opened` are those that were
    opened or updated, by URL and head.
    """

    effects: tuple[Effect, ...] = ()
    unfinished: Mapping[PackageKey, Unfinished] = MappingProxyType({})
    exits: frozenset[Exit] = frozenset()
    remaining: int = 0
    opened: Mapping[tuple[str, str], PullRequest] = MappingProxyType({})

    @property
    def failed(self) -> frozenset[PackageKey]:
        """The packages of which some effect was not done."""
        return frozenset(self.unfinished)


def merge_results(results: Iterable[Result]) -> Result:
    """Return the sum of results, their effects in the same order."""
    every = list(results)
    return Result(
        tuple(effect for result in every for effect in result.effects),
        {package: why for result in reversed(every) for package, why in result.unfinished.items()},
        frozenset(code for result in every for code in result.exits),
        sum(result.remaining for result in every),
        # Their bodies would stay in memory to the end of the run, and nothing reads them.
        {head: replace(pull, body="") for result in every for head, pull in result.opened.items()},
    )


def failed_result(
    repository: str,
    error: ReconcilerError,
    packages: Iterable[PackageKey],
    ref: str = "",
    *,
    kind: EffectKind = EffectKind.PUSHED,
    pushed: bool = False,
) -> Result:
    """Return the result of something that could not be done: named, so that the rest can proceed.

    `pushed` tells whether the refs of these packages moved as planned.
    """
    if isinstance(error, DefectError) and effects.is_shutting_down():
        error = effects.StoppedError()  # a signal interrupts calls of the system, and libgit2 fails with that
    effect = Effect(repository, kind, ref, error=str(error), hint=error.hint, cause=error.cause)
    why = Unfinished(str(error), error.hint, pushed=pushed)
    return Result((effect,), dict.fromkeys(packages, why), frozenset({error.exit_code}))


class Target(Struct, frozen=True):
    """A repository to write to: its mirror, its forge, commits, names of packages, and classes of risks.

    Targets of one run share the readers of differences and of upstream commits. `texts` are those of pull
    requests that are about no package, by their heads, `contents` the packages that the plan read, by tree.
    """

    mirror: Mirror
    forge: Forge
    policy: CommitPolicy
    names: Names
    risks: RiskPolicy = RiskPolicy()
    links: Links = NO_LINKS
    differences: DifferenceReader = field(default_factory=DifferenceReader)
    log: UpstreamLog | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[Oid, Files] = field(default_factory=dict)

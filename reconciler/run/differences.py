"""Both sides of planned changes: the packages on main and as their drafts have them, read from mirrors."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from reconciler.apply.links import unmade_files
from reconciler.base.reasons import Reason
from reconciler.functions.secrets import SecretValues, values_in_secrets
from reconciler.names.ids import Oid
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op, Plan, WriteRemoval
from reconciler.read.contents import fetch_contents
from reconciler.resolve.resolution import Needs
from reconciler.run.plan import RunInputs


class PackageSides(Struct, frozen=True):
    """A package on main and after its change; `unread` is the reason if one of them cannot be read.

    `unmade` are the files of its upstream where its functions wait or failed, for Secrets in them.
    """

    change: Change
    before: Files = field(default_factory=dict)
    after: Files = field(default_factory=dict)
    unread: str = ""
    unmade: Files = field(default_factory=dict)

    @property
    def secrets(self) -> SecretValues:
        """The values that no output may have."""
        return values_in_secrets(self.before, self.after, self.unmade)


def read_sides(changes: Iterable[Change], plan: Plan, inputs: RunInputs) -> Iterator[PackageSides]:
    """Yield both sides of each change, in the same order; what mirrors lack is fetched."""
    trees = [(change, _main_tree(change, plan), _draft_tree(change, plan)) for change in changes]
    needs = Needs.of((change.package.url, tree) for change, *both in trees for tree in both)
    contents = fetch_contents(needs, inputs.mirrors, inputs.inventory.policy.limits)
    for change, before, after in trees:
        unread = next(
            (contents.refused[oid] for oid in (before, after) if oid and oid in contents.refused), ""
        )
        written = change.written.files if change.written else {}
        yield PackageSides(
            change,
            contents.files.get(before, {}) if before else {},
            contents.files.get(after, {}) if after else written,
            unread,
            unmade_files(inputs.mirrors, change, inputs.inventory.policy.limits),
        )


def is_deletion(change: Change) -> bool:
    """Whether a change removes the package from main."""
    return change.op is Op.DELETE or any(isinstance(write, WriteRemoval) for write in change.writes)


def is_removed(change: Change) -> bool:
    """Whether a change removes the package from main, or did so in a pull request that is open."""
    return is_deletion(change) or (change.op is Op.KEEP and change.reason is Reason.DELETION_PROPOSED)


def _main_tree(change: Change, plan: Plan) -> Oid | None:
    target = plan.context.targets.get(change.package) if plan.context else None
    return target.package.main_tree if target else change.before


def open_draft(change: Change, plan: Plan) -> Oid | None:
    """Return the tree of the draft that a package has, None if it has no draft."""
    target = plan.context.targets.get(change.package) if plan.context else None
    return target.draft.tree if target and target.draft else None


def _draft_tree(change: Change, plan: Plan) -> Oid | None:
    """Return the tree to read; None for a package that is deleted, or that the plan holds itself."""
    if is_removed(change) or (change.written and change.written.files):
        return None
    return change.tree if change.written else open_draft(change, plan) or change.tree

"""Values of the planning stage, made directly: what a rule does not look at has a default."""

from collections.abc import Callable, Iterable
from functools import partial
from types import MappingProxyType
from typing import Any
from zlib import crc32

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired, DesiredVariant
from reconciler.inventory.inventory import Commit, Draft, FieldPath, PullRequest, PullState, Source
from reconciler.names.ids import Lifecycle, ObjectName, Oid, PackageKey
from reconciler.names.refs import TAGS
from reconciler.plan.changes import (
    After,
    ApprovalState,
    Change,
    DraftFacts,
    MoveRef,
    Op,
    Plan,
    WriteDraft,
    WriteGroup,
)
from reconciler.plan.compose import Changes, Decision, GroupPlace, with_after
from reconciler.plan.context import PlanContext, PlanTarget, with_before
from reconciler.plan.set_diff import SetDiff
from reconciler.records.state import PackageVariantRecord
from reconciler.render.rendered import Rendered
from reconciler.render.update import Conflict
from reconciler.resolve.resolution import Pin, Resolution, ResolvedVariant
from tests.support.sets import a_package, repository, variant, world
from tests.support.values import replace

URL = "host/edge"
NOTHING: Any = MappingProxyType({})
WEB = ObjectName("default", "web")
PACKAGE = PackageKey(URL, "web")
BRANCH = "drafts/web/packagevariant-1"


def oid(text: str) -> Oid:
    """Return an object id that begins with a text of hexadecimal digits."""
    return Oid(text.ljust(40, "0"))


a_context = partial(
    PlanContext,
    desired=Desired(),
    resolution=Resolution(),
    rendered=Rendered(),
    diff=SetDiff(),
    stalled=frozenset(),
    **dict.fromkeys(
        ("targets", "downstreams", "resolved", "variants", "gone", "waiting"), MappingProxyType({})
    ),
    **dict.fromkeys(("staying", "stopped", "rollouts", "proposed_deletions"), MappingProxyType({})),
)
"""Make a context in which nothing is desired and nothing was planned yet."""


a_draft = partial(
    Draft,
    path=PACKAGE.path,
    workspace="packagevariant-1",
    lifecycle=Lifecycle.DRAFT,
    ref=f"refs/heads/{BRANCH}",
    tip=Commit(oid("d2"), 20),
    tree=oid("d1"),
    written=oid("d1"),
    header=KptfileHeader(owner="default/default/web", location="edge/web"),
    base=oid("b2"),
    base_tree=oid("b1"),
)
"""Make an untouched draft of ours with the tree `d1` at the commit `d2`."""


def a_pull(state: PullState = PullState.OPEN, **fields: Any) -> PullRequest:
    """Return a pull request of that draft, at its tip."""
    given = {"title": "", "body": "", "number": 1, "state": state, "head_oid": oid("d2"), **fields}
    return PullRequest(**{"head": BRANCH, "base": "main", **given})


a_write = partial(
    WriteDraft,
    ref=f"refs/heads/{BRANCH}",
    expect=None,
    onto=oid("b2"),
    path=PACKAGE.path,
    files=NOTHING,
    tree=oid("e1"),
    message="",
    time=70,
)
"""Make the first commit of that draft."""


def a_record(**fields: Any) -> PackageVariantRecord:
    """Return the record of the variant `web` of the package `web`."""
    web = {"namespace": WEB.namespace, "name": WEB.name, "uid": "", "manifest": "web.yaml"}
    there = {"url": PACKAGE.url, "path": PACKAGE.path, "repository": "edge", "spec": {}}
    return PackageVariantRecord(**(web | there | fields))


def a_conflict(  # noqa: PLR0917 - a row of a table
    path: str,
    field: str,
    upstream: str | None,
    local: str | None,
    resource: str = "",
    name: str = "",
    base: str | None = None,
) -> Conflict:
    """Return a conflict of two values that waits for a person."""
    return Conflict(path, resource, field, base, upstream, local, "BothChanged", name)


def a_pin(revision: int = 1, **fields: Any) -> Pin:
    """Return the pin of a published revision of `blueprints/web`."""
    given: dict[str, Any] = {
        "package": PackageKey("host/blueprints", "web"),
        "remote": "https://host/blueprints",
        "ref": f"web/v{revision}",
        "revision": revision,
        "commit": Commit(oid(f"a{revision}"), 10 + revision),
        "tree": oid(f"c{revision}"),
        "repository": "blueprints",
        "name": "web",
        **fields,
    }
    return Pin(**given)


class FieldLines:
    """Marks that give each field a line of its own."""

    def mark(self, path: FieldPath) -> tuple[int, int]:
        """Return a line that only this path has."""
        return 2 + crc32(repr(path).encode()) % 99_991, 0


def field_at(path: str, *field: str | int) -> Location:
    """Return the location of a field of a manifest with such marks."""
    return Location(path, *FieldLines().mark(field))


EDGE = repository(
    "edge",
    url=URL,
    head=Commit(oid("b2"), 50),
    source=Source(Location("repositories.yaml", 1), marks=FieldLines()),
)


a_change = partial(Change, package=PACKAGE, repository=EDGE.key, op=Op.KEEP, reason=Reason.UP_TO_DATE)
"""Make a change of the package `web` that keeps it as it is."""
KEPT = a_change(variant=WEB, before=oid("b1"))


a_desired_variant = partial(
    DesiredVariant, key=WEB, uid="", spec=PackageVariantSpec(), source=Source(Location("web.yaml", 1))
)
"""Make the variant `web` with a bare specification."""


def a_desired(name: str = "web", time: int = 33, **spec: Any) -> DesiredVariant:
    """Return a variant of a manifest, for the package `web` in `edge` unless told otherwise."""
    given = {"downstream": {"repo": "edge", "package": "web"}, **spec}
    sourced = variant(name, at=Source(Location("web.yaml", 1), time, FieldLines()), **given)
    return DesiredVariant(sourced.key, "", sourced.manifest.spec, sourced.source)


a_resolved = partial(ResolvedVariant, variant=a_desired(), view=EDGE.key, downstream=PACKAGE, pin=a_pin())
"""Make that variant with its pin, whose package is not on main unless told otherwise."""
ON_MAIN = a_package(main_tree=oid("b1"), main_header=KptfileHeader())


a_target = partial(PlanTarget, PACKAGE, view=EDGE, package=ON_MAIN)
"""Make the package `web` on main of `edge`, without an owner and drafts."""


def web_context(target: PlanTarget | None = None, **fields: Any) -> PlanContext:
    """Return a context of the one package `web` that the variant `web` wants."""
    web = a_desired()
    read = {"views": (EDGE,), **fields.pop("inventory", {})}
    inventory = world(*read.pop("manifests", ()), **read)
    given: dict[str, Any] = {
        "desired": Desired(variants=(web,)),
        "variants": {WEB: web},
        "downstreams": {PACKAGE: (web,)},
        "targets": {PACKAGE: target or a_target()},
        **fields,
    }
    return with_before(a_context(inventory, **given))


def a_decision(change: Change, target: PlanTarget | None = None) -> Decision:
    """Return the decision that becomes a change of which no stage has said anything."""
    there = target or a_target()
    facts = {name: getattr(change, name) for name in DraftFacts.__struct_fields__}
    draft = next((write for write in change.writes if isinstance(write, WriteDraft)), None)
    tags = tuple(w for w in change.writes if isinstance(w, MoveRef) and w.ref.startswith(TAGS))
    shared = [write for write in change.writes if isinstance(write, WriteGroup)]
    return Decision(
        replace(there, key=change.package, view=replace(there.view, key=change.repository)),
        change.op,
        change.reason,
        change.message,
        variant=change.variant,
        location=change.location,
        before=change.before,
        tree=change.tree,
        draft=draft,
        branches=tuple(w for w in change.writes if w is not draft and w not in (*tags, *shared)),
        tags=tags,
        pull=change.pull,
        close=change.close,
        facts=DraftFacts(**facts),
        waits=change.waits,
    )


def staged(
    part: str, stage: Callable[..., Any], changes: Iterable[Change], context: PlanContext
) -> tuple[Change, ...]:
    """Return changes with what one stage of planning says about them."""
    given = {change.package: change for change in changes}
    composed = Changes(a_decision(change, context.targets.get(key)) for key, change in given.items())
    for key, change in given.items():
        shared = tuple(write for write in change.writes if isinstance(write, WriteGroup))
        if change.group or shared:
            own = tuple(write for write in change.writes if isinstance(write, WriteDraft))
            place = GroupPlace(change.group, (*own, *shared), change.pull)
            composed.add({key: place}, lambda parts, group: parts._replace(group=group))
        if change.approve:
            approval = ApprovalState(change.approve)
            composed.add({key: approval}, lambda parts, state: parts._replace(approval=state))
        composed.add({key: change.losses}, lambda parts, losses: parts._replace(losses=losses))
    result = stage(context, composed.composed)
    results = result[0] if isinstance(result, tuple) else result
    composed.add(results, lambda parts, own: parts._replace(**{part: own}))
    return tuple(map(stateless, composed.composed.values()))


def plan_of(change: Change, context: PlanContext, **fields: Any) -> Plan:
    """Return a plan of one change, with the state after it."""
    return Plan(changes=(with_after(change, context.targets[change.package]),), context=context, **fields)


def stateless(change: Change) -> Change:
    """Return a change without the state after it, which has tests of its own."""
    return replace(change, after=After())

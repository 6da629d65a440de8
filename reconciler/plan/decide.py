"""Decide about one package: whether its variant may have it, what it needs, and which veto holds it back."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import Reason
from reconciler.base.text import join_texts
from reconciler.expand import DesiredVariant
from reconciler.expand.variants import spec_data
from reconciler.inventory.inventory import Draft
from reconciler.inventory.standing import SHORT
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Op
from reconciler.plan.compose import Decision, Held, Veto, deny, is_uncertain, place_hint
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.deletions import decide_unwanted, left_drafts, left_to_people
from reconciler.plan.draft_decision import Case, decide_output, wave_veto
from reconciler.plan.drafts import close_drafts, close_pulls, is_rejected, revision_tags
from reconciler.plan.path_conflicts import find_obstacle
from reconciler.resolve.ownership import ADOPT_EXISTING, find_pause, is_foreign, is_merged


def decide(target: PlanTarget, context: PlanContext) -> Decision:
    """Decide about one package. Total: what nothing is known about is kept, and so is one with a defect."""
    variants = context.downstreams.get(target.key, ())
    problem = next((context.defects[v.key] for v in variants if v.key in context.defects), None)
    try:
        if problem is None:
            with guard(f"package {target.key}"):
                return _decide(target, variants, context)
    except DefectError as error:
        if variants:
            problem = defect_problem(error, variants[0].source.location, variants[0].owner)
        else:
            problem = defect_problem(error, target.view.source.location, subject=f"package {target.key.path}")
    return _left_alone(target, variants, problem)


def _decide(target: PlanTarget, variants: Sequence[DesiredVariant], context: PlanContext) -> Decision:
    if not variants:
        return decide_unwanted(target, context)
    variant = variants[0]
    held = _find_veto(target, variants, context)
    if held is None:
        claim = find_obstacle(target, variant, context) or claim_package(target, variant, context)
        if not isinstance(claim, Held):
            rendered = context.rendered.variants[variant.key]
            return decide_output(Case(target, context.resolved[variant.key], rendered, context, claim))
        held = claim
    rivals = tuple(_rival_problems(target, variants)) if len(variants) > 1 else ()
    problems = (held.problem,) if held.problem is not None else rivals
    draft, main = target.draft, target.package.main_tree
    op, tree = Op.KEEP, draft.tree if draft else main
    # What a variant that is gone proposed would be merged for nobody, unless this one takes it over later.
    is_denied = held.by in {Veto.OWNER, Veto.PATH}
    every = left_drafts(target, context) if is_denied else ()
    withdrawn, comment = [draft for draft in every if not draft.append_only], "Its PackageVariant is gone."
    if touched := [draft for draft in every if draft.append_only and not is_rejected(target, draft)]:
        why = join_texts(". ", (held.why, left_to_people(target, touched)))
        held = replace(held, why=why, waits=True)
    if held.by is Veto.WAVE and main is None and draft is not None and not draft.append_only:
        # It waits for its first revision, and this is a draft of another one.
        op, tree, held = Op.CLOSE, None, wave_veto(variant, context, Op.CLOSE)
        withdrawn, comment = [draft], "Its rollout does not bring this revision."
    return Decision(
        target,
        op,
        Reason.UP_TO_DATE,
        variant=variant.key,
        location=variant.source.location,
        before=draft.tree if draft else main,
        tree=tree,
        branches=close_drafts(withdrawn),
        tags=revision_tags(target, context) if held.by in {Veto.UPSTREAM, Veto.WAVE} else (),
        close=close_pulls(target, [draft.ref for draft in withdrawn], comment),
        held=held,
        problems=problems,
    )


def _left_alone(target: PlanTarget, variants: Sequence[DesiredVariant], problem: Problem) -> Decision:
    """Keep a package with everything that is of it: a bug of ours broke the work on it."""
    draft, main = target.draft, target.package.main_tree
    op = Op.KEEP if target.package.exists else Op.BLOCK
    variant = variants[0] if variants else None
    return Decision(
        target,
        op,
        Reason.UP_TO_DATE,
        variant=target.before.variant,
        location=variant.source.location if variant else None,
        before=draft.tree if draft else main,
        tree=draft.tree if draft else main,
        held=Held(Veto.DEFECT, Reason.DEFECT, problem.message, op),
        problems=(problem,),
    )


def _find_veto(target: PlanTarget, variants: Sequence[DesiredVariant], context: PlanContext) -> Held | None:
    """Return why nothing is compared with what the variants ask for, None if nothing forbids it."""
    variant = variants[0]
    if len(variants) > 1:
        names = " and ".join(str(v.key) for v in variants)
        return Held(Veto.RIVALS, Reason.DUPLICATE_DOWNSTREAM, f"Wanted by {names}")
    if pause := find_pause(target.view, variant, context.inventory):
        return Held(Veto.PAUSE, Reason.PAUSED, pause)
    if newer := _decided_since(target, variant, context):
        return Held(Veto.UPSTREAM, Reason.CHECKOUT_OUTDATED, newer)
    return _unresolved(target, variant, context) if variant.key not in context.resolved else None


def _decided_since(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> str:
    """Return what a newer commit that was applied decided about a package; "" if nothing else (D28)."""
    standing = context.inventory.control.standing
    if standing.applied is None or standing.contains_applied:
        return ""
    where = standing.sentence
    if not standing.is_outdated:
        # Of an unmerged commit, what it has from where it left the default branch is no wish of its own.
        desired_before = (context.inventory.control.before or {}).get((variant.key, target.key))
        if desired_before != variant.spec:
            return ""
        where = f"This commit does not contain {standing.applied[:SHORT]}, which was applied last"
    record = context.inventory.records.get(variant.key)
    if record is None or target.key in context.proposed_deletions:
        return f"{where}, and a newer commit lets it go"
    is_elsewhere = PackageKey(record.url, record.path) != target.key
    asks_else = is_elsewhere or record.spec != spec_data(variant)
    return f"{where}, and a newer commit asks for something else" if asks_else else ""


def _unresolved(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Held:
    """Return the veto of a variant without upstream or pin: its package is kept, a new one is blocked."""
    if variant.key in context.staying:
        return wave_veto(variant, context)
    if variant.key in context.waiting:
        return Held(Veto.UPSTREAM, Reason.LOCK_PENDING, context.waiting[variant.key])
    mine = [p for p in context.resolution.problems if p.owner == variant.owner]
    message = mine[0].message if mine else ""
    if target.package.exists or not mine:
        return Held(Veto.UPSTREAM, Reason.OWNER_STALLED, message)
    return Held(Veto.UPSTREAM, Reason(mine[0].reason), message, Op.BLOCK)


def _rival_problems(target: PlanTarget, variants: Sequence[DesiredVariant]) -> Iterator[Problem]:
    """Yield a problem of each variant that wants a package that others want, too."""
    for variant in variants:
        rivals = ", ".join(f"{v.key} ({v.source.location})" for v in variants if v is not variant)
        message = f"Package {target.package.path} is also the downstream of {rivals}"
        location = variant.source.at("spec", "downstream", "package")
        hint = "Give each PackageVariant its own downstream."
        yield Problem(location, Reason.DUPLICATE_DOWNSTREAM, message, hint).owned_by(variant.owner)


def claim_package(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Op | Held:
    """Return what a change of the package would be: create, update, transfer or adopt; or why not.

    Source: porch packagevariant_controller.go, findAndUpdateExistingRevisions; D5.
    Differs: adoption leaves drafts of other people alone; another instance's package is never taken.
    """
    owner = target.owner
    if owner == variant.key:
        return Op.UPDATE
    if owner is None:
        return _claim_unowned(target, variant, context)
    if is_uncertain(owner, context):
        return deny(
            Veto.OWNER, Reason.OWNER_STALLED, f"PackageVariant {owner} owns it and is not understood", target
        )
    if owner not in context.variants and (release := _open_release(target)):
        # Its owner went in an earlier run: only a removal and an addition in one run are a rename.
        message = (
            f"PackageVariant {owner} lets go of package {target.package.path}: its release is open, "
            f"{short_branch(release.ref)}"
        )
        hint = f"Merge it and set spec.adoptionPolicy to {ADOPT_EXISTING}, or close it to have the package."
        problem = Problem(
            variant.source.at("spec", "downstream", "package"), Reason.PACKAGE_EXISTS, message, hint
        )
        return deny(Veto.OWNER, Reason.PACKAGE_EXISTS, message, target, problem.owned_by(variant.owner))
    return Op.TRANSFER


def _open_release(target: PlanTarget) -> Draft | None:
    """Return the open draft of ours that takes the owner from a package, None for none."""
    drafts = (d for d in target.package.drafts if d.written is not None and not d.header.owner)
    unmerged = (d for d in drafts if not is_merged(d, target.package, target.pulls))
    return next((draft for draft in unmerged if not is_rejected(target, draft)), None)


def _claim_unowned(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Op | Held:
    package = target.package
    if is_foreign(package.main_header, package.path, context.inventory.policy.instance):
        return _exists(target, variant, context)
    if variant.spec.adoption_policy == ADOPT_EXISTING and (draft := _foreign_draft(target)):
        message = f"A draft of other people is open: {short_branch(draft.ref)}. Merge or delete it first"
        return deny(Veto.OWNER, Reason.FOREIGN_DRAFT, message, target, waits=True)
    if target.draft is None and package.main_tree is None and package.path in target.view.directories:
        return Op.ADOPT
    if not package.exists or (package.main_tree is None and target.draft is not None):
        return Op.CREATE
    if variant.spec.adoption_policy == ADOPT_EXISTING:
        return Op.ADOPT if package.main_tree is not None else Op.CREATE
    return _exists(target, variant, context)


class AdoptionObstacle(NamedTuple):
    """Why a package that exists is not taken: as a clause, what ends the wait, and the next step."""

    why: str
    waits_for: str
    hint: str


def adoption_obstacle(target: PlanTarget, variant: ObjectName, context: PlanContext) -> AdoptionObstacle:
    """Return why a package is not taken; its adoption is offered only where it can be had."""
    package, header = target.package, target.package.main_header
    adoption = f"Set spec.adoptionPolicy to {ADOPT_EXISTING}, or choose another downstream package."
    obstacle = AdoptionObstacle("exists and is not ours", Reason.PACKAGE_EXISTS.facts.waits_for, adoption)
    if is_foreign(header, package.path, context.inventory.policy.instance):
        instance = header.owner.partition("/")[0] if header else ""
        handed = (
            f"To hand it over, give it deletionPolicy: orphan in {instance}, remove it there and merge its "
            f"release; {ADOPT_EXISTING} takes it then (docs/faq.md). "
            "Or choose another downstream package."
        )
        obstacle = AdoptionObstacle(
            f"is owned by another instance, {instance}", f"its release by {instance}, or another name", handed
        )
    elif header is not None and header.error:
        obstacle = AdoptionObstacle(
            f"exists, and its Kptfile cannot be read: {header.error}",
            "a repair of its Kptfile, or another name",
            "Repair it on its branch, or choose another downstream package.",
        )
    # What is generated for a cluster has no manifest that could ask for its adoption.
    hint = place_hint(variant)
    return AdoptionObstacle(obstacle.why, "another path", hint) if hint else obstacle


def _foreign_draft(target: PlanTarget) -> Draft | None:
    """Return an unmerged draft of other people: adopting the package would open a second one."""
    ours = {draft.ref for draft in target.drafts}
    package = target.package
    foreign = (draft for draft in package.drafts if draft.ref not in ours)
    return next((draft for draft in foreign if not is_merged(draft, package, target.pulls)), None)


def _exists(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Held:
    obstacle = adoption_obstacle(target, variant.key, context)
    message = f"Package {target.package.path} in repository {target.view.key.name} {obstacle.why}"
    location = variant.source.at("spec", "downstream", "package")
    problem = Problem(location, Reason.PACKAGE_EXISTS, message, obstacle.hint).owned_by(variant.owner)
    return deny(Veto.OWNER, Reason.PACKAGE_EXISTS, message, target, problem)

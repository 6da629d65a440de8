"""Decide whether a variant may have the package that it wants: new, its own, or to be adopted."""

from typing import NamedTuple

from reconciler.base.reasons import Reason
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Draft
from reconciler.names.ids import ObjectName
from reconciler.names.problems import Problem
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Op
from reconciler.plan.compose import Held, Veto
from reconciler.plan.context import PlanContext, PlanTarget
from reconciler.plan.drafts import is_rejected
from reconciler.resolve.deliveries import TARGET_ANNOTATION, cluster_of
from reconciler.resolve.ownership import ADOPT_EXISTING, is_foreign, is_merged, may_stand_behind


def deny(
    by: Veto,
    reason: Reason,
    message: str,
    target: PlanTarget,
    problem: Problem | None = None,
    *,
    waits: bool = False,
) -> Held:
    """Return the veto of a variant over a package that it must leave alone."""
    return Held(by, reason, message, Op.KEEP if target.package.exists else Op.BLOCK, waits, problem)


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


def find_obstacle(target: PlanTarget, variant: ObjectName, context: PlanContext) -> AdoptionObstacle:
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


def is_uncertain(owner: ObjectName, context: PlanContext) -> bool:
    """Tell whether the owner may still want its package although no manifest declares it now (law 4)."""
    return may_stand_behind(owner, context.variants, context.stalled, context.inventory)


def _exists(target: PlanTarget, variant: DesiredVariant, context: PlanContext) -> Held:
    obstacle = find_obstacle(target, variant.key, context)
    message = f"Package {target.package.path} in repository {target.view.key.name} {obstacle.why}"
    location = variant.source.at("spec", "downstream", "package")
    problem = Problem(location, Reason.PACKAGE_EXISTS, message, obstacle.hint).owned_by(variant.owner)
    return deny(Veto.OWNER, Reason.PACKAGE_EXISTS, message, target, problem)


def place_hint(variant: ObjectName) -> str:
    """Return how to move what is generated for a cluster to another path, "" for any other package."""
    cluster = cluster_of(variant)
    return (
        f"Annotate the Repository of cluster {cluster} with another path: {TARGET_ANNOTATION}."
        if cluster
        else ""
    )

"""Decide about a package that variants may have: who gets it, what its draft needs, which veto holds it."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reconciler.api.kptfile import INJECTION_PREFIX, GitUpstream, KptfileHeader
from reconciler.base.defects import DefectError, guard
from reconciler.base.reasons import LEFT_BY_RUN, Reason
from reconciler.base.text import Text, join_texts
from reconciler.expand import DesiredVariant
from reconciler.expand.variants import spec_data, written_spec
from reconciler.inventory.inventory import Draft, PullRequest, PullState
from reconciler.inventory.standing import SHORT
from reconciler.names.ids import ObjectName, Oid, PackageKey, normalise_url
from reconciler.names.problems import Problem, defect_problem
from reconciler.names.refs import short_branch, short_tag
from reconciler.plan.changes import ClosePull, DraftFacts, Op, SubpackageNote, Write, WriteDraft
from reconciler.plan.compose import Decision, Held, Veto, asked_text, deny, is_uncertain, place_hint
from reconciler.plan.context import PlanContext, PlanTarget, newest_pull
from reconciler.plan.deletions import decide_unwanted, left_drafts, left_to_people, withdraw_deletion
from reconciler.plan.drafts import (
    close_drafts,
    close_pulls,
    draft_message,
    is_behind,
    is_proposed,
    is_rejected,
    next_workspace,
    revision_tags,
    start_branch,
    wanted_pull,
    write_draft,
)
from reconciler.plan.path_conflicts import find_obstacle
from reconciler.plan.rejection import closed_text, find_rejection, retry_text, was_seen_rejected
from reconciler.plan.set_diff import changed_fields
from reconciler.records.state import PackageVariantRecord, SubpackageRecord
from reconciler.render.conflicts import masked, masked_answer, recorded_answers, recorded_conflicts
from reconciler.render.rendered import Blocked, Package, RenderedVariant
from reconciler.resolve.deliveries import cluster_of
from reconciler.resolve.ownership import ADOPT_EXISTING, find_pause, is_foreign, is_merged
from reconciler.resolve.resolution import Pin, ResolvedVariant
from reconciler.resolve.rollout_model import RolloutPhase
from reconciler.resolve.rollout_records import is_asked_again
from reconciler.resolve.variants import find_sources


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
    package, draft = target.package, _foreign_draft(target)
    header = package.main_header or (draft.header if draft is not None else None)
    adoption = f"Set spec.adoptionPolicy to {ADOPT_EXISTING}, or choose another downstream package."
    obstacle = AdoptionObstacle("exists and is not ours", Reason.PACKAGE_EXISTS.facts.waits_for, adoption)
    if is_foreign(header, package.path, context.inventory.policy.instance):
        instance = header.owner.partition("/")[0] if header else ""
        handed = (
            f"To hand it over, give it deletionPolicy: orphan in {instance}, remove it there and merge its "
            f"release; {ADOPT_EXISTING} takes it then (docs/guides/hand-over.md). "
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


# The draft of a rendered package: keep, publish, write, update, close or block


class Case(Struct, frozen=True):
    """One resolved variant and its package; `op` is what a change of content would be called."""

    target: PlanTarget
    resolved: ResolvedVariant
    rendered: RenderedVariant
    context: PlanContext
    op: Op

    @property
    def record(self) -> PackageVariantRecord | None:
        """The record of the last run for the variant."""
        return self.context.inventory.records.get(self.resolved.variant.key)

    @property
    def is_asked_again(self) -> bool:
        """Whether a person asks for what was rejected: by the retry annotation, or on the dashboard."""
        fresh, draft = self.rendered.fresh, self.target.draft
        trees = (fresh.tree if isinstance(fresh, Package) else None, draft.tree if draft else None)
        return is_asked_again(self.resolved.variant, self.target.key, trees, self.context.inventory)

    def decision(
        self,
        op: Op,
        reason: Reason,
        message: Text = "",
        *,
        veto: Veto | None = None,
        waits: bool = False,
        tree: Oid | None = None,
        facts: DraftFacts | None = None,
        draft: WriteDraft | None = None,
        pull: PullRequest | None = None,
        branches: Sequence[Write] = (),
        close: Sequence[ClosePull] = (),
        problems: tuple[Problem, ...] = (),
    ) -> Decision:
        """Return a decision about the package, with what its rollout or its lock has to do with it.

        `tree` is that of the package, by default that of its draft, else of main.
        A package without a draft after the change waits for its wave, whatever else this run does about it.
        """
        variant, resolved = self.resolved.variant, self.resolved
        is_same = op is Op.KEEP and reason is Reason.UP_TO_DATE and self.target.draft is None
        wave = self.context.staying.get(variant.key, "")
        if wave and (is_same or op is Op.CLOSE):
            held: Held | None = wave_veto(variant, self.context, op)
            waits = held is not None and held.waits
        else:
            message = join_texts("; ", (message, wave or self.context.stopped.get(variant.key, "")))
            held = Held(veto, reason, message, op, waits) if veto is not None else None
        offers = resolved.offers
        if op is Op.CREATE and variant.requested_by:
            message = message or f"Required by {', '.join(variant.requested_by)}"
        elif offers is not None and offers.commit.oid != resolved.pin.commit.oid:
            message = message or f"Locked; upstream offers {offers.label}"
        untouched = tuple(d for d in self.target.others if not d.append_only)
        withdrawn = tuple(withdraw_deletion(self.target, self.context))
        before = self.target.draft.tree if self.target.draft else self.target.package.main_tree
        return Decision(
            self.target,
            op,
            reason,
            message,
            variant=variant.key,
            location=variant.source.location,
            before=before,
            tree=tree or before,
            draft=draft,
            # Drafts that main has or that another one replaces are due, and a deletion to withdraw.
            branches=(*close_drafts((*self.target.merged, *untouched)), *withdrawn, *branches),
            tags=revision_tags(self.target, self.context),
            close=(*close, *self._closes(untouched, [write.ref for write in withdrawn])),
            obsolete=Reason.DELETION_WITHDRAWN if withdrawn else None,
            held=held,
            waits=waits,
            pull=pull,
            facts=facts or _named_facts(resolved),
            problems=problems,
        )

    def _closes(self, untouched: Sequence[Draft], withdrawn: Sequence[str]) -> Iterator[ClosePull]:
        """Yield the closing of pull requests that are due with their branches."""
        merged = [draft.ref for draft in self.target.merged]
        replaced = "Another draft of this package replaces this one."
        yield from close_pulls(self.target, merged, "Main has this content.")
        yield from close_pulls(self.target, [draft.ref for draft in untouched], replaced)
        yield from close_pulls(self.target, withdrawn, "The package is wanted again.")


def wave_veto(variant: DesiredVariant, context: PlanContext, op: Op = Op.KEEP) -> Held:
    """Return the veto of the rollout that keeps a package; what people took back waits for them."""
    why, rollout = context.staying[variant.key], context.rollouts.get(variant.key)
    if rollout is not None and variant.key in rollout.rejected:
        record = context.inventory.records.get(variant.key)
        again = retry_text(variant, record.retry if record and variant.key not in context.resolved else "")
        waits = not was_seen_rejected(variant.key, context.inventory)
        return Held(Veto.WAVE, Reason.REJECTED, f"{why}. {again}", op, waits)
    is_back = rollout is not None and rollout.phase is RolloutPhase.ROLLED_BACK
    return Held(Veto.WAVE, Reason.ROLLED_BACK if is_back else Reason.AWAITING_WAVE, why, op)


def decide_output(case: Case) -> Decision:
    """Decide what brings the rendered package where people can review it. Total."""
    fresh, draft = case.rendered.fresh, case.target.draft
    if case.resolved.moved:
        message = case.resolved.moved
        return case.decision(Op.KEEP, Reason.UPSTREAM_TAG_MOVED, message, veto=Veto.MOVED_TAG, waits=True)
    if isinstance(fresh, Blocked):
        return _blocked(case, fresh)
    if fresh.tree == case.target.package.main_tree:
        return _on_main(case, fresh, draft)
    if draft is None:
        return _new_draft(case, fresh)
    return _touched_draft(case, draft, fresh) if draft.append_only else _untouched_draft(case, draft, fresh)


def _untouched_draft(case: Case, draft: Draft, fresh: Package) -> Decision:
    if draft.tree != fresh.tree:
        return (
            _kept_draft(case, draft, fresh)
            if _is_better(case, draft, fresh)
            else _written(case, draft, fresh)
        )
    is_outdated = _is_outdated(case, draft)
    return _written(case, draft, fresh, renewed=True) if is_outdated else _standing_draft(case, draft, fresh)


def _is_better(case: Case, draft: Draft, package: Package) -> bool:
    """Whether a draft went through its functions, and what would take its place did not (ADR 9)."""
    record = case.record
    is_ours = record is not None and record.output_tree == draft.written
    return package.failed and not (is_ours and record is not None and record.failed)


def _kept_draft(case: Case, draft: Draft, package: Package) -> Decision:
    """Keep a good draft while the functions of what would take its place fail; they are tried every run."""
    record = case.record
    failure = package.unready[0] if package.failed else ""
    answers = recorded_answers(record) if record else ()
    standing = Package(draft.tree, conflicts=recorded_conflicts(record), answers=answers)
    return _standing_draft(case, draft, standing, failure=f"{failure}; the draft stays as it was")


def _new_draft(case: Case, package: Package) -> Decision:
    target, resolved, view = case.target, case.resolved, case.target.view
    start = () if view.head else tuple(start_branch(view, case.context.inventory))
    onto = view.head.oid if view.head else start[0].oid if start else None
    if onto is None:
        message = f"Branch {view.branch} of repository {view.key} does not exist"
        return _blocked(case, Blocked(Reason.BRANCH_NOT_FOUND, message))
    rejected = find_rejection(target, resolved, case.record, package.tree)
    if rejected and not case.is_asked_again:
        return _rejected(case, rejected, package.tree, _facts(case, Package(package.tree)))
    workspace = next_workspace(target)
    write = write_draft(
        target,
        package,
        workspace,
        draft=None,
        onto=onto,
        message=draft_message(target, resolved, workspace, package),
        time=case.rendered.time,
    )
    reason = _reason(case, None)
    again = "It was rejected before, and a person asked for it again" if rejected else ""
    return case.decision(
        Op.EDIT if reason is Reason.CONTENT_CHANGED else case.op,
        reason,
        join_texts(
            "; ", (_causes_of(case, reason, None), again, *package.notes, asked_text(package.conflicts))
        ),
        tree=package.tree,
        branches=start,
        draft=write,
        pull=_pull(case, write.ref, None),
        facts=_facts(case, package),
        waits=bool(package.conflicts),
    )


def _rejected(case: Case, why: str, tree: Oid | None, facts: DraftFacts) -> Decision:
    """Return the decision about content that people refused, with what they write to have it again."""
    variant = case.resolved.variant
    return case.decision(
        Op.KEEP,
        Reason.REJECTED,
        f"{why}. {retry_text(variant)}",
        veto=Veto.REJECTION,
        waits=not was_seen_rejected(variant.key, case.context.inventory),
        tree=tree,
        facts=facts,
    )


def _on_main(case: Case, fresh: Package, draft: Draft | None) -> Decision:
    """Main is what it should be: an untouched draft is closed, a person's is kept.

    Main keeps what people made of generated files: nothing is written, and they are asked. Of any other
    package the merged draft was the answer.
    """
    # `Keep:` on a draft that is gone answers nothing.
    there = fresh.conflicts if cluster_of(case.resolved.variant.key) else ()
    conflicts = tuple(replace(masked(conflict, fresh.files), name="") for conflict in there)
    facts = replace(_facts(case, Package(fresh.tree)), conflicts=conflicts)
    decision, waits = partial(case.decision, tree=fresh.tree, facts=facts), bool(conflicts)
    if draft is None and conflicts:
        return decision(Op.KEEP, Reason.MERGE_CONFLICT, asked_text(conflicts), waits=True)
    if draft is None:
        return decision(Op.KEEP, Reason.UP_TO_DATE, _equal_text(case))
    if draft.append_only:
        main = "Main has what the package keeps for now" if case.resolved.held_back else "Main is up to date"
        message = f"{main}; the draft has a person's commits and is left to them"
        return decision(Op.KEEP, Reason.DRAFT_EDITED, message, waits=True)
    return decision(
        Op.CLOSE,
        Reason.DRAFT_SUPERSEDED,
        "Main is up to date: the draft has nothing to propose",
        branches=close_drafts([draft]),
        close=close_pulls(case.target, [draft.ref], "Main is what it should be; nothing is left to propose."),
        waits=waits,
    )


def _equal_text(case: Case) -> str:
    """Return that main has all of a revision but its name, "" where it has that, too."""
    header, pin = case.target.package.main_header, case.resolved.pin
    lock = header.upstream_lock if header is not None else None
    if lock is None or lock.commit == pin.commit.oid:
        return ""
    return f"Only the name in the Kptfile would change with {pin.label}: it stays {lock.ref}"


def _touched_draft(case: Case, draft: Draft, fresh: Package) -> Decision:
    """A draft with a person's commits: leave it, or append one commit with what is new on our side."""
    merged = case.rendered.merged
    is_same = fresh.tree in (draft.written, draft.tree)
    if isinstance(merged, Blocked) and not is_same:
        return _blocked(case, merged)
    if merged is None and fresh.is_recorded:
        standing = fresh
    elif isinstance(merged, Package):
        standing = merged
    else:
        standing = Package(draft.tree)
    is_asked = bool(standing.conflicts or standing.answers)
    if not isinstance(merged, Package) or merged.tree == draft.tree or (is_same and not is_asked):
        # One that is behind main gets one more commit.
        if standing.conflicts or not _is_outdated(case, draft):
            return _standing_draft(case, draft, standing)
        return _written(case, draft, replace(standing, tree=draft.tree, files={}), renewed=True)
    return (
        _kept_draft(case, draft, merged) if _is_better(case, draft, merged) else _written(case, draft, merged)
    )


def _is_outdated(case: Case, draft: Draft) -> bool:
    """Whether the draft cannot be merged as it is because its package changed on main (D4).

    One that people refused is left alone: a commit would propose it again.
    """
    is_refused = is_rejected(case.target, draft) and not case.is_asked_again
    return is_behind(case.target, draft) and not is_refused


def _standing_draft(case: Case, draft: Draft, package: Package, *, failure: str = "") -> Decision:
    """Keep a draft that is up to date, and open its pull request if it is missing.

    `failure` tells why what should take its place does not.
    """
    reason = Reason.DRAFT_EDITED if draft.is_edited else Reason.UP_TO_DATE
    reason = Reason.PIPELINE_FAILED if failure else Reason.MERGE_CONFLICT if package.conflicts else reason
    facts = _facts(case, package)
    if failure:
        unready, failed = (case.record.unready, case.record.failed) if case.record else ((), False)
        facts = replace(facts, ready=False, unready=unready, failed=failed)
    decision = partial(case.decision, tree=draft.tree, facts=facts)
    pull = newest_pull(case.target.pulls, draft.ref)
    is_open = pull is not None and pull.state is PullState.OPEN
    if not is_open and is_rejected(case.target, draft) and not case.is_asked_again:
        why = closed_text(pull) if pull else ""
        if failure:
            return decision(Op.KEEP, reason, failure, veto=Veto.REJECTION, waits=True)
        return _rejected(case, why, draft.tree, facts)
    request = None if is_open else _pull(case, draft.ref, draft)
    op = Op.KEEP if request is None else Op.UPDATE
    if request is not None and not failure:
        reason = Reason.PULL_REQUEST_MISSING
    message, waits = failure or asked_text(package.conflicts), bool(package.conflicts)
    return decision(op, reason, message, pull=request, waits=waits)


def _written(case: Case, draft: Draft, package: Package, *, renewed: bool = False) -> Decision:
    """Write the draft in place: anew on main's head, or appended to a person's tip.

    Where it is `renewed` it has the same content as before, on main as it is now.
    """
    target = case.target
    head = target.view.head
    write = write_draft(
        target,
        package,
        draft.workspace,
        draft=draft,
        onto=draft.tip.oid if draft.append_only or head is None else head.oid,
        message=draft_message(target, case.resolved, draft.workspace, package),
        time=max(case.rendered.time, draft.foreign_commit_time if draft.append_only else 0),
    )
    reason = Reason.CONTENT_CHANGED if renewed else _reason(case, draft)
    changed, so = (
        ("changed", "has that already") if target.package.main_tree else ("was removed", "adds it again")
    )
    message = f"{draft.path} {changed} on {target.view.branch}; the draft {so}"
    if not renewed:
        parts = (_causes_of(case, reason, draft), *package.notes, asked_text(package.conflicts))
        message = join_texts("; ", parts)
    return case.decision(
        {Reason.OWNER_CHANGED: Op.TRANSFER, Reason.CONTENT_CHANGED: Op.EDIT}.get(reason, Op.UPDATE),
        reason,
        message,
        tree=package.tree,
        draft=write,
        pull=_pull(case, draft.ref, draft),
        facts=_facts(case, package),
        waits=bool(package.conflicts),
    )


def _causes_of(case: Case, reason: Reason, draft: Draft | None) -> str:
    """Return the causes of a change that its reason and the revisions do not show."""
    resolved, record = case.resolved, case.record
    if reason is Reason.CONTENT_CHANGED:
        return content_causes(case, draft)
    if reason is Reason.UPSTREAM_CHANGED:
        return upstream_causes(resolved, record, resolved.draft_base if draft else resolved.base)
    owner = case.target.owner
    if reason is Reason.OWNER_CHANGED and owner is not None:
        former = record or case.context.inventory.records.get(owner)
        return upstream_causes(resolved, former, resolved.draft_base if draft else resolved.base)
    return ""


def _pull(case: Case, ref: str, draft: Draft | None) -> PullRequest | None:
    open_on = case.context.inventory.policy.pull_requests.open_on
    return wanted_pull(case.target, ref, open_on=open_on, proposed=is_proposed(draft))


def _reason(case: Case, draft: Draft | None) -> Reason:
    """Return why the content changes, the most telling cause first."""
    if case.op is Op.TRANSFER:
        return Reason.OWNER_CHANGED
    if draft is None and case.op in _BY_OP:
        return _BY_OP[case.op]
    base = case.resolved.draft_base if draft else case.resolved.base
    moved = base is None or base.commit.oid != case.resolved.pin.commit.oid
    return Reason.UPSTREAM_CHANGED if moved else Reason.CONTENT_CHANGED


_BY_OP = {Op.CREATE: Reason.NEW, Op.ADOPT: Reason.ADOPTED}


def _facts(case: Case, package: Package) -> DraftFacts:
    """Return the facts about a draft with the content, conflicts and answers of `package`."""
    fresh, draft = case.rendered.fresh, case.target.draft
    merged = case.rendered.merged if draft and draft.append_only else None
    after = merged or fresh
    unready = after.unready if isinstance(after, Package) else (after.message,)
    # A blueprint is published with open points: once it is, they are to be filled further down.
    is_published = isinstance(after, Package) and after.tree == case.target.package.main_tree
    if is_published and not case.target.view.deployment:
        unready = tuple(gate for gate in unready if not str(gate).startswith(INJECTION_PREFIX))
    judgements = case.rendered.judgements
    refusals = tuple(judgement.text for judgement in judgements if judgement.is_refusal)
    is_ready = isinstance(after, Package) and after.ready and not (package.conflicts or refusals)
    facts = DraftFacts(
        ready=is_proposed(draft) and is_ready,
        conflicts=tuple(masked(conflict, package.files) for conflict in package.conflicts),
        answers=tuple(masked_answer(answer, package.files) for answer in package.answers),
        unready=(*unready, *refusals),
        failed=isinstance(after, Package) and after.failed,
        faults=after.faults if isinstance(after, Package) else (),
        warnings=case.rendered.warnings,
        overwritten=case.rendered.overwritten,
        subpackages=tuple(subpackage_notes(after, case.target.package.main_tree, case.context))
        if isinstance(after, Package)
        else (),
        judgements=judgements,
    )
    return _named_facts(case.resolved, facts)


def _blocked(case: Case, blocked: Blocked) -> Decision:
    """Return the decision about a package that cannot be made; people must mend what is in the way."""
    is_postponed = blocked.reason in LEFT_BY_RUN  # for nobody to settle
    return case.decision(
        Op.KEEP if is_postponed else Op.BLOCK,
        blocked.reason,
        blocked.message,
        veto=Veto.FUNCTIONS if is_postponed else Veto.CONTENT,
        facts=_named_facts(case.resolved, DraftFacts(conflicts=tuple(map(masked, blocked.conflicts)))),
        waits=not is_postponed,
        problems=_faults(case, blocked),
    )


_FAULTS = frozenset({Reason.BASE_NOT_FOUND, Reason.PROTECTED_FIELD})
"""Reasons to block a package that are reported at its variant, with a hint."""


def _faults(case: Case, blocked: Blocked) -> tuple[Problem, ...]:
    """Return the problem of a package that needs its upstream or its lock corrected first."""
    if blocked is not case.rendered.fresh or blocked.reason not in _FAULTS:
        return ()
    variant = case.resolved.variant
    message = f"Package {case.target.package.path}: {blocked.message}"
    problem = Problem(variant.source.at("spec", "upstream"), blocked.reason, message, blocked.hint)
    return (problem.owned_by(variant.owner),)


_NO_FACTS = DraftFacts()


def _named_facts(resolved: ResolvedVariant, facts: DraftFacts = _NO_FACTS) -> DraftFacts:
    """Return facts with what a person calls the upstream that the package has, and the one it should have."""
    base = resolved.base or resolved.draft_base
    return replace(facts, upstream_from=base.label if base else "", upstream_to=resolved.pin.label)


_SPEC = ("packageContext", "pipeline", "mutators", "injectors")
_MAX_CAUSES = 5
_FACTS = {
    "subpackages": "the revision of a sub-package",
    "deployment": "spec.deployment of the Repository",
    "functions": "the configuration of functions",
    "instance": "the name of this instance",
    "policies": "the conflict policies",
    "repository": "the name of the Repository",
    "engine": "the version of this tool",
}
"""Names of the recorded inputs in messages, the last resort last."""


def content_causes(case: Case, draft: Draft | None) -> str:
    """Return what changed since the variant was last applied. Total: never empty. Deterministic.

    These are fields of its spec, the ref of its upstream, objects that its injectors may take, the package
    on main, and the configuration.
    """
    resolved, record = case.resolved, case.record
    if record is None:
        return "Nothing was recorded of the last time; the package is not what it should be"
    changed = _listed([*_causes(resolved, record)])
    sentences = [f"{changed} changed"] if changed else []
    header = draft.header if draft else case.target.package.main_header
    sentences += _followed(resolved.pin, resolved.draft_base if draft else resolved.base, header)
    if case.is_asked_again:
        sentences.append("A person asked for it again")
    if not sentences and draft is not None and draft.answers.has_asked:
        sentences.append("People answered conflicts of the draft")
    if not sentences and draft is None and record.conflicts and resolved.local == record.output_tree:
        sentences.append("It was merged before a run finished its draft")
    if not sentences and record.failed:
        sentences.append("A function that failed or could not run was tried again")
    if not sentences and record.inputs != resolved.inputs:
        # Only the records of a newer version name the version that made them.
        is_named = "engine" in record.facts
        other = "" if is_named else ", or this version of the tool makes it in another form"
        sentences.append(f"Something that it is made from changed{other}")
    fresh = case.rendered.fresh
    if not sentences and isinstance(fresh, Package) and fresh.tree != record.output_tree:
        sentences.append("No input changed: this version of the tool makes the draft in another form")
    if not sentences and draft is not None:
        sentences.append("No input changed, but the draft is not what was proposed")
    return "; ".join(sentences) or "No input changed, but the draft that was proposed is gone"


def _followed(pin: Pin, before: Pin | None, header: KptfileHeader | None) -> Iterator[str]:
    """Yield how an upstream is followed now, where that changed and its commit did not.

    Of the same commit only the Kptfile has the former name.
    """
    if before is None or before.commit.oid != pin.commit.oid:
        return
    if before.package.url != pin.package.url:
        yield f"The upstream repository was {before.address}, and is {pin.address}; same commit"
    else:
        lock = header.upstream_lock if header else None
        former = lock.ref if lock and lock.commit == pin.commit.oid else before.ref
        if former != pin.ref:
            yield f"It follows {pin.ref} instead of {former}; same commit"


def upstream_causes(
    resolved: ResolvedVariant, record: PackageVariantRecord | None, before: Pin | None
) -> str:
    """Return the other changes beside the upstream, and the commits if its name is the same."""
    pin = resolved.pin
    moved = ""
    if before is not None and before.package.url != pin.package.url:
        moved = f"The upstream repository was {before.address}, and is {pin.address}"
    elif (
        before is not None
        and before.commit.oid != pin.commit.oid
        and (before.ref, before.revision) == (pin.ref, pin.revision)
        and pin.revision > 0
    ):
        moved = f"{pin.ref} moved from commit {before.commit.oid} to {pin.commit.oid}"
    changed = _listed([*_causes(resolved, record)]) if record is not None else ""
    also = f"{changed} also changed" if changed else ""
    return "; ".join(part for part in (moved, also) if part)


def _listed(causes: Sequence[str]) -> str:
    """Return causes as the subject of a sentence; more than a few are counted."""
    listed = [
        *causes[:_MAX_CAUSES],
        *([f"{len(causes) - _MAX_CAUSES} more"] if len(causes) > _MAX_CAUSES else []),
    ]
    text = " and ".join(part for part in (", ".join(listed[:-1]), *listed[-1:]) if part)
    return text if text.startswith("spec.") else text[:1].upper() + text[1:]


def _causes(resolved: ResolvedVariant, record: PackageVariantRecord) -> Iterator[str]:
    """Yield what differs, what people write themselves first."""
    specs = (record.spec, spec_data(resolved.variant))
    before, now = (written_spec(resolved.variant, spec) for spec in specs)
    for name in _SPEC:
        yield from changed_fields(f"spec.{name}", before.get(name), now.get(name))
    objects = {**record.objects, **resolved.objects}
    yield from (
        f"object {name}" for name in sorted(objects) if record.objects.get(name) != resolved.objects.get(name)
    )
    # What was recorded of a variant at another place says nothing of the package at this one.
    is_here = record.is_at(resolved.downstream)
    if is_here and resolved.local and resolved.local not in (record.local_tree, record.output_tree):
        yield "the package on main"
    if record.facts:
        yield from (
            words for name, words in _FACTS.items() if record.facts.get(name) != resolved.facts.get(name)
        )


def subpackage_notes(package: Package, main: Oid | None, context: PlanContext) -> Iterator[SubpackageNote]:
    """Yield the sub-packages of a package; `main` is the package on main, where nothing moves any more."""
    for sub in package.subpackages:
        repository, newer = _published(sub, context)
        before = sub.before if sub.before != sub.ref and package.tree != main else ""
        yield SubpackageNote(sub.directory, repository, sub.package, before, sub.ref, newer)


def _published(sub: SubpackageRecord, context: PlanContext) -> tuple[str, str]:
    """Return the Repository of a sub-package's upstream, and its latest revision if that is a newer one."""
    upstream = GitUpstream(sub.repo, sub.package, sub.ref, sub.commit)
    for view, path in find_sources(upstream, context.sources):
        package = view.upstream_at(path)
        latest = package.latest if package is not None else None
        if package is None or latest is None:
            continue
        commit = context.inventory.tag_objects.get(sub.commit, sub.commit)
        now = next((r for r in package.published if commit == r.commit.oid and r.revision > 0), None)
        is_newer = now is not None and latest.revision > now.revision
        return view.key.name, short_tag(latest.ref) if is_newer else ""
    return normalise_url(sub.repo), ""

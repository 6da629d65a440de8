"""One plan with everything that a report tells apart, its states, and what became of it."""

from typing import Any

from reconciler.admission.judgement import AdmissionJudgement, AdmissionVerdict
from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Phase, Reason
from reconciler.dependencies.lock.changes import MoveOp, VersionChange
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import NamedObject, ObjectName, PackageKey, RolloutKey
from reconciler.names.problems import Problem
from reconciler.plan.changes import (
    Change,
    Effect,
    LockProposal,
    Op,
    Outcome,
    PinChange,
    Plan,
    Postponed,
    PullRequestContent,
    Refusal,
    SubpackageNote,
    Unfinished,
    WaitsFor,
)
from reconciler.plan.impact import Impact, Loss, Risk
from reconciler.plan.status import PackageStatus
from reconciler.records.state import RolloutRecord
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.rendered import FunctionFault
from reconciler.render.update import Conflict
from reconciler.report.report import Names
from reconciler.resolve.dependency_roots import RequirementChange
from reconciler.resolve.rollout_model import (
    GateResult,
    MemberPhase,
    MemberStatus,
    Rollout,
    RolloutPhase,
    Verdict,
    WavePhase,
    WaveStatus,
)
from tests.support.plan_values import a_change, a_conflict, oid
from tests.support.values import replace
from tests.unit.report.plans import CREATED, UPDATED, change

SET = ObjectName("default", "web")
EDGES = [ObjectName("default", f"edge-{number}") for number in range(12)]
VARIANTS = [ObjectName("default", f"web-edge-{number}") for number in range(12)]
NAMES = Names("demo", dict.fromkeys(EDGES, "") | {ObjectName("default", "edge-east"): "clusters/east"})
RBAC, STORAGE = Risk("rbac", "adds", "Role web", 2), Risk("storage", "changes", "PersistentVolumeClaim db", 5)


def web(
    number: int, op: Op = Op.UPDATE, reason: Reason = Reason.UPSTREAM_CHANGED, **fields: object
) -> Change:
    """Return a change of the package web of one cluster."""
    package, edge = PackageKey(f"file:///edge-{number}.git", "web"), EDGES[number]
    given = {"variant": VARIANTS[number], "upstream_from": "web/v1", "upstream_to": "web/v2", **fields}
    return a_change(package=package, repository=edge, op=op, reason=reason, **given)


def conflict(
    number: int, upstream: str | None = "2", local: str | None = "3", base: str | None = "1"
) -> Conflict:
    """Return a conflict that has a name."""
    where = "Deployment web", f"{number:06}-abcdef", base
    return a_conflict("app.yaml", f"spec.field{number}", upstream, local, *where)


LONG = "".join(f"line {number}\n" for number in range(203))
ANSWER = Answer(
    a_conflict("app.yaml", "spec.replicas", "5", "3", "Deployment web", "000009-abcdef"), AnsweredBy.EDIT, "3"
)
RULED = Answer(
    a_conflict("a.yaml", "data.x", "new\nlines\n", None, "ConfigMap a"),
    AnsweredBy.POLICY,
    "new\nlines\n",
    "upstream",
    "reconciler.yaml",
)
SUBPACKAGE = SubpackageNote("db", "blueprints", "db", "db/v1", "db/v2", "db/v3")
MOVES = (
    VersionChange(
        MoveOp.DROP, "xpkg:x.io/aws Bucket.s3", "owned", "", "no package has it any more", ("dev",)
    ),
    VersionChange(MoveOp.CHANGE, "carvel:db.io", "1.0.0", "2.0.0", "a manifest asks for it", ("dev", "prod")),
    VersionChange(MoveOp.ADD, "carvel:queue.io", "", "1.0.0", "db.io 2.0.0 needs it", ("dev",)),
)
FULL = web(
    1,
    before=oid("b1"),
    tree=oid("a1"),
    message="Written again",
    waits=True,
    ready=True,
    location=Location("sets/web.yaml", 7),
    conflicts=(
        conflict(0),
        conflict(1, None),
        conflict(2, local=None),
        conflict(3, LONG, LONG[:20] + "!"),
        conflict(4, base=None),
    ),
    answers=(ANSWER, RULED),
    unready=("replicas is not set", "a person has to answer"),
    warnings=("image has no digest",),
    subpackages=(SUBPACKAGE,),
    pins=MOVES[1:],
    requirements=(RequirementChange("db.io", ">=1", ">=2", "2.0.0"),),
    impact=Impact("x", 2, 4, 1, (RBAC, STORAGE)),
    request=PullRequestContent(
        Op.UPDATE, "web/v1", "web/v2", requested_by=("default/api",), edited=True, rollout="wave canary of 2"
    ),
    pull=PullRequest(
        "drafts/web/packagevariant-1", "main", "Update web", "", number=7, url="https://forge/7"
    ),
)
IMMUTABLE = AdmissionJudgement(
    AdmissionVerdict.REFUSED,
    "Deployment spec.selector",
    "spec.selector is immutable",
    "dev",
    "Deployment a/web",
)
UNLISTED = AdmissionJudgement(
    AdmissionVerdict.NOT_JUDGED, "Job", "its definition is not known", "dev", "Job a/j"
)
FAULT = FunctionFault("set-labels", "set-labels failed: no such field", "Did you mean set-label?", 1)
OLD, LOST = replace(IMMUTABLE, is_old=True), "a is written over"
LOSSES = (
    Loss("dev", NamedObject("CustomResourceDefinition", "", "b.s3.io"), "B.s3.io", 7, True, ("a/b", "a/c")),
    Loss("prod", NamedObject("Provider", "", "aws"), "B.s3.io", 2, heir="Provider aws-2"),
)
MORE: dict[int, dict[str, Any]] = {
    2: {"judgements": (replace(IMMUTABLE, message="the image has no digest", object="Pod a/b"), UNLISTED)},
    3: {"judgements": (IMMUTABLE, replace(IMMUTABLE, object="Deployment a/db"), OLD)},
    4: {"judgements": (replace(IMMUTABLE, cluster="prod"), replace(UNLISTED, message="so it was not asked"))},
    5: {"losses": LOSSES},
    6: {"postponed": Postponed(Reason.AWAITING_SCHEDULE, "The schedule is closed", "2024-01-02 08:00 UTC")},
    7: {"failed": True, "unready": ("set-labels failed",), "faults": (FAULT, FAULT._replace(hint=""))},
    8: {"repair": "Its title was changed", "warnings": (LOST,), "overwritten": (LOST,)},
    9: {"group": "reconciler/demo/group/web"},
}
CHANGES = (
    CREATED,
    UPDATED,
    FULL,
    *(
        web(number, impact=Impact("y" if number < 9 else "z", 1, 2, 3), **MORE.get(number, {}))
        for number in range(2, 11)
    ),
    web(11, Op.DELETE, Reason.NOT_DESIRED, message="The set selects it no more", upstream_to=""),
    change(Op.KEEP, "a", Reason.NOT_OURS),
    change(Op.KEEP, "b"),
    web(0, Op.KEEP, Reason.REJECTED, message="A person closed #4", tree=oid("a2")),
)
REFUSES = "https://git.example.com refuses the credential"


def unread(number: int) -> Problem:
    """Return a problem that others have for the same cause."""
    subject, where = f"Repository default/edge-{number}", Location(f"edge-{number}.yaml", 7)
    return Problem(
        where,
        "RepositoryUnavailable",
        f"{subject}: {REFUSES}; kept",
        "Renew it.\nOr ask.",
        subject,
        REFUSES,
        "; kept",
    )


PROBLEMS = (
    Problem(Location("bad.yaml", 12, 5), Reason.INVALID_EXPRESSION, "Undeclared `nam`\nand more",
        "Use target", "PackageVariantSet default/bad"),
    *map(unread, range(12)),
)  # fmt: skip


def wave(name: str, phase: WavePhase, *members: MemberPhase, **fields: object) -> WaveStatus:
    """Return a wave with a member in each of the phases."""
    start = {"canary": 0, "early": 3, "rest": 6}[name]
    each = (
        MemberStatus(VARIANTS[start + n], f"edge-{start + n}/web", phase) for n, phase in enumerate(members)
    )
    return WaveStatus(name, phase, tuple(each), **fields)


GATED = MemberStatus(
    VARIANTS[1],
    "edge-1/web",
    MemberPhase.PUBLISHED,
    100,
    (GateResult(Verdict.PASSED, "3 of 3 ready"), GateResult(Verdict.FAILED, "no endpoint")),
    failure="no endpoint",
)
WAVES = (
    replace(
        wave(
            "canary",
            WavePhase.FAILED,
            MemberPhase.PUBLISHED,
            MemberPhase.PUBLISHED,
            detail="1 of 2 failed",
            hint="Skip it.",
        ),
        members=(MemberStatus(VARIANTS[0], "edge-0/web", MemberPhase.PUBLISHED), GATED),
    ),
    wave("early", WavePhase.PROGRESSING, MemberPhase.IN_REVIEW, MemberPhase.WAITING, MemberPhase.UNKNOWN),
    wave("rest", WavePhase.WAITING, MemberPhase.WAITING, detail="wave early is not complete"),
)
RECORD = RolloutRecord(namespace="default", name="web", revision="web/v2", waves=("canary", "early", "rest"))
IN_WAVES = dict(zip(VARIANTS, ["canary"] * 3 + ["early"] * 3 + ["rest"] * 5, strict=False))
ROLLOUTS = (
    Rollout(RolloutKey(*SET), RolloutPhase.FAILED, RECORD, WAVES, rejected=frozenset({VARIANTS[2]}),
        stopped={VARIANTS[3]: "is stopped: wave canary failed"},
        staying={VARIANTS[4]: "wave canary failed", VARIANTS[11]: "came later"}, waves_of=IN_WAVES),
    Rollout(RolloutKey("default", "db"), RolloutPhase.COMPLETE, replace(RECORD, name="db"), ()),
    Rollout(
        RolloutKey("default", "api"),
        RolloutPhase.PAUSED,
        replace(RECORD, name="api"),
        (
            wave(
                "rest", WavePhase.VERIFYING, MemberPhase.PUBLISHED, asks=True, detail="a person has to agree"
            ),
        ),
    ),
)  # fmt: skip
LOCK = LockProposal(
    change(Op.CREATE, "locks", Reason.LOCK_PENDING),
    (
        PinChange("PackageVariant default/web", "v1", "v2", "branch main moved"),
        PinChange("image x", "", "sha256:1", "new"),
        PinChange("image y", "sha256:2", "", "unused"),
    ),
    ("upstreams/default/web.json",),
)
PLAN = Plan(
    CHANGES,
    PROBLEMS,
    exits=frozenset({Exit.INVALID_INPUT}),
    checksum="c" * 64,
    notes=("Snapshot is 3 days old",),
    lock=LOCK,
    version_changes=MOVES,
    losses=LOSSES,
    unjudged=tuple(
        AdmissionJudgement(AdmissionVerdict.NOT_JUDGED, "snapshot", "there is no snapshot", cluster)
        for cluster in ("dev", "prod")
    ),
    rollouts=ROLLOUTS,
)
REFUSED = replace(
    PLAN, refusals=(Refusal(Reason.DELETION_GUARD, "Deletes 9 of 10", "Consent.\nOr not.", "allow: 9"),)
)
ASKED = {
    Phase.IN_REVIEW: WaitsFor.REVIEW,
    Phase.NOT_READY: WaitsFor.CORRECTION,
    Phase.CONFLICT: WaitsFor.ANSWER,
    Phase.HELD_BACK: WaitsFor.DECISION,
    Phase.PUBLISHED: WaitsFor.DECISION,
}
STATUSES = (
    *(
        PackageStatus(
            phase,
            VARIANTS[number],
            PackageKey(f"file:///edge-{number}.git", "web"),
            EDGES[number],
            "web",
            since=86400 * number,
            pull=number,
            url=f"https://forge/{number}" if number % 2 else "",
            reason=(Reason.REJECTED if number == 0 else Reason.NOT_READY) if number % 3 == 0 else "",
            message="m" * (40 * number) if number % 2 == 0 else "",
            waits_for=ASKED.get(phase, WaitsFor.NOBODY),
        )
        for number, phase in enumerate([Phase.REJECTED, *Phase][: len(EDGES)])
    ),
    PackageStatus(
        Phase.STALLED, ObjectName("default", "lost"), reason="UpstreamNotFound", message="no such package"
    ),
)
OUTCOME = Outcome(
    (
        Effect("edge-1", "pushed", "drafts/web/packagevariant-1", oid("a1")),
        Effect("edge-1", "opened", "#7 Update web"),
        *(
            Effect(
                f"edge-{n}",
                "opened",
                "Create web",
                error=f"POST /edge-{n}: 403",
                hint="Ask.",
                cause="403 not permitted",
            )
            for n in range(12)
        ),
        Effect("edge-2", "closed", "#1", error="gone", hint="Look."),
        Effect("edge-3", "merged", "#2", error="the hour is over", hint="Wait.", is_left=True),
        Effect("control", "recorded", "reconciler/demo/state"),
    ),
    frozenset({Exit.UNAVAILABLE}),
    {PackageKey("file:///edge-2.git", "web"): Unfinished("gone", "Look.", refused=1)},
)

"""Plans to print: small, with every kind of thing that a report can show."""

from reconciler.base.errors import Exit, Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, Effect, MoveRef, Op, Outcome, Plan, Refusal
from reconciler.render.conflicts import masked
from reconciler.report.report import Names
from tests.support.plan_values import a_change, a_conflict, a_write

OID = Oid("a" * 40)
EAST = ObjectName("default", "edge-east")
WEST = ObjectName("default", "edge-west")
NAMES = Names("demo", {EAST: "clusters/east", WEST: ""})
SECRET_FILE = File.of(b"apiVersion: v1\nkind: Secret\ndata: {p: aHVudGVyMg==}\n")


def change(
    op: Op, path: str = "nginx", reason: Reason = Reason.UP_TO_DATE, *, repo: ObjectName = WEST
) -> Change:
    """Return a change without writes."""
    return a_change(
        package=PackageKey(f"file:///{repo.name}.git", path), repository=repo, op=op, reason=reason
    )


CREATED = a_change(
    package=PackageKey("file:///edge-east.git", "clusters/east/nginx"),
    repository=EAST,
    op=Op.CREATE,
    reason=Reason.NEW,
    variant=ObjectName("default", "set-edge-east-nginx"),
    location=Location("config/set.yaml", 3),
    tree=OID,
    upstream_to="nginx/v1",
    writes=(
        a_write(
            ref="refs/heads/drafts/clusters/east/nginx/packagevariant-1",
            onto=OID,
            path="clusters/east/nginx",
            files={"secret.yaml": SECRET_FILE},
            tree=OID,
            message="Create",
            time=1,
        ),
        MoveRef("refs/tags/clusters/east/nginx/v1", None, OID),
    ),
    pull=PullRequest("drafts/clusters/east/nginx/packagevariant-1", "main", "Create nginx", ""),
    conflicts=(
        masked(a_conflict("secret.yaml", "data.p", "aHVudGVyMg==", "c2VzYW1l"), {"secret.yaml": SECRET_FILE}),
        a_conflict("deployment.yaml", "spec.replicas", "3", "5"),
    ),
    waits=True,
)
UPDATED = a_change(
    package=PackageKey("file:///edge-west.git", "nginx"),
    repository=WEST,
    op=Op.UPDATE,
    reason=Reason.UPSTREAM_CHANGED,
    message="1 of 4 files differs",
    upstream_from="nginx/v1",
    upstream_to="nginx/v2",
    writes=(MoveRef("refs/heads/x", OID, None),),
)
PROBLEM = Problem(
    Location("config/bad.yaml", 12, 5),
    Reason.INVALID_EXPRESSION,
    "Undeclared reference to 'nam\x1b[2Je'",
    "Use target.name",
    "PackageVariantSet default/bad",
)
PLAN = Plan(
    changes=(change(Op.KEEP, "b"), UPDATED, CREATED, change(Op.KEEP, "a", Reason.NOT_OURS)),
    problems=(PROBLEM,),
    exits=frozenset({Exit.INVALID_INPUT}),
    checksum="c" * 64,
    notes=("Snapshot is 3 days old",),
)
REFUSED = Plan(
    changes=(change(Op.DELETE, "a", Reason.NOT_DESIRED),),
    refusals=(Refusal(Reason.DELETION_GUARD, "Deletes 1 of 1", "Consent in the configuration"),),
    checksum="d" * 64,
)
OUTCOME = Outcome(
    (
        Effect("file:///edge-east.git", "push", "refs/heads/x", OID),
        Effect("file:///edge-west.git", "push", "refs/heads/y", error="stale info"),
    ),
    frozenset({Exit.UNAVAILABLE}),
)

"""Plans to print: small, with every kind of thing that a report can show."""

from reconciler.base.errors import Exit, Location, Problem
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File
from reconciler.plan.changes import (
    Change,
    ConflictNote,
    Effect,
    MoveRef,
    Op,
    Outcome,
    Plan,
    Refusal,
    WriteDraft,
)
from reconciler.report.summary import Names

OID = Oid("a" * 40)
EAST = ObjectName("default", "edge-east")
WEST = ObjectName("default", "edge-west")
NAMES = Names("demo", {EAST: "clusters/east", WEST: ""})
SECRET_FILE = File.of(b"apiVersion: v1\nkind: Secret\ndata: {p: aHVudGVyMg==}\n")


def change(
    op: Op, path: str = "nginx", reason: Reason = Reason.UP_TO_DATE, *, repo: ObjectName = WEST
) -> Change:
    """Return a change without writes."""
    return Change(PackageKey(f"file:///{repo.name}.git", path), repo, op, reason)


CREATED = Change(
    PackageKey("file:///edge-east.git", "clusters/east/nginx"),
    EAST,
    Op.CREATE,
    Reason.NEW,
    variant=ObjectName("default", "set-edge-east-nginx"),
    location=Location("config/set.yaml", 3),
    after=OID,
    upstream_to="nginx/v1",
    writes=(
        WriteDraft(
            "refs/heads/drafts/clusters/east/nginx/packagevariant-1",
            None,
            OID,
            "clusters/east/nginx",
            {"secret.yaml": SECRET_FILE},
            OID,
            "Create",
            1,
        ),
        MoveRef("refs/tags/clusters/east/nginx/v1", None, OID),
    ),
    pull=PullRequest("drafts/clusters/east/nginx/packagevariant-1", "main", "Create nginx", ""),
    conflicts=(
        ConflictNote("secret.yaml", "data.p", "aHVudGVyMg==", "c2VzYW1l"),
        ConflictNote("deployment.yaml", "spec.replicas", "3", "5"),
    ),
    waits=True,
)
UPDATED = Change(
    PackageKey("file:///edge-west.git", "nginx"),
    WEST,
    Op.UPDATE,
    Reason.UPSTREAM_CHANGED,
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

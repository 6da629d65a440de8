"""What is judged of a package, against what, and by which snapshot."""

import json
from typing import Any, NamedTuple

import pytest

from reconciler.admission.cluster import CRD, DECIDING
from reconciler.admission.judgement import AdmissionVerdict
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.inventory.inventory import Inventory, RepositoryView
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.objects import File, Files
from reconciler.plan.admission import judge_packages
from reconciler.policy import Policy
from reconciler.render.merging import Contents
from reconciler.render.rendered import Blocked, Package, Rendered, RenderedVariant
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.resolution import Resolution
from tests.support.plan_values import WEB, a_draft, a_record, a_resolved, oid
from tests.support.sets import COMMIT, a_package, repository, world

MAIN, NEW, DRAFT, FORMER = (oid(text) for text in ("a1", "b2", "c3", "d4"))


def package(app: str) -> Files:
    """Return a package with one object, whose selector nothing may change."""
    text = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: {app}}}}}
  template: {{metadata: {{labels: {{app: {app}}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}
"""
    return {"d.yaml": File.of(text.encode())}


ON_MAIN = a_package(main_tree=MAIN)
CONTENTS = {MAIN: package("old"), NEW: package("new"), DRAFT: package("old"), FORMER: package("old")}
FRESH, MERGED = Package(NEW, CONTENTS[NEW]), Package(DRAFT, CONTENTS[DRAFT])
BLOCKED = Blocked(Reason.PIPELINE_FAILED, "no")
EDITED = a_draft(tree=NEW, written=DRAFT)


def edge(name: str = "edge", **fields: Any) -> RepositoryView:
    """Return a repository of the cluster `edge`, with the package unless told otherwise."""
    given = {"cluster": "edge", "packages": {"web": ON_MAIN}, "deployment": True, **fields}
    return repository(name, **given)


def judged(
    inventory: Inventory, contents: Contents = CONTENTS, draft: Any = None, **outcome: Any
) -> Rendered:
    """Return what clusters answer to the one package of the fleet."""
    fleet = ResolvedFleet(Desired(), Resolution(variants=(a_resolved(draft=draft),)))
    rendered = Rendered({WEB: RenderedVariant(WEB, **{"fresh": FRESH, **outcome})})
    return judge_packages(inventory, fleet, rendered, contents)


class Case(NamedTuple):
    reason: str
    is_refused: bool
    of_package: dict[str, Any]
    views: tuple[RepositoryView, ...] = (edge(),)
    record: str = "web"


NEW_HERE, THERE = edge(packages={}), {"old": a_package("old", main_tree=FORMER)}
CASES = [
    Case("the proposal against main", True, {}),
    Case("no cluster has it", False, {}, (edge(deployment=False),)),
    Case("what people have, and not what is rendered anew", False, {"merged": MERGED}),
    Case("what people would have is blocked", True, {"merged": BLOCKED}),
    Case("nothing is proposed", False, {"fresh": BLOCKED}),
    Case("a draft of people stays as it is", True, {"fresh": BLOCKED, "draft": EDITED}),
    Case(
        "a draft of ours is written anew", False, {"fresh": MERGED, "draft": a_draft(tree=NEW, written=NEW)}
    ),
    Case("main has it", False, {"fresh": Package(MAIN, CONTENTS[NEW])}),
    Case("what is recorded is looked up", True, {"fresh": Package(NEW)}),
    Case("main was not read", False, {"contents": {NEW: CONTENTS[NEW]}}),
    Case("a new package", False, {}, (NEW_HERE,)),
    Case("it moves in its cluster", True, {}, (NEW_HERE, edge("old", packages=THERE)), "old"),
    Case(
        "it moves to another cluster", False, {}, (NEW_HERE, edge("old", packages=THERE, cluster="x")), "old"
    ),
    Case("it was never where it was to be", False, {}, (NEW_HERE, edge("old", packages={})), "old"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_proposal_is_judged_against_what_its_cluster_has(case: Case) -> None:
    records = {WEB: a_record(url="host/old" if case.record == "old" else "host/edge", path=case.record)}

    rendered = judged(world(views=case.views, records=records), **case.of_package)

    judgements = [(j.verdict, j.cluster, j.object) for j in rendered.variants[WEB].judgements]
    refused = [(AdmissionVerdict.REFUSED, "edge", "Deployment shop/web")]
    assert judgements == (refused if case.is_refused else [])


API = "admissionregistration.k8s.io/v1"
EVERY_CHANGE = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}
RULE = {"expression": "object.spec.replicas <= 5", "message": "too many replicas"}
POLICY = {
    "apiVersion": API,
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "few"},
    "spec": {"matchConstraints": {"resourceRules": [EVERY_CHANGE]}, "validations": [RULE]},
}
BINDING = {
    "apiVersion": API,
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "few-all"},
    "spec": {"policyName": "few", "validationActions": ["Deny"]},
}
RULES = {f"{body['kind']}.yaml": File.of(json.dumps(body).encode()) for body in (POLICY, BINDING)}


@pytest.mark.parametrize(("main", "new", "count"), [({}, RULES, 0), (RULES, RULES, 1), ({}, {}, 0)])
def test_policy_of_the_same_change_does_not_govern_and_one_on_main_does(main, new, count) -> None:
    scaled = package("old")["d.yaml"].data.replace(b"spec:\n", b"spec:\n  replicas: 7\n", 1)
    contents = {MAIN: {**package("old"), **main}, NEW: {"d.yaml": File.of(scaled), **new}}

    rendered = judged(world(views=(edge(),)), contents, fresh=Package(NEW, contents[NEW]))

    messages = [str(judgement.message) for judgement in rendered.variants[WEB].judgements]
    assert messages == ["policy few: too many replicas"] * count


OLDEST = COMMIT.time - Policy().snapshot.max_age_s
EVERY = frozenset((kind, "*") for kind in DECIDING)
MISSING, OLD = "it has no snapshot", "its snapshot is older than snapshot.maxAge"
INCOMPLETE = "its snapshot does not list"
OTHER, UPSTREAM = edge("other", cluster="other"), edge("other", cluster="other", deployment=False)


@pytest.mark.parametrize(
    ("fields", "others", "why"),
    [
        ({}, (), INCOMPLETE),
        ({}, (UPSTREAM,), INCOMPLETE),
        ({}, (OTHER,), MISSING),
        ({"cluster": "edge"}, (OTHER,), INCOMPLETE),
        ({"cluster": "other"}, (OTHER,), MISSING),
        ({"time": OLDEST}, (), INCOMPLETE),
        ({"time": OLDEST - 1}, (), OLD),
        ({"taken": OLDEST - 1}, (), OLD),
        ({"taken": OLDEST, "time": 0}, (), INCOMPLETE),
        ({"complete": EVERY}, (), ""),
        ({"complete": EVERY}, (OTHER,), MISSING),
        ({"present": False, "complete": frozenset()}, (), ""),
    ],
)
def test_cluster_is_judged_by_its_own_recent_snapshot(fields, others, why) -> None:
    listed = frozenset({(CRD, "*")})
    snapshot = Snapshot(**{"present": True, "complete": listed, "time": COMMIT.time, **fields})

    unjudged = judged(world(views=(edge(), *others), snapshot=snapshot)).unjudged

    texts = [(answer.rule, answer.cluster, answer.message[: len(why)]) for answer in unjudged]
    assert texts == ([("Snapshot", "edge", why)] if why else [])

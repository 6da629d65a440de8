"""Adoption: every combination of policy, what is at the path, drafts of others and packages inside."""

import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import GROUP, PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.inventory.inventory import PullState, Source
from reconciler.names.ids import ObjectKey, ObjectName
from reconciler.names.refs import short_branch
from reconciler.plan.changes import Op
from reconciler.plan.compose import Held
from reconciler.plan.context import PlanTarget
from reconciler.plan.decide import adoption_obstacle, claim_package
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import PACKAGE, WEB, a_context, a_desired_variant, a_draft, a_pull, oid
from tests.support.sets import a_package, repository
from tests.support.sets import world as plain_world
from tests.support.values import replace

# Who may have a package, whatever is in its way

CLAIMS: DecisionTable[tuple[Op | Reason, bool]] = DecisionTable(
    {
        "owner": ("nobody", "the variant", "a variant that is gone", "a variant that is not understood"),
        "policy": ("adoptNone", "adoptExisting"),
        "main": ("nothing", "a package", "a broken package", "another instance's", "a directory"),
        "draft": ("none", "ours", "other people's", "other people's, merged"),
    },
    [
        ({"owner": "the variant"}, (Op.UPDATE, False), "it is its own"),
        ({"owner": "a variant that is not understood"}, (Reason.OWNER_STALLED, False),
            "its owner may still want it"),
        ({"owner": "a variant that is gone"}, (Op.TRANSFER, False), "its owner is gone"),
        ({"main": "another instance's"}, (Reason.PACKAGE_EXISTS, False), "another instance owns it"),
        ({"policy": "adoptExisting", "draft": "other people's"}, (Reason.FOREIGN_DRAFT, True),
            "a second draft would be opened beside that of other people"),
        ({"main": "nothing", "draft": ("none", "ours")}, (Op.CREATE, False), "nothing of others is there"),
        ({"main": "a directory", "draft": "ours"}, (Op.CREATE, False), "our draft made a package of it"),
        ({"main": "a directory"}, (Op.ADOPT, False), "the directory becomes a package"),
        ({"policy": "adoptNone"}, (Reason.PACKAGE_EXISTS, False), "the variant asks for no adoption"),
        ({"main": "nothing"}, (Op.CREATE, False), "main has the merged draft of other people no more"),
        ({}, (Op.ADOPT, False), "the variant asks for adoption"),
    ],
    {
        "a package without an owner of ours has no draft of ours": {"owner": "nobody", "draft": "ours",
            "main": ("a package", "a broken package", "another instance's")},
    },
)  # fmt: skip
OTHER = ObjectName("default", "other")


def claim(case: Case) -> tuple[Op | Reason, bool]:
    """Return what a change would be called, or the reason why there is none, and whether people must act."""
    owners = {"nobody": None, "the variant": WEB}
    owner = owners.get(case["owner"], OTHER)
    headers = {
        "a package": KptfileHeader(),
        "a broken package": KptfileHeader(error="not YAML"),
        "another instance's": KptfileHeader(owner="other/default/web", location="edge/web"),
    }
    header = headers.get(case["main"])
    theirs = a_draft(
        ref="refs/heads/drafts/web/theirs", workspace="theirs", header=KptfileHeader(), written=None
    )
    drafts = {
        "ours": (a_draft(),),
        "other people's": (theirs,),
        "other people's, merged": (replace(theirs, base=theirs.tip.oid),),
    }.get(case["draft"], ())
    view = repository("edge", directories={"web": oid("b3")} if case["main"] == "a directory" else {})
    package = a_package(main_tree=oid("b1") if header else None, main_header=header, drafts=drafts)
    mine = a_draft() if case["draft"] == "ours" else None
    target = PlanTarget(PACKAGE, view, package, owner=owner, main_owner=owner, draft=mine)
    stalled = {ObjectKey(GROUP, "PackageVariant", *OTHER)} if "not understood" in case["owner"] else set()
    spec = PackageVariantSpec(adoption_policy=case["policy"])
    variant = a_desired_variant(spec=spec, source=Source(Location("web.yaml")))
    outcome = claim_package(
        target, variant, a_context(plain_world(views=(view,)), stalled=frozenset(stalled))
    )
    if isinstance(outcome, Held):
        assert bool(outcome.problem) is (outcome.reason is Reason.PACKAGE_EXISTS)
        hints = {
            "a broken package": "Repair it on its branch, or choose another downstream package.",
            "another instance's": (
                "To hand it over, give it deletionPolicy: orphan in other, remove it there and merge its "
                "release; adoptExisting takes it then (docs/guides/hand-over.md). Or choose another "
                "downstream package."
            ),
        }
        hint = "Set spec.adoptionPolicy to adoptExisting, or choose another downstream package."
        assert outcome.problem is None or outcome.problem.hint == hints.get(case["main"], hint)
        return outcome.reason, outcome.waits
    return outcome, False


RELEASE = a_draft(header=KptfileHeader())


@pytest.mark.parametrize(
    ("draft", "state", "is_kept"),
    [
        (RELEASE, PullState.OPEN, True),
        (RELEASE, PullState.CLOSED, False),
        (RELEASE, PullState.MERGED, False),
        (replace(RELEASE, base=RELEASE.tip.oid), PullState.OPEN, False),
        (replace(RELEASE, written=None), PullState.OPEN, False),
        (a_draft(header=KptfileHeader(owner="default/default/other")), PullState.OPEN, False),
    ],
    ids=["open", "closed", "merged", "on main", "other people's", "of content"],
)
def test_package_is_not_taken_over_while_its_release_is_open(draft, state, is_kept) -> None:
    package = a_package(main_tree=oid("b1"), main_header=KptfileHeader(), drafts=(draft,))
    pulls = (a_pull(state, head=short_branch(draft.ref), head_oid=draft.tip.oid),)
    target = PlanTarget(PACKAGE, repository("edge"), package, owner=OTHER, main_owner=OTHER, pulls=pulls)
    variant = a_desired_variant(source=Source(Location("web.yaml")))

    outcome = claim_package(target, variant, a_context(plain_world(views=(target.view,))))

    if not is_kept:
        assert outcome is Op.TRANSFER
        return
    assert isinstance(outcome, Held)
    assert outcome.reason is Reason.PACKAGE_EXISTS
    assert outcome.why == (
        f"PackageVariant default/other lets go of package web: its release is open, {short_branch(draft.ref)}"
    )


@pytest.mark.parametrize("row", CLAIMS.rows, ids=str)
def test_variant_gets_a_package_as_the_table_says(row: Row[tuple[Op | Reason, bool]]) -> None:
    assert CLAIMS.mistakes(row, claim) == []


@pytest.mark.parametrize(
    ("header", "name", "waits_for"),
    [
        (KptfileHeader(), "web", "its adoption, or another name"),
        (KptfileHeader(error="not YAML"), "web", "a repair of its Kptfile, or another name"),
        (KptfileHeader(owner="other/default/web", location="edge/web"), "web",
            "its release by other, or another name"),
    ],
)  # fmt: skip
def test_adoption_is_offered_only_where_it_can_be_had(header, name, waits_for) -> None:
    package = a_package(main_tree=oid("b1"), main_header=header)
    target = PlanTarget(PACKAGE, repository("edge"), package)

    obstacle = adoption_obstacle(target, ObjectName("default", name), a_context(plain_world()))

    assert obstacle.waits_for == waits_for

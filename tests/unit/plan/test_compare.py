"""What merging would do: the difference of two plans, and nothing that both have alike."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.porch import Function, PackageVariantSpec, Pipeline, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand import Desired
from reconciler.expand.variants import set_key
from reconciler.inventory.inventory import Commit, Control, Inventory, ReviewedLock, Source
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File
from reconciler.names.problems import Problem
from reconciler.plan.changes import Change, MoveRef, Op, PinChange, Plan, Refusal
from reconciler.plan.compare import (
    ALTER,
    WITHDRAW,
    Comparison,
    Fate,
    LockFiles,
    Side,
    compare,
    compare_locks,
    lock_files,
)
from reconciler.plan.set_diff import SetDiff, VariantChange, changed_fields
from reconciler.policy import CredentialRule, ForgeKind, ForgeRule, FunctionPolicy, Limits, Policy, govern
from reconciler.records.state import UpstreamLock, lock_bytes, lock_path
from reconciler.render.rendered import FunctionFault
from reconciler.report.comparison import problem_sentence, sentence
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.plan_values import a_change, a_desired, a_desired_variant
from tests.support.values import replace

WRITE = MoveRef("refs/heads/drafts/a/w", None, Oid("1" * 40))


def change(op: Op, path: str = "a", after: str = "2", url: str = "host/r") -> Change:
    writes = () if op in {Op.KEEP, Op.BLOCK} else (WRITE,)
    repository = ObjectName("default", url)
    return a_change(
        package=PackageKey(url, path),
        repository=repository,
        op=op,
        reason=Reason.NEW,
        tree=Oid(after * 40),
        writes=writes,
    )


def side(*changes: Change, problems: tuple[Problem, ...] = (), refusals: tuple[Refusal, ...] = ()) -> Side:
    return Side(Desired(), SetDiff(), problems, refusals, Plan(changes))


ops = st.sampled_from(list(Op))
plans = st.lists(
    st.builds(change, ops, st.sampled_from("abcdef"), st.sampled_from("12")), unique_by=lambda c: c.package
)


@given(plans)
def test_a_side_compared_with_itself_is_empty(changes: list[Change]) -> None:
    found = compare(side(*changes), side(*changes))

    assert found.is_empty
    assert sentence(found) == "Merging this changes no package"


@given(plans, plans, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(old: list[Change], new: list[Change], random: object) -> None:
    expected = compare(side(*old), side(*new))
    random.shuffle(old)
    random.shuffle(new)

    assert compare(side(*old), side(*new)) == expected


@pytest.mark.parametrize(
    ("reason", "old", "new", "what"),
    [
        ("what was not there is created", None, change(Op.CREATE), "create"),
        ("what would stay is updated", change(Op.KEEP), change(Op.UPDATE), "update"),
        ("what is pending alike is no difference", change(Op.CREATE), change(Op.CREATE), None),
        ("what is pending gets another result", change(Op.CREATE, after="2"), change(Op.CREATE, after="3"),
            ALTER),
        ("another operation counts as itself", change(Op.UPDATE), change(Op.DELETE), "delete"),
        ("what is pending no longer happens", change(Op.CREATE), None, WITHDRAW),
        ("or is kept", change(Op.UPDATE), change(Op.KEEP), WITHDRAW),
        ("what only leaves the plan is nothing", change(Op.KEEP), None, None),
        ("a package that blocks is told", None, change(Op.BLOCK), "block"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_one_package(reason: str, old: Change | None, new: Change | None, what: str | None) -> None:
    found = compare(side(*[old] if old else []), side(*[new] if new else []))

    assert [str(difference.what) for difference in found.packages] == ([what] if what else []), reason


def test_edits_that_functions_write_over_only_after_merging_are_named() -> None:
    def updated(*lost: str) -> Change:
        return replace(change(Op.UPDATE, after=str(len(lost))), message="web/v2", overwritten=lost)

    (difference,) = compare(
        side(updated("a.yaml: gone")), side(updated("a.yaml: gone", "b.yaml: gone"))
    ).packages

    assert difference.change.message == "web/v2; b.yaml: gone"


def test_commits_of_another_time_are_no_difference() -> None:
    later = replace(change(Op.UPDATE), writes=(replace(WRITE, to=Oid("9" * 40)),))

    assert compare(side(change(Op.UPDATE)), side(later)).is_empty


def test_the_sentence_counts_in_the_order_of_operations() -> None:
    created = [change(Op.CREATE, f"p{n}", url=f"host/r{n % 4}") for n in range(12)]
    updated = [change(op, f"u{n}") for n, op in enumerate([Op.UPDATE, Op.EDIT, Op.UPDATE])]

    found = compare(side(), side(*created, *updated, change(Op.DELETE, "d")))

    assert (
        sentence(found) == "Merging this creates 12 drafts in 4 repositories, updates 3, proposes 1 deletion"
    )


def test_a_problem_that_moved_is_the_same_problem() -> None:
    def problem(message: str, line: int) -> Problem:
        return Problem(Location("a.yaml", line), Reason.INVALID_YAML, message)

    old = side(problems=(problem("one", 1), problem("two", 2)))
    new = side(problems=(problem("one", 9), problem("three", 3)))

    found = compare(old, new)

    assert [[p.message for p in group] for group in (found.new, found.old, found.fixed)] == [
        ["three"],
        ["one"],
        ["two"],
    ]
    assert problem_sentence(found) == "Problems: 1 new, 1 fixed, 1 there before"


@pytest.mark.parametrize(
    ("there_before", "brings", "is_fixed"),
    [
        pytest.param("", "default/web", False, id="its owner stalls for another reason"),
        pytest.param("default/web", "default/web", True, id="both problems were seen"),
        pytest.param("", "default/www", True, id="another object stalls"),
        pytest.param("", "", False, id="its file cannot be read"),
    ],
)
def test_problem_that_a_worse_one_hides_is_not_fixed(there_before, brings, is_fixed) -> None:
    place = Location("a.yaml", 1)
    missing = Problem(place, Reason.UPSTREAM_NOT_FOUND, "none", subject="default/web")
    worse = Problem(place, Reason.INVALID_MANIFEST if brings else Reason.INVALID_YAML, "odd", subject=brings)
    base = side(problems=(missing, worse) if there_before else (missing,))

    assert compare(base, side(problems=(worse,))).fixed == ((missing,) if is_fixed else ())


@pytest.mark.parametrize("stalls", ["fleet", "other"])
def test_problem_of_a_variant_is_not_fixed_where_its_set_stalls(stalls: str) -> None:
    owner, sets = a_desired("web"), [set_key(ObjectName("default", name)) for name in ("fleet", stalls)]
    variant = replace(owner, set_key=sets[0].object_name)
    missing = Problem(Location("a.yaml", 1), Reason.UPSTREAM_NOT_FOUND, "none", subject=variant.owner.subject)
    worse = Problem(Location("b.yaml", 1), Reason.INVALID_MANIFEST, "odd", subject=sets[1].subject)
    base = replace(side(problems=(missing,)), desired=Desired((variant,)))

    assert compare(base, side(problems=(worse,))).fixed == (() if stalls == "fleet" else (missing,))


def test_only_new_refusals_count() -> None:
    was, comes = (Refusal(Reason.DELETION_GUARD, text, "") for text in ("was", "comes"))

    assert compare(side(refusals=(was,)), side(refusals=(was, comes))).refusals == (comes,)


def test_a_proposed_configuration_cannot_choose_what_is_trusted() -> None:
    trusted = Policy(instance="fleet")
    proposed = Policy(
        instance="other",
        manifests=("apps",),
        forges=(ForgeRule("evil.example", ForgeKind.GITHUB),),
        credentials=(CredentialRule("evil.example", token_env="PRECIOUS"),),
        functions=FunctionPolicy(exec={"x": "/bin/sh"}),
        limits=Limits(manifest_bytes=1 << 60),
    )

    assert govern(trusted, proposed) == replace(trusted, manifests=("apps",))


OLD, NEW = "a" * 40, "b" * 40


def pin(name: str, commit: str, **more: object) -> UpstreamLock:
    asked = {"repository": "blueprints", "package": "web", "selector": {"tag": "stable"}, **more}
    found = {"commit": commit, "tree": commit, "ref": "web/stable"}
    return UpstreamLock(namespace="default", name=name, **found, **asked)


def files(*pins: UpstreamLock) -> LockFiles:
    return {lock_path(one): lock_bytes(one) for one in pins}


def text(commit: str) -> str:
    return f"web/stable@{commit[:12]}"


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ((), (), None),
        ((pin("a", OLD),), (pin("a", OLD, held=True),), (text(OLD), text(OLD), "held by a person")),
        ((), (pin("a", NEW),), ("", text(NEW), "takes its first pin")),
        ((pin("a", OLD),), (pin("a", NEW),), (text(OLD), text(NEW), "follows its upstream")),
        ((pin("a", OLD),), (pin("a", NEW, held=True),), (text(OLD), text(NEW), "held by a person")),
        ((pin("a", OLD),), (pin("a", NEW, selector={"tag": "edge"}),),
            (text(OLD), text(NEW), "asks for another upstream")),
        ((pin("a", OLD),), (), (text(OLD), "", "no variant floats there any more")),
    ],
    ids=["nothing", "the same commit", "first", "moved", "held", "asked anew", "gone"],
)  # fmt: skip
def test_a_pin_is_told_with_both_sides_and_why(before, after, want) -> None:
    other = pin("z", OLD)

    found = compare_locks(files(*before, other), files(other, *after))

    assert found == ([], [PinChange(f"PackageVariant {ObjectName('default', 'a')}", *want)] if want else [])


def test_a_reviewed_lock_is_what_main_holds_and_any_other_what_a_plan_records() -> None:
    recorded = files(pin("a", NEW)) | {"proposed.json": b"{}"}
    held = {path.removeprefix("locks/"): File.of(data) for path, data in files(pin("a", OLD)).items()}
    plan = Plan(locks=recorded)
    control = Control("git.example/control", "control", Commit(Oid("c" * 40), 0))
    automatic = Inventory(Policy(), control)
    reviewed = Inventory(Policy(), control, reviewed=ReviewedLock(files=held))

    assert lock_files(automatic, plan) == files(pin("a", NEW))
    assert lock_files(automatic, None) == {}
    assert lock_files(reviewed, plan) == lock_files(reviewed, None) == files(pin("a", OLD))


DECLARED = ("created", "created otherwise", "paused", "changed", "kept")
SAME = ("created", "changed", "kept")
STATES = ("absent", *DECLARED, "deleted", "taken over", "guarded")
LEAVING = ("deleted", "taken over", "guarded")
FATES: DecisionTable[Fate | None] = DecisionTable(
    {"base": STATES, "head": STATES},
    [
        ({"base": "absent", "head": "absent"}, None, "no side has it"),
        ({"head": "absent"}, Fate.DROP, "it is not applied, and is not declared any more"),
        ({"base": ("absent", *LEAVING), "head": DECLARED}, Fate.CREATE, "merging declares it"),
        ({"base": "deleted", "head": "deleted"}, None, "it is deleted anyway"),
        ({"base": "taken over", "head": "taken over"}, None, "it is taken over anyway"),
        ({"base": "guarded", "head": "guarded"}, None, "it is kept anyway"),
        ({"head": "deleted"}, Fate.DELETE, "merging deletes it"),
        ({"head": "taken over"}, Fate.TRANSFER, "merging hands its package over"),
        ({"head": "guarded"}, Fate.KEEP, "merging removes it, and its package stays"),
        ({"head": "created otherwise", "base": ("paused", *SAME)}, Fate.CHANGE, "another spec"),
        ({"base": "created otherwise", "head": ("paused", *SAME)}, Fate.CHANGE, "its spec before"),
        ({"head": "paused", "base": SAME}, Fate.CHANGE, "merging pauses it"),
        ({"base": "paused", "head": SAME}, Fate.CHANGE, "merging lets it go on"),
        ({}, None, "both sides declare the same"),
    ],
)
A = ObjectName("default", "a")


def a_diff(state: str) -> SetDiff:
    revision = 2 if "otherwise" in state else 1
    spec = PackageVariantSpec(upstream=Upstream(revision=revision))
    fields = {"key": A, "spec": spec, "source": Source(Location("a.yaml")), "paused": state == "paused"}
    declared = a_desired_variant(**fields) if state in DECLARED else None
    changes = (VariantChange(A, Reason.UP_TO_DATE, variant=declared),)
    groups = {
        "changed": "update",
        "deleted": "delete",
        "taken over": "transfer",
        "kept": "keep",
        "guarded": "keep",
    }
    return SetDiff(**{groups.get(state, "create"): changes}) if state != "absent" else SetDiff()


def fate(case: Case) -> Fate | None:
    base, head = (Side(Desired(), a_diff(case[name])) for name in ("base", "head"))
    differences = compare(base, head).variants
    assert {difference.key for difference in differences} <= {A}
    return differences[0].fate if differences else None


@pytest.mark.parametrize("row", FATES.rows, ids=str)
def test_variant_is_compared_as_the_table_says(row: Row[Fate | None]) -> None:
    assert FATES.mistakes(row, fate) == []


def test_number_of_targets_is_compared_also_where_a_set_exists_on_one_side() -> None:
    base, head = (
        Side(Desired(targets={ObjectName("default", name): n for name, n in targets.items()}), SetDiff())
        for targets in ({"gone": 1, "same": 2, "grown": 3}, {"new": 1, "same": 2, "grown": 4})
    )

    assert [(t.key.name, t.before, t.after) for t in compare(base, head).targets] == [
        ("gone", 1, None),
        ("grown", 3, 4),
        ("new", None, 1),
    ]


def test_pin_that_cannot_be_read_hides_no_other() -> None:
    upstream = {
        "repository": "b",
        "package": "web",
        "selector": {"branch": "main"},
        "tree": "",
        "ref": "main",
    }
    lock = UpstreamLock(namespace="default", name="web", commit="1" * 40, **upstream)
    files = {"locks/upstreams/default/a.json": b"{", lock_path(lock): lock_bytes(lock)}

    pin = PinChange("PackageVariant default/web", "", "main@111111111111", "takes its first pin")
    assert compare_locks({}, files) == ([], [pin])


@pytest.mark.parametrize(
    ("deep", "unread", "is_complete"), [(True, (), True), (False, (), False), (True, ("down",), False)]
)
def test_comparison_is_complete_if_every_package_was_compared(deep, unread, is_complete) -> None:
    problems = tuple(Problem(Location("a", 1), Reason.REPOSITORY_UNAVAILABLE, text) for text in unread)

    assert Comparison(deep=deep, unread=problems).is_complete is is_complete


# Packages that would not be ready

FAULT = FunctionFault("set-label:v0.2", "set-label:v0.2 cannot run: It is not built in", "Did you mean x?")
FAILED = FunctionFault("kubeconform:v0.1", "Functions failed: validators[0]: kubeconform:v0.1: no")
WEB = a_desired_variant()


def made(path: str = "a", op: Op = Op.CREATE, **fields: Any) -> Change:
    return replace(change(op, path, url="r"), variant=WEB.key, upstream_to="web/v3", **fields)


def of_web(*changes: Change, problems: tuple[Problem, ...] = ()) -> Side:
    return replace(side(*changes, problems=problems), desired=Desired((WEB,)))


NOT_RUN, NOT_PASSED = (f"would not be ready: {f.message} (in the package of web/v3)" for f in (FAULT, FAILED))


@pytest.mark.parametrize(
    ("reason", "before", "after", "new"),
    [
        ("a function that cannot run", [], [made(faults=(FAULT,))], [f"r/a {NOT_RUN}"]),
        ("it could not run before", [made(faults=(FAULT,))], [made(faults=(FAULT,))], []),
        ("one more", [made(faults=(FAULT,))], [made(faults=(FAULT, FAILED))], [f"r/a {NOT_PASSED}"]),
        ("another package", [made(faults=(FAULT,))], [made(faults=(FAULT,)), made("b", faults=(FAULT,))],
            [f"r/b {NOT_RUN}"]),
        ("many packages", [], [made(path, faults=(FAULT,)) for path in "edcba"],
            [f"r/a, r/b, r/c and 2 more {NOT_RUN}"]),
        ("it is mended", [made(faults=(FAULT,))], [made()], []),
        ("a gate is for people", [], [made(unready=("gate a",))], []),
        ("so is a conflict", [], [made(op=Op.BLOCK, reason=Reason.MERGE_CONFLICT, message="3 values")], []),
        ("no package can be made", [], [made(op=Op.BLOCK, reason=Reason.INVALID_PACKAGE, message="Odd")],
            ["r/a would not be ready: Odd"]),
        ("no manifest asks for it", [], [replace(made(faults=(FAULT,)), variant=None)], []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_people_cannot_answer_in_a_draft_is_a_problem(reason, before, after, new) -> None:
    found = compare(of_web(*before), of_web(*after))

    faults = [{fault.message for change in changes for fault in change.faults} for changes in (before, after)]
    assert [problem.message for problem in found.new] == new, reason
    assert len(found.old) == len(faults[0] & faults[1])
    assert len(found.fixed) == len(faults[0] - faults[1])


@pytest.mark.parametrize("set_name", ["", "edges"])
def test_package_whose_manifest_stalls_is_not_called_ready(set_name: str) -> None:
    of_set = ObjectName("default", set_name) if set_name else None
    owner = set_key(of_set) if of_set else WEB.owner
    problem = Problem(Location("web.yaml", 1), Reason.INVALID_MANIFEST, "odd").owned_by(owner)
    base = replace(of_web(made(faults=(FAULT,))), desired=Desired((replace(WEB, set_key=of_set),)))

    assert compare(base, side(problems=(problem,))).fixed == ()


def test_package_whose_manifest_is_to_blame_is_told_once() -> None:
    problem = Problem(Location("web.yaml", 1), Reason.PACKAGE_EXISTS, "It is there").owned_by(WEB.owner)
    blocked = made(op=Op.BLOCK, reason=Reason.PACKAGE_EXISTS, message="It is there")

    assert compare(of_web(), of_web(blocked, problems=(problem,))).new == (problem,)


def test_function_that_a_manifest_names_is_told_once() -> None:
    spec = PackageVariantSpec(pipeline=Pipeline(mutators=[Function(image=FAULT.function)]))
    desired = Desired((replace(WEB, spec=spec),))
    problem = Problem(WEB.source.location, Reason.PIPELINE_FAILED, "It cannot run", FAULT.hint)
    sides = [replace(of_web(), desired=desired), replace(of_web(made(faults=(FAULT,))), desired=desired)]
    told = replace(sides[1], problems=(problem,), functions={problem: WEB.source.location})

    assert [p.message for p in compare(*sides).new] == [f"r/a would not be ready: {FAULT.message}"]
    assert compare(sides[0], told).new == (problem,)
    assert compare(told, told).old == (problem,)


def test_package_that_was_not_rendered_in_time_is_not_called_unchanged() -> None:
    late = made(op=Op.KEEP, reason=Reason.FUNCTIONS_POSTPONED)

    found = compare(of_web(made(op=Op.KEEP)), of_web(late))

    assert not found.is_complete
    assert sentence(found) == (
        "Merging this changes no package, as far as can be seen: 1 package was not made in this run"
    )


def test_fleet_without_a_manifest_is_told_as_such() -> None:
    empty = replace(side(), has_manifests=False)

    assert sentence(compare(empty, empty)) == "Merging this changes no package: neither side has a manifest"
    assert sentence(compare(empty, side())) == "Merging this changes no package"


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}, "d": 4}, ["s.b.c", "s.d"]),
        ({"a": {"b": 1}}, {"a": 1}, ["s.a"]),
        ({"a": 1}, {"a": {"b": 1}}, ["s.a"]),
        ([{"a": 1}, 2], [{"a": 3}, 2], ["s[0].a"]),
        ([1], [1, 2], ["s"]),
        ([1], {"a": 1}, ["s"]),
        (1, 1, []),
    ],
)
def test_changed_fields_are_as_deep_as_both_sides_have_them(old, new, fields) -> None:
    assert list(changed_fields("s", old, new)) == fields

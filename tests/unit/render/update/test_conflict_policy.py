"""Values that a policy or strategy drops are listed, with the policy and its source."""

import pytest

from reconciler.names.objects import Files
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.conflicts import ON_CONFLICT, ON_CONFLICT_FIELDS, PolicySources, conflict_policy
from reconciler.render.update import ConflictPolicy, UpdateRefused, update_package
from reconciler.render.update.conflicts import describe_decision, find_rule
from tests.support.decision_table import Case, DecisionTable, Row
from tests.support.model import kptfile, package

SOURCES = PolicySources("PackageVariant default/web (manifests/web.yaml)", "fleet.yaml")


def resource(color: str, note: str = "") -> str:
    annotations = f"  annotations:\n    {ON_CONFLICT}: {note}\n" if note else ""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n{annotations}data:\n  color: {color}\n"


@pytest.mark.parametrize("choice", ["upstream", "local"])
@pytest.mark.parametrize(
    ("level", "policy", "source"),
    [
        ("field of Kptfile", f"{ON_CONFLICT_FIELDS}: data.*={{}}", "Kptfile"),
        ("field of variant", f"{ON_CONFLICT_FIELDS}: data.*={{}}", SOURCES.variant),
        ("resource", f"{ON_CONFLICT}: {{}}", "app.yaml"),
        ("Kptfile", f"{ON_CONFLICT}: {{}}", "Kptfile"),
        ("variant", f"{ON_CONFLICT}: {{}}", SOURCES.variant),
        ("configuration", "onConflict: {}", "fleet.yaml"),
    ],
)
def test_decision_names_the_policy_and_where_it_is_written(level, policy, source, choice) -> None:
    fields, note = {ON_CONFLICT_FIELDS: f"data.*={choice}"}, {ON_CONFLICT: choice}
    own = {"field of Kptfile": fields, "Kptfile": note}.get(level, {})
    head = kptfile("web", "".join(f"  annotations:\n    {key}: {text}\n" for key, text in own.items()))
    mark = choice if level == "resource" else ""
    files = [package({"Kptfile": head, "app.yaml": resource(c, mark)}) for c in ("old", "new", "mine")]
    annotations = {"field of variant": fields, "variant": note}.get(level, {})
    fallback = OnConflict(choice if level == "configuration" else "ask")
    policy_in_force = conflict_policy(files[2], annotations, fallback, SOURCES)

    (decided,) = update_package(*files, on_conflict=policy_in_force).decided

    decision = describe_decision(policy_in_force, decided.winner, decided.rule, decided.conflict.path)
    assert decision == (choice, policy.format(choice), source)
    assert (decided.conflict.upstream, decided.conflict.local) == ("new", "mine")


def without(texts: dict[str, str], *names: str, **changed: str) -> Files:
    """Return a package of texts, some of them left out and some changed (`a_yaml` is a.yaml)."""
    kept = {name: text for name, text in texts.items() if name not in names}
    return package(
        {"Kptfile": kptfile("web"), **kept, **{n.replace("_", "."): t for n, t in changed.items()}}
    )


@pytest.mark.parametrize("strategy", [Strategy.FORCE_DELETE_REPLACE, Strategy.COPY_MERGE])
def test_strategy_lists_every_local_change_that_it_replaces(strategy: Strategy) -> None:
    texts = {"changed.yaml": "a: 1\n", "removed.yaml": "b: 1\n", "same.yaml": "c: 1\n", "gone.yaml": "d: 1\n"}
    upstream = without(texts, "gone.yaml", same_yaml="c: 2\n")
    local = without(texts, "removed.yaml", changed_yaml="a: 9\n", gone_yaml="d: 9\n")

    updated = update_package(without(texts), upstream, local, strategy=strategy)

    dropped = {each.conflict.path: each.conflict.local for each in updated.decided}
    assert dropped == {"changed.yaml": "a: 9\n", "removed.yaml": None, "gone.yaml": "d: 9\n"}
    policy = conflict_policy(local, {}, OnConflict.ASK, SOURCES)
    decisions = {describe_decision(policy, s.winner, s.rule, s.conflict.path) for s in updated.decided}
    assert decisions == {("upstream", f"updateStrategy: {strategy}", "Kptfile")}


def test_strategy_lists_what_people_added_and_it_removes_all_but_packages_of_other_upstreams() -> None:
    original = package({"Kptfile": kptfile("web"), "a.yaml": "a: 1\n"})
    follows = kptfile("dep", "upstream:\n  git: {repo: r, directory: d, ref: v1}\n")
    other = package({"dep/Kptfile": follows, "dep/notes": "kept\n"})
    mine = package({"mine.txt": "mine\n", "sub/Kptfile": kptfile("sub")})

    updated = update_package(
        original, original, original | other | mine, strategy=Strategy.FORCE_DELETE_REPLACE
    )

    assert updated.files == original | other
    assert {s.conflict.path: s.conflict.local for s in updated.decided} == {
        path: file.data.decode() for path, file in mine.items()
    }


def test_both_members_of_a_union_are_listed() -> None:
    def pod(volume: str) -> str:
        head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  volumes:\n  - name: v\n"
        return f"{head}    {volume}\n"

    volumes = ("emptyDir: {}", "configMap: {name: theirs}", "secret: {secretName: mine}")
    files = [package({"Kptfile": kptfile("web"), "pod.yaml": pod(volume)}) for volume in volumes]

    updated = update_package(*files, on_conflict=OnConflict.UPSTREAM)

    values = {each.conflict.field.rpartition(".")[2]: each.conflict.local for each in updated.decided}
    assert values == {"configMap": None, "secret": "{secretName: mine}"}
    assert "secretName" not in updated.files["pod.yaml"].data.decode()


@pytest.mark.parametrize("policy", [OnConflict.ASK, OnConflict.UPSTREAM, OnConflict.LOCAL])
def test_removed_resource_that_upstream_moved_and_changed_is_a_conflict(policy: OnConflict) -> None:
    head = {"Kptfile": kptfile("web"), "other.yaml": resource("x").replace("app", "other")}
    original = package({**head, "app.yaml": resource("old")})
    upstream = package({**head, "moved.yaml": resource("new")})

    updated = update_package(original, upstream, package(head), on_conflict=policy)

    named = [*updated.conflicts, *(each.conflict for each in updated.decided)]
    assert [(each.reason, each.local) for each in named] == [("DeletedLocally", None)]
    assert "moved.yaml" not in updated.files


@pytest.mark.parametrize("edited", [False, True])
def test_resource_that_people_moved_goes_with_upstreams_removal_unless_edited(*, edited: bool) -> None:
    head = {"Kptfile": kptfile("web")}
    mine = resource("mine" if edited else "old")

    updated = update_package(
        package({**head, "app.yaml": resource("old")}), package(head), package({**head, "moved.yaml": mine})
    )

    assert [each.reason for each in updated.conflicts] == (["DeletedUpstream"] if edited else [])
    assert ("moved.yaml" in updated.files) == edited


@pytest.mark.parametrize("turned", [False, True])
def test_file_that_is_a_directory_on_the_other_side_is_refused(*, turned: bool) -> None:
    head = {"Kptfile": kptfile("web")}
    sides = [package({**head, "a": "theirs\n"}), package({**head, "a/b.txt": "mine\n"})]

    with pytest.raises(UpdateRefused, match=r"directories on the other: a$"):
        update_package(package(head), *(reversed(sides) if turned else sides))


FIRST, SECOND = "data.*", "data.c*"
LEVELS: DecisionTable[tuple[str, str]] = DecisionTable(
    {
        "places": ("none", "of another field", "of the field"),
        "fields": ("none", "of another field", "one matches", "two match"),
        "annotation": ("none", "a choice", "another word"),
        "rotation": ("0", "1", "2", "3"),
    },
    [
        ({"places": "of the field"}, ("place", ""), "an answer for the very place comes first"),
        ({"fields": "one matches"}, ("field", FIRST), "then the field pattern"),
        ({"fields": "two match"}, ("field", FIRST), "of two patterns the first"),
        ({"annotation": "a choice"}, ("resource", ""), "then the annotation of the resource"),
        ({}, ("default", ""), "then the default"),
    ],
)
"""The level that decides a conflict; every level has another choice, and takes each of them in turn."""


def deciding_level(case: Case) -> tuple[str, str]:
    turn = int(case["rotation"])
    choices = [*OnConflict][turn:] + [*OnConflict][:turn]
    of_level = dict(zip(("place", "field", "resource", "default"), choices, strict=True))
    place = ("app.yaml", "ConfigMap app", "data.color")
    policy = ConflictPolicy(
        of_level["default"],
        {
            **({"spec.*": choices[1]} if case["fields"] == "of another field" else {}),
            **({FIRST: of_level["field"]} if case["fields"] in ("one matches", "two match") else {}),
            **({SECOND: of_level["default"]} if case["fields"] == "two match" else {}),
        },
        {
            "none": {},
            "of another field": {(*place[:2], "data.size"): choices[0]},
            "of the field": {place: of_level["place"]},
        }[case["places"]],
    )
    note = {"none": "", "a choice": str(of_level["resource"]), "another word": "mine"}[case["annotation"]]
    data = {"metadata": {"annotations": {ON_CONFLICT: note} if note else {}}}

    choice, rule = find_rule(policy, place, data)

    assert choice is of_level[rule.kind]
    return rule.kind, rule.text


@pytest.mark.parametrize("row", LEVELS.rows, ids=str)
def test_most_specific_level_decides(row: Row[tuple[str, str]]) -> None:
    assert LEVELS.mistakes(row, deciding_level) == []


def fields(color: str) -> str:
    return resource("x").replace("  color: x\n", f"  a: x\n  color: {color}\n" if color else "  a: x\n")


def containers(number: int) -> str:
    """Return a workload with a second container of this version, 0 for none."""
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  template:\n    spec:\n"
    side = f"      - {{name: side, image: s:{number}}}\n" if number else ""
    return f"{head}      containers:\n      - {{name: app, image: a:1}}\n{side}"


def removed(
    what: str, old: dict[str, str], new: dict[str, str], mine: dict[str, str]
) -> dict[str, tuple[dict[str, str], ...]]:
    return {f"{what}, removed by local": (old, new, {}), f"{what}, removed upstream": (old, {}, mine)}


def encrypted(value: str) -> str:
    return f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  k: {value}\nsops:\n  mac: {value}\n"


CHANGES: dict[str, tuple[dict[str, str], ...]] = {
    "the same field by both": tuple({"r.yaml": resource(c)} for c in ("old", "new", "new")),
    "a field by both": tuple({"r.yaml": resource(c)} for c in ("old", "new", "mine")),
    "a field, removed by local": tuple({"r.yaml": fields(c)} for c in ("old", "new", "")),
    "a field, removed upstream": tuple({"r.yaml": fields(c)} for c in ("old", "", "mine")),
    "an element, removed by local": tuple({"r.yaml": containers(n)} for n in (1, 2, 0)),
    "an element, removed upstream": tuple({"r.yaml": containers(n)} for n in (1, 0, 3)),
    "an encrypted document by both": tuple({"r.yaml": encrypted(v)} for v in ("ENC[1]", "ENC[2]", "ENC[3]")),
    "a line by both": tuple({"t.txt": text} for text in ("old\n", "new\n", "mine\n")),
    "bytes by both": tuple({"b.bin": text} for text in ("\0old", "\0new", "\0mine")),
    **removed("a resource", *({"r.yaml": resource(c)} for c in ("old", "new", "mine"))),
    **removed("a text file", *({"t.txt": f"{word}\n"} for word in ("old", "new", "mine"))),
    **removed(
        "a sub-package",
        *({"sub/Kptfile": kptfile("sub"), "sub/r.yaml": resource(c)} for c in ("old", "new", "mine")),
    ),
}
"""What both sides changed: base, upstream and local."""


_VALUES = (
    "a field by both",
    "a field, removed by local",
    "a field, removed upstream",
    "an element, removed by local",
    "an element, removed upstream",
    "an encrypted document by both",
    "a line by both",
    "bytes by both",
)
_WHOLES = tuple(
    f"{what}, removed {who}"
    for what in ("a resource", "a text file", "a sub-package")
    for who in ("by local", "upstream")
)

EFFECTS: DecisionTable[str] = DecisionTable(
    {"mode": tuple(MergeMode), "choice": tuple(OnConflict), "change": tuple(CHANGES)},
    [
        ({"change": "the same field by both"}, "local", "the same change is no conflict"),
        ({"mode": "compatible", "change": "an element, removed by local"}, "a mix",
            "kpt brings an element back in pieces"),
        ({"mode": "compatible", "change": ("a line by both", "bytes by both", *_WHOLES[:2], *_WHOLES[3:])},
            "local", "kpt merges no text, and keeps what one side removed and local has or has not"),
        ({"mode": "compatible"}, "upstream", "kpt lets upstream win, whatever the policy, without a word"),
        ({"choice": "fail"}, "MergeConflict of 1", "nothing is written"),
        ({"choice": "ask"}, "local, asked", "local stays until a person decides"),
        ({"choice": "local"}, "local, local is told", "local wins"),
        ({"choice": "upstream", "change": _WHOLES}, "local, local is told",
            "no policy deletes an edit or brings back what people deleted"),
        ({"choice": "upstream", "change": _VALUES}, "upstream, upstream is told", "upstream wins"),
    ],
)  # fmt: skip
"""What a choice does to each kind of change."""


def effect(case: Case) -> str:
    base, upstream, local = (package({"Kptfile": kptfile("web"), **side}) for side in CHANGES[case["change"]])
    mode = MergeMode(case["mode"])
    try:
        updated = update_package(base, upstream, local, on_conflict=OnConflict(case["choice"]), mode=mode)
    except UpdateRefused as refused:
        return f"{refused.reason} of {len(refused.conflicts)}"
    side = next(
        (n for n, files in (("local", local), ("upstream", upstream)) if updated.files == files), "a mix"
    )
    told = [f"{each.winner} is told" for each in updated.decided] + ["asked"] * len(updated.conflicts)
    return ", ".join([side, *told])


@pytest.mark.parametrize("row", EFFECTS.rows, ids=str)
def test_choice_has_its_effect_on_every_kind_of_change(row: Row[str]) -> None:
    assert EFFECTS.mistakes(row, effect) == []

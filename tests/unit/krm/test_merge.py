"""Three-way merge of resources and of text."""

from typing import NamedTuple

import pytest

from reconciler.krm.merge import Winner, merge_document, merge_document_like_kpt, merge_text, path_text
from reconciler.krm.schema import Schemas
from reconciler.krm.yaml import Tree

POD = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  template:\n    spec:\n"


def merge(base: str, upstream: str, local: str, winner: Winner = Winner.OPEN) -> tuple[str | None, list[str]]:
    """Merge three documents; return the text and where they clash."""
    old, theirs, ours = (Tree.parse(text) for text in (base, upstream, local))
    data = ours.value if isinstance(ours.value, dict) else {}
    shape = Schemas().shape(str(data.get("apiVersion")), str(data.get("kind")))
    done = merge_document(old, theirs, ours, shape=shape, resolver=lambda _: winner)
    conflicts = [(path_text(conflict.path), conflict.reason) for conflict in done.conflicts]
    return done.text, [path if why == "BothChanged" else f"{path} {why}" for path, why in conflicts]


def pod(text: str) -> str:
    return POD + "".join(f"      {line}\n" for line in text.splitlines())


class Case(NamedTuple):
    reason: str
    base: str
    upstream: str
    local: str
    want: str
    conflicts: tuple[str, ...] = ()


TEXT = "data:\n  f: |\n    a: 1\n    b: 1\n    c: 1\n    d: 1\nx: {}\n"
LABELLED = "metadata:\n  labels:\n    helm.sh/chart: web-{}\n    app: web\nspec: {}\n"
CHECKED = "{}: {{metadata: {{annotations: {{checksum/config: {}, x: {}}}}}}}\nz: {}\n"

VERSIONED = [
    Case("different lines of a text", TEXT.format(1), TEXT.replace("a: 1", "a: 2").format(1),
        TEXT.replace("    d: 1\n", "    d: 1\n    e: 1\n").format(2),
        TEXT.replace("a: 1", "a: 2").replace("    d: 1\n", "    d: 1\n    e: 1\n").format(2)),
    Case("one line of a text", TEXT.format(1), TEXT.replace("a: 1", "a: 2").format(1),
        TEXT.replace("a: 1", "a: 3").format(2), TEXT.replace("a: 1", "a: 3").format(2), ("data.f",)),
    Case("one line is no text", "a: x y\n", "a: z y\n", "a: x z\n", "a: x z\n", ("a",)),
    Case("a version that a person removed", LABELLED.format(1, 1), LABELLED.format(2, 1),
        "metadata:\n  labels:\n    app: web\nspec: 1\n", "metadata:\n  labels:\n    app: web\nspec: 1\n"),
    Case("a part that a person removed, of which a checksum changed", CHECKED.format("a", 1, 1, 1),
        CHECKED.format("a", 2, 1, 1), "z: 2\n", "z: 2\n"),
    Case("a part that a person removed, of which more changed", CHECKED.format("a", 1, 1, 1),
        CHECKED.format("a", 2, 2, 1), "z: 2\n", "z: 2\n", ("a.metadata.annotations.x DeletedLocally",)),
    Case("what a person changed of it, and a chart removed", CHECKED.format("a", 1, 1, 1), "z: 1\n",
        CHECKED.format("a", 3, 1, 1), "a: {metadata: {annotations: {checksum/config: 3}}}\nz: 1\n",
        ("a.metadata.annotations.checksum/config DeletedUpstream",)),
]  # fmt: skip

VALUES = [
    Case("changes of both sides are kept", "a: 1\nb: 1\n", "a: 2\nb: 1\n", "a: 1\nb: 3\n", "a: 2\nb: 3\n"),
    Case("a clash keeps local's value", "a: 1\n", "a: 2\n", "a: 3\n", "a: 3\n", ("a",)),
    Case("the same change twice is no clash", "a: 1\nb: 1\n", "a: 2\nb: 1\n", "a: 2\nb: 2\n", "a: 2\nb: 2\n"),
    Case("deleted upstream, untouched here", "a: 1\nb: 1\n", "b: 1\n", "a: 1\nb: 2\n", "b: 2\n"),
    Case("deleted upstream, changed here", "a: 1\nb: 1\n", "b: 1\n", "a: 2\nb: 1\n", "a: 2\nb: 1\n",
        ("a DeletedUpstream",)),
    Case("deleted here, changed upstream", "a: 1\nb: 1\n", "a: 2\nb: 1\n", "b: 1\n", "b: 1\n",
        ("a DeletedLocally",)),
    Case("a quoted value keeps local's quotes", "a: 'x'\nb: 1\n", "a: 'y'\nb: 1\n", 'a: "x"\nb: 2\n',
        'a: "y"\nb: 2\n'),
    Case("null is a value", "a: 1\nn: null\nb: 1\n", "a: null\nn: null\nb: 1\n", "a: 1\nn: null\nb: 2\n",
        "a: null\nn: null\nb: 2\n"),
    Case("a new type is taken", "a: 1\nb: 1\n", "a:\n  x: 1\nb: 1\n", "a: 1\nb: 2\n", "a:\n  x: 1\nb: 2\n"),
    Case("a list without keys is one value", "l: [1]\n", "l: [2]\n", "l: [3]\n", "l: [3]\n", ("l",)),
    Case("a dotted key is quoted in its path", "x:\n  a.b: 1\n", "x:\n  a.b: 2\n", "x:\n  a.b: 3\n",
        "x:\n  a.b: 3\n", ('x."a.b"',)),
]  # fmt: skip


@pytest.mark.parametrize("case", [*VALUES, *VERSIONED], ids=lambda case: case.reason)
def test_values(case: Case) -> None:
    assert merge(case.base, case.upstream, case.local) == (case.want, list(case.conflicts))


@pytest.mark.parametrize(
    ("new", "want"),
    [("x: {n: null, b: 1}", "x:\n  b: 1"), ("x: {b: 1}", "x: {b: 1}"), ("l: [1, 2]", "l: [1, 2]")],
)
def test_null_in_what_upstream_adds_is_left_out_as_by_kpt(new: str, want: str) -> None:
    base, upstream, local = map(Tree.parse, ("a: 1\n", f"a: 1\n{new}\n", "a: 1\nc: 1\n"))

    assert merge_document_like_kpt(base, upstream, local, schemas=Schemas()).text == f"a: 1\nc: 1\n{want}\n"


@pytest.mark.parametrize("winner", [Winner.OPEN, Winner.UPSTREAM])
@pytest.mark.parametrize(("label", "is_left"), [("helm.sh/chart", True), ("tier", False)])
def test_version_that_both_sides_changed_is_left_to_people(
    label: str, winner: Winner, *, is_left: bool
) -> None:
    sides = (Tree.parse(f"metadata:\n  labels:\n    {label}: web-{number}\n") for number in (1, 2, 3))

    (conflict,) = merge_document(*sides, shape=None, resolver=lambda _: winner).conflicts

    is_ruled = is_left and winner is Winner.OPEN
    assert conflict.winner is (Winner.LOCAL if is_ruled else winner)
    assert conflict.rule == (
        "a label or annotation that carries a version is left to people" if is_ruled else ""
    )


def test_policy_chooses_upstream() -> None:
    text, conflicts = merge("a: 1\nb: 1\n", "a: 2\n", "a: 3\nb: 4\n", Winner.UPSTREAM)

    assert (text, conflicts) == ("a: 2\n", ["a", "b DeletedUpstream"])


ELEMENTS = [
    Case("a container that both sides changed", "containers:\n- name: a\n  image: a:1",
        "containers:\n- name: a\n  image: a:2", "containers:\n- name: a\n  image: a:1\n  tty: true",
        "containers:\n- name: a\n  image: a:2\n  tty: true"),
    Case("deleted upstream, changed here: it stays whole",
        "containers:\n- name: a\n  image: a\n- name: s\n  image: s", "containers:\n- name: a\n  image: a",
        "containers:\n- name: a\n  image: a\n- name: s\n  image: s\n  tty: true",
        "containers:\n- name: a\n  image: a\n- name: s\n  image: s\n  tty: true",
        ("spec.template.spec.containers[name=s] DeletedUpstream",)),
    Case("deleted here, changed upstream: it stays away",
        "containers:\n- name: a\n  image: a\n- name: s\n  image: s:1",
        "containers:\n- name: a\n  image: a\n- name: s\n  image: s:2", "containers:\n- name: a\n  image: a",
        "containers:\n- name: a\n  image: a",
        ("spec.template.spec.containers[name=s] DeletedLocally",)),
    Case("an element that is no mapping: the list is one value", "containers:\n- name: a",
        "containers:\n- name: a\n- b", "containers:\n- name: a\n  tty: true",
        "containers:\n- name: a\n  tty: true", ("spec.template.spec.containers",)),
    Case("value becomes valueFrom upstream, changed here: never both",
        "containers:\n- name: a\n  env:\n  - name: E\n    value: x",
        "containers:\n- name: a\n  env:\n  - name: E\n    valueFrom:\n      fieldRef: {fieldPath: a.b}",
        "containers:\n- name: a\n  env:\n  - name: E\n    value: mine",
        "containers:\n- name: a\n  env:\n  - name: E\n    value: mine",
        ("spec.template.spec.containers[name=a].env[name=E].value",
        "spec.template.spec.containers[name=a].env[name=E].valueFrom")),
    Case("an element without its first merge key is found by the others",
        "containers:\n- name: a\n  ports:\n  - protocol: UDP\n    hostPort: 1",
        "containers:\n- name: a\n  ports:\n  - protocol: UDP\n    hostPort: 2",
        "containers:\n- name: a\n  ports:\n  - protocol: UDP\n    hostPort: 1\n  - containerPort: 80",
        "containers:\n- name: a\n  ports:\n  - protocol: UDP\n    hostPort: 2\n  - containerPort: 80"),
    Case("a list with one key twice is one value",
        "containers:\n- name: a\n  image: a\n- name: a\n  image: b",
        "containers:\n- name: a\n  image: a2\n- name: a\n  image: b2",
        "containers:\n- name: a\n  image: a\n- name: a\n  image: mine",
        "containers:\n- name: a\n  image: a\n- name: a\n  image: mine", ("spec.template.spec.containers",)),
]  # fmt: skip


def env(names: str) -> str:
    return "containers:\n- name: a\n  env:" + "".join(
        f"\n  - name: {name[0]}\n    value: {name}" for name in names.split()
    )


ORDERS = [
    Case("upstream adds in the middle", env("A B"), env("A N B"), env("A B M"), env("A N B M")),
    Case("upstream adds in front", env("A B"), env("N A B"), env("A B M"), env("N A B M")),
    Case("local adds in front", env("A B"), env("A B N"), env("M A B"), env("M A B N")),
    Case("upstream reorders", env("A B"), env("B A N"), env("A B M"), env("B A M N")),
    Case("local reorders", env("A B"), env("A B N"), env("B A"), env("B A N")),
    Case("upstream reorders and changes", env("A B"), env("B A2"), env("A B M"), env("B A2 M")),
    Case("upstream replaces all", env("A B"), env("N O"), env("A B M"), env("N O M")),
]


@pytest.mark.parametrize("case", ORDERS, ids=lambda case: case.reason)
def test_new_list_elements_stand_where_their_side_has_them(case: Case) -> None:
    assert merge(pod(case.base), pod(case.upstream), pod(case.local)) == (pod(case.want), [])


@pytest.mark.parametrize("case", ELEMENTS, ids=lambda case: case.reason)
def test_list_elements_are_added_and_deleted_as_a_whole(case: Case) -> None:
    got = merge(pod(case.base), pod(case.upstream), pod(case.local))

    assert got == (pod(case.want), list(case.conflicts))


def test_field_deleted_by_local_stays_deleted() -> None:
    base, upstream = "m:\n  inner:\n    a: 1\nk: 1\n", "m:\n  inner:\n    a: 1\nk: 2\n"

    assert merge(base, upstream, "k: 1\n") == ("k: 2\n", [])
    assert merge(base, upstream.replace("a: 1", "a: 1\n    up: 3"), "k: 1\n") == (
        "m:\n  inner:\n    up: 3\nk: 2\n",
        [],
    )


@pytest.mark.parametrize(
    ("reason", "base", "upstream", "local", "want"),
    [
        ("local's comment stays beside upstream's value", "a: 1\n", "a: 2\n", "a: 1 # mine\n",
            "a: 2 # mine\n"),
        ("a setter comment arrives at a changed value", "a: 1\n", "a: 1 # kpt-set: ${a}\n", "a: 5\n",
            "a: 5 # kpt-set: ${a}\n"),
        ("a comment that local changed stays", "a: 1 # x\n", "a: 2 # y\n", "a: 1 # mine\n", "a: 2 # mine\n"),
        ("head comments too", "# x\na: 1\nb: 1\n", "# y\na: 1\nb: 1\n", "# x\na: 1\nb: 2\n",
            "# y\na: 1\nb: 2\n"),
        ("a new field brings its comments", "b: 1\n", "b: 1\n# head\nn:\n  x: 1 # line\n", "b: 2\n",
            "b: 2\n# head\nn:\n  x: 1 # line\n"),
        ("the comment below the fields stays below a new one", "a: 1\nb: 1\n# end\n",
            "a: 1\nb: 1\nc: 1\n# end\n", "a: 2\nb: 1\n# end\n", "a: 2\nb: 1\nc: 1\n# end\n"),
        ("a comment that another field has is not doubled", "a: 1\n# end\n\nd: 1\n",
            "a: 1\nb: 1\n# end\n\nd: 1\n", "a: 1\n# end\n\nd: 2\n", "a: 1\nb: 1\n# end\n\nd: 2\n"),
    ],
)  # fmt: skip
def test_comments_merge_independently_of_values(
    reason: str, base: str, upstream: str, local: str, want: str
) -> None:
    assert merge(base, upstream, local) == (want, []), reason


def test_aliases_are_kept_by_merging_lines() -> None:
    base = "a: &x\n  k: 1\nb: *x\nc: 1\nd: 1\ne: 1\n"

    text, conflicts = merge(base, base.replace("k: 1", "k: 2"), base.replace("e: 1", "e: 2"))

    assert (text, conflicts) == (base.replace("k: 1", "k: 2").replace("e: 1", "e: 2"), [])


@pytest.mark.parametrize(
    ("winner", "value", "path"),
    [(Winner.OPEN, 3, ("a", "k")), (Winner.LOCAL, 3, ("a", "k")), (Winner.UPSTREAM, 2, ())],
)
def test_aliased_value_that_both_sides_changed_is_one_conflict(
    winner: Winner, value: int, path: tuple[str, ...]
) -> None:
    texts = [f"a: &x\n  k: {n}\nb: *x\n" for n in (1, 2, 3)]

    merged = merge_document(*map(Tree.parse, texts), shape=None, resolver=lambda _: winner)

    assert merged.text == texts[value - 1]
    assert [(each.path, each.reason, each.winner) for each in merged.conflicts] == [
        (path, "BothChanged", winner)
    ]


@pytest.mark.parametrize(
    ("base", "upstream", "local", "want", "conflicts"),
    [
        ("a: x\n", 'a: "x"\n', "a: mine\n", "a: mine\n", []),
        ("a: 1\n", 'a: "1"\n', "a: 2\n", "a: 2\n", ["a"]),
        ('a: "1"\n', "a: 1\n", 'a: "1"\n', "a: 1\n", []),
    ],
)
def test_quotes_are_a_change_only_where_they_change_the_type(
    base: str, upstream: str, local: str, want: str, conflicts: list[str]
) -> None:
    assert merge(base, upstream, local) == (want, conflicts)


def test_too_long_text_is_not_merged() -> None:
    assert merge_text("x\n", "x\n" * 30_000, "y\n") is None
    assert merge_text("x\n" * 3000, "x\n" * 2999, "x\n" * 3001) is None


@pytest.mark.parametrize("header", ["|", ">", "|+", "- |"])
def test_line_break_of_upstream_at_the_end_of_a_file_arrives(header: str) -> None:
    cut = f"a:\n  b: {header}\n      text" if "-" not in header else "a:\n- |\n  text"
    kpt = cut.replace("|+", "|").replace("|", "|-").replace(">", ">-") + "\n"  # as `kpt pkg get` writes it

    merged = merge_document(
        Tree.parse(cut), Tree.parse(f"{cut}\n"), Tree.parse(kpt), shape=None, resolver=lambda _: Winner.OPEN
    )

    assert Tree.parse(merged.text or "").value == Tree.parse(f"{cut}\n").value

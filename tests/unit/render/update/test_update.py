"""Package updates: files, packages, strategies, conflicts."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.krm.yaml import Tree
from reconciler.names.objects import File, Mode
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update import Conflict, UpdateRefused, update_package
from reconciler.render.update.identifiers import with_identifiers
from tests.support.merges import files_of

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\n"
ROOT = KPTFILE.format(name="pkg")
SUB = KPTFILE.format(name="sub")


def cm(name: str, a: str = "x", more: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {a}\n{more}"


def in_namespace(name: str) -> str:
    return cm("c").replace("  name: c\n", f"  name: c\n  namespace: {name}\n")


def update(
    original: Mapping[str, str], upstream: Mapping[str, str], local: Mapping[str, str], **options: Any
) -> tuple[dict[str, str], tuple[Conflict, ...]]:
    """Update packages given as texts, each with the same Kptfile."""
    done = update_package(
        *(files_of({"Kptfile": ROOT, **side}) for side in (original, upstream, local)), **options
    )
    texts = {path: file.data.decode() for path, file in done.files.items() if path != "Kptfile"}
    return texts, done.conflicts


def value(text: str) -> Any:
    return Tree.parse(text).value


def kinds(conflicts: tuple[Conflict, ...]) -> list[tuple[str, str, str, str]]:
    return [(c.path, c.resource, c.field, c.reason) for c in conflicts]


def test_an_edited_resource_moves_with_upstream() -> None:
    texts, conflicts = update(
        {"a.yaml": cm("c")}, {"b/c.yaml": cm("c", "up")}, {"a.yaml": cm("c", more="  l: mine\n")}
    )

    assert texts == {"b/c.yaml": cm("c", "up", "  l: mine\n")}
    assert conflicts == ()


def test_upstream_follows_a_resource_that_local_moved() -> None:
    texts, _ = update({"a.yaml": cm("c")}, {"a.yaml": cm("c", "up")}, {"mine/c.yaml": cm("c")})

    assert texts == {"mine/c.yaml": cm("c", "up")}


def test_resource_that_both_sides_moved_stays_where_local_moved_it() -> None:
    texts, conflicts = update({"a.yaml": cm("c")}, {"b.yaml": cm("c", "up")}, {"mine/c.yaml": cm("c")})

    assert texts == {"mine/c.yaml": cm("c", "up")}
    assert conflicts == ()


@pytest.mark.parametrize(
    ("reason", "path", "ignore", "sides"),
    [
        ("of the package", "d/i.yaml", ".krmignore", (1, 1, 1)),
        ("of a sub-package", "sub/d/i.yaml", "sub/.krmignore", (1, 1, 1)),
        ("that upstream adds", "d/i.yaml", ".krmignore", (0, 1, 0)),
        ("that local adds", "d/i.yaml", ".krmignore", (0, 0, 1)),
        ("that both delete", "d/i.yaml", ".krmignore", (1, 0, 0)),
    ],
)
def test_file_that_krmignore_hides_merges_as_text(reason, path, ignore, sides) -> None:
    texts = [cm("i"), cm("i", "up"), cm("i", more="  l: mine\n")]
    files = [
        {path: text, "sub/Kptfile": SUB, **({ignore: "d/\n"} if hides else {})}
        for text, hides in zip(texts, sides, strict=True)
    ]

    merged, conflicts = update(*files)

    assert [(c.path, c.resource) for c in conflicts] == [(path, "")], reason
    assert merged[path] == texts[2]


def test_documents_are_inserted_where_upstream_has_them() -> None:
    first, second = cm("one"), cm("two")
    texts, _ = update(
        {"r.yaml": f"{first}---\n{second}"},
        {"r.yaml": f"{cm('one', 'up')}---\n{cm('new')}---\n{second}"},
        {"r.yaml": f"{first}---\n{cm('two', 'mine')}---\n{cm('mine')}"},
    )

    assert texts == {"r.yaml": f"{cm('one', 'up')}---\n{cm('new')}---\n{cm('two', 'mine')}---\n{cm('mine')}"}


def test_resource_in_namespace_of_mutator_follows_upstream() -> None:
    here = in_namespace("prod")

    texts, _ = update({"r.yaml": cm("c")}, {"r.yaml": cm("c", "up")}, {"r.yaml": here})

    assert texts == {"r.yaml": here.replace("a: x", "a: up")}


def test_resource_in_namespace_of_mutator_is_one_of_upstreams_alone() -> None:
    base = f"{in_namespace('one')}---\n{in_namespace('two')}"
    upstream = base.replace("a: x", "a: up")

    texts, conflicts = update({"r.yaml": base}, {"r.yaml": upstream}, {"r.yaml": in_namespace("prod")})

    assert texts == {"r.yaml": in_namespace("prod").replace("a: x", "a: up")}
    assert kinds(conflicts) == [("r.yaml", "ConfigMap two/c", "", "DeletedLocally")]


def test_a_merge_comment_names_a_renamed_resource() -> None:
    here = cm("mine").replace("metadata:", "metadata: # kpt-merge: /c")

    texts, _ = update({"r.yaml": cm("c")}, {"r.yaml": cm("c", "up")}, {"r.yaml": here})

    assert texts == {"r.yaml": here.replace("a: x", "a: up")}


def test_new_version_of_a_chart_alone_brings_no_deleted_resource_back() -> None:
    of_chart = cm("c").replace("  name: c\n", "  name: c\n  labels:\n    helm.sh/chart: web-{}\n")

    assert update({"c.yaml": of_chart.format(1)}, {"c.yaml": of_chart.format(2)}, {}) == ({}, ())


def test_declared_keys_merge_a_list_of_a_custom_resource() -> None:
    note = "  annotations:\n    reconciler.dev/merge-keys: spec.f=name\n"
    head = f"apiVersion: e.com/v1\nkind: Shop\nmetadata:\n  name: s\n{note}spec:\n  f:\n"
    apple, pear = "  - name: apple\n    price: {}\n", "  - name: pear\n"

    texts, conflicts = update(
        {"r.yaml": head + apple.format(1)},
        {"r.yaml": head + apple.format(2)},
        {"r.yaml": head + apple.format(1) + pear},
    )

    assert (texts, conflicts) == ({"r.yaml": head + apple.format(2) + pear}, ())


@pytest.mark.parametrize("field", ["mac", "lastmodified"])
def test_encrypted_document_merges_as_one_value(field: str) -> None:
    secret = (
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"
        f"stringData:\n  a: ENC[{{}}]\n  b: ENC[{{}}]\nsops:\n  {field}: ENC[{{}}]\n"
    )
    sides = [
        {"s.yaml": secret.format(*parts)} for parts in (("1", "1", "1"), ("2", "1", "2"), ("1", "3", "3"))
    ]

    texts, conflicts = update(*sides)

    assert texts == sides[2]
    assert kinds(conflicts) == [("s.yaml", "Secret s", "", "BothChanged")]


@pytest.mark.parametrize(
    "broken",
    [
        "a: {{ .Values.x }}\n",
        "a: 1\na: 2\n",
        "a: &a [*a]\n",
        "a: \x00\n",
        "[" * 1500,
        "%YAML 1.1\n---\na: 1\n",
        "--- a\n",
    ],
)
def test_file_that_is_no_yaml_merges_as_text(broken: str) -> None:
    texts, _ = update(
        {"t.yaml": broken, "k.yaml": cm("k")},
        {"t.yaml": f"{broken}# up\n", "k.yaml": cm("k", "up")},
        {"t.yaml": broken, "k.yaml": cm("k", more="  l: mine\n")},
    )

    assert texts == {"t.yaml": f"{broken}# up\n", "k.yaml": cm("k", "up", "  l: mine\n")}


def test_invalid_utf8_is_kept_byte_for_byte() -> None:
    sides = [
        {"Kptfile": File.of(ROOT.encode()), "b.yaml": File.of(data)}
        for data in (b"a\n\xff\nb\nc\n", b"a\n\xff\nb\nC\n", b"A\n\xff\nb\nc\n")
    ]

    assert update_package(*sides).files["b.yaml"].data == b"A\n\xff\nb\nC\n"


def test_a_json_resource_merges_like_any_other() -> None:
    json = (
        '{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "j"}}, "data": {{"a": "{}"{}}}}}\n'
    )

    texts, _ = update(
        {"r.json": json.format("x", "")},
        {"r.json": json.format("up", "")},
        {"r.json": json.format("x", ', "l": "1"')},
    )

    assert texts == {"r.json": json.format("up", ', "l": "1"')}


def test_mode_and_link_follow_the_side_that_changed_them() -> None:
    script, link = File.of(b"#!/bin/sh\n"), File.of(b"a.txt", Mode.SYMLINK)
    executable = File.of(script.data, Mode.EXECUTABLE)
    other = File.of(b"b.txt", Mode.SYMLINK)
    edited = File.of(b"#!/bin/sh\necho\n")
    base = {"s.sh": script, "link": link}

    done = update_package(base, {"s.sh": executable, "link": other}, {"s.sh": edited, "link": link})

    assert done.files == {"s.sh": File(edited.data, Mode.EXECUTABLE, edited.oid), "link": other}


SUBPACKAGES = [
    ("added upstream", None, cm("s"), None, cm("s"), []),
    ("only local", None, None, cm("s"), cm("s"), []),
    ("deleted here", cm("s"), cm("s"), None, None, []),
    ("deleted here, changed there", cm("s"), cm("s", "up"), None, None, ["DeletedLocally"]),
    ("deleted there", cm("s"), None, cm("s"), None, []),
    ("deleted there, changed here", cm("s"), None, cm("s", "mine"), cm("s", "mine"), ["DeletedUpstream"]),
    ("changed there", cm("s"), cm("s", "up"), cm("s", more="  l: 1\n"), cm("s", "up", "  l: 1\n"), []),
]


@pytest.mark.parametrize(
    ("sides", "want", "reasons"), [(s[1:4], *s[4:]) for s in SUBPACKAGES], ids=[s[0] for s in SUBPACKAGES]
)
def test_sub_package_is_added_and_deleted_whole(sides, want, reasons) -> None:
    packages = [{"sub/Kptfile": SUB, "sub/r.yaml": text} if text else {} for text in sides]

    texts, conflicts = update(*packages)

    assert texts == ({"sub/Kptfile": SUB, "sub/r.yaml": want} if want else {})
    assert [c.reason for c in conflicts] == reasons


OTHER_SUB = f"{SUB}info:\n  description: x\n"
SUB_KPTFILES = [
    ("a directory there", SUB, None, SUB, None, []),
    ("a directory there, edited here", SUB, None, OTHER_SUB, OTHER_SUB, ["DeletedUpstream"]),
    ("a directory here", SUB, SUB, None, None, []),
    ("a directory here, changed there", SUB, OTHER_SUB, None, None, ["DeletedLocally"]),
    ("a directory on both sides", SUB, None, None, None, []),
    ("a package there", None, SUB, None, SUB, []),
]


@pytest.mark.parametrize(
    ("sides", "want", "reasons"), [(s[1:4], *s[4:]) for s in SUB_KPTFILES], ids=[s[0] for s in SUB_KPTFILES]
)
def test_sub_package_becomes_a_directory_as_any_file_goes(sides, want, reasons) -> None:
    packages = [{"sub/r.yaml": cm("s"), **({"sub/Kptfile": text} if text else {})} for text in sides]

    texts, conflicts = update(*packages)

    assert texts.get("sub/Kptfile") == want
    assert texts["sub/r.yaml"] == cm("s")
    assert [c.reason for c in conflicts] == reasons


def test_sub_package_with_another_upstream_is_unchanged() -> None:
    follows = SUB + "upstream:\n  type: git\n  git:\n    repo: {}\n    directory: /\n    ref: v1\n"
    base = {"sub/Kptfile": follows.format("https://a.example"), "sub/r.yaml": cm("s")}
    mine = {"sub/Kptfile": follows.format("https://b.example"), "sub/r.yaml": cm("s")}

    texts, _ = update(base, {**base, "sub/r.yaml": cm("s", "up")}, mine)

    assert texts == mine


@pytest.mark.parametrize(
    ("length", "sides", "is_text"),
    [(7995, "bul", False), (8000, "bul", True), *((9, side, False) for side in "bul")],
)
def test_nul_makes_a_file_binary_only_where_git_looks(length: int, sides: str, *, is_text: bool) -> None:
    base, upstream, local = (
        "\n" + "x" * length + ("\0" if side in sides else "") + "\n-\n" for side in "bul"
    )

    texts, conflicts = update({"a": f"1{base}"}, {"a": f"2{upstream}"}, {"a": f"1{local}3\n"})

    assert (texts["a"], len(conflicts)) == ((f"2{local}3\n", 0) if is_text else (f"1{local}3\n", 1))


@pytest.mark.parametrize("field", ["name", "package-path"])
def test_package_context_keeps_its_own_name_and_path(field: str) -> None:
    context = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  {field}: {{}}\n"
    names = ("example", "changed", "mine")
    sides = [{"package-context.yaml": context.format(name)} for name in names]
    zoned = [{"package-context.yaml": f"{context.format(name)}  zone: {name}\n"} for name in names]

    assert [conflict.field for conflict in update(*zoned)[1]] == ["data.zone"]
    assert update(*sides, on_conflict=OnConflict.UPSTREAM) == (sides[2], ())
    assert update({}, sides[1], sides[2], on_conflict=OnConflict.UPSTREAM) == (sides[2], ())


def test_compatible_mode_refuses_what_kpt_refuses() -> None:
    twice = f"{cm('c')}---\n{cm('c', 'y')}"

    with pytest.raises(UpdateRefused) as caught:
        update({"r.yaml": twice}, {"r.yaml": twice}, {"r.yaml": twice}, mode=MergeMode.COMPATIBLE)

    assert (caught.value.reason, caught.value.paths) == ("DuplicateResource", ("r.yaml",))


@pytest.mark.parametrize("mode", list(MergeMode))
@pytest.mark.parametrize("header", ["|", "|-", "|+", ">", ">-", ">+"])
@pytest.mark.parametrize(
    "upstream", ["k: {}", "x: y\nk: {}", "- {}", "- name: {}"], ids=["only", "last", "item", "element"]
)
def test_block_scalar_keeps_its_value_where_it_is_taken(mode: MergeMode, header: str, upstream: str) -> None:
    """A block scalar has no line feed at the end of a file that does not end its last line."""
    for ends in range(4):
        taken, merged = taken_block(mode, header, ends, upstream)

        assert value(merged)["field"] == value(taken)["field"], ends


def taken_block(mode: MergeMode, header: str, ends: int, upstream: str) -> tuple[str, str]:
    """Return upstream's file with a block scalar of so many line ends, and the file that takes it."""
    base = cm("c", more="field:\n  - name: old\n" if upstream.startswith("-") else "field:\n  k: old\n")
    pad = "      "
    block = f"{header}\n{pad}one\n{pad}two" + "\n" * ends
    field = "\n".join("  " + line for line in upstream.format(block).split("\n"))
    field = field.replace("  " + pad, pad)
    taken = cm("c", more=f"field:\n{field}".rstrip(" "))
    texts, _ = update(
        {"a.yaml": base},
        {"a.yaml": taken},
        {"a.yaml": base.replace("  a: x", "  a: x\n  l: mine")},
        mode=mode,
    )
    return taken, texts["a.yaml"]


@pytest.mark.parametrize("mode", list(MergeMode))
@pytest.mark.parametrize("header", ["|", "|+", ">"])
def test_block_scalar_keeps_its_value_before_what_is_added(mode: MergeMode, header: str) -> None:
    end = f"field:\n  k: {header}\n    one"
    added, _ = update(
        {"a.yaml": cm("c")}, {"a.yaml": cm("c", more="new: up\n")}, {"a.yaml": cm("c", more=end)}, mode=mode
    )
    joined, _ = update(
        {"a.yaml": cm("c")}, {"a.yaml": cm("c") + "---\n" + cm("d")}, {"a.yaml": cm("c", more=end)}, mode=mode
    )

    assert value(added["a.yaml"]) == {**value(cm("c", more=end)), "new": "up"}
    assert joined["a.yaml"].startswith(cm("c", more=end.replace(header, f"{header.strip('+')}-") + "\n---\n"))


FORMATTED = cm(
    "c", more="  long: one two\n    three\n  quoted: 'y'\n  run: |\n    a \n    b\nlist: [a,   b]\n"
)
FORMATS = {
    "unfolded": (("one two\n    three", "one two three"), True),
    "a blank line": (("\ndata:", "\n\ndata:"), True),
    "spaces": (("[a,   b]", "[a, b]"), True),
    "a block with a space at the end of a line": (("|\n    a \n    b", '"a \\nb\\n"'), True),
    "quotes": (("'y'", '"y"'), False),
    "a block list": (("[a,   b]", "\n- a\n- b"), False),
}
"""A change of the text alone, and whether kpt too takes it for no edit."""


@pytest.mark.parametrize(("change", "like_kpt"), FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("mode", list(MergeMode))
def test_formatting_is_no_edit_of_what_upstream_deletes(mode, change, like_kpt) -> None:
    base, local = {"c.yaml": FORMATTED, "k.yaml": cm("k")}, FORMATTED.replace(*change)
    assert value(local) == value(FORMATTED)

    texts, conflicts = update(base, {"k.yaml": cm("k")}, {**base, "c.yaml": local}, mode=mode)
    moved, asked = update(
        base, {"new.yaml": FORMATTED, "k.yaml": cm("k")}, {**base, "c.yaml": local}, mode=mode
    )

    is_deleted = mode is MergeMode.DEFAULT or like_kpt
    assert set(texts) == ({"k.yaml"} if is_deleted else {"c.yaml", "k.yaml"})
    assert set(moved) == ({"k.yaml", "new.yaml"} if is_deleted else {"c.yaml", "k.yaml", "new.yaml"})
    assert not conflicts
    assert not asked


def test_formatting_is_no_edit_of_a_sub_package_and_of_a_file_that_is_replaced() -> None:
    base = {"sub/Kptfile": SUB, "sub/c.yaml": FORMATTED}
    local = {**base, "sub/c.yaml": FORMATTED.replace("'y'", '"y"')}

    assert update(base, {}, local) == ({}, ())
    assert update(base, {}, local, strategy=Strategy.FAST_FORWARD) == ({}, ())


@pytest.mark.parametrize("edit", ["  quoted: 'y' # mine\n", "  # mine\n  quoted: 'y'\n", "  quoted: 'z'\n"])
def test_a_comment_or_value_is_an_edit_of_what_upstream_deletes(edit: str) -> None:
    local = FORMATTED.replace("  quoted: 'y'\n", edit)
    texts, conflicts = update({"c.yaml": FORMATTED}, {}, {"c.yaml": local})

    assert texts == {"c.yaml": local}
    assert kinds(conflicts) == [("c.yaml", "ConfigMap c", "", "DeletedUpstream")]


BUCKET = (
    "apiVersion: storage.cnrm.cloud.google.com/v1beta1\nkind: StorageBucket\nmetadata:\n  name: b\n"
    "  annotations:\n    cnrm.cloud.google.com/blueprint: {}\nspec:\n  a: x\n"
)


@pytest.mark.parametrize(
    ("base", "local", "upstream", "want"),
    [
        ("cnrm/x/v1", "cnrm/x/v1,kpt-pkg", "cnrm/x/v2", "cnrm/x/v2,kpt-pkg"),
        ("cnrm/x/v1", "cnrm/x/v1,krm-pkg-fn", "cnrm/x/v1", "cnrm/x/v1,krm-pkg-fn"),
        ("''", "kpt-pkg", "cnrm/x/v1", "cnrm/x/v1,kpt-pkg"),
        ("cnrm/x/v1", "cnrm/x/v1,kpt-pkg", None, None),
        ("cnrm/x/v1,kpt-pkg", "cnrm/x/v1,kpt-pkg", "cnrm/x/v2", "cnrm/x/v2"),
    ],
)
@pytest.mark.parametrize("mode", list(MergeMode))
def test_attribution_of_kpt_is_no_edit(mode, base, local, upstream, want) -> None:
    sides = ({"b.yaml": BUCKET.format(text)} if text else {} for text in (base, upstream, local))
    done = update_package(*with_identifiers(*map(files_of, sides)), mode=mode)

    assert not done.conflicts
    merged = {path: value(file.data.decode())["metadata"]["annotations"] for path, file in done.files.items()}
    attribution = "cnrm.cloud.google.com/blueprint"
    assert {path: each[attribution] for path, each in merged.items()} == ({"b.yaml": want} if want else {})

"""Package updates: files, packages, strategies, conflicts."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from reconciler.krm.yaml import Tree, YamlError
from reconciler.names.objects import File, Mode
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.update import (
    Conflict,
    UpdateRefused,
    UpstreamRef,
    update_package,
    upstream_of,
)
from reconciler.render.update.identifiers import with_identifiers
from reconciler.render.update.kptfile_merge import edit_upstream, set_upstream
from tests.support.merges import files_of

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\n"
ROOT = KPTFILE.format(name="pkg")
SUB = KPTFILE.format(name="sub")


def cm(name: str, a: str = "x", more: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {a}\n{more}"


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
def test_file_that_krmignore_hides_merges_as_text(
    reason: str, path: str, ignore: str, sides: tuple[int, int, int]
) -> None:
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
    here = cm("c").replace("  name: c\n", "  name: c\n  namespace: prod\n")

    texts, _ = update({"r.yaml": cm("c")}, {"r.yaml": cm("c", "up")}, {"r.yaml": here})

    assert texts == {"r.yaml": here.replace("a: x", "a: up")}


def test_a_merge_comment_names_a_renamed_resource() -> None:
    here = cm("mine").replace("metadata:", "metadata: # kpt-merge: /c")

    texts, _ = update({"r.yaml": cm("c")}, {"r.yaml": cm("c", "up")}, {"r.yaml": here})

    assert texts == {"r.yaml": here.replace("a: x", "a: up")}


@pytest.mark.parametrize(
    ("reason", "upstream", "local", "want", "reasons"),
    [
        ("deleted here, unchanged there", cm("b"), None, None, []),
        ("deleted here, changed there", cm("b", "up"), None, None, ["DeletedLocally"]),
        ("deleted there, unchanged here", None, cm("b"), None, []),
        ("deleted there, changed here", None, cm("b", "mine"), cm("b", "mine"), ["DeletedUpstream"]),
    ],
)
def test_deleted_resource(
    reason: str, upstream: str | None, local: str | None, want: str | None, reasons: list[str]
) -> None:
    sides = [{"a.yaml": cm("a"), **({"b.yaml": text} if text else {})} for text in (cm("b"), upstream, local)]

    texts, conflicts = update(*sides)

    assert texts.get("b.yaml") == want, reason
    assert [c.reason for c in conflicts] == reasons
    assert update(*sides, on_conflict=OnConflict.UPSTREAM) == (texts, ()), (
        "no policy takes it away or brings it back"
    )


def test_fail_policy_refuses_the_package() -> None:
    with pytest.raises(UpdateRefused) as caught:
        update(
            {"r.yaml": cm("c")},
            {"r.yaml": cm("c", "up")},
            {"r.yaml": cm("c", "mine")},
            on_conflict=OnConflict.FAIL,
        )

    assert caught.value.reason == "MergeConflict"
    assert kinds(caught.value.conflicts) == [("r.yaml", "ConfigMap c", "data.a", "BothChanged")]


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


def test_crds_of_the_package_define_list_merge_keys() -> None:
    crd = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n"
        "  name: shops.e.com\nspec:\n  group: e.com\n  names:\n    kind: Shop\n  versions:\n  - name: v1\n"
        "    schema:\n      openAPIV3Schema:\n        properties:\n          spec:\n"
        "            properties:\n              f:\n"
        "                x-kubernetes-list-type: map\n                x-kubernetes-list-map-keys: [name]\n"
    )
    head = "apiVersion: e.com/v1\nkind: Shop\nmetadata:\n  name: s\nspec:\n  f:\n"
    apple, pear = "  - name: apple\n    price: {}\n", "  - name: pear\n"
    sides = [
        {"crd.yaml": crd, "r.yaml": head + text}
        for text in (apple.format(1), apple.format(2), apple.format(1) + pear)
    ]

    texts, conflicts = update(*sides)

    assert (texts["r.yaml"], conflicts) == (head + apple.format(2) + pear, ())


@pytest.mark.parametrize("note", ["# note\n", "", "\n\n"])
def test_documents_without_content_keep_their_place(note: str) -> None:
    def text(value: str) -> str:
        return f"{cm('one', value)}---\n{note}---\n{cm('two', 'mine')}---\n# last\n"

    base = f"{cm('one')}---\n{cm('two')}"

    texts, conflicts = update(
        {"r.yaml": base}, {"r.yaml": base.replace("a: x", "a: up", 1)}, {"r.yaml": text("x")}
    )

    assert (texts, conflicts) == ({"r.yaml": text("up")}, ())


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


def test_sealed_data_merges_by_key() -> None:
    sealed = (
        "apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nmetadata:\n  name: s\n"
        "spec:\n  encryptedData:\n    a: {}\n    b: {}\n"
    )
    sides = [{"s.yaml": sealed.format(*parts)} for parts in (("A1", "B1"), ("A2", "B1"), ("A1", "B3"))]

    assert update(*sides) == ({"s.yaml": sealed.format("A2", "B3")}, ())


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
def test_sub_package_is_added_and_deleted_whole(
    sides: tuple[str | None, ...], want: str | None, reasons: list[str]
) -> None:
    packages = [{"sub/Kptfile": SUB, "sub/r.yaml": text} if text else {} for text in sides]

    texts, conflicts = update(*packages)

    assert texts == ({"sub/Kptfile": SUB, "sub/r.yaml": want} if want else {})
    assert [c.reason for c in conflicts] == reasons


def test_sub_package_with_another_upstream_is_unchanged() -> None:
    follows = SUB + "upstream:\n  type: git\n  git:\n    repo: {}\n    directory: /\n    ref: v1\n"
    base = {"sub/Kptfile": follows.format("https://a.example"), "sub/r.yaml": cm("s")}
    mine = {"sub/Kptfile": follows.format("https://b.example"), "sub/r.yaml": cm("s")}

    texts, _ = update(base, {**base, "sub/r.yaml": cm("s", "up")}, mine)

    assert texts == mine


@pytest.mark.parametrize(
    ("upstream", "local", "mode", "reason", "path"),
    [
        ({"a": "text\n"}, {"a/x.txt": ""}, MergeMode.DEFAULT, "PathConflict", "a"),
        ({"sub/Kptfile": SUB}, {"sub/Kptfile": SUB}, MergeMode.COMPATIBLE, "AddedOnBothSides", "sub"),
    ],
)
def test_refusal_names_its_reason_and_its_paths(
    upstream: dict[str, str], local: dict[str, str], mode: MergeMode, reason: str, path: str
) -> None:
    with pytest.raises(UpdateRefused) as caught:
        update({}, upstream, local, mode=mode)

    assert (caught.value.reason, caught.value.paths) == (reason, (path,))


def test_change_of_a_sub_package_that_people_let_follow_another_upstream_is_told() -> None:
    block = "upstream:\n  type: git\n  git:\n    repo: https://host/{}\n    directory: /\n    ref: v1\n"
    base, mine = ({"Kptfile": ROOT, "sub/Kptfile": SUB + block.format(name)} for name in "ab")

    done = update_package(*map(files_of, (base, {**base, "sub/b.yaml": cm("b")}, mine)))

    assert done.files == files_of(mine)
    assert [(each.conflict.path, each.winner) for each in done.decided] == [("sub", OnConflict.LOCAL)]


def test_resource_of_another_namespace_in_another_file_is_another_resource() -> None:
    local = {"g.yaml": cm("a").replace("  name: a\n", "  name: a\n  namespace: prod\n")}

    texts, conflicts = update({"f.yaml": cm("a")}, {"f.yaml": cm("a", "up")}, local)

    assert texts == local
    assert [(each.path, each.reason) for each in conflicts] == [("f.yaml", "DeletedLocally")]


@pytest.mark.parametrize(("length", "is_text"), [(7995, False), (8000, True)])
def test_nul_makes_a_file_binary_only_where_git_looks(length: int, *, is_text: bool) -> None:
    rest = "\n" + "x" * length + "\0\n"

    texts, conflicts = update({"a": f"1{rest}"}, {"a": f"2{rest}"}, {"a": f"1{rest}3\n"})

    assert (texts["a"], len(conflicts)) == ((f"2{rest}3\n", 0) if is_text else (f"1{rest}3\n", 1))


@pytest.mark.parametrize(("items", "is_edited"), [("- a\n- b\n", False), ("- b\n- a\n", True)])
def test_removed_resource_stays_if_local_has_another_order_of_items(items: str, *, is_edited: bool) -> None:
    head = "apiVersion: v1\nkind: Foo\nmetadata:\n  name: f\nl:\n"

    texts, conflicts = update({"r.yaml": head + "- a\n- b\n"}, {}, {"r.yaml": head + items})

    assert ("r.yaml" in texts) is is_edited
    assert [each.reason for each in conflicts] == (["DeletedUpstream"] if is_edited else [])


@pytest.mark.parametrize(
    ("edit", "is_edit"),
    [
        ("  name: mine\n", False),
        ("  name: pkg\n  annotations:\n    reconciler.dev/owner: a/b/c\n", False),
        ("  name: pkg\n  labels:\n    a: b\n", True),
        ("  name: pkg\n  annotations:\n    a: b\n", True),
        ("  name: pkg\ninfo:\n  description: x\n", True),
    ],
)
def test_fast_forward_allows_own_fields_of_the_kptfile_only(edit: str, *, is_edit: bool) -> None:
    base, upstream = files_of({"Kptfile": ROOT}), files_of({"Kptfile": ROOT, "new.txt": "n\n"})
    local = files_of({"Kptfile": ROOT.replace("  name: pkg\n", edit)})

    if is_edit:
        with pytest.raises(UpdateRefused, match="Local package files have been modified: Kptfile"):
            update_package(base, upstream, local, strategy=Strategy.FAST_FORWARD)
    else:
        assert "new.txt" in update_package(base, upstream, local, strategy=Strategy.FAST_FORWARD).files


@pytest.mark.parametrize("field", ["name", "package-path"])
def test_package_context_keeps_its_own_name_and_path(field: str) -> None:
    context = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  {field}: {{}}\n"
    sides = [{"package-context.yaml": context.format(name)} for name in ("example", "changed", "mine")]

    assert update(*sides, on_conflict=OnConflict.UPSTREAM) == (sides[2], ())
    assert update({}, sides[1], sides[2], on_conflict=OnConflict.UPSTREAM) == (sides[2], ())


class TestStrategies:
    base: ClassVar = {"r.yaml": cm("c"), "gone.yaml": cm("gone"), "README.md": "old\n"}
    upstream: ClassVar = {"r.yaml": cm("c", "up"), "new.yaml": cm("new"), "README.md": "new\n"}

    def test_fast_forward_becomes_upstream(self) -> None:
        texts, _ = update(self.base, self.upstream, self.base, strategy=Strategy.FAST_FORWARD)

        assert texts == self.upstream

    def test_fast_forward_refuses_edits_and_names_them(self) -> None:
        with pytest.raises(UpdateRefused) as caught:
            update(self.base, self.upstream, {**self.base, "mine.txt": "m\n"}, strategy=Strategy.FAST_FORWARD)

        assert (caught.value.reason, caught.value.paths) == ("LocalChanges", ("mine.txt",))

    def test_fast_forward_does_not_mind_the_packages_own_name_and_upstream(self) -> None:
        named = ROOT.replace("name: pkg", "name: mine") + "upstream:\n  type: git\n"

        texts, _ = update(
            self.base, self.upstream, {**self.base, "Kptfile": named}, strategy=Strategy.FAST_FORWARD
        )

        assert texts == self.upstream

    def test_force_delete_replace_becomes_upstream_whatever_local_has(self) -> None:
        local = {"r.yaml": cm("c", "mine"), "mine.txt": "m\n"}

        texts, _ = update(self.base, self.upstream, local, strategy=Strategy.FORCE_DELETE_REPLACE)

        assert texts == self.upstream

    def test_copy_merge_copies_upstream_over_local_and_keeps_what_only_local_has(self) -> None:
        local = {**self.base, "r.yaml": cm("c", "mine"), "mine.txt": "m\n"}

        texts, _ = update(self.base, self.upstream, local, strategy=Strategy.COPY_MERGE)

        assert texts == {**self.upstream, "mine.txt": "m\n"}

    def test_the_packages_own_strategy_is_honoured(self) -> None:
        asks = ROOT + "upstream:\n  type: git\n  updateStrategy: fast-forward\n"

        with pytest.raises(UpdateRefused):
            update(self.base, self.upstream, {"Kptfile": asks, "r.yaml": cm("c", "mine")})


OWN = "  annotations:\n    reconciler.dev/location: {}\n    reconciler.dev/owner: fleet/default/NAME\n"
HEADS = [
    KPTFILE.format(name="NAME"),
    KPTFILE.format(name="NAME") + OWN.format("r/NAME"),
    KPTFILE.format(name="NAME") + OWN.format("'r/NAME'"),
    KPTFILE.format(name="'NAME'"),
    KPTFILE.format(name="NAME").replace("\n", "\r\n"),
]
FOLLOWS = "{}:\n  type: git\n  git:\n    repo: https://x.example/up\n    directory: /p\n    ref: v1\n"
RESTS = [
    "",
    "info:\n  description: a\n" + FOLLOWS.format("upstream"),
    FOLLOWS.format("upstream") + FOLLOWS.format("upstreamLock") + f"    commit: {'1b' * 20} # mine\n",
    FOLLOWS.format("upstream") + FOLLOWS.format("upstream"),
    "    more of the value\n" + FOLLOWS.format("upstream"),
    "    more: of no value\n",
    "  labels:\n    name: NAME\n" + FOLLOWS.format("upstream").replace("repo: https", "repo: 'https"),
    "upstream: {type: git, git: {ref: v1}}\n",
    "upstream: &anchor\n  type: git\nupstreamLock: *anchor\n",
    "upstream:\n- a\n",
    "---\na: b\n",
    "#" * 9000 + "\n" + FOLLOWS.format("upstream"),
    "\udcff".encode("utf-8", "surrogateescape").decode("latin-1") + "\n",
]


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or its error as text."""
    try:
        return function(*arguments)
    except (UpdateRefused, YamlError) as error:
        return type(error), str(error)


class TestKptfile:
    def merged(
        self, base: str, upstream: str, local: str, **options: Any
    ) -> tuple[str, tuple[Conflict, ...]]:
        done = update_package(
            *(files_of({"Kptfile": ROOT + text}) for text in (base, upstream, local)), **options
        )
        return done.files["Kptfile"].data.decode().removeprefix(ROOT), done.conflicts

    def functions(self, *images: str) -> str:
        return "pipeline:\n  mutators:\n" + "".join(f"  - image: {image}\n" for image in images)

    def test_functions_merge_by_image_whatever_the_registrys_port(self) -> None:
        text, _ = self.merged(
            self.functions("localhost:5000/a:v1", "localhost:5000/b:v1"),
            self.functions("localhost:5000/a:v2", "localhost:5000/b:v1", "n:v1"),
            self.functions("localhost:5000/a:v1", "localhost:5000/b:v1", "mine:v1"),
        )

        assert text == self.functions("localhost:5000/a:v2", "localhost:5000/b:v1", "mine:v1", "n:v1")

    def test_comments_and_our_annotations_stay(self) -> None:
        notes = "  annotations: # why\n    reconciler.dev/owner: prod/default/x\n"
        mine = f"{notes}info: # about\n  description: old # here\n"

        text, conflicts = self.merged("info:\n  description: old\n", "info:\n  description: new\n", mine)

        assert (text, conflicts) == (mine.replace("old", "new"), ())

    def test_ownership_of_upstream_is_not_taken_over(self) -> None:
        text, _ = self.merged(
            "",
            "  annotations:\n    reconciler.dev/owner: other/default/y\n    a: b\n",
            "  labels:\n    l: mine\n",
        )

        assert "reconciler.dev/owner" not in text
        assert "a: b" in text

    def test_the_new_upstream_is_recorded_and_nothing_else_changes(self) -> None:
        git = "    repo: https://x.example/up # mine\n    directory: /p\n    ref: v1\n"
        block = "{}:\n  type: git\n  git:\n" + git
        before = (
            block.format("upstream")
            + "  updateStrategy: resource-merge\n"
            + block.format("upstreamLock")
            + f"    commit: {'1b' * 20}\n"
        )

        text, _ = self.merged(
            "", "", before, new_upstream=UpstreamRef("https://x.example/up", "/p", "v2", "2a" * 20)
        )

        assert text == before.replace("ref: v1", "ref: v2").replace("1b" * 20, "2a" * 20)

    def test_quotes_of_a_commit_that_looks_like_a_number_go_with_it(self) -> None:
        git = "upstreamLock: {git: {repo: https://x.example/up, directory: /p, ref: v1, commit: %s}}\n"
        before, after = '"1234e567890123456789012345678901234567890"', "2a" * 20
        block = "upstream:\n  git:\n    repo: https://x.example/up\n    directory: /p\n    ref: v1\n"

        text, _ = self.merged(
            "", "", block + git % before, new_upstream=UpstreamRef("https://x.example/up", "/p", "v1", after)
        )

        assert f"ref: v1, commit: {after}}}" in text

    @pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
    @pytest.mark.parametrize("rest", RESTS, ids=range(len(RESTS)))
    def test_what_fleets_share_of_a_kptfile_is_edited_as_the_whole_is(self, head: str, rest: str) -> None:
        new = UpstreamRef("https://x.example/up", "/p", "v2", "2a" * 20)

        for name in ("a", "web", "other-1"):
            file = File.of((head.replace("NAME", name) + rest).encode(), Mode.EXECUTABLE)
            assert attempt(set_upstream, file, new) == attempt(edit_upstream, file, new)

    def test_the_upstream_of_a_package_can_be_asked_for(self) -> None:
        block = (
            "upstream:\n  type: git\n  git:\n    repo: https://x.example/up\n    directory: /p\n    ref: v1\n"
        )

        assert upstream_of(files_of({"Kptfile": ROOT + block}), ref="v2", commit="") == UpstreamRef(
            "https://x.example/up", "/p", "v2"
        )
        assert upstream_of({}, ref="v2", commit="") is None

    def test_a_kptfile_that_is_no_mapping_is_refused(self) -> None:
        with pytest.raises(UpdateRefused) as caught:
            update_package(*(files_of({"Kptfile": text}) for text in ("a: 1\n", "a: 2\n", "[")))

        assert (caught.value.reason, caught.value.paths) == ("InvalidKptfile", ("Kptfile",))


def test_compatible_mode_refuses_what_kpt_refuses() -> None:
    twice = f"{cm('c')}---\n{cm('c', 'y')}"

    with pytest.raises(UpdateRefused) as caught:
        update({"r.yaml": twice}, {"r.yaml": twice}, {"r.yaml": twice}, mode=MergeMode.COMPATIBLE)

    assert (caught.value.reason, caught.value.paths) == ("DuplicateResource", ("r.yaml",))


@pytest.mark.parametrize("mode", list(MergeMode))
@pytest.mark.parametrize("header", ["|", "|-", "|+", ">", ">-", ">+"])
@pytest.mark.parametrize("ends", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "upstream", ["k: {}", "x: y\nk: {}", "- {}", "- name: {}"], ids=["only", "last", "item", "element"]
)
def test_block_scalar_keeps_its_value_where_it_is_taken(
    mode: MergeMode, header: str, ends: int, upstream: str
) -> None:
    """A block scalar has no line feed at the end of a file that does not end its last line."""
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

    assert value(texts["a.yaml"])["field"] == value(taken)["field"]


@pytest.mark.parametrize("mode", list(MergeMode))
@pytest.mark.parametrize("header", ["|", "|+", ">"])
def test_block_scalar_keeps_its_value_before_what_is_added(mode: MergeMode, header: str) -> None:
    end = f"field:\n  k: {header}\n    one"
    added, _ = update(
        {"a.yaml": cm("c")}, {"a.yaml": cm("c", more="new: up\n")}, {"a.yaml": cm("c", more=end)}, mode=mode
    )
    joined, _ = update(
        {"a.yaml": cm("c")},
        {"a.yaml": cm("c") + "---\n" + cm("d")},
        {"a.yaml": cm("c", more=end)},
        mode=mode,
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
def test_formatting_is_no_edit_of_what_upstream_deletes(
    mode: MergeMode, change: tuple[str, str], *, like_kpt: bool
) -> None:
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
def test_attribution_of_kpt_is_no_edit(
    mode: MergeMode, base: str, local: str, upstream: str | None, want: str | None
) -> None:
    sides = ({"b.yaml": BUCKET.format(text)} if text else {} for text in (base, upstream, local))
    done = update_package(*with_identifiers(*map(files_of, sides)), mode=mode)

    assert not done.conflicts
    merged = {path: value(file.data.decode())["metadata"]["annotations"] for path, file in done.files.items()}
    attribution = "cnrm.cloud.google.com/blueprint"
    assert {path: each[attribution] for path, each in merged.items()} == ({"b.yaml": want} if want else {})


@pytest.mark.parametrize("mode", list(MergeMode))
@pytest.mark.parametrize("change", ["a key less", "a key more"])
@pytest.mark.parametrize(("first", "last"), [("  k: x\n", "  l: y\n"), ("  - x\n", "  - y\n")])
def test_comment_above_the_first_of_a_block_comes_with_the_block(
    mode: MergeMode, change: str, first: str, last: str
) -> None:
    short = cm("c", more=f"field:\n  # why\n{first}")
    long = f"{short}{last}"
    base, upstream = (long, short) if change == "a key less" else (short, long)
    texts, _ = update(
        {"a.yaml": base},
        {"a.yaml": upstream},
        {"a.yaml": base.replace("  a: x", "  a: x\n  l: mine")},
        mode=mode,
    )

    assert f"field:\n  # why\n{first}" in texts["a.yaml"]
    assert (last in texts["a.yaml"]) == (change == "a key more")


def test_kptfile_that_local_deleted_stays_deleted() -> None:
    base, upstream = (
        {**files_of({"r.yaml": cm("r")}), **files_of({"Kptfile": text})} for text in (ROOT, SUB)
    )

    updated = update_package(base, upstream, files_of({"r.yaml": cm("r")}))

    assert "Kptfile" not in updated.files

"""Strategies: what each keeps, replaces, refuses and lists."""

import pytest

from reconciler.names.objects import File, Files, Mode
from reconciler.policy import MergeMode, OnConflict, Strategy
from reconciler.render.kptfile import kptfile_value
from reconciler.render.update import (
    Conflict,
    ConflictPolicy,
    UpdateRefused,
    UpstreamRef,
    update_package,
)
from reconciler.render.update.conflicts import DecidedConflict, Rule, RuleKind
from tests.support.model import kptfile, package
from tests.support.values import replace

LIKE_KPT = MergeMode.COMPATIBLE
UPSTREAM_BLOCK = "upstream:\n  type: git\n  git:\n    repo: https://host/{}\n    directory: /\n    ref: v1\n"


def cm(name: str, a: str = "x", more: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: {a}\n{more}"


def files(**texts: str) -> Files:
    """Return a package with a Kptfile; `a_yaml` is a.yaml and `sub__a_yaml` is sub/a.yaml."""
    named = {name.replace("__", "/").replace("_", "."): text for name, text in texts.items()}
    return package({"Kptfile": kptfile("web"), **named})


def refused(*sides: Files, **options: object) -> UpdateRefused:
    with pytest.raises(UpdateRefused) as caught:
        update_package(*sides, **options)  # type: ignore[arg-type] # its options
    return caught.value


def facts(error: UpdateRefused) -> tuple[str, str, tuple[str, ...]]:
    assert str(error) == error.message
    return error.reason, error.message, error.paths


# Refusals


def test_fast_forward_is_refused_with_the_edited_files() -> None:
    base = files(a_yaml=cm("a"), b_yaml=cm("b"), gone_yaml=cm("c"))
    local = files(a_yaml=cm("a", "mine"), b_yaml=cm("b"), added_yaml=cm("d"))

    error = refused(base, files(), local, strategy=Strategy.FAST_FORWARD)

    assert facts(error) == (
        "LocalChanges",
        "Local package files have been modified: a.yaml, added.yaml, gone.yaml",
        ("a.yaml", "added.yaml", "gone.yaml"),
    )


def test_kptfile_that_is_no_yaml_is_refused() -> None:
    broken = package({"Kptfile": "a: [\n"})
    changed = [package({"Kptfile": text}) for text in ("a: 1\n", "a: 2\n", "a: [\n")]

    errors = [
        refused(broken, broken, broken, new_upstream=UpstreamRef("https://host/x", "web", "v1")),
        refused(*changed),
    ]

    assert [error.reason for error in errors] == ["InvalidKptfile", "InvalidKptfile"]


def test_path_that_is_a_file_and_a_directory_is_refused() -> None:
    base = files()
    upstream, local = files(a="text\n", b="text\n"), package({**_texts(base), "a/x.txt": "", "b/c/y.txt": ""})

    error = refused(base, upstream, local)

    assert facts(error) == (
        "PathConflict",
        "Paths are files on one side and directories on the other: a, b",
        ("a", "b"),
    )


def _texts(of: Files) -> dict[str, str]:
    return {path: file.data.decode() for path, file in of.items()}


def test_policy_to_fail_is_refused_with_every_conflict() -> None:
    sides = [files(a_yaml=cm("a", text), b_txt=f"{text}\n") for text in ("x", "up", "mine")]

    error = refused(*sides, on_conflict=OnConflict.FAIL)

    assert facts(error) == ("MergeConflict", "2 conflicts, and the policy is to fail", ())
    assert sorted(conflict.path for conflict in error.conflicts) == ["a.yaml", "b.txt"]


def test_kpt_refuses_duplicates_and_packages_that_both_sides_added() -> None:
    twice = files(a_yaml=f"{cm('a')}---\n{cm('a')}", b_yaml=cm("b"), c_yaml=f"{cm('c')}---\n{cm('c')}")
    one = files(a_yaml=cm("a"), b_yaml=cm("b"))

    for side in range(3):
        sides = [one, one, one]
        sides[side] = twice
        assert facts(refused(*sides, mode=LIKE_KPT)) == (
            "DuplicateResource",
            "Found duplicate resources in a.yaml, c.yaml",
            ("a.yaml", "c.yaml"),
        )
    added = files(sub__Kptfile=kptfile("sub"))
    assert facts(refused(files(), added, added, mode=LIKE_KPT)) == (
        "AddedOnBothSides",
        "Subpackage sub added in both upstream and local",
        ("sub",),
    )
    assert update_package(files(), added, added).files == added


# Replacing strategies


def test_replacement_keeps_sub_packages_with_their_own_upstream() -> None:
    own = {"own/Kptfile": kptfile("own", UPSTREAM_BLOCK.format("own")), "own/a.txt": "a\n"}
    plain = {"plain/Kptfile": kptfile("plain"), "plain/a.txt": "a\n"}
    base, upstream = files(a_yaml=cm("a")), files(a_yaml=cm("a", "up"))
    local = {**base, **package(own), **package(plain)}

    updated = update_package(base, upstream, local, strategy=Strategy.FORCE_DELETE_REPLACE)

    assert updated.files == {**upstream, **package(own)}
    assert [each.conflict.path for each in updated.decided] == ["plain/Kptfile", "plain/a.txt"]


@pytest.mark.parametrize("side", ["original", "upstream"])
def test_replacement_takes_sub_packages_that_upstream_has_or_had(side: str) -> None:
    own = package({"own/Kptfile": kptfile("own", UPSTREAM_BLOCK.format("own")), "own/a.txt": "a\n"})
    other = package({"own/b.txt": "b\n"})
    base = {**files(), **(other if side == "original" else {})}
    upstream = {**files(), **(other if side == "upstream" else {})}

    updated = update_package(base, upstream, {**base, **own}, strategy=Strategy.FORCE_DELETE_REPLACE)

    assert updated.files == upstream


@pytest.mark.parametrize("strategy", [Strategy.COPY_MERGE, Strategy.FORCE_DELETE_REPLACE])
def test_replacement_merges_the_kptfile_and_lists_neither_it_nor_the_context(strategy: Strategy) -> None:
    def side(name: str, info: str) -> Files:
        text = kptfile(name, f"info:\n  description: {info}\n")
        return package({"Kptfile": text, "package-context.yaml": f"a: {info}\n"})

    updated = update_package(side("web", "old"), side("web", "new"), side("mine", "old"), strategy=strategy)

    assert kptfile_value(updated.files["Kptfile"].data) == {
        **kptfile_value(side("mine", "new")["Kptfile"].data)
    }
    assert updated.decided == ()
    like_kpt = update_package(
        files(), files(a_txt="u\n"), files(a_txt="l\n"), strategy=strategy, mode=LIKE_KPT
    )
    assert like_kpt.decided == ()


def test_strategy_is_the_given_one_else_the_kptfiles_else_a_merge() -> None:
    def local(strategy: str) -> Files:
        block = UPSTREAM_BLOCK.format("x") + f"  updateStrategy: {strategy}\n" if strategy else ""
        return package({"Kptfile": kptfile("web", block), "a.txt": "1\n2\n3\n4\nmine\n"})

    base, upstream = files(a_txt="1\n2\n3\n4\n5\n"), files(a_txt="up\n2\n3\n4\n5\n")

    def text(of: Files, strategy: Strategy | None = None) -> str:
        return update_package(base, upstream, of, strategy=strategy).files["a.txt"].data.decode()

    merged, replaced = "up\n2\n3\n4\nmine\n", "up\n2\n3\n4\n5\n"
    assert text(local("")) == text(local("resource-merge")) == merged
    assert text(local("copy-merge")) == replaced
    assert text(local("copy-merge"), Strategy.RESOURCE_MERGE) == merged
    assert text(local(""), Strategy.COPY_MERGE) == replaced


# Sub-packages


SUB = {"sub/Kptfile": kptfile("sub"), "sub/a.yaml": cm("a")}


def with_sub(**changed: str) -> Files:
    return {**files(), **package({**SUB, **{f"sub/{name}.yaml": text for name, text in changed.items()}})}


@pytest.mark.parametrize(
    ("upstream", "local", "texts", "reason"),
    [
        (files(), with_sub(a=cm("a", "mine")), ("package", None, "package"), "DeletedUpstream"),
        (with_sub(a=cm("a", "up")), files(), ("package", "package", None), "DeletedLocally"),
    ],
)
def test_sub_package_that_one_side_deleted_and_the_other_changed_is_one_conflict(
    upstream: Files, local: Files, texts: tuple[str, str | None, str | None], reason: str
) -> None:
    updated = update_package(with_sub(), upstream, local)

    assert updated.files == local
    assert updated.conflicts == (Conflict("sub", "Package", "", *texts, reason),)
    assert update_package(with_sub(), upstream, local, mode=LIKE_KPT).conflicts == ()
    assert update_package(with_sub(), upstream, local, mode=LIKE_KPT).files == local


@pytest.mark.parametrize("changed", [{}, {"a": cm("a", "up")}, {"b": cm("b")}])
def test_sub_package_that_follows_another_upstream_is_left_to_it(changed: dict[str, str]) -> None:
    base = {**with_sub(), **package({"sub/Kptfile": kptfile("sub", UPSTREAM_BLOCK.format("a"))})}
    upstream = {**base, **{path: file for path, file in with_sub(**changed).items() if path != "sub/Kptfile"}}
    local = {**base, **package({"sub/Kptfile": kptfile("sub", UPSTREAM_BLOCK.format("b"))})}

    updated = update_package(base, upstream, local)

    assert updated.files == local
    conflict = Conflict(
        "sub",
        "Package",
        "",
        "package",
        "what upstream changed in the package",
        "package",
        "BothChanged",
    )
    rule = Rule(RuleKind.MERGE, "a sub-package that people let follow another upstream is left to it")
    expected = (DecidedConflict(conflict, OnConflict.LOCAL, rule),) if changed else ()
    assert updated.decided == expected
    assert update_package(base, upstream, local, mode=LIKE_KPT).decided == ()


# Which files are resources


def merged_text(name: str, base: str, upstream: str, local: str, **more: object) -> tuple[str, list[str]]:
    sides = [{**files(), **package({name: text})} for text in (base, upstream, local)]
    updated = update_package(*sides, **more)  # type: ignore[arg-type] # its options
    return updated.files[name].data.decode(), [conflict.resource for conflict in updated.conflicts]


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json", "sub/a.yaml"])
def test_yaml_and_json_are_merged_by_field(name: str) -> None:
    text, conflicts = merged_text(
        name,
        '{"kind": "A", "a": 1, "b": 1}',
        '{"kind": "A", "a": 2, "b": 1}',
        '{"kind": "A", "a": 1, "b": 2}',
    )

    assert (text, conflicts) == ('{"kind": "A", "a": 2, "b": 2}', [])


@pytest.mark.parametrize(
    ("name", "base", "ending"),
    [
        ("a.txt", "a: 1\nb: 1\n", ""),
        ("a.yaml", "a: 1\nb: 1\n", "\n{{ x }}: ["),
        ("a.yaml", "# a: 1\n# b: 1\n", ""),
    ],
    ids=["another ending", "no YAML on one side", "no document"],
)
def test_anything_else_is_merged_by_line(name: str, base: str, ending: str) -> None:
    text, conflicts = merged_text(
        name, base, base.replace("a: 1", "a: 2"), base.replace("b: 1", "b: 2") + ending
    )

    assert conflicts == [""]
    assert text == base.replace("b: 1", "b: 2") + ending


def test_kpt_merges_no_json_and_leaves_the_git_directory_alone() -> None:
    sides = (
        '{"kind": "A", "a": 1, "b": 1}',
        '{"kind": "A", "a": 2, "b": 1}',
        '{"kind": "A", "a": 1, "b": 2}',
    )

    assert merged_text("a.json", *sides, mode=LIKE_KPT) == (sides[2], [])
    assert merged_text("a.git/x", "b", "u", "b", mode=LIKE_KPT) == ("b", [])
    assert merged_text("a/x", "b", "u", "b", mode=LIKE_KPT) == ("u", [])


def test_file_of_the_same_bytes_with_another_mode_is_read() -> None:
    broken = {"a.yaml": File.of(b"a: [\n")}
    run = {"a.yaml": replace(broken["a.yaml"], mode=Mode.EXECUTABLE)}

    assert update_package(broken, run, broken, on_conflict=ConflictPolicy()).files == run

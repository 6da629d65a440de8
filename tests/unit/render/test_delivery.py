"""Generated files in a package: unmodified files are replaced, edits are kept and reported as conflicts."""

import pytest

from reconciler.dependencies.emit.manifests import add_checksum_header
from reconciler.objects import File, Files
from reconciler.render.delivery import merge_generated

PATH = "providers/net.yaml"


def generated(version: str = "v1.0.0", **spec: object) -> File:
    value = {"kind": "Provider", "metadata": {"name": "net"}, "spec": {"package": f"net:{version}", **spec}}
    return File.of(add_checksum_header(value, reason="Configuration platform"))


def edited(file: File, old: bytes, new: bytes) -> File:
    return File.of(file.data.replace(old, new))


def test_unmodified_files_are_replaced_added_and_removed() -> None:
    there: Files = {PATH: generated(), "providers/old.yaml": generated("v0.1.0")}

    files, conflicts = merge_generated({PATH: generated("v2.0.0"), "providers/new.yaml": generated()}, there)

    assert files == {PATH: generated("v2.0.0"), "providers/new.yaml": generated()}
    assert conflicts == ()


def test_edit_stays_and_every_differing_value_is_a_conflict() -> None:
    theirs = edited(generated(), b"net:v1.0.0", b"net:v1.0.1")

    files, (conflict,) = merge_generated({PATH: generated("v2.0.0")}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert (conflict.path, conflict.field) == (PATH, "spec.package")
    assert (conflict.upstream, conflict.local) == ("net:v2.0.0", "net:v1.0.1")


def test_added_field_stays_and_is_a_conflict() -> None:
    theirs = edited(generated(), b"spec:\n", b"spec:\n  packagePullPolicy: Always\n")

    _, (conflict,) = merge_generated({PATH: generated()}, {PATH: theirs})

    assert (conflict.field, conflict.upstream, conflict.local) == (
        "spec.packagePullPolicy",
        "(none)",
        "Always",
    )


def test_added_comment_is_no_conflict() -> None:
    theirs = edited(generated(), b"spec:\n", b"# keep an eye on this one\nspec:\n")

    assert merge_generated({PATH: generated()}, {PATH: theirs}) == ({PATH: theirs}, ())


def test_edited_unneeded_file_stays_and_is_a_conflict() -> None:
    theirs = edited(generated(), b"net:v1.0.0", b"net:v1.0.1")

    files, (conflict,) = merge_generated({}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert conflict.upstream == "no package needs it any more"


def test_file_without_header_is_no_conflict() -> None:
    own = File.of(b"kind: ConfigMap\n")

    assert merge_generated({}, {"notes.yaml": own}) == ({"notes.yaml": own}, ())


def test_rewritten_file_stays_and_is_a_conflict() -> None:
    theirs = edited(generated(), b"kind: Provider\n", b"{{ if .Values.net }}\n")

    files, (conflict,) = merge_generated({PATH: generated()}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert conflict.local == "a person rewrote it"


def test_file_without_its_header_belongs_to_people() -> None:
    _, body = generated().data.split(b"\n", 1)
    theirs = File.of(body.replace(b"v1.0.0", b"v1.0.1"))

    assert merge_generated({PATH: generated()}, {PATH: theirs}) == ({PATH: theirs}, ())


@pytest.mark.parametrize("how", ["kept", "incomplete"])
def test_incomplete_input_removes_no_file(how: str) -> None:
    there: Files = {PATH: generated()}
    kept = frozenset({PATH} if how == "kept" else ())

    assert merge_generated({}, there, kept=kept, complete=how != "incomplete") == (there, ())


def needed_by(*parents: str) -> File:
    notes = {"reconciler.dev/needed-by": ", ".join(parents)}
    value = {"kind": "Provider", "metadata": {"name": "net", "annotations": notes}}
    return File.of(add_checksum_header(value, reason=parents[0]))


def test_unreadable_dependents_keep_their_generated_files() -> None:
    both_parents, one_parent = needed_by("Configuration a", "Configuration b"), needed_by("Configuration b")

    assert merge_generated({PATH: one_parent}, {PATH: both_parents}, complete=False)[0] == {
        PATH: both_parents
    }
    assert merge_generated({PATH: one_parent}, {PATH: both_parents}, complete=True)[0] == {PATH: one_parent}
    assert merge_generated({PATH: both_parents}, {PATH: one_parent}, complete=False)[0] == {
        PATH: both_parents
    }


def test_merging_the_same_files_again_changes_nothing() -> None:
    generated_files: Files = {PATH: generated("v2.0.0")}
    once, _ = merge_generated(generated_files, {PATH: generated(), "notes.md": File.of(b"hello")})

    assert merge_generated(generated_files, once) == (once, ())

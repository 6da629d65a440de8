"""Generated files in a package that people work in: ours are replaced, theirs are kept and told."""

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


def test_what_nobody_touched_is_replaced_added_and_removed() -> None:
    there: Files = {PATH: generated(), "providers/old.yaml": generated("v0.1.0")}

    files, conflicts = merge_generated({PATH: generated("v2.0.0"), "providers/new.yaml": generated()}, there)

    assert files == {PATH: generated("v2.0.0"), "providers/new.yaml": generated()}
    assert conflicts == ()


def test_a_persons_edit_stays_and_every_value_that_would_be_another_is_told() -> None:
    theirs = edited(generated(), b"net:v1.0.0", b"net:v1.0.1")

    files, (conflict,) = merge_generated({PATH: generated("v2.0.0")}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert (conflict.path, conflict.field) == (PATH, "spec.package")
    assert (conflict.upstream, conflict.local) == ("net:v2.0.0", "net:v1.0.1")


def test_a_field_that_a_person_added_is_told_and_kept() -> None:
    theirs = edited(generated(), b"spec:\n", b"spec:\n  packagePullPolicy: Always\n")

    _, (conflict,) = merge_generated({PATH: generated()}, {PATH: theirs})

    assert (conflict.field, conflict.upstream, conflict.local) == (
        "spec.packagePullPolicy",
        "(none)",
        "Always",
    )


def test_a_comment_is_a_persons_and_nothing_to_ask_about() -> None:
    theirs = edited(generated(), b"spec:\n", b"# keep an eye on this one\nspec:\n")

    assert merge_generated({PATH: generated()}, {PATH: theirs}) == ({PATH: theirs}, ())


def test_an_edited_file_that_nobody_needs_stays_and_is_told() -> None:
    theirs = edited(generated(), b"net:v1.0.0", b"net:v1.0.1")

    files, (conflict,) = merge_generated({}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert conflict.upstream == "no package needs it any more"


def test_a_file_of_a_persons_own_is_no_business_of_ours() -> None:
    own = File.of(b"kind: ConfigMap\n")

    assert merge_generated({}, {"notes.yaml": own}) == ({"notes.yaml": own}, ())


def test_a_file_that_a_person_made_into_something_else_stays_and_is_told() -> None:
    theirs = edited(generated(), b"kind: Provider\n", b"{{ if .Values.net }}\n")

    files, (conflict,) = merge_generated({PATH: generated()}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert conflict.local == "a person rewrote it"


def test_who_removes_the_line_that_says_so_makes_the_file_their_own() -> None:
    _, body = generated().data.split(b"\n", 1)
    theirs = File.of(body.replace(b"v1.0.0", b"v1.0.1"))

    assert merge_generated({PATH: generated()}, {PATH: theirs}) == ({PATH: theirs}, ())


@pytest.mark.parametrize("how", ["kept", "incomplete"])
def test_nothing_goes_for_not_being_understood(how: str) -> None:
    there: Files = {PATH: generated()}
    kept = frozenset({PATH} if how == "kept" else ())

    assert merge_generated({}, there, kept=kept, complete=how != "incomplete") == (there, ())


def needed_by(*parents: str) -> File:
    notes = {"reconciler.dev/needed-by": ", ".join(parents)}
    value = {"kind": "Provider", "metadata": {"name": "net", "annotations": notes}}
    return File.of(add_checksum_header(value, reason=parents[0]))


def test_who_is_not_understood_still_needs_what_was_generated_for_them() -> None:
    both, one = needed_by("Configuration a", "Configuration b"), needed_by("Configuration b")

    assert merge_generated({PATH: one}, {PATH: both}, complete=False)[0] == {PATH: both}
    assert merge_generated({PATH: one}, {PATH: both}, complete=True)[0] == {PATH: one}
    assert merge_generated({PATH: both}, {PATH: one}, complete=False)[0] == {PATH: both}


def test_bringing_the_same_again_changes_nothing() -> None:
    wanted: Files = {PATH: generated("v2.0.0")}
    once, _ = merge_generated(wanted, {PATH: generated(), "notes.md": File.of(b"hello")})

    assert merge_generated(wanted, once) == (once, ())

"""An answer changes the value in question and no other byte, whatever kind of conflict it answers."""

import pytest

from reconciler.base.errors import UsageError
from reconciler.names.objects import File, Files
from reconciler.render.answering import UpstreamFiles, set_value, take_upstream
from reconciler.render.answers import current_value
from reconciler.render.update import Conflict, update_package
from tests.support.model import kptfile, package

HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {} # how many
  template:
    spec:
      containers:
      - name: app
        image: {}
      - name: log
        args: [a, {}]
"""


def config(name: str, a: str, *more: str) -> str:
    return "".join([HEAD.format(name), "data:\n", f"  a: {a}\n", *(f"  {line}\n" for line in more)])


def three(old: str | None, new: str | None, mine: str | None, path: str = "one.yaml") -> tuple[Files, ...]:
    sides = ({} if text is None else {path: text} for text in (old, new, mine))
    return tuple(package({"Kptfile": kptfile("web"), "z.txt": "kept\n", **side}) for side in sides)


KINDS = {
    "a field": three(*(config("one", a, f"b: '{b}'") for a, b in (("old", 1), ("new", 2), ("'mine'", 1)))),
    "a field of a list": three(*(DEPLOYMENT.format(1, image, "b") for image in ("a:1", "a:2", "a:3"))),
    "a value with a comment": three(*(DEPLOYMENT.format(n, "a", "b") for n in (1, 2, 3))),
    "an atomic list": three(*(DEPLOYMENT.format(1, "a", word) for word in "bcd")),
    "a field that upstream deleted": three(config("one", "old", "b: x"),
        HEAD.format("one") + "data:\n  b: x\n", config("one", "mine", "b: x")),
    "a field that local deleted": three(config("one", "old", "b: x"), config("one", "new", "b: x"),
        HEAD.format("one") + "data:\n  b: x\n"),
    "a block text": three(*(config("one", f"|\n    {w}\n    {w}") for w in ("old", "new", "mine"))),
    "a resource that upstream deleted": three(config("one", "1") + "---\n" + config("two", "old"),
        config("one", "1"), config("one", "1") + "---\n" + config("two", "mine")),
    "a resource that local deleted": three(
        *(config("one", "1") + "---\n" + config("two", a) for a in ("old", "new")), config("one", "1"),
    ),
    "a file of a resource that upstream deleted": three(config("one", "old"), None, config("one", "mine")),
    "a file of a resource that local deleted": three(config("one", "old"), config("one", "new"), None),
    "a resource that both added": three(None, config("one", "new"), config("one", "mine")),
    "lines of a text": three("a\nold\nz\n", "a\nnew\nz\n", "a\nmine\nz\n", "app.conf"),
    "lines that local deleted": three("a\nold\nz\n", "a\nnew\nz\n", "a\nz\n", "app.conf"),
    "a text that upstream deleted": three("old\n", None, "mine\n", "app.conf"),
    "a text that local deleted": three("old\n", "new\n", None, "app.conf"),
    "a text that both added": three(None, "new\n", "mine\n", "app.conf"),
    "a binary file": three("\0old", "\0new", "\0mine", "logo.bin"),
    "a Kptfile": three(*(kptfile("web", f"info: {{description: {w}}}\n") for w in "abc"), "Kptfile"),
    "a sub-package that upstream deleted": three(kptfile("s"), None, kptfile("s", "info: {}\n"), "s/Kptfile"),
    "a sub-package that local deleted": three(kptfile("s"), kptfile("s", "info: {}\n"), None, "s/Kptfile"),
}  # fmt: skip


def crlf(files: Files) -> Files:
    return {
        path: file if b"\0" in file.data else File.of(file.data.replace(b"\n", b"\r\n"), file.mode)
        for path, file in files.items()
    }


def merged(sides: tuple[Files, ...]) -> tuple[Files, tuple[Conflict, ...]]:
    result = update_package(*sides)
    return result.files, result.conflicts


@pytest.mark.parametrize("as_dos", [False, True], ids=["lf", "crlf"])
@pytest.mark.parametrize("kind", KINDS)
def test_taking_upstream_gives_what_upstream_has(kind: str, *, as_dos: bool) -> None:
    base, new, local = map(crlf, KINDS[kind]) if as_dos else KINDS[kind]
    files, conflicts = merged((base, new, local))

    assert conflicts
    for conflict in conflicts:
        files = take_upstream(files, conflict, UpstreamFiles(base, new))

    assert [current_value(files, c) for c in conflicts] == [current_value(new, c) for c in conflicts]
    assert merged((new, new, files))[1] == ()
    assert {path: f.data for path, f in files.items()} == {path: f.data for path, f in new.items()}


def test_only_the_value_in_question_changes() -> None:
    base, new, local = three(
        *(
            config("one", a, f"b: {b}", "c: x") + f"---\n{config('two', a)}"
            for a, b in (("o", "o"), ("n", "n"), ("m", "m"))
        )
    )
    files, conflicts = merged((base, new, local))
    taken = take_upstream(files, conflicts[1], UpstreamFiles(base, new))

    assert taken["one.yaml"].data.decode() == files["one.yaml"].data.decode().replace("b: m", "b: n")


@pytest.mark.parametrize(
    ("kind", "value", "line"),
    [
        ("a field", "other", "  a: other"),
        ("a field", "5", '  a: "5"'),
        ("a field", "no", '  a: "no"'),
        ("a value with a comment", "7", "  replicas: 7 # how many"),
        ("an atomic list", "[x, y]", "        args: [x, y]"),
        ("lines of a text", "other", "other"),
    ],
)
def test_a_value_of_a_persons_own_has_the_type_of_the_field(kind: str, value: str, line: str) -> None:
    files, (conflict, *_) = merged(KINDS[kind])

    answered = set_value(files, conflict, value, UpstreamFiles({}, {}))

    assert line in answered[conflict.path].data.decode().splitlines()


@pytest.mark.parametrize(
    "kind", ["a binary file", "a text that upstream deleted", "a resource that local deleted"]
)
def test_one_value_is_no_answer_about_the_whole(kind: str) -> None:
    files, (conflict, *_) = merged(KINDS[kind])

    with pytest.raises(UsageError, match="One value cannot answer") as caught:
        set_value(files, conflict, "x", UpstreamFiles({}, {}))
    assert "edit the file" in caught.value.hint


def test_what_is_no_yaml_is_refused() -> None:
    files, (conflict, *_) = merged(KINDS["a field"])

    with pytest.raises(UsageError, match="is no YAML"):
        set_value(files, conflict, "[a", UpstreamFiles({}, {}))

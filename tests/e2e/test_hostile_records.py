"""Records of pull requests that nobody can read stall the package of their head, and say what to do."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.hostile_objects import PERSON, point, write_object
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World, git, refs

HEAD = "drafts/web/packagevariant-2"


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two packages with an open draft of their second revision, and manifests that ask for more."""
    world = write_world(tmp_path_factory.mktemp("records") / "world", ("edge-1",))
    world.publish()
    for number in ("1", "2"):
        with world.edit("control", f"Label {number}") as copy:
            for package in ("web", "db"):
                text = variant("edge-1", package) + f"  packageContext: {{data: {{number: '{number}'}}}}\n"
                (copy / manifest("edge-1", package)).write_text(text)
        if number == "1":
            assert world.run("apply").code == 0
    return world


@pytest.fixture
def world(drafted: World, tmp_path: Path) -> World:
    return World(Path(shutil.copytree(drafted.root, tmp_path / "world")))


def pull_of(world: World, package: str) -> tuple[int, dict[str, object]]:
    """Return number and record of a package's open pull request."""
    edge = world.root / "edge-1.git"
    for ref in refs(edge):
        if ref.startswith("refs/reconciler/pulls/"):
            record = json.loads(git(edge, "show", f"{ref}:pull.json"))
            if record["state"] == "open" and f"/{package}/" in record["head"]:
                return int(ref.rpartition("/")[2]), record
    raise AssertionError(package)


def forge_record(world: World, number: object, content: bytes, *, name: bytes = b"pull.json") -> None:
    """Write any content where a pull request of edge-1 is kept."""
    edge = world.root / "edge-1.git"
    blob = write_object(edge, b"blob", content)
    tree = write_object(edge, b"tree", b"100644 " + name + b"\0" + bytes.fromhex(blob))
    text = b"tree %b\nauthor %b\ncommitter %b\n\nPull request\n" % (tree.encode(), PERSON, PERSON)
    point(edge, f"refs/reconciler/pulls/{number}", write_object(edge, b"commit", text))


def rows(out: str) -> dict[str, str]:
    """Return what is done with each package of a printed plan."""
    lines = (line.split() for line in out.splitlines())
    return {words[1]: words[0] for words in lines if len(words) > 1 and words[1].startswith("edge-1/")}


def test_record_of_another_version_stalls_the_package_of_its_head(world: World) -> None:
    number, record = pull_of(world, "web")
    forge_record(world, number, json.dumps({**record, "reviewers": ["kim"]}).encode())
    before = refs(world.root / "edge-1.git")

    applied = world.run("apply")

    assert applied.code == 3
    assert rows(applied.out) == {"edge-1/web": "keep", "edge-1/db": "edit"}
    assert f"Pull request {number} of repository edge-1 cannot be read" in applied.out
    assert f"refs/reconciler/pulls/{number}" in applied.out
    after = refs(world.root / "edge-1.git")
    assert {ref for ref in after if after[ref] != before.get(ref)} == {
        "refs/heads/drafts/db/packagevariant-2",
        f"refs/reconciler/pulls/{pull_of(world, 'db')[0]}",
    }
    assert "PullRequestUnreadable" in world.run("status").out
    assert f"Pull request {number}" in world.run("approve", "edge-1/web").err


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"head": 7}', b"null", b"{" + b" " * (2 << 20)]
)
def test_record_without_a_legible_head_stalls_nothing_and_is_named(world: World, content: bytes) -> None:
    forge_record(world, 77, content)

    applied = world.run("apply")

    assert applied.code == 3, applied
    assert rows(applied.out) == {"edge-1/web": "edit", "edge-1/db": "edit"}
    assert "Pull request 77 of repository edge-1 cannot be read" in applied.out
    git(world.root / "edge-1.git", "update-ref", "-d", "refs/reconciler/pulls/77")
    assert world.run("plan").code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"headOid": "f" * 40},
        {"mergeOid": "f" * 40, "state": "merged"},
        {"base": "../../../x\n"},
        {"base": "nowhere", "title": "\u001b[31m\n::error::x", "labels": ["@everyone"] * 50},
        {"head": "main"},
        {"head": "refs/heads/drafts/web/packagevariant-2"},
        {"head": "reconciler/fleet/group/edge-1/1"},
        {"head": "reconciler/fleet/delete/web"},
        {"head": "reconciler/fleet/lock"},
        {"head": "drafts/web/packagevariant-2\u0000", "comments": {"\u202e": "x"}},
        {"number": 10**30},
        {"title": "x" * 900_000},
    ],
)
def test_forged_record_changes_no_other_package(world: World, change: dict[str, object]) -> None:
    number, record = pull_of(world, "web")
    forge_record(world, number, json.dumps({**record, **change}).encode())

    applied = world.run("apply")

    assert rows(applied.out)["edge-1/db"] == "edit", applied
    assert applied.code in {0, 3, 7}, applied
    assert "\x1b" not in applied.out + applied.err
    assert "\n::" not in applied.out + applied.err
    assert "pushed   edge-1 drafts/db/packagevariant-2" in applied.out, applied.out
    for command in (["pr", "list", "--all"], ["pr", "show", f"edge-1#{number}"], ["status"]):
        assert world.run(*command).code in {0, 2, 3}, command


@pytest.mark.parametrize(
    "change",
    [
        {"url": "edge-1/../../../etc"},
        {"path": "../../x", "spec": {"upstream": {"repo": "--upload-pack=x", "revision": 10**30}}},
        {"outputTree": "--help", "inputs": "\u0000", "localTree": "z" * 5000},
        {"manifest": "../../../etc/passwd"},
        {"manifest": "--output=x"},
        {"group": "../../heads/main", "requestedBy": ["default/a"] * 1000},
        {"setName": "../x", "target": "Repository \u202e", "deletionProposed": True},
        {"upstreamCommit": "HEAD", "upstreamTree": "-x"},
        {"namespace": "../..", "name": "\n::error::x"},
        {"retry": "9" * 5000},
    ],
)
def test_forged_record_of_a_variant_changes_no_other_package(world: World, change: dict[str, object]) -> None:
    path = "packagevariants/default/edge-1.jsonl"
    with world.edit("control", "Forge a record", branch="reconciler/fleet/state") as copy:
        db, web = (json.loads(line) for line in (copy / path).read_text().splitlines())
        (copy / path).write_text(f"{json.dumps(db)}\n{json.dumps({**web, **change})}\n")

    applied = world.run("apply")

    assert applied.code in {0, 3, 4, 7}, applied
    assert rows(applied.out)["edge-1/db"] == "edit", applied.out
    assert "\n::" not in applied.out + applied.err
    assert world.run("status").code in {0, 3}
    assert world.run("plan").code in {0, 3, 4, 7}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (b"160000 sub\0", "sub: it is a submodule"),
        (b"100644 a\\b\0", "its name contains a slash"),
        (b"777777 app.yaml\0", "app.yaml: its mode 777777 is unknown"),
        (b"100644 NOTES\0", "notes: on some file systems it is the same as NOTES"),
        (b"100644 " + b"x" * 300 + b"\0", "its name is longer than 255 bytes"),
        (b"no tree \0 at all", "is malformed"),
    ],
)
def test_directory_that_cannot_be_adopted_says_which_entry_and_why(
    world: World, entry: bytes, why: str
) -> None:
    edge = world.root / "edge-1.git"
    oid = bytes.fromhex(write_object(edge, b"blob", b"kind: [\n"))
    data = entry + oid + (b"100644 notes\0" + oid if b"NOTES" in entry else b"")
    tree = write_object(edge, b"tree", b"40000 legacy\0" + bytes.fromhex(write_object(edge, b"tree", data)))
    text = b"tree %b\nparent %b\nauthor %b\ncommitter %b\n\nAdd\n"
    main = refs(edge)["refs/heads/main"].encode()
    commit = write_object(edge, b"commit", text % (tree.encode(), main, PERSON, PERSON))
    point(edge, "refs/heads/main", commit)
    with world.edit("control", "Adopt") as copy:
        wanted = variant("edge-1", "legacy").replace("package: legacy\n    rev", "package: db\n    rev")
        adopts = wanted.replace("spec:\n", "spec:\n  adoptionPolicy: adoptExisting\n")
        (copy / manifest("edge-1", "legacy")).write_text(adopts)

    applied = world.run("apply")

    (row,) = [line for line in applied.out.splitlines() if line.startswith("block   edge-1/legacy ")]
    assert why in row
    assert ("hint: Git takes no push onto a malformed tree: `git fsck`" in applied.out) == (
        why == "is malformed"
    )

"""The reviewed lock: pins, the branch that proposes another one, and the digests of images."""

from pathlib import Path

import pytest

from reconciler.base.errors import ConfigurationError, Location
from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirror, Mirrors
from reconciler.inventory.inventory import Commit, ReviewedLock
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.policy import FunctionPolicy, Limits, LockMode, LockPolicy, Policy
from reconciler.read.control import OpenControl
from reconciler.read.state import (
    ImageDigests,
    parse_pins,
    read_image_digests,
    read_reviewed_lock,
    with_image_digests,
)
from reconciler.records.state import IMAGES_PATH, ImagesLock, UpstreamLock, lock_bytes, lock_path
from tests.support.git import BOT, EPOCH, Repo, make_repository

REVIEWED = Policy(instance="demo", lock=LockPolicy(mode=LockMode.REVIEWED))
BRANCH = "reconciler/demo/lock"
PIN = UpstreamLock(
    namespace="default",
    name="web",
    repository="up",
    package="web",
    selector={"branch": "main"},
    commit="1" * 40,
    tree="2" * 40,
)
PATH = lock_path(PIN)
BYTES = lock_bytes(PIN)
HINT = "Correct it, or remove it and take the pin that `reconciler lock` finds."


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repository(
        tmp_path / "control.git", {PATH: BYTES, "locks/clusters/c.json": "{}", "other": "x"}
    )


def open_at(tmp_path: Path, repo: Repo, name: str = "main") -> OpenControl:
    mirror = Mirrors(tmp_path / f"cache-{name.replace('/', '-')}").open(str(repo.path))
    mirror.fetch()
    return OpenControl(mirror, mirror, Commit(repo.oid(name), EPOCH), "main", published=True)


def read(tmp_path: Path, repo: Repo) -> ReviewedLock:
    lock = read_reviewed_lock(open_at(tmp_path, repo), REVIEWED, Oid("3" * 40))
    assert lock is not None
    return lock


def test_lock_that_cannot_be_read_as_a_whole_is_an_error(tmp_path: Path, repo: Repo) -> None:
    repo.commit({"locks/link": (b"../..", 0o120000)})

    with pytest.raises(ConfigurationError, match="The lock cannot be read: link: ") as caught:
        read(tmp_path, repo)

    assert caught.value.location == Location("locks")


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        (PATH, b"{", "Invalid JSON"),
        (PATH, b"{}", "missing required field `namespace`"),
        (PATH.replace("web.json", "other.json"), BYTES,
            "It is the pin of default/web, which has a file of its own"),
    ],
)  # fmt: skip
def test_unreadable_pin_is_a_problem_and_its_variant_does_not_move(
    tmp_path: Path, path: str, data: bytes, message: str
) -> None:
    repo = make_repository(tmp_path / "control.git", {path: data})

    lock = read(tmp_path, repo)

    (problem,) = lock.problems
    assert problem == Problem(Location(path), Reason.INVALID_STATE, problem.message, HINT)
    assert problem.message.startswith("The pin cannot be read: ")
    assert message in problem.message
    assert (lock.broken, lock.pins) == ({ObjectName("default", Path(path).stem)}, {})


@pytest.mark.parametrize(
    "path",
    ["locks/upstreams/web.json", "locks/upstreams/a/b/web.json", f"{PATH}.txt", "locks/x/default/web.json"],
)
def test_other_files_of_a_lock_are_no_pins(path: str) -> None:
    assert parse_pins({path: b"{"}) == ({}, ())


def test_pins_follow_an_unreadable_one() -> None:
    first = PATH.replace("web.json", "a.json")

    pins, problems = parse_pins({PATH: BYTES, first: b"{", PATH.replace("web.json", "b.json"): BYTES})

    assert pins == {PIN.key: PIN}
    assert [problem.location.path for problem in problems] == [first, PATH.replace("web.json", "b.json")]


def test_pin_of_a_newer_version_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="newer version"):
        parse_pins({PATH: BYTES.replace(b"/v1alpha1", b"/v2")})


def test_files_that_people_changed_added_or_removed_are_edited(tmp_path: Path, repo: Repo) -> None:
    written = {PATH: "proposed", "locks/ours.json": "1"}
    repo.commit(written, branch=BRANCH, start="main", who=BOT, time=EPOCH + 7)
    repo.commit({"locks/clusters/c.json": "theirs", "other": "y"}, branch=BRANCH, time=EPOCH + 9)
    repo.commit({"locks/new.json": "1", "locks/ours.json": None}, branch=BRANCH, time=EPOCH + 8)

    branch = read(tmp_path, repo).branch

    assert branch is not None
    assert branch.edited_files == {"clusters/c.json", "new.json", "ours.json"}
    assert (branch.has_foreign_commits, branch.foreign_commit_time) == (True, EPOCH + 9)


DIGEST = f"sha256:{'a' * 64}"
IMAGES = ImagesLock(images={"gcr.io/x:v1": DIGEST})


def images_bytes() -> bytes:
    return lock_bytes(IMAGES)


def read_images(tmp_path: Path, data: bytes, limit: int = 1000) -> ImageDigests:
    repo = make_repository(tmp_path / "images.git", {IMAGES_PATH: data})
    mirror: Mirror = Mirrors(tmp_path / "cache").open(str(repo.path))
    return read_image_digests(mirror, repo.oid("main"), limit)


@pytest.mark.parametrize(
    ("change", "limit", "message"),
    [
        (lambda data: data.replace(b"sha256", b"md5"), 1000, "matching regex"),
        (lambda data: data, 20, "more than 20"),
    ],
)
def test_unreadable_digests_pin_nothing(tmp_path: Path, change, limit, message) -> None:
    images = read_images(tmp_path, change(images_bytes()), limit)

    assert images.problem is not None
    hint = "Remove the file, and pin the images again with `reconciler functions pull`."
    assert images.problem == Problem(
        Location(IMAGES_PATH), Reason.INVALID_STATE, images.problem.message, hint
    )
    assert images.problem.message.startswith("The lock of function images cannot be read: ")
    assert message in images.problem.message
    assert images.lock == ImagesLock()


def test_configured_digest_precedes_the_locked_one() -> None:
    configured = {"gcr.io/x:v1": f"sha256:{'b' * 64}", "gcr.io/y:v1": DIGEST}
    lock = ImagesLock(images={"gcr.io/x:v1": DIGEST, "gcr.io/z:v1": DIGEST})

    policy = with_image_digests(Policy(functions=FunctionPolicy(images=configured), limits=Limits()), lock)

    assert policy.functions.images == {**configured, "gcr.io/z:v1": DIGEST}

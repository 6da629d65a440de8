"""Conflicts that people answer by a box in the text of a pull request, on every forge that reads them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.base.errors import Exit
from reconciler.base.reasons import Phase
from reconciler.cli.main import invoke
from reconciler.plan.status import current_states
from tests.support.forges.bench import DIALECTS, WITH_ISSUES
from tests.support.forges.server import Pull
from tests.support.forges.world import ORGANISATION, ForgeWorld, forge_world
from tests.support.small_world import app

pytestmark = pytest.mark.one_forge

HOTFIX = app("web", 1).replace("web:v1", "web:hotfix")
KEEP, TAKE = "- [{}] keep `registry.example/web:hotfix`", "- [{}] take `registry.example/web:v2`"


@contextmanager
def conflicting(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeWorld]:
    """Serve a world in which upstream and main gave one value two others."""
    with forge_world(kind, root, monkeypatch, edges=("edge-1",), packages=("web",)) as world:
        world.run()
        world.simulator.merge(f"{ORGANISATION}/edge-1", 1)
        world.run()
        world.repo(f"{ORGANISATION}/edge-1").commit({"web/app.yaml": HOTFIX}, message="Hotfix\n")
        world.upgrade("web")
        assert world.run().code is Exit.WAITING
        yield world


@pytest.fixture(params=WITH_ISSUES)
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ForgeWorld]:
    with conflicting(request.param, tmp_path / "world", monkeypatch) as made:
        yield made


def the_pull(world: ForgeWorld) -> Pull:
    (pull,) = (pull for pull in world.pulls("edge-1") if pull.state == "open")
    return pull


def tick(world: ForgeWorld, box: str, *, off: bool = False) -> None:
    pull, (old, new) = the_pull(world), ("x ", " x")[off]
    assert box.format(new) in pull.body
    world.simulator.clock.sleep(60)
    pull.body, pull.updated = pull.body.replace(box.format(new), box.format(old)), world.simulator.clock.now()


def image(world: ForgeWorld) -> str:
    """Return the image in the draft."""
    repo = world.repo(f"{ORGANISATION}/edge-1")
    text = repo.read(the_pull(world).head, "web/app.yaml").decode()
    return text.partition("web:")[2].split()[0]


def test_text_tells_all_three_values_and_who_set_the_local_one(world: ForgeWorld) -> None:
    body = the_pull(world).body

    for side, tag in (("before", "v1"), ("upstream", "v2"), ("local", "hotfix")):
        assert f"| {side} | `registry.example/web:{tag}` |" in body
    assert "| local since | `Hotfix` (`" in body
    assert KEEP.format(" ") in body
    assert TAKE.format(" ") in body


@pytest.mark.parametrize(("box", "wanted"), [(KEEP, "hotfix"), (TAKE, "v2")])
def test_a_ticked_box_answers_its_conflict_until_another_is_ticked(
    world: ForgeWorld, box: str, wanted: str
) -> None:
    other = TAKE if box is KEEP else KEEP
    tick(world, box)

    assert world.run().code is Exit.DONE

    assert image(world) == wanted
    assert box.format("x") in the_pull(world).body
    assert "### Answered conflicts" in the_pull(world).body
    world.cache = "another"
    assert world.run().plan.is_empty
    tick(world, box, off=True)
    tick(world, other)
    world.run()
    assert image(world) == ("v2" if wanted == "hotfix" else "hotfix")
    assert world.run().plan.is_empty
    world.simulator.close(f"{ORGANISATION}/edge-1", the_pull(world).number)
    world.run()
    assert world.open_heads() == []


def test_a_box_that_is_unticked_asks_again(world: ForgeWorld) -> None:
    tick(world, TAKE)
    world.run()
    tick(world, TAKE, off=True)

    assert world.run().code is Exit.WAITING

    assert image(world) == "hotfix"
    assert "### Answered conflicts" not in the_pull(world).body


def test_two_boxes_of_one_conflict_answer_nothing_and_that_is_told(world: ForgeWorld) -> None:
    tick(world, KEEP)
    tick(world, TAKE)

    ran = world.run()

    assert ran.code is Exit.WAITING
    (note,) = [note for note in ran.plan.notes if "box" in note]
    assert note.startswith("Both boxes of a conflict are ticked in pull request #2 of edge-1")
    assert image(world) == "hotfix"


def test_what_is_still_open_beside_a_ticked_box_waits_for_people_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = ("replicas: 1", "replicas: 5", "replicas: 3")
    with forge_world(
        WITH_ISSUES[0], tmp_path / "world", monkeypatch, edges=("edge-1",), packages=("web",)
    ) as world:
        world.run()
        world.simulator.merge(f"{ORGANISATION}/edge-1", 1)
        world.run()
        edited = HOTFIX.replace(*replicas[:2])
        world.repo(f"{ORGANISATION}/edge-1").commit({"web/app.yaml": edited}, message="Hotfix\n")
        blueprints = world.repo("blueprints")
        blueprints.commit({"web/app.yaml": app("web", 3).replace(replicas[0], replicas[2])}, message="v3\n")
        blueprints.tag("web/v3")
        world.upgrade("web", 3)
        world.run()
        tick(world, TAKE.replace("v2", "v3"))

        (state,) = current_states(world.plan().plan).values()

        assert state.phase is Phase.CONFLICT
        assert state.message.startswith("1 conflict in app.yaml")


@pytest.mark.parametrize("edit", ["people", "text", "author"])
def test_only_a_tick_of_who_may_write_counts(world: ForgeWorld, edit: str) -> None:
    tick(world, TAKE)
    pull = the_pull(world)
    if edit == "people":
        pull.body = f"{TAKE.format('x')}, mine (`web/app.yaml`)\n{pull.body.replace('[x]', '[ ]')}"
    elif edit == "text":
        pull.body = pull.body.replace("### Conflicts", "### Conflict")
    else:
        pull.author = "mallory"

    assert world.run().code is Exit.WAITING

    assert image(world) == "hotfix"
    assert "### Answered conflicts" not in pull.body


@pytest.mark.parametrize("kind", sorted(set(DIALECTS) - set(WITH_ISSUES)))
def test_a_forge_that_tells_no_author_gets_no_boxes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conflicting(kind, tmp_path / "world", monkeypatch) as world:
        assert "- [ ]" not in the_pull(world).body
        assert "Keep: web/app.yaml" in the_pull(world).body


def test_an_answer_from_a_shell_is_pushed_and_counts(
    world: ForgeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Ada")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "ada@example.com")
    assert "reconciler answer edge-1/web " in the_pull(world).body
    where = ("--control", world.control, "--cache-dir", str(world.root / world.cache))

    assert invoke(["answer", "edge-1/web", "--take", *where]) == Exit.DONE

    assert image(world) == "v2"
    assert world.run().code is Exit.DONE
    assert "reconciler answer" not in the_pull(world).body

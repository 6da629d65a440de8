"""A run over the state of an earlier release goes on as one over a state of its own: fixtures/state."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.kept_states import KEPT, STORIES, actions, begin, is_machine_owned, keep, play, restore
from tests.support.world import World, git, refs

pytestmark = pytest.mark.slow


class Played(NamedTuple):
    """A whole story with the code of today: the time of its second part, what that said, what is left."""

    clock: int
    said: str
    content: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Played]:
    @cache
    def play_once(story: Path) -> Played:
        world = begin(story, tmp_path_factory.mktemp("story") / "new")
        play(story, "before", world)
        clock = world.clock
        said = "\n".join(play(story, "after", world))
        return Played(clock, _normal(said, world), _content(world))

    return play_once


@pytest.mark.parametrize(
    "kept", sorted(KEPT, key=lambda path: path.name), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_a_run_goes_on_from_the_state_of_an_earlier_release(
    kept: Path, tmp_path: Path, played: Callable[[Path], Played]
) -> None:
    story = next(each for each in STORIES if each.name == kept.name)
    old, new = restore(kept, tmp_path / "old"), played(story)
    old.clock = new.clock
    if actions(story / "before")[-1] == ["apply"]:
        # Digests of inputs hold URLs, and so the place of the world: the first run records them anew.
        before = _refs_of_others(old)
        settled = old.run("apply")
        assert re.search("Nothing was written|No package changed", settled.out), settled
        assert _refs_of_others(old) == before

    # What it says names every draft and pull request, so none is opened twice.
    assert _normal("\n".join(play(story, "after", old)), old) == new.said
    assert _content(old) == new.content
    old.run("apply")
    before = old.all_refs()
    assert "Nothing was written" in old.run("apply").out
    assert old.all_refs() == before


def test_every_release_keeps_every_story() -> None:
    versions = {path.parent for path in KEPT}

    assert versions
    assert {path.relative_to(path.parent.parent) for path in KEPT} == {
        Path(version.name) / story.name for version in versions for story in STORIES
    }


def test_a_kept_world_is_restored_to_the_byte(tmp_path: Path) -> None:
    world = restore(KEPT[0], tmp_path / "w")

    keep(world, tmp_path / "again")

    assert _files(tmp_path / "again") == _files(KEPT[0])


def _refs_of_others(world: World) -> dict[str, dict[str, str]]:
    return {
        repository: {name: oid for name, oid in found.items() if not is_machine_owned(name)}
        for repository, found in world.all_refs().items()
    }


def _files(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in directory.rglob("*") if p.is_file()}


def _content(world: World) -> dict[str, dict[str, str]]:
    """Return the commits of all refs, and the trees of those that hold the place of the world.

    Of a pull request all but its text, which a later release words in its way when it writes it next.
    """
    return {
        repository.name: {
            name: _normal(_text(repository, name), world) if _has_words(name) else oid
            for name, oid in refs(repository).items()
        }
        for repository in world.repositories()
    }


def _has_words(ref: str) -> bool:
    return is_machine_owned(ref) or ref.startswith("refs/reconciler/pulls/")


def _text(repository: Path, branch: str) -> str:
    paths = git(repository, "ls-tree", "-r", "-z", "--name-only", branch).split("\0")
    return "".join(f"{path}\n{git(repository, 'show', f'{branch}:{path}')}" for path in paths if path)


def _normal(text: str, world: World) -> str:
    """Leave out what depends on where the world is: paths, and digests made from them.

    Earlier releases recorded the date of a merge as the time of a publication, and not that of a run, and
    had other digests of inputs, which the next apply that writes refreshes. Where they made drafts in
    another form, the reason of the first update says so, and records of what leaves keep the old form.
    They did not record which trees nobody edited, so `approve --all` takes none of these for unedited.
    """
    text = text.replace("; The version of this tool also changed", "")
    text = re.sub(r'"engine":"[0-9]+"', '"engine":"<form>"', text)
    text = re.sub(r'"unedited":\[[^]]*\],', "", text)
    text = re.sub(r", [0-9]+ resolved again until the next change is written", "", text)
    text = text.replace(str(world.root), "<world>")
    text = re.sub(r'"body": ".*"', '"body": "<text>"', text)
    text = re.sub(r'"published": [1-9][0-9]*', '"published": <time>', text)
    return re.sub(r"(?<=checksum )[0-9a-f]{12}\b|\b[0-9a-f]{64}\b", "<checksum>", text)

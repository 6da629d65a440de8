"""Every fault at every effect of a run on a simulated forge; the next run ends as an undisturbed one."""

from pathlib import Path

import pytest

from tests.faults.disk import small_disk
from tests.faults.forges import WORLDS, SavedForge, saved_forge
from tests.faults.matrix import Point, draw, sweep
from tests.faults.promises import check_code, check_opened, check_report
from tests.faults.rows import EFFECT_FAULTS, FORGES

pytestmark = pytest.mark.slow

ALWAYS = ("kill", "term")


def _most(kind: str, name: str, fault: str) -> int:
    """Return how many points an ordinary run tries: a kill, a SIGTERM, and some of the other faults."""
    return 1 if fault in ALWAYS else int(draw(kind, name, fault) % 3 == 0)


@pytest.mark.one_forge
@pytest.mark.parametrize("kind", list(FORGES))
@pytest.mark.parametrize("name", WORLDS)
def test_after_a_fault_at_any_effect_on_a_forge_the_next_run_ends_as_an_undisturbed_one(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        small_disk(tmp_path / "disk") as is_small,
        saved_forge(kind, name, tmp_path / "disk" / "w", tmp_path / "points", monkeypatch) as saved,
    ):
        undisturbed = saved.run()
        wanted, points = saved.final(), saved.runner.points()
        for fault in EFFECT_FAULTS:
            if fault == "disk" and not is_small:
                continue  # the limit of file sizes is tried everywhere
            with sweep(f"{fault}/{kind}", name, points, _most(kind, name, fault)) as tried:
                for point in tried:
                    _disturb(saved, fault, point, undisturbed.code)
                    assert saved.final() == wanted, f"{fault} {point.name} ({point.number})"


def test_pull_request_of_a_draft_that_a_killed_run_left_lists_the_version_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    with saved_forge("gitea", "locks", tmp_path / "disk" / "w", tmp_path / "points", monkeypatch) as saved:
        undisturbed = saved.run()
        final, points = saved.final(), saved.runner.points()
        opening = next(point for point in points if "before forge POST" in point and "acme/dev/" in point)
        saved.restore()
        assert saved.run(point=f"{opening.split()[0]}:kill").code != undisturbed.code

        assert saved.run(cache="another").code == undisturbed.code

        assert saved.final() == final
        assert any("### Pins" in str(pull) for pull in final[1])


def _disturb(saved: SavedForge, fault: str, point: Point, code: int) -> None:
    """Run with a fault, check what that run says, and let another machine run afterwards."""
    where = f"{fault} {point.name} ({point.number})"
    saved.restore()
    before, pulls = saved.refs(), saved.pull_requests()
    ran = saved.run(point=f"{point.number}:{fault}")
    saved.free_disk()
    check_code(fault, ran, code, where)
    check_report(ran, before, saved.refs(), where)
    check_opened(ran, len(saved.pull_requests()) - len(pulls), where)
    again = saved.run(cache=f"another-{point.number % 2}")
    assert again.code == code, f"after {where}: {again.out}"

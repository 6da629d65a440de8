"""What was placed by a lock that nobody merged yet is held like what is locked (D36)."""

import json
from pathlib import Path

import pytest

from tests.support.needy_fleet import (
    CONFIGURATION,
    REVIEWED,
    STRICT,
    NeedyFleet,
    install,
    needy_fleet,
    package,
)

INDEX = package("app.io", "1.0.0", "db.io") | package("db.io") | package("log.io")
DATABASE = "dependencies/packageinstalls/shop/db.io.yaml"
TYPO = install("app", "ap.io")


@pytest.fixture
def fleet(tmp_path: Path) -> NeedyFleet:
    """A fleet with a database that is on main, and whose first lock nobody merged."""
    fleet = needy_fleet(tmp_path / "w", INDEX | install("app", "app.io"), REVIEWED)
    fleet.settle()
    assert DATABASE in fleet.placed()
    return fleet


def lock_pull(fleet: NeedyFleet) -> list[str]:
    said = json.loads(fleet.run("pr", "list", "-o", "json").out)
    return [pull["title"] for pull in said["items"] if pull["package"] == "control/locks"]


def test_a_typo_takes_nothing_away(fleet: NeedyFleet) -> None:
    fleet.want(TYPO)

    assert fleet.plan() == {"dependencies": ("keep", "OwnerStalled")}
    assert fleet.run("apply").code == 3
    assert lock_pull(fleet) == ["Lock 2 changes"]
    refs = fleet.all_refs()
    fleet.run("apply")
    assert fleet.all_refs() == refs


def test_what_a_manifest_needs_goes_with_it(fleet: NeedyFleet) -> None:
    fleet.want(dict.fromkeys(install("app", "app.io")))

    assert fleet.plan() == {"dependencies": ("delete", "NotDesired")}


def test_a_first_lock_without_any_package_is_not_proposed(tmp_path: Path) -> None:
    fleet = needy_fleet(tmp_path / "w", INDEX | TYPO, REVIEWED)

    fleet.run("apply")

    assert lock_pull(fleet) == []


@pytest.mark.parametrize(("mode", "reason"), [(STRICT, "LockPending"), (REVIEWED, "UpToDate")])
def test_reviewing_locks_from_now_on_takes_nothing_away(tmp_path: Path, mode: str, reason: str) -> None:
    fleet = needy_fleet(tmp_path / "w", INDEX | install("app", "app.io"), CONFIGURATION)
    fleet.settle()
    fleet.want({"reconciler.yaml": mode})

    assert fleet.plan() == {"dependencies": ("keep", reason)}
    fleet.run("apply")
    assert fleet.plan() == {"dependencies": ("keep", reason)}

"""What is named and does not exist is refused with the closest name that does."""

from pathlib import Path

import pytest

from tests.support.world import World, build_world

WORLDS = Path(__file__).resolve().parents[2] / "fixtures/worlds"
FIXED = "Name one whose upstream floats: a revision or a workspace in a manifest holds it already."


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    root = tmp_path_factory.mktemp("worlds")
    names = {
        "packages": "52-dependency-settings",
        "kinds": "55-crossplane-tree",
        "fixed": "57-fan-out",
        "variants": "11-floating-tag",
    }
    return {key: build_world(WORLDS / name, root / key) for key, name in names.items()}


@pytest.mark.parametrize(
    ("world", "line", "hint"),
    [
        ("packages", "graph --why db.oi", "Did you mean db.io?"),
        ("kinds", "graph --why Buckt.s3.aws.io", "Did you mean Bucket.s3.aws.io?"),
        ("packages", "lock --upgrade db.oi", "Did you mean db.io?"),
        ("fixed", "lock --upgrade web-edge-1-wbe", "Did you mean web-edge-1-web"),
        ("fixed", "lock --upgrade web-edge-1-web", "Write another revision there"),
        ("variants", "lock --upgrade wbe", "Did you mean web"),
        ("fixed", "lock hold web-edge-1-web v2", FIXED),
        ("packages", "graph --why zzz", "`reconciler graph` prints the names"),
    ],
)
def test_unknown_name_is_refused_with_the_closest(
    worlds: dict[str, World], world: str, line: str, hint: str
) -> None:
    ran = worlds[world].run(*line.split())

    assert ran.code == 2, ran.out
    assert f"\nhint: {hint}" in ran.err

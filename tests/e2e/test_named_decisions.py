"""What a policy or a strategy drops is named in pull request, plan and `explain`, of groups too."""

import json
import re
from pathlib import Path

import pytest

from tests.support.git import Repo
from tests.support.small_world import manifest, variant, write_world
from tests.support.world import World

EDGE = "edge-1"
NAME = f"{EDGE}/web"
HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n"
POLICIES = {
    "variant": (
        "reconciler.dev/on-conflict: {} in PackageVariant default/web-edge-1 (manifests/edge-1-web.yaml)"
    ),
    "configuration": "onConflict: {} in reconciler.yaml",
    "resource": "reconciler.dev/on-conflict: {} in config.yaml",
    "strategy": "updateStrategy: force-delete-replace in Kptfile",
}


def config(value: str, note: str = "") -> str:
    annotations = f"  annotations:\n    reconciler.dev/on-conflict: {note}\n" if note else ""
    return f"{HEAD}{annotations}data:\n  color: {value}\n  text: |\n    one\n    {value} line\n"


def conflicting(root: Path, level: str, choice: str, *, group: bool) -> World:
    """Return a world in which both sides changed one file, and a policy decides."""
    world = write_world(root, (EDGE,))
    note = choice if level == "resource" else ""
    setting = "".join(
        [
            "  pullRequests: {groupBy: repository}\n" if group else "",
            f"  onConflict: {choice}\n" if level == "configuration" else "",
        ]
    )
    with world.edit("control", "Configure") as copy:
        text = (copy / "reconciler.yaml").read_text()
        (copy / "reconciler.yaml").write_text(
            text.replace("spec:\n", f"spec: # the policy is {level}\n{setting}")
        )
    release(world, 3, config("old", note), level, choice)
    assert world.run("apply", "--quiet").code == 0
    assert world.run("approve", opened(world)).code == 0
    with world.edit(EDGE, "Our own value") as copy:
        (copy / "web/config.yaml").write_text(config("ours", note))
        if level == "strategy":
            kptfile = (copy / "web/Kptfile").read_text()
            kptfile = re.sub(
                r"^upstream:\n",
                "upstream:\n  updateStrategy: force-delete-replace\n",
                kptfile,
                flags=re.MULTILINE,
            )
            (copy / "web/Kptfile").write_text(kptfile)
    release(world, 4, config("theirs", note), level, choice)
    applied = world.run("apply")
    assert applied.code == 0, applied.out + applied.err
    return world


def opened(world: World) -> str:
    """Return the open pull request that proposes the package, alone or with others."""
    numbers = re.findall(rf"{EDGE}#\d+", world.run("pr", "list").out)
    found = [name for name in numbers if NAME in world.run("pr", "show", name).out]
    return found[-1]


def release(world: World, revision: int, text: str, level: str, choice: str) -> None:
    with world.edit("blueprints", f"web v{revision}") as copy:
        (copy / "web/config.yaml").write_text(text)
    Repo(world.root / "blueprints.git").tag(f"web/v{revision}")
    note = f"  namespace: default\n  annotations:\n    reconciler.dev/on-conflict: {choice}\n"
    with world.edit("control", f"web v{revision}") as copy:
        wanted = variant(EDGE, "web", revision=revision)
        if level == "variant":
            wanted = wanted.replace("  namespace: default\n", note, 1)
        (copy / manifest(EDGE, "web")).write_text(wanted)


@pytest.mark.parametrize(
    ("level", "choice", "group"),
    [
        ("variant", "local", False),
        ("configuration", "upstream", False),
        ("resource", "local", False),
        ("strategy", "upstream", False),
        ("variant", "upstream", True),
    ],
)
def test_dropped_values_are_named_with_their_policy(
    tmp_path: Path, level: str, choice: str, *, group: bool
) -> None:
    world = conflicting(tmp_path / "w", level, choice, group=group)

    policy, dropped = POLICIES[level].format(choice), "theirs" if choice == "local" else "ours"
    body = world.run("pr", "show", opened(world)).out
    assert policy in body
    assert re.search(rf"^ *- *{dropped} line$", body, re.MULTILINE), "a long value is a block of its own"
    text = world.run("explain", NAME).out
    assert f"answered by {policy}: config.yaml" in text
    assert f"{dropped} line" in text
    shown = json.loads(world.run("explain", NAME, "-o", "json").out)["answers"]
    (change,) = (c for c in json.loads(world.run("plan", "-o", "json").out)["changes"] if c["name"] == NAME)
    assert change["answers"] == shown
    assert {f"{a['policy']} in {a['source']}" for a in shown} == {policy}
    assert all(dropped in a["dropped"] for a in shown)
    assert world.run("plan", "--detailed-exitcode", "--quiet").code == 0

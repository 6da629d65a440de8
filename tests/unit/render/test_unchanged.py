"""Packages of rollouts that a revision leaves as they are but for bookkeeping, which are not proposed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.names.objects import File, Files, Mode, tree_id
from reconciler.render.rendered import Package, Rendered, RenderedVariant
from reconciler.render.unchanged import with_unchanged
from reconciler.resolve.resolution import HeldBack, Resolution
from tests.support.git import kptfile
from tests.support.model import package
from tests.support.plan_values import WEB, a_resolved, world

ORIGIN = """\
upstream:
  git: {repo: up, directory: web, ref: web/v1}
upstreamLock:
  git: {repo: up, directory: web, ref: web/v1, commit: "1"}
pipeline:
  mutators:
  - image: set-labels:v0.2
    name: PackageVariant.web.labels.0
    configMap: {tier: first}
  - image: set-labels:v0.2
    configMap: {env: first}
"""
MAIN = package({"Kptfile": kptfile("web", more=ORIGIN), "cm.yaml": "a: 1\n"})


def edited(old: str, new: str) -> Callable[[Files], Files]:
    def edit(files: Files) -> Files:
        assert old in files["Kptfile"].data.decode()
        return {**files, "Kptfile": File.of(files["Kptfile"].data.replace(old.encode(), new.encode()))}

    return edit


REVISION = edited("web/v1", "web/v2")


@pytest.mark.parametrize(
    ("edit", "is_same"),
    [
        (REVISION, True),
        (edited('commit: "1"', 'commit: "2"'), True),
        (edited("tier: first", "tier: second"), True),
        (edited("env: first", "env: second"), False),
        (edited("labels.0", "labels.1"), False),
        (edited("repo: up", "repo: other"), False),
        (edited("name: web", "name: shop"), False),
        (lambda files: {**files, "cm.yaml": File.of(b"a: 2\n")}, False),
        (lambda files: {**files, "cm.yaml": File.of(b"a: 1\n", Mode.EXECUTABLE)}, False),
        (lambda files: {**files, "new.yaml": File.of(b"a: 1\n")}, False),
        (lambda files: {"Kptfile": files["Kptfile"]}, False),
    ],
)
def test_package_is_unchanged_if_only_its_origin_and_own_values_differ(edit, is_same) -> None:
    assert is_unchanged(edit(MAIN)) is is_same


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({"held_back": HeldBack(None, "later", is_guess=True)}, True),
        ({"held_back": HeldBack(None, "later")}, False),
        ({"moved": ("web/v1",)}, False),
        ({"draft": SimpleNamespace(append_only=False)}, True),
        ({"draft": SimpleNamespace(append_only=True)}, False),
        ({"local": None}, False),
        ({"unready": ("gate a",)}, False),
        ({"missing": ()}, False),
    ],
)
def test_package_is_proposed_unless_its_rollout_alone_decides(fields: dict[str, Any], is_same: bool) -> None:
    assert is_unchanged(REVISION(MAIN), **fields) is is_same


def is_unchanged(files: Files, *, unready: Any = (), missing: Any = (WEB,), **fields: Any) -> bool:
    """Tell whether the package of main stands for a rendered one."""
    resolved = a_resolved(**{"local": tree_id(MAIN), **fields})
    fresh = Package(tree_id(files), files, unready=unready)
    rendered = Rendered({WEB: RenderedVariant(WEB, fresh)})
    inventory = world(unchanged=dict.fromkeys(missing, ""))

    made = with_unchanged(rendered, Resolution((resolved,)), {tree_id(MAIN): MAIN}, inventory)

    proposed = made.variants[WEB].fresh
    assert proposed in (fresh, Package(tree_id(MAIN)))
    return proposed != fresh

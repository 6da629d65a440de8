"""All of a run's knowledge in one value: what cannot be read is named, and everything else is there."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.base.reasons import Reason
from reconciler.git.repository import Mirrors
from reconciler.git.working_copy import NewCommit, create_bare
from reconciler.inventory.inventory import Inventory
from reconciler.names.ids import ObjectName
from reconciler.read.inventory import read_inventory
from reconciler.records.state import PackageVariantRecord, RefusedMerge, SetRecord, record_bytes, record_path
from tests.support.plan_values import a_record
from tests.support.values import replace

TIME = 1_700_000_000
CONFIG = """\
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  name: fleet
spec:
  manifests: [m]
"""
REPOSITORY = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: {name}
spec:
  git:
    repo: {repo}
    directory: "{directory}"
"""
VARIANT = """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: PackageVariant
metadata:
  name: web
spec:
  upstream: {upstream}
"""
KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
BASE = {"reconciler.yaml": CONFIG, "m/a.yaml": REPOSITORY.format(name="up", repo="../up.git", directory="")}


def create(root: Path, name: str, *commits: Mapping[str, str | bytes], tags: tuple[str, ...] = ()) -> None:
    snapshots = [
        NewCommit(
            f"{n}",
            {p: t.encode() if isinstance(t, str) else t for p, t in files.items()},
            TIME + n,
            tags if n == 0 else (),
        )
        for n, files in enumerate(commits)
    ]
    create_bare(root / f"{name}.git", snapshots)


def read(root: Path, **environment: str) -> Inventory:
    return read_inventory(str(root / "control.git"), Mirrors(root / "cache"), environment)


def test_manifest_takes_precedence_over_the_clusters_registration(tmp_path: Path) -> None:
    create(tmp_path, "up", {"web/Kptfile": KPTFILE})
    create(tmp_path, "other", {"web/Kptfile": KPTFILE})
    spec = {"git": {"repo": "../other.git"}}
    registered = [
        {
            "apiVersion": "config.porch.kpt.dev/v1alpha1",
            "kind": "Repository",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec if name != "odd" else {**spec, "speck": 1},
            "status": {"conditions": []},
        }
        for name in ("up", "other", "odd")
    ]
    lines = "\n".join(json.dumps(r) for r in registered)
    create(tmp_path, "control", {**BASE, "snapshot/r.ndjson": lines})
    inventory = read(tmp_path)

    assert {k.name: Path(v.remote).name for k, v in inventory.repositories.items()} == {
        "up": "up.git",
        "other": "other.git",
    }
    (problem,) = inventory.problems
    assert (str(problem.location), problem.reason) == ("snapshot/r.ndjson:3", Reason.UNKNOWN_FIELD)


RECORD = a_record(
    namespace="default", name="web", uid="u", manifest="m/v.yaml", url="x", path="web", repository="up"
)


def with_state(root: Path, *records: PackageVariantRecord | SetRecord) -> None:
    """Add a state branch to the control repository."""
    create_bare(
        root / "control.git",
        [NewCommit("state", {record_path(r): record_bytes(r) for r in records}, TIME)],
        branch="reconciler/fleet/state",
    )


@pytest.mark.parametrize(
    ("files", "broken"),
    [
        ({"m/v.yaml": VARIANT.format(upstream="{}")}, False),
        ({"m/other.yaml": ""}, False),
        ({"m/v.yaml": "a: b: c"}, True),
        ({"m/other.yaml": "", "reconciler.yaml": CONFIG.replace("[m]", "[m/other.yaml]"), "m/v.yaml": ""},
            True),
        ({"reconciler.yaml": CONFIG.replace("[m]", "[gone]"), "m/a.yaml": "", "m/v.yaml": ""}, True),
    ],
    ids=["read", "removed", "not parsed", "not among the manifests any more", "paths that do not exist"],
)  # fmt: skip
def test_file_that_declared_objects_is_read_or_removed_or_unknown(tmp_path: Path, files, broken) -> None:
    create(tmp_path, "up", {"web/Kptfile": KPTFILE})
    create(tmp_path, "control", {**BASE, **files})
    with_state(tmp_path, RECORD)
    inventory = read(tmp_path)

    assert inventory.records.keys() == {ObjectName("default", "web")}
    assert ("m/v.yaml" in inventory.control.broken) is broken
    assert bool(inventory.problems) is broken
    assert all(p.hint for p in inventory.problems)


def test_renamed_instance_is_noted(tmp_path: Path) -> None:
    create(tmp_path, "up", {"web/Kptfile": KPTFILE})
    create(tmp_path, "control", {**BASE, "reconciler.yaml": CONFIG.replace("fleet", "fleet2")})
    with_state(tmp_path, RECORD)

    assert any("name it fleet again" in note for note in read(tmp_path).notes)


@pytest.mark.parametrize(
    ("policy", "refused", "is_used"),
    [
        ("", None, False),
        ("", RefusedMerge(head="c", basis="b", first=1, last=2), True),
        ("  rollouts:\n  - waves: [{name: a, selector: {}, soak: 1h}]\n", None, True),
    ],
)
def test_time_is_read_only_where_the_plan_depends_on_it(tmp_path: Path, policy, refused, is_used) -> None:
    create(tmp_path, "up", {"web/Kptfile": KPTFILE})
    create(tmp_path, "control", {**BASE, "reconciler.yaml": CONFIG + policy})
    with_state(tmp_path, replace(RECORD, refused=refused))
    before = int(time.time())

    now = read(tmp_path).now

    assert before <= now <= time.time() if is_used else now == 0


def test_secret_ref_is_unused_with_a_note(tmp_path: Path) -> None:
    create(tmp_path, "up", {"web/Kptfile": KPTFILE})
    create(tmp_path, "control", {**BASE, "m/a.yaml": BASE["m/a.yaml"] + "    secretRef: {name: token}\n"})

    assert any("secretRef is not used" in note and "default/up" in note for note in read(tmp_path).notes)

"""Generated files in a package: unmodified files are replaced, edits are kept and reported as conflicts."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reconciler.api.kptfile import KptfileHeader
from reconciler.dependencies.catalog.cluster_inputs import FleetInputs
from reconciler.dependencies.lock.format import (
    ClusterLock,
    ClusterUpdate,
    LockUpdate,
    lock_solution,
    next_lock,
)
from reconciler.dependencies.model.cluster import ClusterInputs
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.expand.variants import variant_key
from reconciler.inventory.inventory import Draft, Inventory, PackageState
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.names.trailers import NO_ANSWERS, Answers, parse_name
from reconciler.policy import Policy
from reconciler.render.answers import Answer, AnsweredBy
from reconciler.render.delivery import add_checksum_header, merge_generated, render_deliveries
from reconciler.render.package import recorded_package, unreadable_package
from reconciler.render.rendered import Blocked, Package, RenderedDeliveries, RenderedDelivery, RenderedVariant
from reconciler.render.update import Conflict
from reconciler.resolve.deliveries import resolve_deliveries
from tests.support.dependency_manifests import install, needs, package, world_of
from tests.support.plan_values import a_draft, a_record, oid
from tests.support.sets import a_package, registered, world
from tests.support.values import replace

PATH = "providers/net.yaml"


def generated(version: str = "v1.0.0", **spec: object) -> File:
    value = {"kind": "Provider", "metadata": {"name": "net"}, "spec": {"package": f"net:{version}", **spec}}
    return File.of(add_checksum_header(value, reason="Configuration platform"))


def edited(file: File, old: bytes, new: bytes) -> File:
    return File.of(file.data.replace(old, new))


CHANGED, HEAD = (b"net:v1.0.0", b"net:v1.0.1"), generated().data.partition(b"\n")[0] + b"\n"
UNNEEDED = ("", "no package needs it any more", "a person changed it")
EDITS: dict[str, tuple[File | None, list[tuple[bytes, bytes]], list[tuple[str, ...]]]] = {
    "a value": (generated("v2.0.0"), [CHANGED], [("spec.package", "net:v2.0.0", "net:v1.0.1")]),
    "a comment": (generated(), [(b"spec:\n", b"# keep an eye on this one\nspec:\n")], []),
    "a value in a file that nothing needs": (None, [CHANGED], [UNNEEDED]),
    "all of it": (generated(), [(b"kind: Provider\n", b"{{ if .x }}\n")],
        [("", "generated", "a person rewrote it")]),
    "a file without its header is people's own": (generated(), [CHANGED, (HEAD, b"")], []),
}  # fmt: skip


@pytest.mark.parametrize(("new", "edits", "want"), EDITS.values(), ids=EDITS)
def test_edit_stays_and_every_differing_value_is_a_conflict(new, edits, want) -> None:
    theirs = generated()
    for edit in edits:
        theirs = edited(theirs, *edit)

    files, conflicts = merge_generated({PATH: new} if new else {}, {PATH: theirs})

    assert files == {PATH: theirs}
    assert [(c.path, c.field, c.upstream, c.local) for c in conflicts] == [(PATH, *each) for each in want]


@pytest.mark.parametrize("how", ["kept", "incomplete"])
def test_incomplete_input_removes_no_file(how: str) -> None:
    there: Files = {PATH: generated()}
    kept = frozenset({PATH} if how == "kept" else ())

    assert merge_generated({}, there, keep=kept, complete=how != "incomplete") == (there, ())


def needed_by(*parents: str) -> File:
    notes = {"reconciler.dev/needed-by": ", ".join(parents)}
    value = {"kind": "Provider", "metadata": {"name": "net", "annotations": notes}}
    return File.of(add_checksum_header(value, reason=parents[0]))


def test_unreadable_dependents_keep_their_generated_files() -> None:
    both_parents, one_parent = needed_by("Configuration a", "Configuration b"), needed_by("Configuration b")

    assert merge_generated({PATH: one_parent}, {PATH: both_parents}, complete=False)[0] == {
        PATH: both_parents
    }
    assert merge_generated({PATH: one_parent}, {PATH: both_parents}, complete=True)[0] == {PATH: one_parent}
    assert merge_generated({PATH: both_parents}, {PATH: one_parent}, complete=False)[0] == {
        PATH: both_parents
    }


def test_merging_the_same_files_again_changes_nothing() -> None:
    generated_files: Files = {PATH: generated("v2.0.0")}
    once, _ = merge_generated(generated_files, {PATH: generated(), "notes.md": File.of(b"hello")})

    assert merge_generated(generated_files, once) == (once, ())


# Deliveries of clusters

ACCOUNT = "serviceAccountName: installer"
SHOP = install("shop", "web.io", "", ACCOUNT) + package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
DB = "packageinstalls/prod/db.io.yaml"
URL = "host/edge"
OWNER = ObjectName("default", "dependencies@dev")
EDGE = registered("edge", cluster="dev", directory="clusters")
FLEET = Policy(instance="fleet")


def inputs(text: str = SHOP + package("db.io", "1.4.0")) -> ClusterInputs:
    return replace(world_of(text), cluster="dev")


def locked(of: ClusterInputs) -> ClusterLock:
    resolution = lock_solution(of, resolve_cluster(of))
    return ClusterLock(next_lock("dev", input_digest="sha256:1", resolution=resolution), resolution)


WORLD = inputs()
LOCK = locked(WORLD)


def an_inventory(state: PackageState | None = None, **record: Any) -> Inventory:
    packages = {"clusters/dependencies": state} if state else {}
    given = {
        "namespace": "default",
        "name": OWNER.name,
        "url": URL,
        "path": "clusters/dependencies",
        **record,
    }
    records = {OWNER: a_record(**given)} if record else {}
    return replace(world(views=(replace(EDGE, packages=packages),), policy=FLEET), records=records)


def rendered(
    inventory: Inventory,
    contents: Mapping[Oid, Files] | None = None,
    *,
    lock: ClusterLock = LOCK,
    of: ClusterInputs = WORLD,
    incomplete: bool = False,
) -> RenderedDeliveries:
    fleet = FleetInputs((of,), frozenset({"dev"} if incomplete else ()))
    deliveries = resolve_deliveries(inventory, fleet, LockUpdate((ClusterUpdate("dev", None, lock),)))
    return render_deliveries(deliveries, contents or {}, inventory)


def one(found: RenderedDeliveries) -> RenderedDelivery:
    assert found.items.keys() == {OWNER}
    return found.items[OWNER]


def whole(package: Package | Blocked | None) -> Package:
    assert isinstance(package, Package)
    assert package.tree == tree_id(package.files)
    return package


def first_package() -> Files:
    return whole(one(rendered(an_inventory())).rendered.fresh).files


MAIN = oid("b1")


def on_main(**fields: Any) -> PackageState:
    header = KptfileHeader(owner="fleet/default/dependencies@dev", location="edge/dependencies")
    return a_package("clusters/dependencies", main_tree=MAIN, main_header=header, **fields)


def test_delivery_of_recorded_inputs_is_not_rendered() -> None:
    inputs_digest = one(rendered(an_inventory())).resolved.inputs
    inventory = an_inventory(
        on_main(), inputs=inputs_digest, output_tree=MAIN, local_tree=MAIN, upstream_tree=oid("c1")
    )

    delivery = one(rendered(inventory))

    assert delivery.rendered == RenderedVariant(
        OWNER, recorded_package(MAIN, inventory.records[OWNER]), time=10
    )
    assert (delivery.cluster, delivery.lock, delivery.packages, delivery.local) == (
        "dev",
        LOCK.resolution,
        {},
        {},
    )


def test_package_that_cannot_be_read_is_blocked() -> None:
    delivery = one(rendered(an_inventory(on_main())))

    assert delivery.rendered == RenderedVariant(OWNER, unreadable_package(MAIN, {}), time=10)


def test_package_with_a_broken_kptfile_is_blocked() -> None:
    broken = {**first_package(), "Kptfile": File.of(b"a: [")}

    assert isinstance(one(rendered(an_inventory(on_main()), {MAIN: broken})).rendered.fresh, Blocked)


def a_persons_draft(answers: Answers = NO_ANSWERS) -> Draft:
    return a_draft(
        path="clusters/dependencies",
        header=KptfileHeader(owner="fleet/default/dependencies@dev", location="edge/dependencies"),
        tree=oid("d7"),
        has_foreign_commits=True,
        answers=answers,
    )


def test_draft_that_people_committed_to_gets_what_is_generated_with_their_edits() -> None:
    files = first_package()
    edited_db = edited(files[DB], b"1.4.0", b"1.3.0")
    contents = {MAIN: files, oid("d7"): {**files, DB: edited_db}}

    def of_draft(answers: Answers) -> RenderedVariant:
        state = on_main(drafts=(a_persons_draft(answers),))
        return one(rendered(an_inventory(state), contents)).rendered

    result = of_draft(NO_ANSWERS)
    assert result.time == 10
    assert whole(result.fresh).files == files
    (conflict,) = whole(result.merged).conflicts
    field = "spec.packageRef.versionSelection.constraints"
    assert conflict == Conflict(DB, "", field, None, "1.4.0", "1.3.0", "BothChanged", conflict.name)
    name = parse_name(conflict.name)
    assert name
    assert name.path == f"clusters/dependencies/{DB}"
    (answer,) = whole(of_draft(Answers(keeps=frozenset({name}))).merged).answers
    assert answer == Answer(conflict, AnsweredBy.KEEP, "1.3.0")


def test_our_own_draft_is_made_anew() -> None:
    state = on_main(drafts=(replace(a_persons_draft(), has_foreign_commits=False, written=oid("d7")),))

    assert one(rendered(an_inventory(state), {MAIN: first_package()})).rendered.merged is None


def retained(lock: ClusterLock = LOCK) -> ClusterLock:
    """Return the lock in which nothing needs `db.io` any more, and it stays."""
    packages = {package.name: package for package in lock.resolution.packages}
    unused = tuple(p.instance for p in packages.values() if p.instance.name == "db.io")
    return ClusterLock(lock.lock, msgspec.structs.replace(lock.resolution, unused=unused))


def test_package_that_is_retained_keeps_its_file_where_main_has_it() -> None:
    files = first_package()

    kept = one(rendered(an_inventory(on_main()), {MAIN: files}, lock=retained()))
    assert whole(kept.rendered.fresh).files == files
    assert kept.packages == {}
    assert rendered(an_inventory(), lock=retained()).stalled == {variant_key(OWNER)}

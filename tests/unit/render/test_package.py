"""The functions of a package as the last step of rendering, and their failures."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reconciler.api.porch import Downstream, InjectionSelector, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.expand.expansion import expand
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.step import PipelineResult, Stage, Step, StepRun, Unrunnable
from reconciler.inventory.inventory import Commit, Source
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import ObjectName, Oid
from reconciler.names.objects import File, Files, tree_id
from reconciler.render.kptfile import unmet_gates
from reconciler.render.merging import base_not_found
from reconciler.render.package import input_time, render_packages, render_release, unreadable_package
from reconciler.render.package import run_functions as all_functions
from reconciler.render.rendered import Blocked, FunctionFault, Package
from reconciler.resolve.resolution import BeyondRun, Release
from tests.support.model import ModelWorld, blueprint, kptfile, package, resolve
from tests.support.plan_values import PACKAGE, a_desired_variant, a_pin, a_resolved, oid
from tests.support.sets import repository, world
from tests.support.values import replace

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n"


def made(pipeline: str, **more: object) -> Package:
    files = {"Kptfile": File.of((KPTFILE + pipeline).encode()), "s.yaml": File.of(SERVICE.encode())}
    return Package(tree_id(files), files, **more)


ALWAYS = ("manifest", "selected object", "upstream commit")


@pytest.mark.parametrize("newest", [*ALWAYS, "snapshot of its cluster", "other snapshot"])
@pytest.mark.parametrize("injects", [False, True])
def test_commit_is_as_old_as_the_newest_of_its_inputs(newest: str, *, injects: bool) -> None:
    def age(name: str) -> int:
        return 9 if newest == name else 3

    spec = PackageVariantSpec(injectors=[InjectionSelector(name="blue")] if injects else None)
    source = Source(Location("web.yaml"), age("manifest"))
    variant = a_desired_variant(spec=spec, source=source, times=(3, age("selected object")))
    clusters = {
        "prod": Snapshot(present=True, time=age("snapshot of its cluster")),
        "dev": Snapshot(present=True, time=age("other snapshot")),
    }
    inventory = replace(
        world(views=(repository("edge", cluster="prod"),)),
        snapshot=Snapshot(present=True, time=age("other snapshot"), clusters=clusters),
    )
    pin = a_pin(commit=Commit(oid("a1"), age("upstream commit")))
    resolved = a_resolved(variant=variant, view=ObjectName("default", "edge"), pin=pin)

    is_read = newest in ALWAYS or (injects and newest == "snapshot of its cluster")
    assert input_time(resolved, inventory) == (9 if is_read else 3)


def a_model() -> ModelWorld:
    model = ModelWorld()
    for name in ("blueprints", "edge"):
        model.add_repository(name)
    model.publish("blueprints", "web", blueprint("web"), 1)
    upstream = Upstream(repo="blueprints", package="web", revision=1)
    downstream = Downstream(repo="edge", package="web")
    model.variants["web"] = PackageVariantSpec(upstream=upstream, downstream=downstream)
    return model


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (("base",), Reason.BASE_NOT_FOUND),
        (("pin",), Reason.INVALID_PACKAGE),
        (("base", "pin"), Reason.INVALID_PACKAGE),
        (("local",), Reason.INVALID_PACKAGE),
    ],
)
def test_package_with_a_lost_base_is_told_from_an_unreadable_one(missing, reason) -> None:
    model = a_model()
    model.run()
    model.merge("edge", model.drafts("edge")[0])
    model.run()
    model.publish("blueprints", "web", blueprint("web", **{"new.txt": "new"}), 2)
    upstream = Upstream(repo="blueprints", package="web", revision=2)
    model.variants["web"] = model.variants["web"].model_copy(update={"upstream": upstream})
    inventory = model.inventory()
    resolution = resolve(inventory, expand(inventory))
    (resolved,) = resolution.variants
    assert resolved.base is not None
    trees = {"base": resolved.base.tree, "pin": resolved.pin.tree, "local": resolved.local}
    assert len({*trees.values()}) == len(trees)
    contents = model.contents(resolution)
    for name in missing:
        del contents[trees[name]]

    (rendered,) = render_packages(resolution, contents, inventory).variants.values()

    assert isinstance(rendered.fresh, Blocked)
    assert rendered.fresh.reason is reason
    if reason is Reason.BASE_NOT_FOUND:
        commit, tree = resolved.base.commit.oid, resolved.base.tree
        why = f"commit {commit} (web/v1) that it was last made from cannot be read"
        assert rendered.fresh == base_not_found(why)
        contents = RefusedTrees(contents, {tree: "the network is down"})
        (rendered,) = render_packages(resolution, contents, inventory).variants.values()
        assert rendered.fresh == base_not_found(f"{why}: the network is down")


class RefusedTrees(dict[Oid, Files]):
    """Contents with the reasons why some trees are missing."""

    def __init__(self, contents: Mapping[Oid, Files], refused: Mapping[Oid, str]) -> None:
        super().__init__(contents)
        self.refused = refused


def test_unreadable_tree_is_named_with_the_reason() -> None:
    tree = oid("c1")
    message = f"Tree {tree} of the package could not be read"

    assert unreadable_package(tree, {}) == Blocked(Reason.INVALID_PACKAGE, message)
    refused = RefusedTrees({}, {tree: "it is too large"})
    step = "Commit a correction to main, or raise the limit that is named"
    assert unreadable_package(tree, refused).message == f"{message}: it is too large. {step}"
    assert "to drafts/web/a, or" in unreadable_package(tree, refused, "refs/heads/drafts/web/a").message
    assert unreadable_package(oid("c2"), refused).message.endswith("could not be read")


def test_package_that_a_limit_of_the_run_left_out_is_no_invalid_one() -> None:
    refused = RefusedTrees({}, {oid("c1"): BeyondRun("the run has enough")})

    assert unreadable_package(oid("c1"), refused) == Blocked(Reason.NOT_IN_THIS_RUN, "the run has enough")


def test_released_package_has_no_owner_any_more() -> None:
    owned = "  annotations:\n    reconciler.dev/owner: fleet/default/web\n    other: note\n"
    contents = {oid("b1"): package({"Kptfile": kptfile("web", owned)})}

    def release(tree: str) -> Package | Blocked:
        return render_release(Release(PACKAGE, oid(tree)), contents)

    released = release("b1")
    assert isinstance(released, Package)
    assert released == Package(tree_id(released.files), released.files)
    text = released.files["Kptfile"].data
    assert b"reconciler.dev/owner" not in text
    assert b"other: note" in text
    assert release("b2") == unreadable_package(oid("b2"), contents)
    contents[oid("b3")] = package({"Kptfile": "a: ["})
    assert isinstance(release("b3"), Blocked)


# Results of functions


def result(package: Package, **fields: Any) -> Package | Blocked:
    def run(packages: Sequence[Files]) -> list[PipelineResult]:
        return [PipelineResult(**{"files": files, **fields}) for files in packages]

    return all_functions({"it": package}, run)["it"]


PLAIN = made("  - image: set-namespace:v0.4\n", unready=("gate a",))


@pytest.mark.parametrize(("unrunnable", "kind"), [(True, "cannot run"), (False, "failed")])
def test_failure_of_functions_comes_before_other_reasons_on_one_line(*, unrunnable: bool, kind: str) -> None:
    step = Step("", Stage.VALIDATORS, 2, image="y")
    cause = {"unrunnable": (Unrunnable("x", "why", "Did you mean z?"),)} if unrunnable else {"failed": step}
    done = result(PLAIN, error="first\n\n  second\n", **cause)

    reason = f"Functions {kind}: first; second"
    faults = {"cannot run": FunctionFault("x", "x cannot run: why", "Did you mean z?")}
    fault = faults.get(kind, FunctionFault("y", reason, step_index=2))
    assert done == replace(PLAIN, unready=(reason, "gate a"), failed=True, faults=(fault,))
    assert done.failed


def test_function_that_changes_protected_fields_blocks_the_package() -> None:
    done = result(PLAIN, error="it changes\nthe Kptfile", refusal=Reason.PROTECTED_FIELD)

    assert done == Blocked(
        Reason.PROTECTED_FIELD,
        "it changes; the Kptfile",
        "Remove the function from the pipeline, or have it select other resources than the Kptfile.",
    )


def test_warnings_of_functions_have_their_step_and_file() -> None:
    results = (
        FunctionResult("one\ntwo", severity="warning", file={"path": "a.yaml"}),
        FunctionResult("no file", severity="warning"),
        FunctionResult("no path", severity="warning", file={"index": 1}),
        FunctionResult("not shown", severity="info"),
        FunctionResult("not shown", severity="error"),
    )

    done = result(PLAIN, steps=(StepRun(Step("", Stage.MUTATORS, 0, image="x"), "builtin", results),))

    assert done == replace(
        PLAIN,
        warnings=("mutators[0]: x: one; two (a.yaml)", "mutators[0]: x: no file", "mutators[0]: x: no path"),
    )


def test_gates_are_judged_again_on_what_functions_made() -> None:
    gate = KPTFILE.replace("pipeline:", "info:\n  readinessGates:\n  - conditionType: b\npipeline:")
    files = {**PLAIN.files, "Kptfile": File.of(f"{gate}  - image: x\n".encode())}

    done = result(PLAIN, files=files)

    assert done == replace(
        PLAIN, tree=tree_id(files), files=files, unready=unmet_gates(files["Kptfile"].data)
    )
    assert done.unready
    without = {"s.yaml": File.of(b"")}
    assert result(PLAIN, files=without) == replace(PLAIN, tree=tree_id(without), files=without)

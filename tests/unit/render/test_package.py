"""The functions of a package as the last step of rendering, and their failures."""

from collections.abc import Sequence

from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.step import PipelineResult
from reconciler.objects import File, Files, tree_id
from reconciler.reasons import Reason
from reconciler.render.package import run_functions as all_functions
from reconciler.render.rendered import Blocked, Package
from reconciler.render.update import Conflict

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: p\npipeline:\n  mutators:\n"
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  x: a-a # kpt-set: ${two}-${one}\n"


def made(pipeline: str, **more: object) -> Package:
    files = {"Kptfile": File.of((KPTFILE + pipeline).encode()), "s.yaml": File.of(SERVICE.encode())}
    return Package(tree_id(files), files, **more)  # type: ignore[arg-type]


def run_functions(package: Package | Blocked) -> Package | Blocked:
    """Run the functions of one package, those that are built in."""

    def run(packages: Sequence[Files]) -> list[PipelineResult]:
        return [run_pipeline(files) for files in packages]

    return all_functions({"it": package}, run)["it"]


def test_output_of_functions_is_the_package() -> None:
    package = made("  - image: set-namespace:v0.4\n    configMap: {namespace: prod}\n")

    done = run_functions(package)

    assert isinstance(done, Package)
    assert b"namespace: prod" in done.files["s.yaml"].data
    assert done.tree == tree_id(done.files)
    assert done.ready


def test_function_without_runtime_makes_package_unready() -> None:
    package = made("  - image: example.com/x:v1\n")

    done = run_functions(package)

    assert isinstance(done, Package)
    assert done.tree == package.tree
    assert not done.ready
    assert done.unready[0].startswith("Functions cannot run: example.com/x:v1")


def test_failed_function_is_reported_with_its_error() -> None:
    done = run_functions(made("  - image: set-image:v0.1\n"))

    assert isinstance(done, Package)
    assert done.unready[0].startswith("Functions failed: mutators[0]: set-image:v0.1")


def test_warnings_are_kept() -> None:
    package = made("  - image: apply-setters:v0.2\n    configMap: {one: x-y}\n")

    done = run_functions(package)

    assert isinstance(done, Package)
    assert done.ready
    assert len(done.warnings) == 1
    assert "grows with every run" in done.warnings[0]


def test_functions_of_blocked_or_conflicting_package_do_not_run() -> None:
    blocked = Blocked(Reason.INVALID_PACKAGE, "no")
    conflict = Conflict(
        path="s.yaml", resource="", field="", base=None, upstream=None, local=None, reason="both"
    )
    waiting = made("  - image: example.com/x:v1\n", conflicts=(conflict,))

    assert run_functions(blocked) is blocked
    assert run_functions(waiting) is waiting


def test_functions_of_recorded_package_do_not_run() -> None:
    recorded = Package(tree_id({}), is_recorded=True, unready=("as recorded",))

    assert run_functions(recorded) is recorded

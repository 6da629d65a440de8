"""What a package's own pipeline makes of its upstream is no local edit: no update of it is a conflict."""

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.api.porch import Downstream, Function, PackageVariantSpec, Pipeline, Upstream
from reconciler.names.objects import Files
from reconciler.plan.changes import Change, Op
from tests.support.identifiers import without_identifiers
from tests.support.model import MAIN, ModelWorld, blueprint

CATALOG = "gcr.io/kpt-fn/"
APP = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
    "data:\n  color: {color} # kpt-set: ${{color}}\n  size: s\n"
)

PIPELINES: dict[str, list[dict[str, Any]]] = {
    "ensure-name-substring": [
        {"image": f"{CATALOG}ensure-name-substring:v0.2.0", "configMap": {"append": "-edge"}}
    ],
    "set-namespace": [{"image": f"{CATALOG}set-namespace:v0.4.1", "configMap": {"namespace": "shop"}}],
    "set-labels": [{"image": f"{CATALOG}set-labels:v0.2.0", "configMap": {"team": "web"}}],
    "apply-setters": [{"image": f"{CATALOG}apply-setters:v0.2.0", "configMap": {"color": "violet"}}],
}
PIPELINES["all of them"] = [function for functions in PIPELINES.values() for function in functions]


def spec(revision: int, functions: list[dict[str, Any]]) -> PackageVariantSpec:
    mutators = [
        Function.model_validate({**function, "name": f"f{i}"}) for i, function in enumerate(functions)
    ]
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=revision),
        downstream=Downstream(repo="edge", package="web"),
        pipeline=Pipeline(mutators=mutators),
    )


def app(name: str = "app", color: str = "red") -> str:
    return APP.format(name=name, color=color)


def start(functions: list[dict[str, Any]], before: Mapping[str, str], after: Mapping[str, str]) -> ModelWorld:
    """Publish two revisions upstream and the package of the first one downstream."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    for number, files in enumerate((before, after), start=1):
        world.publish("blueprints", "web", blueprint("web", **files), number)
    world.variants["web"] = spec(1, functions)
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    return world


def update(world: ModelWorld, functions: list[dict[str, Any]]) -> tuple[Change, Files]:
    """Ask for the second revision, and see that the run after it writes nothing."""
    world.variants["web"] = spec(2, functions)
    plan = world.run()
    assert world.plan().is_empty
    (change,) = plan.changes
    return change, world.repositories["edge"].at(world.drafts("edge")[0]).packages["web"]


def text(files: Files, path: str) -> str:
    return without_identifiers(files[path].data.decode())


@pytest.mark.parametrize("name", PIPELINES)
def test_an_update_through_a_pipeline_is_no_conflict(name: str) -> None:
    before = {"a_yaml": app(), "b_yaml": f"{app('one')}---\n{app('two')}"}
    after = {
        "a_yaml": app().replace("size: s", "size: m"),
        "b_yaml": f"{app('one', 'green')}---\n{app('two')}",
    }
    world = start(PIPELINES[name], before, after)

    change, files = update(world, PIPELINES[name])

    assert (change.op, change.conflicts, change.unready) == (Op.UPDATE, (), ())
    assert "size: m" in text(files, "a.yaml")
    fresh = start(PIPELINES[name], after, after).repositories["edge"].at(MAIN).packages["web"]
    assert {p: f.data for p, f in files.items() if p != "Kptfile"} == {
        p: f.data for p, f in fresh.items() if p != "Kptfile"
    }


@pytest.mark.parametrize("name", PIPELINES)
def test_a_resource_that_upstream_removed_goes(name: str) -> None:
    before = {"a_yaml": f"{app('stays')}---\n{app('goes')}", "gone_yaml": app("gone")}
    world = start(PIPELINES[name], before, {"a_yaml": app("stays")})

    change, files = update(world, PIPELINES[name])

    assert change.conflicts == ()
    assert "gone.yaml" not in files
    assert "goes" not in text(files, "a.yaml")


@pytest.mark.parametrize("name", PIPELINES)
def test_a_persons_edit_of_what_upstream_removed_is_still_asked_about(name: str) -> None:
    world = start(PIPELINES[name], {"a_yaml": app(), "gone_yaml": app("gone")}, {"a_yaml": app()})
    there = world.repositories["edge"].at(MAIN).packages["web"]["gone.yaml"].data.decode()
    world.edit("edge", "web", {"gone.yaml": there.replace("size: s", "size: mine")})
    world.run()

    change, files = update(world, PIPELINES[name])

    assert [(c.path, c.field, c.upstream) for c in change.conflicts] == [("gone.yaml", "", None)]
    assert "size: mine" in text(files, "gone.yaml")


@pytest.mark.parametrize("name", PIPELINES)
def test_packages_from_before_get_identifiers_with_their_next_update(name: str) -> None:
    world = start(PIPELINES[name], {"a_yaml": app()}, {"a_yaml": app().replace("size: s", "size: m")})
    there = world.repositories["edge"].at(MAIN).packages["web"]
    plain = {p: without_identifiers(f.data.decode()) for p, f in there.items() if p != "Kptfile"}
    world.edit("edge", "web", plain)
    untouched = world.run()
    assert all("kpt-merge" not in text for text in plain.values())
    assert not world.drafts("edge"), [c.message for c in untouched.changes]

    change, files = update(world, PIPELINES[name])

    assert change.conflicts == ()
    assert files["a.yaml"].data.decode().count("# kpt-merge: /app\n") == 1
    assert files["a.yaml"].data.decode().count("kind: ConfigMap") == 1


def test_the_package_context_survives_a_renaming_function() -> None:
    functions = PIPELINES["ensure-name-substring"]
    world = start(functions, {"a_yaml": app()}, {"a_yaml": app(color="blue")})

    change, files = update(world, functions)

    assert change.conflicts == ()
    assert "\n  name: kptfile.kpt.dev\n" in text(files, "package-context.yaml")
    assert "\n  package-path: web\n" in text(files, "package-context.yaml")
    assert "\n  name: app-edge\n" in text(files, "a.yaml")


REPLACE = {"image": f"{CATALOG}apply-replacements:v0.1.1", "configPath": "replacements.yaml"}
REPLACEMENTS = """\
apiVersion: fn.kpt.dev/v1alpha1
kind: ApplyReplacements
metadata:
  name: prefix
  annotations:
    config.kubernetes.io/local-config: "true"
replacements:
- source:
    kind: ConfigMap
    name: kptfile.kpt.dev
    fieldPath: data.name
  targets:
  - select:
      kind: ConfigMap
      name: app
    fieldPaths:
    - data.host
    options:
      delimiter: "-"
      index: 0
"""


def hosts(color: str = "red", size: str = "s") -> str:
    return app(color=color).replace("size: s", f"size: {size}") + "  host: web-cluster\n"


def climbing(revisions: list[Mapping[str, str]], edit: tuple[str, str] | None = None) -> tuple[Any, str]:
    """Publish revisions downstream as `edge-01`, one after the other; return the last change and its file."""
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    change = None
    for number, files in enumerate(revisions, start=1):
        world.publish("blueprints", "web", blueprint("web", **files), number)
        world.variants["web"] = spec(number, [REPLACE]).model_copy(
            update={"downstream": Downstream(repo="edge", package="edge-01")}
        )
        (change,) = world.run().changes
        draft = world.drafts("edge")[0]
        written = text(world.repositories["edge"].at(draft).packages["edge-01"], "a.yaml")
        if number == len(revisions):
            return change, written
        world.merge("edge", draft)
        world.run()
        if edit is not None and number == 1:
            main = text(world.repositories["edge"].at(MAIN).packages["edge-01"], "a.yaml")
            world.edit("edge", "edge-01", {"a.yaml": main.replace(*edit)})
            world.run()
    return change, ""


def test_untouched_package_equals_a_fresh_clone_after_every_update() -> None:
    revisions = [
        {"a_yaml": hosts(color), "replacements_yaml": REPLACEMENTS} for color in ("red", "blue", "green")
    ]

    _, climbed = climbing(revisions)
    _, fresh = climbing(revisions[-1:])

    assert climbed == fresh
    assert "host: edge-01-cluster\n" in climbed


@pytest.mark.parametrize(
    "change", ["a file that functions do not touch", "another function", "nothing but notes"]
)
def test_what_functions_made_is_made_from_upstream_again(change: str) -> None:
    world = ModelWorld()
    world.add_repository("blueprints")
    world.add_repository("edge", deployment=True)
    plain = {"a_yaml": hosts(), "b_yaml": app("b"), "replacements_yaml": REPLACEMENTS}
    for number, notes in enumerate(("one", "two"), start=1):
        world.publish("blueprints", "web", blueprint("web", **plain, README_md=notes), number)
    downstream = {"downstream": Downstream(repo="edge", package="edge-01")}
    world.variants["web"] = spec(1, [REPLACE]).model_copy(update=downstream)
    world.run()
    world.merge("edge", world.drafts("edge")[0])
    world.run()
    main = world.repositories["edge"].at(MAIN).packages["edge-01"]
    assert "host: edge-01-cluster\n" in text(main, "a.yaml")
    if change == "a file that functions do not touch":
        world.edit("edge", "edge-01", {"b.yaml": text(main, "b.yaml").replace("size: s", "size: mine")})
    labels = {"image": f"{CATALOG}set-labels:v0.2.0", "configMap": {"team": "web"}}
    functions = [REPLACE, labels] if change == "another function" else [REPLACE]
    number = 2 if change == "nothing but notes" else 1
    world.variants["web"] = spec(number, functions).model_copy(update=downstream)

    world.run()

    at = world.drafts("edge")[0] if world.drafts("edge") else MAIN
    files = world.repositories["edge"].at(at).packages["edge-01"]
    assert "host: edge-01-cluster\n" in text(files, "a.yaml")
    assert ("team: web" in text(files, "a.yaml")) is (change == "another function")
    assert ("size: mine" in text(files, "b.yaml")) is (change == "a file that functions do not touch")
    assert world.plan().is_empty


def test_function_that_changes_its_own_output_is_named_where_people_edited_it() -> None:
    revisions = [{"a_yaml": hosts(color), "replacements_yaml": REPLACEMENTS} for color in ("red", "blue")]

    change, _ = climbing(revisions, edit=("size: s", "size: mine"))
    untouched, _ = climbing(revisions)

    (warning,) = change.warnings
    assert warning == (
        f"mutators[0]: {REPLACE['image']} changes its own output: data.host of ConfigMap app in a.yaml."
        " Compare it: this package has local edits"
    )
    assert not untouched.warnings


SERVICES = """apiVersion: blueprints.cloud.google.com/v1alpha1
kind: ProjectServiceSet
metadata: {name: apis, namespace: projects}
spec:
  services: [compute.googleapis.com]
  projectID: prod
"""
MAKES = {"image": f"{CATALOG}enable-gcp-services:v0.1.0"}
MADE = "projects/service_apis-compute.yaml"
OWNED = """apiVersion: serviceusage.cnrm.cloud.google.com/v1beta1
kind: Service
metadata:
  name: mine
  namespace: projects
  annotations:
    blueprints.cloud.google.com/ownerReference: blueprints.cloud.google.com/ProjectServiceSet/apis
"""


@pytest.mark.parametrize(
    ("function", "path", "edit", "lost"),
    [
        (MAKES, MADE, ("external: prod", "external: mine"),
            "writes spec.projectRef.external of Service projects/apis-compute anew"),
        (MAKES, MADE, ("kind: Service", "kind: Service # mine"), ""),
        (MAKES, MADE, ("external: prod\n", f"external: prod\n---\n{OWNED}"), "removes Service projects/mine"),
        (MAKES, MADE, ("spec:\n", "spec:\n  mine: 1\n"),
            "writes spec.mine of Service projects/apis-compute anew"),
        (PIPELINES["set-labels"][0], "a.yaml", ("team: web", "team: mine"),
            "writes metadata.labels.team of ConfigMap app anew"),
        (PIPELINES["apply-setters"][0], "a.yaml", ("color: violet", "color: mine"),
            "writes data.color of ConfigMap app anew"),
        (PIPELINES["set-namespace"][0], "a.yaml", ("shop", "mine"),
            "writes metadata.namespace of ConfigMap app anew"),
        (PIPELINES["apply-setters"][0], "a.yaml", ("size: s", "size: mine"), ""),
    ],
)  # fmt: skip
def test_an_edit_that_a_function_writes_over_is_named(function, path, edit, lost) -> None:
    before = {"a_yaml": app(), "b_yaml": app("b"), "set_yaml": SERVICES}
    world = start([function], before, {**before, "b_yaml": app("b", "blue")})
    there = world.repositories["edge"].at(MAIN).packages["web"][path].data.decode()
    assert edit[0] in there
    world.edit("edge", "web", {path: there.replace(*edit)})

    change, files = update(world, [function])

    step = f"mutators[0]: {function['image']}"
    assert (edit[1] in text(files, path)) is not bool(lost)
    assert change.warnings == (
        (f"{path}: {step} {lost}. The edit of people there does not survive",) if lost else ()
    )


def test_an_edit_in_a_draft_that_a_function_writes_over_is_named_while_the_draft_is_open() -> None:
    files = {"a_yaml": app(), "set_yaml": SERVICES}
    world = start([MAKES], files, {**files, "a_yaml": app(color="blue")})
    world.publish("blueprints", "web", blueprint("web", a_yaml=app(color="green"), set_yaml=SERVICES), 3)
    update(world, [MAKES])
    (draft,) = world.drafts("edge")
    made = world.repositories["edge"].at(draft).packages["web"][MADE].data.decode()
    world.edit("edge", "web", {MADE: made.replace("external: prod", "external: mine")}, ref=draft)
    world.run()
    world.variants["web"] = spec(3, [MAKES])

    (change,), (later,) = world.run().changes, world.run().changes

    assert "projectRef.external of Service projects/apis-compute anew" in change.warnings[0]
    assert later.op is Op.KEEP
    assert later.warnings == change.warnings
    assert world.plan().is_empty

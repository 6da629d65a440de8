"""Identity survives functions: an unedited package takes any upstream without a conflict, also by kpt."""

import json
import os
from collections.abc import Mapping
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.functions.pipeline import run_pipeline
from reconciler.names.objects import File, Files, tree_id
from reconciler.policy import MergeMode, Strategy
from reconciler.render.merging import RenderedUpstreams, prepare_sides
from reconciler.render.update import update_package
from reconciler.render.update.identifiers import add_identifiers
from tests.property.test_merge_against_kpt import ORACLE, comparable, oracle, run_kpt
from tests.support.identifiers import without_identifiers
from tests.support.merges import documents

pytestmark = pytest.mark.slow

__all__ = ["oracle"]

IMAGE = "gcr.io/kpt-fn/"
FUNCTIONS = (
    f"  - image: {IMAGE}ensure-name-substring:v0.2.0\n    configMap: {{append: -edge}}\n",
    f"  - image: {IMAGE}ensure-name-substring:v0.2.0\n    configMap: {{prepend: eu-}}\n",
    f"  - image: {IMAGE}set-namespace:v0.4.1\n    configMap: {{namespace: shop}}\n",
    f"  - image: {IMAGE}set-labels:v0.2.0\n    configMap: {{team: web}}\n",
    f"  - image: {IMAGE}set-annotations:v0.1.4\n    configMap: {{note: seen}}\n",
    f"  - image: {IMAGE}apply-setters:v0.2.0\n    configMap: {{color: violet}}\n",
)
PIPELINES = st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4, unique=True)
NAMES = st.sampled_from(("app", "api", "db", "n", "job"))
RESOURCES = st.lists(
    st.tuples(st.sampled_from(("ConfigMap", "Secret")), NAMES, st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=4,
    unique_by=lambda resource: resource[:2],
)
SIDES = st.dictionaries(st.sampled_from(("a.yaml", "b.yaml", "deep/c.yaml")), RESOURCES, min_size=1)
EXAMPLES = 10 * int(os.environ.get("RECONCILER_FUZZ", "1"))


def package(side: Mapping[str, list[tuple[str, str, int, int]]], pipeline: list[str]) -> Files:
    """Return a package; a resource stands in one file only, the first that has it."""
    seen: set[tuple[str, str]] = set()
    files = {"Kptfile": File.of(_kptfile(pipeline).encode())}
    for path, resources in side.items():
        own = [each for each in resources if each[:2] not in seen]
        seen |= {each[:2] for each in own}
        if own:
            files[path] = File.of("---\n".join(map(_resource, own)).encode())
    return files


def _kptfile(pipeline: list[str]) -> str:
    head = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
    return f"{head}pipeline:\n  mutators:\n{''.join(pipeline)}"


def _resource(resource: tuple[str, str, int, int]) -> str:
    kind, name, color, size = resource
    field = "data" if kind == "ConfigMap" else "stringData"
    text = f'apiVersion: v1\nkind: {kind}\nmetadata:\n  name: "{name}"\n'
    return f"{text}{field}:\n  color: c{color} # kpt-set: ${{color}}\n  size: s{size}\n"


def rendered(files: Files) -> Files:
    result = run_pipeline(files)
    assert result.ok, result.error
    return result.files


@given(before=SIDES, after=SIDES, pipeline=PIPELINES, marked=st.booleans())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_unedited_package_becomes_what_the_new_upstream_renders_to(
    before: dict[str, list[tuple[str, str, int, int]]],
    after: dict[str, list[tuple[str, str, int, int]]],
    pipeline: list[str],
    marked: bool,
) -> None:
    original, upstream = package(before, pipeline), package(after, pipeline)
    local = rendered(add_identifiers(original))
    if not marked:
        local = {p: File.of(without_identifiers(f.data.decode()).encode()) for p, f in local.items()}
    sides = RenderedUpstreams(*(rendered(add_identifiers(side)) for side in (original, upstream)))

    updated = update_package(*prepare_sides(original, upstream, local, sides))

    assert updated.conflicts == ()
    if marked:
        assert tree_id(dict(rendered(updated.files))) == tree_id(dict(sides.upstream))


@pytest.mark.needs("kpt")
@pytest.mark.skipif(not ORACLE.is_file(), reason="needs the oracle that runs kpt beside the project")
@given(before=SIDES, after=SIDES, pipeline=PIPELINES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_kpt_updates_a_package_written_here_to_the_same_data(
    oracle: ModuleType,
    before: dict[str, list[tuple[str, str, int, int]]],
    after: dict[str, list[tuple[str, str, int, int]]],
    pipeline: list[str],
) -> None:
    original, upstream = package(before, pipeline), package(after, pipeline)
    local = rendered(add_identifiers(original))

    theirs = run_kpt(oracle, original, upstream, local)
    ours = update_package(
        *prepare_sides(original, upstream, local, None),
        mode=MergeMode.COMPATIBLE,
        strategy=Strategy.RESOURCE_MERGE,
    )

    assert theirs is not None
    assert by_path(ours.files) == by_path(theirs)


def by_path(files: Files) -> dict[str, list[str]]:
    """Return the documents of each file in any order: kpt puts new ones among old ones by its own rule."""
    return {
        path: sorted(json.dumps(document, sort_keys=True) for document in documents(file.data))
        for path, file in comparable(files).items()
    }

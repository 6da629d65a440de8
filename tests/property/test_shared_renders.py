"""Packages are rendered alike alone and together, whatever caches they share."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.api.porch import PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.functions.pipeline import run_pipeline
from reconciler.functions.step import PipelineResult
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.krm.yaml import PACKAGE_LIMITS, Tree, YamlError, load_documents
from reconciler.names.filled import PackageSample, changed_paths, masked_digest
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files, Mode, tree_id
from reconciler.names.substitution import OwnValues
from reconciler.render.kptfile import kptfile_value
from reconciler.render.package import render_packages
from reconciler.render.rendered import Package, RenderedVariant
from reconciler.render.sharing import main_values
from reconciler.resolve.resolution import Pin, Resolution, ResolvedVariant
from tests.ecosystem.inputs import ABSENT, inputs_of, name_of, revisions
from tests.property.test_yaml_round_trip import PIECES, documents
from tests.support.conformance import PROJECT, parameters
from tests.support.model import package
from tests.support.plan_values import a_desired_variant, a_pin, a_resolved
from tests.support.sets import repository, snapshot, world
from tests.support.values import replace

pytestmark = pytest.mark.slow

TEXTS = st.one_of(documents(usual=True), documents(), st.lists(PIECES, max_size=14).map("".join))
HEADS = st.sampled_from(["", "---\n", "# x\n---\n", "\ufeff", "%YAML 1.1\n---\n", "a: 1\r\n...\r\n"])


def _first_value(data: bytes) -> dict[str, Any]:
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError:
        return {}
    value = documents[0].value if documents else None
    return value if isinstance(value, dict) else {}


@given(HEADS, TEXTS)
@example("", '{"a": 1e2}')
@example("a: 1\n", "---\nb: 2\n")
@example("a: 1\r", "---\rb: 2\r")
def test_value_of_kptfile_is_that_of_its_first_document(head: str, text: str) -> None:
    data = (head + text).encode("utf-8", "surrogatepass")

    assert repr(kptfile_value(data)) == repr(_first_value(data))


@given(TEXTS)
def test_trees_of_equal_texts_read_alike_after_their_values_were_changed(text: str) -> None:
    try:
        first = Tree.parse(text)
        value = first.value
    except YamlError:
        return
    before = repr(value)
    if isinstance(value, dict):
        value["changed"] = True

    assert repr(Tree.parse(text).value) == before


# Packages made of one that was read

TEXT_VALUES = ["c0", "c1", "c2", "web", "web.c1", "web-c1", "c1.web", "dev/c1", "1e3", "default"]
WORDS = ["{0}", "{1}", "{2}", *TEXT_VALUES, " ", ".", "-", "/", "\n", "\0", "%", "0"]
TEXT_TEMPLATES = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


@given(
    st.dictionaries(st.sampled_from(["a.yaml", "d/b.yaml", "c1.yaml"]), TEXT_TEMPLATES, max_size=3),
    st.lists(st.sampled_from(TEXT_VALUES), min_size=3, max_size=3),
    st.lists(st.sampled_from(TEXT_VALUES), min_size=3, max_size=3),
    st.lists(st.sampled_from(TEXT_VALUES), max_size=3),
    st.sampled_from([0o100644, 0o120000]),
)
@example({"a.yaml": "{0} {1}.c1"}, ["c0", "web", "default"], ["c2", "web", "default"], ["web.c1"], 0o100644)
@example({"a.yaml": "{0} c1"}, ["c0", "web", "default"], ["c1", "web", "default"], ["c1"], 0o100644)
def test_package_made_of_a_sample_is_the_one_that_would_be_read(
    templates: Mapping[str, str], before: list[str], after: list[str], masked: list[str], mode: int
) -> None:
    def filled(values: list[str]) -> Files:
        texts = {path: template.format(*values).encode() for path, template in templates.items()}
        return {path: File.of(data, Mode(mode)) for path, data in texts.items()}

    read, own_values = filled(after), OwnValues.of(masked)

    made = PackageSample(filled(before), before).fill(tree_id(read), after, 99, 99)

    if made is not None:
        assert dict(made) == read
        assert changed_paths(made, read) == []
        assert all(masked_digest(made, p, own_values) == masked_digest(read, p, own_values) for p in read)


def test_members_of_a_class_are_made_of_the_first_one() -> None:
    sample = PackageSample(package({"a.yaml": "name: c0\n"}), ["c0", "web"])
    read = package({"a.yaml": "name: c1\n"})

    made = sample.fill(tree_id(read), ["c1", "web"], 99, 99)

    assert made is not None
    assert sample.fill(tree_id(read), ["c1", "web"], 8, 99) is None
    assert sample.fill(tree_id(read), ["c1", "web"], 99, 8) is None
    assert sample.fill(tree_id(package({"a.yaml": "name: c2\n"})), ["c1", "web"], 99, 99) is None
    other = sample.fill(tree_id(package({"a.yaml": "name: c2\n"})), ["c2", "web"], 99, 99)
    assert other is not None
    assert made.class_key(OwnValues.of(["c1"])) == other.class_key(OwnValues.of(["c2"]))
    assert made.class_key(OwnValues.of(["c1"])) != other.class_key(OwnValues.of(["c1"]))


# Packages of one class

NAMES = ["p1", "p2", "p3", "web", "info", "on", "1e3", "team/p1", "team/p2", "example", "Big_1", "v2", "5g"]
HEADER = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
KPTFILES = [
    HEADER,
    HEADER.replace("web", "'web'"),
    f"{HEADER}  annotations:\n    team: p1\ninfo:\n  description: made for p2\n",
    f"{HEADER}  annotations: {{team: p1}} # mine\ninfo:\n  readinessGates:\n  - conditionType: p1\n",
    f"{HEADER}pipeline:\n  mutators:\n  - image: set-labels:v0.2\n    configMap: {{tier: p1}}\n",
    f"{HEADER}pipeline:\n  validators:\n  - name: PackageVariant.v-1.check.0\n    image: starlark\n",
    "kind: Kptfile\nmetadata: {name: web}\nnotes: |\n  name: p1\n",
]
CONTEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: example\n"
RESOURCES = [
    "kind: A\napiVersion: x/v1\nmetadata:\n  name: p1\nspec:\n  size: 1\n",
    "kind: A\napiVersion: x/v1\nmetadata:\n  name: a\nspec:\n  size: 2\n  name: p2\n",
    (
        "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\n  annotations:\n"
        "    kpt.dev/config-injection: required\ndata: {}\n"
    ),
]
SPECS: list[dict[str, Any]] = [
    {},
    {},
    {"packageContext": {"data": {"region": "p1"}}},
    {"packageContext": {"data": {"region": "r-NUMBER", "where": "p1/c-NUMBER/z", "last": "NUMBER: x"}}},
    {"packageContext": {"data": {"name": "n-NUMBER", "tier": "p1"}, "removeKeys": ["region"]}},
    {"packageContext": {"data": {"name": "p2"}, "removeKeys": ["package-path"]}},
    {
        "pipeline": {
            "mutators": [{"name": "n", "image": "set-namespace:v0.4", "configMap": {"namespace": "p1"}}]
        }
    },
    {"injectors": [{"name": "p1"}]},
]
HANDS: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "no final line break": lambda text: text.rstrip("\n"),
    "marker": lambda text: f"# x\n---\n{text}",
    "comment": lambda text: text.replace("  name: p", "  name: p1 # was p"),
    "quotes": lambda text: text.replace("  name: p1\n", '  name: "p1"\n'),
    "anchor": lambda text: (
        text.replace("  name: p1\n", "  name: &n p1\n") + "more: *n\n" * ("name: p1" in text)
    ),
    "value elsewhere": lambda text: f"{text}more:\n  name: p1\n  owner: fleet/default/v-1\n",
    "renamed": lambda text: text.replace("  name: p2\n", "  name: p1\n"),
    "no location": lambda text: text.replace("    reconciler.dev/location: edge/p1\n", ""),
    "block scalar": lambda text: f"{text}more: |\n  name: p1\n    reconciler.dev/location: edge/p1\n",
    "policy": lambda text: text.replace(
        "    reconciler.dev/o", "    reconciler.dev/on-conflict: local\n    reconciler.dev/o"
    ),
}


@st.composite
def sources(draw: st.DrawFn) -> Files:
    """Draw a package that others are made from."""
    texts = {KPTFILE: draw(st.sampled_from(KPTFILES)), "a.yaml": draw(st.sampled_from(RESOURCES))}
    if draw(st.booleans()):
        name = draw(st.sampled_from(["example", "p2"]))
        path = draw(st.sampled_from([PACKAGE_CONTEXT_FILE, "b.yaml"]))
        texts[path] = CONTEXT.replace("example", name)
    return package(texts)


def _edited(files: Files, edits: Mapping[str, str]) -> Files:
    """Return a package with edits of a person, by path and name of the edit."""
    texts = {path: HANDS[edit](files[path].data.decode()) for path, edit in edits.items() if path in files}
    return {**files, **{path: File.of(text.encode()) for path, text in texts.items()}}


def _render(
    variants: Iterable[ResolvedVariant], trees: Mapping[Oid, Files], inventory: Inventory
) -> dict[ObjectName, RenderedVariant]:
    return dict(render_packages(Resolution(tuple(variants)), trees, inventory).variants)


def _held(variants: Iterable[ResolvedVariant], trees: Mapping[Oid, Files]) -> dict[Oid, Files]:
    """Return the packages as a run holds them: one is read, those that differ in values are made of it."""
    held, samples = dict(trees), dict[Oid, PackageSample]()
    for tree, (upstream, values) in main_values(variants).items():
        sample = samples.get(upstream)
        made = sample.fill(tree, values, 1 << 20, 1 << 20) if sample is not None else None
        held[tree] = dict(trees[tree]) if made is None else made
        if made is None:
            samples[upstream] = PackageSample(held[tree], values)
    return held


def _views() -> tuple[RepositoryView, ...]:
    edge, lab = repository("edge"), repository("lab")
    spec = edge.manifest.spec.model_copy(update={"deployment": True})
    return replace(edge, manifest=edge.manifest.model_copy(update={"spec": spec})), lab


def _registered(names: Iterable[str]) -> Inventory:
    """Return an inventory with a repository of each name."""
    view = _views()[0]
    views = [replace(view, key=ObjectName("default", name), url=f"host/{name}") for name in names]
    return world(views=tuple(views), snapshot=snapshot())


@given(
    data=st.data(),
    old=sources(),
    new=sources(),
    spec=st.sampled_from(SPECS),
    others=st.lists(st.sampled_from(NAMES), max_size=2),
    hands=st.dictionaries(
        st.sampled_from([KPTFILE, "a.yaml", PACKAGE_CONTEXT_FILE]), st.sampled_from([*HANDS])
    ),
)
@settings(max_examples=settings().max_examples // 2)
def test_packages_rendered_together_are_those_rendered_alone(  # noqa: PLR0917 - drawn by name
    data: st.DataObject,
    old: Files,
    new: Files,
    spec: dict[str, Any],
    others: list[str],
    hands: dict[str, str],
) -> None:
    edge, lab = _views()
    inventory = world(views=(edge, lab), snapshot=snapshot())
    trees = {tree_id(old): old, tree_id(new): new}
    first, second = a_pin(1, tree=tree_id(old)), a_pin(2, tree=tree_id(new))
    variants = []
    for number, name in enumerate(["p1", "p2", "p3", *others]):
        is_odd = number == data.draw(st.integers(0, 9))
        own = data.draw(st.sampled_from(SPECS)) if is_odd else spec
        view = lab if is_odd and data.draw(st.booleans()) else edge
        key, source = ObjectName("default", f"v-{number}"), Source(Location("web.yaml"), 1)
        text = json.dumps(own).replace("NUMBER", str(number))
        desired = a_desired_variant(key=key, spec=PackageVariantSpec.model_validate_json(text), source=source)
        variants.append(
            a_resolved(variant=desired, view=view.key, downstream=PackageKey(view.url, name), pin=first)
        )
    cloned = _render(variants, trees, inventory)
    _check_alone(variants, cloned, lambda own: _render(own, trees, inventory))

    def edit(number: int, files: Files) -> Files:
        return _edited(files, hands if number != data.draw(st.integers(0, 9)) else {})

    updates = _updates(variants, cloned, trees, second, edit)
    together = _render(updates, _held(updates, trees), inventory)
    _check_alone(updates, together, lambda own: _render(own, trees, inventory))


def _check_alone(
    variants: Iterable[ResolvedVariant],
    together: Mapping[ObjectName, RenderedVariant],
    render: Callable[[list[ResolvedVariant]], Mapping[ObjectName, RenderedVariant]],
) -> None:
    """Assert that each variant is rendered alone as it is together with the others."""
    for variant in variants:
        assert render([variant]) == {variant.variant.key: together[variant.variant.key]}


def _updates(
    variants: Iterable[ResolvedVariant],
    rendered: Mapping[ObjectName, RenderedVariant],
    trees: dict[Oid, Files],
    pin: Pin,
    edit: Callable[[int, Files], Files] = lambda _, files: files,
) -> list[ResolvedVariant]:
    """Return the updates of what was rendered to a pin, after people edited each package."""
    updates = []
    for number, variant in enumerate(variants):
        fresh = rendered[variant.variant.key].fresh
        if isinstance(fresh, Package):
            local = edit(number, dict(fresh.files))
            trees[tree_id(local)] = local
            updates.append(replace(variant, base=variant.pin, pin=pin, local=tree_id(local)))
    return updates


# Packages of many repositories

CLUSTERS = [
    *("c07", "c08", "edge-1", "edge-10", "edge-100", "paris.eu", "5g-core"),  # such names share
    *("web", "app", "metadata", "kind", "Secret", "upstream", "default", "pipeline", "kptfile.kpt.dev"),
    *("on", "1e3", "e5", "0x1", "null", "Big_1", "caf\u00e9", "x" * 70, "v1", "ConfigMap", "3"),
]
VALUES = [
    *CLUSTERS,
    "",
    "CLUSTER",
    "ns-CLUSTER",
    "CLUSTER.example.com",
    "a: b",
    "{CLUSTER}",
    "CLUSTER/x",
    "# CLUSTER",
]
STEP = "  - image: {}\n    configMap: {{{}: {}}}\n"
PIPELINES = [
    "",
    "pipeline:\n  mutators:\n" + STEP.format("set-labels:v0.2", "tier", "web"),
    "pipeline:\n  mutators:\n" + STEP.format("set-namespace:v0.4", "namespace", "apps"),
    "pipeline:\n  mutators:\n" + STEP.format("apply-setters:v0.2", "one", "c07-c08"),
    "pipeline:\n  mutators:\n" + STEP.format("ensure-name-substring:v0.2", "prepend", "app-"),
    "pipeline:\n  validators:\n  - image: nobody/knows:v1\n",
    "pipeline:\n  mutators:\n" + STEP.format("apply-setters:v0.2", "one: x, two", "y"),
    "pipeline:\n  mutators:\n  - {image: 'apply-replacements:v0.1.2', configPath: r.yaml}\n",
    (
        "pipeline:\n  validators:\n  - image: nobody/knows:v1\n  mutators:\n"
        + STEP.format("ensure-name-substring:v0.2", "prepend", "app-")
    ),
]
REPLACEMENTS = [
    """\
apiVersion: fn.kpt.dev/v1alpha1
kind: ApplyReplacements
metadata:
  name: r
  annotations: {config.kubernetes.io/local-config: "true"}
replacements:
- source: {kind: Kptfile, fieldPath: "metadata.annotations.[reconciler.dev/owner]"OPTIONS}
  targets:
  - select: {name: app}
    reject:
    - labelSelector: site=zone7
    fieldPaths: ["metadata.annotations.from"]
    options: {create: true}
  - select: {kind: Deployment}
    fieldPaths: ["metadata.labels.[site=TEXT]"]
    options: {create: true}
""".replace("OPTIONS", options).replace("TEXT", text)
    for options, text in (
        ("", "zz"),
        (", options: {delimiter: /, index: 2}", "zz"),
        (", options: {delimiter: '-'}", "c0"),
        ("", "c"),
    )
]
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n"
APPS = [
    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\nspec:\n  replicas: 1\n",
    f"{MAP}  labels: {{site: c07}}\ndata:\n  two: a-b # kpt-set: ${{one}}-${{two}}\n",
    f"{MAP}  namespace: default # here\n---\n# end\n{MAP.replace('app', 'edge-1')}",
    f"{MAP}  annotations:\n    reconciler.dev/on-conflict: upstream\n",
    f"{MAP}  labels:\n    site: a-b # kpt-set: ${{one}}-${{two}}\n",
    f"{MAP}data:\n  two: a/b # kpt-set: ${{one}}/b\n  three: c07.b # kpt-set: ${{one}}.b\n",
    f"{MAP}data:\n  two: a-b # kpt-set: ${{one}}-${{two}}\n  run: |\n    echo ${{one}}${{two}}\n",
    (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Other # kpt-set: ${one}\n"
        "metadata:\n  name: app # kpt-set: ${one}\n  namespace: default\n"
    ),
]
FUNCTIONS = [
    ("set-labels:v0.2", "site"),
    ("set-annotations:v0.1", "example.com/site"),
    ("set-annotations:v0.1", "reconciler.dev/merge-keys"),
    ("set-annotations:v0.1", "config.kubernetes.io/local-config"),
    ("set-namespace:v0.4", "namespace"),
    ("set-namespace:v0.4.1", "namespace"),
    ("apply-setters:v0.2", "one"),
    ("search-replace:v0.2", "by-value"),
]
WRITTEN: dict[str, Callable[[str, str], str]] = {
    "nothing": lambda text, _: text,
    "key": lambda text, cluster: f"{text.rstrip()}\nmine:\n  {cluster}: 1\n  b: 2\n",
    "value": lambda text, cluster: f"{text.rstrip()}\nmine: {cluster}\n",
    "quoted": lambda text, cluster: f'{text.rstrip()}\nmine: "{cluster}"\n',
    "comment": lambda text, cluster: f"# of {cluster}\n{text}",
    "kind": lambda text, cluster: text.replace("kind: ", f"kind: {cluster} #"),
    "part of a word": lambda text, cluster: f"{text.rstrip()}\nmine: x{cluster}-y\n",
    "same for all": lambda text, _: f"{text.rstrip()}\nmine: c07\n",
    "zero byte": lambda text, cluster: f"{text}\0{cluster}",
    "conflict": lambda text, cluster: text.replace("replicas: 1", f"replicas: 3 # {cluster}"),
}


def _of_cluster(
    number: int, cluster: str, value: str, function: tuple[str, str], pin: Any
) -> ResolvedVariant:
    image, key = function
    value = value.replace("CLUSTER", cluster)
    step = {"name": "own", "image": image, "configMap": {key: value}}
    context = {"data": {"site": f"{value}/{cluster}/x"} if key == "site" else {}}
    spec = PackageVariantSpec.model_validate({"pipeline": {"mutators": [step]}, "packageContext": context})
    name, source = ObjectName("default", f"web-{cluster}-{number}"), Source(Location("web.yaml"), 1)
    view = ObjectName("default", cluster)
    return a_resolved(
        variant=a_desired_variant(key=name, spec=spec, source=source),
        view=view,
        downstream=PackageKey(f"host/{cluster}", "web"),
        pin=pin,
    )


@given(
    data=st.data(),
    clusters=st.lists(st.sampled_from(CLUSTERS), min_size=2, max_size=4, unique=True),
    function=st.sampled_from(FUNCTIONS),
    pipeline=st.sampled_from(PIPELINES),
    apps=st.tuples(st.sampled_from(APPS), st.sampled_from(APPS)),
    change=st.sampled_from([*WRITTEN]),
    replacements=st.sampled_from(REPLACEMENTS),
)
@settings(max_examples=settings().max_examples // 2)
@example(
    None,
    ["c07", "edge-1", "edge-10"],
    FUNCTIONS[0],
    PIPELINES[1],
    (APPS[0], APPS[0]),
    "value",
    REPLACEMENTS[0],
)
@example(
    None, ["edge-1", "edge-100"], FUNCTIONS[6], PIPELINES[0], (APPS[5], APPS[5]), "nothing", REPLACEMENTS[0]
)
@example(
    None,
    ["edge-1", "ClusterRole"],
    FUNCTIONS[6],
    PIPELINES[2],
    (APPS[7], APPS[7]),
    "nothing",
    REPLACEMENTS[0],
)
def test_packages_of_many_repositories_are_those_rendered_alone(  # noqa: PLR0917 - drawn by name
    data: st.DataObject | None,
    clusters: list[str],
    function: tuple[str, str],
    pipeline: str,
    apps: tuple[str, str],
    change: str,
    replacements: str,
) -> None:
    """Whatever repositories and values are called: words of the package, prefixes of others, numbers."""
    texts = [{KPTFILE: HEADER + pipeline, "app.yaml": app, "r.yaml": replacements} for app in apps]
    old, new = package(texts[0]), package({**texts[1], "b.yaml": APPS[2].replace("edge-1", "other")})
    trees = {tree_id(old): old, tree_id(new): new}
    first, second = a_pin(1, tree=tree_id(old)), a_pin(2, tree=tree_id(new))
    inventory = _registered(clusters)
    shared = data.draw(st.sampled_from(VALUES)) if data else "CLUSTER"
    values = [data.draw(st.sampled_from([shared, shared, *VALUES])) if data else shared for _ in clusters]
    drawn = enumerate(zip(clusters, values, strict=True))
    variants = [_of_cluster(number, *each, function, first) for number, each in drawn]
    cloned = _render(variants, trees, inventory)
    _check_alone(variants, cloned, lambda own: _render(own, trees, inventory))

    def edit(number: int, files: Files) -> Files:
        text = WRITTEN[change](files["app.yaml"].data.decode(), clusters[number])
        return {**files, "app.yaml": File.of(text.encode())}

    updates = _updates(variants, cloned, trees, second, edit)
    together = _render(updates, _held(updates, trees), inventory)
    _check_alone(updates, together, lambda own: _render(own, trees, inventory))


PLAIN = ["c07", "edge-1", "edge-10"]
CHART = {
    KPTFILE: f"{HEADER}pipeline:\n  mutators:\n  - image: render-helm-chart:v0.2\n    configPath: c.yaml\n",
    "c.yaml": (
        "apiVersion: fn.kpt.dev/v1alpha1\nkind: RenderHelmChart\nmetadata: {name: c}\nhelmCharts:\n"
        "- chartArgs: {name: web}\n  templateOptions:\n    values:\n      valuesInline: {}\n"
        "      host: unknown # kpt-set: ${one}\n"
    ),
}
TEMPLATES = [
    *(f"{MAP}data:\n  host: {value}\n  version: VERSION\n" for value in ("HOST", "x.HOST", "x-HOST", "c07")),
    f"{MAP}data:\n  HOST: VERSION\n",
    f"{MAP}  annotations: {{reconciler.dev/on-conflict: HOST}}\n",
    "apiVersion: v1\nkind: HOST\nmetadata:\n  name: app\nVERSION: 1\n",
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: HOST\n  namespace: HOST\nspec: {port: VERSION}\n",
]


@given(
    clusters=st.lists(st.sampled_from(CLUSTERS), min_size=2, max_size=3, unique=True),
    value=st.sampled_from(VALUES),
    templates=st.tuples(st.sampled_from(TEMPLATES), st.sampled_from(TEMPLATES)),
    path=st.sampled_from(["app.yaml", "app.yaml", "HOST.yaml"]),
    change=st.sampled_from([*WRITTEN]),
)
@settings(max_examples=settings().max_examples // 4)
@example(["edge-1", "edge-10"], "CLUSTER", (TEMPLATES[0], TEMPLATES[0]), "app.yaml", "value")
@example(["edge-1", "edge-10"], "CLUSTER", (TEMPLATES[0], TEMPLATES[0]), "app.yaml", "part of a word")
@example(["edge-1", "edge-10"], "CLUSTER", (TEMPLATES[2], TEMPLATES[2]), "app.yaml", "nothing")
@example(["edge-1", "ConfigMap"], "CLUSTER", (TEMPLATES[6], TEMPLATES[6]), "app.yaml", "nothing")
def test_packages_of_a_chart_are_those_rendered_alone(
    clusters: list[str], value: str, templates: tuple[str, str], path: str, change: str
) -> None:
    """Their upstreams have own values too; the engine is a template that is filled in here.

    Where nobody edited main, an update renders two charts: the old one gives what main has.
    """
    old, new = (package({**CHART, "charts/web/Chart.yaml": text}) for text in templates)
    trees: dict[Oid, Files] = {tree_id(old): old, tree_id(new): new}
    runs: list[int] = []

    def run(packages: Any) -> Any:
        runs.append(sum(b"render-helm-chart" in files[KPTFILE].data for files in packages))
        return [_run_chart(files, path) or run_pipeline(files) for files in packages]

    def render(variants: Iterable[ResolvedVariant]) -> dict[ObjectName, RenderedVariant]:
        return dict(render_packages(Resolution(tuple(variants)), trees, inventory, run).variants)

    inventory = _registered(clusters)
    first, second = a_pin(1, tree=tree_id(old)), a_pin(2, tree=tree_id(new))
    variants = [_of_cluster(n, name, value, FUNCTIONS[6], first) for n, name in enumerate(clusters)]
    cloned = render(variants)
    _check_alone(variants, cloned, render)

    def edit(number: int, files: Files) -> Files:
        texts = {name: file.data.decode() for name, file in files.items() if name != KPTFILE}
        hands = {name: WRITTEN[change](text, clusters[number]).encode() for name, text in texts.items()}
        return {**files, **{name: File.of(data) for name, data in hands.items()}}

    updates = _updates(variants, cloned, trees, second, edit)
    together = render(updates)
    for update in updates:
        runs.clear()
        assert render([update]) == {update.variant.key: together[update.variant.key]}
        if change == "nothing" and isinstance(together[update.variant.key].fresh, Package):
            assert sum(runs) == 2


def _run_chart(files: Files, path: str) -> PipelineResult | None:
    """Return a package with the manifest of its chart, None for one without a chart to render."""
    if b"render-helm-chart" not in files[KPTFILE].data:
        return None
    host = re.search(r"configMap:\s*\{?\s*one: (.*?)\}?\n", files[KPTFILE].data.decode())
    text = files["charts/web/Chart.yaml"].data.decode().replace("VERSION", str(len(files)))
    filled = "# Source: web\n" + text.replace("HOST", host[1] if host else "none")
    named = path.replace("HOST", host[1].replace("/", "_") if host else "none")
    return PipelineResult({**files, named: File.of(filled.encode())})


@pytest.mark.parametrize("value", ["dev", "CLUSTER"])
def test_packages_of_a_chart_share_their_merge_where_a_value_is_in_the_words_of_kpt(value: str) -> None:
    """The environment `dev` is in `kpt.dev`, too. The old chart is rendered as in the run before."""
    old, new = (package({**CHART, "charts/web/Chart.yaml": TEMPLATES[0] + more}) for more in ("", "a: 1\n"))
    trees: dict[Oid, Files] = {tree_id(old): old, tree_id(new): new}
    merged: list[int] = []
    charts: list[Oid] = []

    def run(packages: Any) -> Any:
        is_chart = [b"render-helm-chart" in files[KPTFILE].data for files in packages]
        merged.append(is_chart.count(False))
        charts.extend(tree_id(f) for f, has_chart in zip(packages, is_chart, strict=True) if has_chart)
        return [_run_chart(files, "app.yaml") or run_pipeline(files) for files in packages]

    clusters = ["edge-1", "edge-10"]
    inventory = _registered(clusters)
    first, second = a_pin(1, tree=tree_id(old)), a_pin(2, tree=tree_id(new))
    variants = [_of_cluster(n, name, value, FUNCTIONS[6], first) for n, name in enumerate(clusters)]
    made = dict(render_packages(Resolution(tuple(variants)), trees, inventory, run).variants)
    updates = _updates(variants, made, trees, second)
    merged.clear()
    before = charts.copy()
    charts.clear()

    render_packages(Resolution(tuple(updates)), trees, inventory, run)

    assert {*before} < {*charts}
    assert max(merged) == 1


WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


@cache
def _words_of_the_program() -> list[str]:
    """Return every word that rendering may compare a text with, or search a file for."""
    code = PROJECT / "reconciler"
    paths = [
        path
        for each in ("render", "functions", "krm", "names", "api")
        for path in code.glob(f"{each}/**/*.py")
    ]
    nodes = [node for path in sorted(paths) for node in ast.walk(ast.parse(path.read_text()))]
    texts = {str(n.value) for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, (str, bytes))}
    return sorted(text for text in texts if WORD.fullmatch(text))


def _public_package(directory: Path) -> Files:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): File.of(path.read_bytes()) for path in files}


@pytest.mark.parametrize(
    "directory", parameters(((name_of(each), each) for each in inputs_of("nephio")), absent=ABSENT)
)
@given(data=st.data(), function=st.sampled_from(FUNCTIONS))
@settings(max_examples=settings().max_examples // 20)
def test_public_packages_of_many_repositories_are_those_rendered_alone(
    directory: Path, data: st.DataObject, function: tuple[str, str]
) -> None:
    """Repositories are called like words of the package, parts of them, and words of the program."""
    old, new = (_public_package(each) for each in [*revisions(directory), *revisions(directory)][:2])
    content = " ".join(file.data.decode(errors="replace") for file in old.values())
    words = sorted({part for word in WORD.findall(content) for part in (word, word[:-1], word[1:]) if part})
    odd = st.sampled_from(words) | st.sampled_from(_words_of_the_program()) | st.sampled_from(CLUSTERS)
    clusters = list(dict.fromkeys([*PLAIN[:2], *data.draw(st.lists(odd, min_size=1, max_size=3))]))
    inventory = _registered(clusters)
    trees = {tree_id(old): old, tree_id(new): new}
    first, second = a_pin(1, tree=tree_id(old)), a_pin(2, tree=tree_id(new))
    variants = [_of_cluster(n, name, "CLUSTER", function, first) for n, name in enumerate(clusters)]
    for _ in ("clone", "update"):
        together = _render(variants, _held(variants, trees), inventory)
        _check_alone(variants, together, lambda own: _render(own, trees, inventory))
        variants = _updates(variants, together, trees, second)


@pytest.mark.parametrize(
    ("clusters", "pipeline", "app", "rendered"),
    [
        pytest.param(PLAIN, PIPELINES[1], APPS[0], 1, id="plain names"),
        pytest.param([*PLAIN, "metadata", "app"], PIPELINES[1], APPS[0], 3, id="words of the package"),
        pytest.param(["on", "e5", "1e3"], PIPELINES[1], APPS[0], 3, id="what YAML may read otherwise"),
        pytest.param(["c08", *PLAIN[1:]], PIPELINES[3], APPS[5], 1, id="setters that are copied"),
        pytest.param(["c08", *PLAIN[1:]], PIPELINES[3], APPS[1], 1, id="setters take apart what is shared"),
        pytest.param(["c08", *PLAIN[1:]], PIPELINES[3], APPS[4], 4, id="setters take a value apart"),
        pytest.param(["c08", *PLAIN[1:]], PIPELINES[6], APPS[6], 1, id="all setters of a field"),
        pytest.param(PLAIN, PIPELINES[4], APPS[0], 3, id="a function that takes values apart"),
        pytest.param(PLAIN, PIPELINES[7], APPS[0], 1, id="replacements that copy"),
        pytest.param(PLAIN, PIPELINES[8], APPS[0], 1, id="no function runs beside one that cannot"),
    ],
)
def test_one_sample_is_rendered_where_values_are_only_copied(
    clusters: list[str], pipeline: str, app: str, rendered: int
) -> None:
    old = package({KPTFILE: HEADER + pipeline, "app.yaml": app, "r.yaml": REPLACEMENTS[0]})
    inventory = _registered(clusters)
    pin = a_pin(1, tree=tree_id(old))
    variants = [_of_cluster(n, name, "CLUSTER", FUNCTIONS[0], pin) for n, name in enumerate(clusters)]
    runs: list[int] = []

    def run(packages: Any) -> Any:
        runs.append(len(packages))
        return [run_pipeline(files) for files in packages]

    render_packages(Resolution(tuple(variants)), {tree_id(old): old}, inventory, run)

    assert sum(runs) == rendered

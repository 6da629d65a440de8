"""What packages of a fleet share while they are rendered changes no result."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE
from reconciler.api.porch import PackageVariantSpec
from reconciler.base.errors import Location
from reconciler.expand import DesiredVariant
from reconciler.inventory.inventory import Inventory, RepositoryView, Source
from reconciler.krm.yaml import PACKAGE_LIMITS, Tree, YamlError, load_documents
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, Files, tree_id
from reconciler.render.kptfile import kptfile_value
from reconciler.render.package import render_packages
from reconciler.render.rendered import Package, RenderedVariant
from reconciler.resolve.resolution import Resolution, ResolvedVariant
from tests.property.test_yaml_round_trip import PIECES, documents
from tests.support.model import package
from tests.support.plan_values import a_pin
from tests.support.sets import repository, snapshot, world
from tests.support.values import replace

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
    {"packageContext": {"data": {"region": "r-NUMBER", "where": "p1/NUMBER", "last": "NUMBER: x"}}},
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


def _views() -> tuple[RepositoryView, ...]:
    edge, lab = repository("edge"), repository("lab")
    spec = edge.manifest.spec.model_copy(update={"deployment": True})
    return replace(edge, manifest=edge.manifest.model_copy(update={"spec": spec})), lab


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
@settings(deadline=None)
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
        desired = DesiredVariant(key, "", PackageVariantSpec.model_validate_json(text), source)
        variants.append(ResolvedVariant(desired, view.key, PackageKey(view.url, name), first))
    cloned = _render(variants, trees, inventory)
    for variant in variants:
        assert _render([variant], trees, inventory) == {variant.variant.key: cloned[variant.variant.key]}

    updates = []
    for number, variant in enumerate(variants):
        fresh = cloned[variant.variant.key].fresh
        if isinstance(fresh, Package):
            local = _edited(fresh.files, hands if number != data.draw(st.integers(0, 9)) else {})
            trees[tree_id(local)] = local
            updates.append(replace(variant, base=first, pin=second, local=tree_id(local)))
    together = _render(updates, trees, inventory)
    for update in updates:
        assert _render([update], trees, inventory) == {update.variant.key: together[update.variant.key]}

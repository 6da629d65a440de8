"""Porch's own answers about PackageVariantSets: validation, unrolling, rendering, CEL, names, set diff."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from reconciler.api.meta import LabelSelector, ObjectMeta, SelectorError, compile_selector
from reconciler.api.porch import (
    PACKAGE_VARIANT_SET,
    REPOSITORY,
    PackageVariant,
    PackageVariantSet,
    PackageVariantSetSpec,
    Repository,
    Upstream,
    VariantTemplate,
)
from reconciler.base.errors import Location
from reconciler.cel import Environment, Failure
from reconciler.expand.checks import validate_set, validate_upstream, validate_variant
from reconciler.expand.expansion import expand
from reconciler.expand.findings import ExpansionError, joined
from reconciler.expand.owners import describe_missing, find_upstream
from reconciler.expand.targets import Context, SelectedObject, TargetScope, unroll
from reconciler.expand.template import Renderer, Scope, TemplateError, compile_template
from reconciler.expand.variants import variant_identifier, variant_name
from reconciler.inventory.inventory import (
    Commit,
    Control,
    Inventory,
    PackageRevision,
    PackageState,
    RepositoryView,
    Source,
    Sourced,
)
from reconciler.inventory.snapshot import Snapshot
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.plan.set_diff import diff_variants
from reconciler.policy import Limits, Policy
from reconciler.records.state import PackageVariantRecord
from tests.support.conformance import VARIABLE, Case, absence, cases_of, skip_absent, vectors
from tests.support.plan_values import a_record
from tests.support.porch_divergences import DOCUMENT, rule_of
from tests.support.sets import a_package

HERE = Source(Location("vector.yaml", 1))
COMMIT = Commit(Oid("0" * 40), 0)

INDEXED_CONVERSION = re.compile(r"\b(int|uint|double|bool|timestamp|duration)\(\w+(\.\w+)*\[")
PLACE = re.compile(r"ERROR: <input>:\d+:\d+: (.*?)(?: \(in container ''\))?$")

EXPRESSIONS = {
    """054 "repoDefault.matches('(')? 'a':'b'\"""": "invalid regular expression: missing ): (",
    """075 "target.labels['n'] + 1\"""": "unsupported type conversion from 'int' to string",
    "104 '1/0'": "unsupported type conversion from 'int' to string",
}
"""The messages of expressions that fail for another reason here than in cel-go, by the name of the case."""


def is_indexed_conversion(error: str | None, *texts: str) -> bool:
    """Return whether cel-go refuses a conversion of an indexed value, which works here."""
    is_refused = (error or "").rpartition(": ")[0].endswith("no such overload")
    return is_refused and any(map(INDEXED_CONVERSION.search, texts))


def names_other_revision(case: Case) -> bool:
    """Return whether Porch finds a revision that only one of revision and workspaceName names."""
    if case["expectedFound"] is None:
        return False
    found, upstream = case["packageRevisions"][case["expectedFound"]]["spec"], case["upstream"]
    given = [upstream.get(name) for name in ("revision", "workspaceName")]
    return all(given) and given != [found["revision"], found["workspaceName"]]


def message_of(text: str) -> str:
    """Return the first message of cel-go without its place; of a syntax error only that it is one."""
    first = text.partition("\n")[0]
    message = match[1] if (match := PLACE.match(first)) else first
    return "Syntax error" if message.startswith(("Syntax error", "unsupported syntax")) else message


def decode(model: Any, text: Any) -> Any:
    """Decode a manifest as Porch's decoder does: unknown fields and apiVersions are not its business."""
    data = yaml.safe_load(text) if isinstance(text, str) else text
    whole = {"apiVersion": "", "kind": "", **data} if "kind" in model.model_fields else data
    return model.model_validate(prune(whole, model))


def prune(data: Any, model: Any) -> Any:
    """Drop what the model does not know, wherever pydantic finds it."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        for *way, last in (e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"):
            node = data
            for step in way:
                node = node[step]
            node.pop(last, None)
    return data


def attempt(action: Callable[[], Any], *errors: type[Exception]) -> tuple[Any, str | None]:
    """Return what an action gives, or what its error says."""
    try:
        return action(), None
    except errors as error:
        return None, str(error)


def view(name: str, metadata: Mapping[str, Any] | None = None, **fields: Any) -> RepositoryView:
    """Return a registered Repository of the namespace `default`."""
    named = ObjectMeta.model_validate({**(metadata or {}), "name": name})
    manifest = Repository(api_version=REPOSITORY, kind="Repository", metadata=named)
    key = ObjectName("default", name)
    return RepositoryView(key, f"host/{name}", f"https://host/{name}", "main", "", manifest, HERE, **fields)


def metadata(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as expressions see it: missing labels and annotations act as empty."""
    plain = {key: found.get(key) or {} for key in ("labels", "annotations")}
    return {"name": found.get("name", ""), "namespace": found.get("namespace", ""), **plain}


def world(**fields: Any) -> Inventory:
    """Return an inventory with nothing but the given fields."""
    return Inventory(Policy(), Control("u", "u", COMMIT), **fields)


@pytest.mark.parametrize("case", vectors("porch", "PackageVariantValidation"))
def test_variant_validation(case: Case) -> None:
    findings = validate_variant(decode(PackageVariant, case["packageVariant"]).spec)

    assert [finding.message for finding in findings] == case["expectedErrors"]
    assert all(finding.hint for finding in findings)
    assert joined(findings) == (case.get("expectedCombined") or "")


@pytest.mark.parametrize("case", vectors("porch", "PackageVariantUpstreamValidation"))
def test_upstream_validation(case: Case) -> None:
    upstream = case["upstream"] and Upstream.model_validate(case["upstream"])
    given = Upstream() if case["upstream"] == {} else upstream

    assert [finding.message for finding in validate_upstream(given)] == case["expectedErrors"]
    if rule_of(case):
        assert given.revision == case["upstream"]["revision"] != case["expectedRevisionAfter"]


@pytest.mark.parametrize("case", vectors("porch", "PackageVariantSetValidation"))
def test_set_validation(case: Case) -> None:
    spec = decode(PackageVariantSet, case["packageVariantSet"]).spec

    assert [finding.message for finding in validate_set(spec)] == case["expectedErrors"]


@pytest.mark.parametrize("case", vectors("porch", "TargetUnrolling"))
def test_unrolling(case: Case) -> None:
    selected = [item for items in case["selectedObjects"].values() for item in items]
    repositories = {item["metadata"]["name"]: view(**{"name": "", **_named(item)}) for item in selected}
    spec = decode(PackageVariantSet, case["packageVariantSet"]).spec

    contexts = unroll(spec, TargetScope("default", repositories, Snapshot()))

    got = [
        {
            "repoDefault": context.repo_default,
            "packageDefault": context.package_default,
            "object": context.selected and context.selected.name,
        }
        for context in contexts
    ]
    assert got == case["expected"]


def _named(item: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(item["metadata"])
    return {"name": found.pop("name"), "metadata": found}


@pytest.mark.parametrize("case", vectors("porch", "PackageVariantSpecRendering"))
def test_rendering(case: Case) -> None:
    found = case["downstream"]
    template = found["template"]
    listed = yaml.safe_load(case["repositoryList"])["items"]
    repositories = {item["metadata"]["name"]: view(**_named(item)) for item in listed}
    spec = decode(PackageVariantSetSpec, case["packageVariantSet"]["spec"])
    given = found["object"] and SelectedObject(
        **metadata(found["object"]["metadata"]), location=HERE.location
    )
    compiled = None if template is None else VariantTemplate.model_validate(template)
    context = Context(("spec",), found["repoDefault"], found["packageDefault"], compiled, given)
    upstream = metadata(case["upstreamPackageRevision"]["metadata"])
    renderer = Renderer(spec.upstream, upstream, repositories, Environment(Limits()))

    rendered, error = attempt(lambda: renderer.render(context), ExpansionError)

    if case["expectedError"] is None or is_indexed_conversion(case["expectedError"], str(template)):
        assert error is None
        got = rendered.spec.model_dump(exclude_none=True)
        if case["expectedError"] is None:
            assert _without_empty(got) == _without_empty(case["expectedSpec"])
    else:
        assert error is not None
        field, _, message = error.partition(": ")
        porchs_field, _, porchs = case["expectedError"].partition(": ")
        assert (field, message_of(message)) == (porchs_field, message_of(porchs))


def _without_empty(spec: dict[str, Any]) -> dict[str, Any]:
    """Porch omits an empty package name on disk."""
    return {**spec, "downstream": {k: v for k, v in spec["downstream"].items() if v}}


@pytest.mark.parametrize("case", vectors("porch", "CelExpression"))
def test_expression(case: Case) -> None:
    got = Environment(Limits()).run(case["expr"], _inputs(case["inputs"]))

    if case["expectedError"] is None:
        assert got == case["expected"]
    elif is_indexed_conversion(case["expectedError"], case["expr"]):
        assert isinstance(got, str)
    else:
        assert isinstance(got, Failure)
        porchs = message_of(case["expectedError"])
        assert message_of(got.message) == EXPRESSIONS.get(case.name, porchs)
        assert EXPRESSIONS.get(case.name) != porchs


def _inputs(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {key: {} if inner is None else inner for key, inner in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in given.items()
        if value is not None
    }


@pytest.mark.parametrize("case", vectors("porch", "MapExpressionOverlay"))
def test_map_expressions(case: Case) -> None:
    expressions = Environment(Limits())
    template = VariantTemplate.model_validate({"labels": case["map"], "labelExprs": case["mapExprs"]})
    fields = dict(compile_template(template, expressions).fields)
    scope = Scope(expressions, expressions.bind(_inputs(case["inputs"])))

    got, error = attempt(lambda: fields["labels"](scope) if fields else None, TemplateError)

    assert (error is None) == (case["expectedError"] is None)
    assert got == case["expected"]


@pytest.mark.parametrize("case", vectors("porch", "PackageVariantName"))
def test_names(case: Case) -> None:
    identifier = variant_identifier(case["packageVariantSet"], case["repo"], case["package"])

    assert identifier == case["expectedIdentifier"]
    assert variant_name(identifier) == case["expectedName"]


@pytest.mark.parametrize("case", vectors("porch", "PvsUpstreamSelection"))
def test_upstream_selection(case: Case) -> None:
    upstream = Upstream.model_validate(case["upstream"])
    views = {r["spec"]["repository"]: _with_revisions(case, r["spec"]) for r in case["packageRevisions"]}

    got = find_upstream(upstream, views.get(upstream.repo or ""))

    if names_other_revision(case):
        assert got is None, "D9: both must name one revision"
    elif case["expectedFound"] is None:
        assert got is None
        assert describe_missing(upstream) == case["expectedError"]
    else:
        wanted = case["packageRevisions"][case["expectedFound"]]["spec"]
        parts = (wanted["repository"], wanted["packageName"], wanted["workspaceName"])
        assert got is not None
        assert got["name"] == ".".join(parts)


def _with_revisions(case: Case, spec: Mapping[str, Any]) -> RepositoryView:
    package = spec["packageName"]
    revisions = tuple(
        PackageRevision(
            package, s["workspaceName"], s.get("revision", 0), Lifecycle.PUBLISHED, "", COMMIT, COMMIT.oid
        )
        for s in (r["spec"] for r in case["packageRevisions"])
        if (s["repository"], s["packageName"]) == (spec["repository"], package)
    )
    return view(spec["repository"], packages={package: a_package(package, published=revisions)})


@pytest.mark.parametrize("case", vectors("porch", "LabelSelector"))
def test_label_selector(case: Case) -> None:
    selector = LabelSelector.model_validate(case["selector"])
    objects = [item["metadata"] for item in case["objects"]]

    matches, error = attempt(lambda: compile_selector(selector), SelectorError)

    assert error == case["expectedError"]
    if error is None:
        assert [o["name"] for o in objects if matches(o.get("labels") or {})] == case["expectedNames"]


@pytest.mark.parametrize("case", vectors("porch", "SetReconciliation"))
def test_set_reconciliation(case: Case) -> None:
    """The whole stage: downstreams are explicit repositories, existing ones are records."""
    name = case["packageVariantSet"]["metadata"]["name"]
    spec = {
        "upstream": {**case["packageVariantSet"]["spec"]["upstream"], "revision": 1},
        "targets": [
            {"repositories": [{"name": d["repoDefault"], "packageNames": [d["packageDefault"]]}]}
            for d in case["downstreams"]
        ],
    }
    manifest = PackageVariantSet.model_validate(
        {
            "apiVersion": PACKAGE_VARIANT_SET,
            "kind": "PackageVariantSet",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    up = PackageRevision("up", "v1", 1, Lifecycle.PUBLISHED, "refs/tags/up/v1", COMMIT, COMMIT.oid)
    views = [view("up", packages={"up": a_package("up", published=(up,))})]
    # The packages exist: a new one could not have the name of more than 63 characters that one case uses.
    views += [view(d["repoDefault"], packages=_existing(d["packageDefault"])) for d in case["downstreams"]]
    records = {r.key: r for r in map(_record(name), case["existingPackageVariants"])}
    inventory = world(
        sets=(Sourced(ObjectName("default", name), manifest, HERE),),
        repositories={v.key: v for v in views},
        records=records,
    )

    diff = diff_variants(expand(inventory), inventory)

    assert [c.key.name for c in diff.create] == sorted(case["expectedCreated"])
    assert [c.key.name for c in diff.update] == sorted(case["expectedUpdated"])
    assert [c.key.name for c in diff.delete] == sorted(case["expectedDeleted"])


def _existing(path: str) -> dict[str, PackageState]:
    return {path: a_package(path, main_tree=COMMIT.oid)}


def _record(set_name: str) -> Any:
    def record(found: Mapping[str, Any]) -> PackageVariantRecord:
        downstream = found["spec"]["downstream"]
        return a_record(
            namespace="default",
            name=found["metadata"]["name"],
            manifest=HERE.location.path,
            set_name=set_name,
            url=f"host/{downstream['repo']}",
            path=downstream["package"],
            repository=downstream["repo"],
            spec=found["spec"],
        )

    return record


def test_document_lists_every_case_with_another_answer() -> None:
    cases = cases_of("porch", "CelExpression", "PackageVariantSpecRendering", "PvsUpstreamSelection")
    if VARIABLE in os.environ:
        pytest.skip("the list is of the vectors beside the project")
    if not any(case.kind == "PvsUpstreamSelection" for case in cases):
        skip_absent(absence("of PackageVariantSets in porch/"))

    divergent = [(case.file.stem, case.name) for case in cases if has_other_answer(case)]

    rows = re.findall(r"^\| `([\w-]*pvs-[\w-]+)` \| (.+?) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(divergent)


def has_other_answer(case: Case) -> bool:
    if case.kind == "PvsUpstreamSelection":
        return names_other_revision(case)
    text = case.get("expr") or str(case["downstream"]["template"])
    return case.name in EXPRESSIONS or is_indexed_conversion(case["expectedError"], text)

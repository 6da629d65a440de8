"""Public libraries of policies and schemas through the judge: what they state of their objects, it answers.

`RECONCILER_ADMISSION_SUITES` names a folder with checkouts of kyverno/policies (`policies`),
open-policy-agent/gatekeeper-library, vap-library/vap-library, istio/istio, kubernetes-sigs/gateway-api and
crossplane/crossplane, each under the name of its repository. They are not copied here.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.admission.cluster import Cluster, identity_of
from reconciler.admission.defaults import items
from reconciler.admission.judge import Judge, ObjectChange
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot
from reconciler.krm.yaml import YamlError, load_documents
from reconciler.names.ids import GroupKind

Object = dict[str, Any]
SUITES = Path(os.environ.get("RECONCILER_ADMISSION_SUITES", ""))
ADMISSION = "admissionregistration.k8s.io/v1"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}


class Case(NamedTuple):
    """A request, what governs it, and whether the suite states that it is refused."""

    governing: Sequence[Object]
    old: Object | None
    new: Object | None
    is_refused: bool


def read(path: Path) -> list[Object]:
    try:
        return [d.value for d in load_documents(path.read_bytes()) if isinstance(d.value, dict)]
    except (YamlError, OSError):
        return []


def bound(name: str, spec: Mapping[str, Any], **binding: Any) -> list[Object]:
    """Return a policy with its binding."""
    kind, meta = "ValidatingAdmissionPolicy", {"name": name}
    body = {"policyName": name, "validationActions": ["Deny"], **binding}
    return [
        {"apiVersion": ADMISSION, "kind": kind, "metadata": meta, "spec": spec},
        {"apiVersion": ADMISSION, "kind": f"{kind}Binding", "metadata": meta, "spec": body},
    ]


def kyverno(root: Path) -> Iterator[Case]:
    """Yield the tests of policies in CEL, for objects and for Pods of workloads."""
    for path in sorted(root.rglob(".kyverno-test/kyverno-test.yaml")):
        for test in read(path):
            named = chain.from_iterable(read(path.parent / file) for file in test.get("policies") or ())
            policies = dict(chain.from_iterable(map(kyverno_policies, named)))
            objects = {
                (o["kind"], str(o["metadata"].get("name"))): o
                for file in test.get("resources") or ()
                for o in read(path.parent / file)
                if "metadata" in o
            }
            for result in test.get("results") or ():
                name = result.get("policy")
                policy = policies.get((name, result.get("rule"))) or policies.get((name, None))
                for resource in result.get("resources") or () if policy else ():
                    value = objects.get((result.get("kind"), str(resource).rpartition("/")[2]))
                    if value is not None and result.get("result") in ("pass", "fail"):
                        yield Case(policy or (), None, value, result["result"] == "fail")


def kyverno_policies(policy: Object) -> Iterator[tuple[tuple[str, str | None], list[Object]]]:
    name, spec = policy["metadata"].get("name"), policy.get("spec") or {}
    if policy["kind"] == "ValidatingPolicy":
        mode = (spec.get("evaluation") or {}).get("mode", "Kubernetes")
        if spec.get("matchConstraints") and mode == "Kubernetes":
            yield (name, None), bound(name, spec)
        return
    for rule in items(spec, "rules"):
        cel, matched = (rule.get("validate") or {}).get("cel"), rule.get("match") or {}
        resources = [r.get("resources") or {} for r in matched.get("any") or matched.get("all") or [matched]]
        if not cel or "paramKind" in cel or rule.get("exclude") or rule.get("preconditions"):
            continue
        if any(set(r) - {"kinds", "operations"} for r in resources):
            continue
        rules = [
            {
                **EVERYTHING,
                "operations": r.get("operations") or ["CREATE", "UPDATE"],
                "resources": [GroupKind("", kind.rpartition("/")[2]).plural for kind in r.get("kinds") or ()],
            }
            for r in resources
        ]
        body = {
            "matchConstraints": {"resourceRules": rules},
            "validations": cel.get("expressions") or [],
            "variables": cel.get("variables") or [],
            "matchConditions": rule.get("celPreconditions") or [],
        }
        yield (name, rule["name"]), bound(name, body)


def gatekeeper(root: Path) -> Iterator[Case]:
    """Yield the tests of templates in CEL; their constraints are parameters."""
    for path in sorted(root.rglob("suite.yaml")):
        for test in chain.from_iterable(suite.get("tests") or () for suite in read(path)):
            (template, *_), (constraint, *_) = (
                read(path.parent / test[k]) for k in ("template", "constraint")
            )
            engines = chain.from_iterable(
                items(target, "code") for target in items(template, "spec", "targets")
            )
            code = next((c["source"] for c in engines if c["engine"] == "K8sNativeValidation"), None)
            if code is None or test.get("skip"):
                continue
            kind = constraint["kind"]
            names = {"kind": kind, "plural": kind.lower()}
            group, _, version = constraint["apiVersion"].partition("/")
            crd = {"group": group, "scope": "Cluster", "names": names, "versions": [{"name": version}]}
            params = "!has(params.spec) || !has(params.spec.parameters) ? null : params.spec.parameters"
            variables = [
                {"name": "params", "expression": params},
                {"name": "anyObject", "expression": "request.operation == 'DELETE' ? oldObject : object"},
                *items(code, "variables"),
            ]
            spec = {
                **code,
                "variables": variables,
                "paramKind": {"apiVersion": constraint["apiVersion"], "kind": kind},
                "matchConstraints": {"resourceRules": [EVERYTHING]},
            }
            definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
            reference = {"name": constraint["metadata"]["name"], "parameterNotFoundAction": "Deny"}
            governing = [
                *bound(kind.lower(), spec, paramRef=reference),
                constraint,
                {**definition, "metadata": {"name": kind}, "spec": crd},
            ]
            for case in test.get("cases") or ():
                yield from gatekeeper_case(case, governing, path.parent)


def gatekeeper_case(case: Object, governing: Sequence[Object], folder: Path) -> Iterator[Case]:
    (new, *_), old = read(folder / case["object"]), None
    counts = [assertion.get("violations", "yes") for assertion in case.get("assertions") or ()]
    if new["kind"] == "AdmissionReview":
        request = new["request"]
        new, old = request.get("object"), request.get("oldObject")
        if request["operation"] != "CREATE":
            old = old or new
        new = None if request["operation"] == "DELETE" else new
    yield Case(governing, old, new, any(count not in ("no", 0, False) for count in counts))


APPLIED = re.compile(r"err :?= testutils\.Apply\w*FromYAML\(ctx, cfg, (.*?)\)\)?\n\s*if err (==|!=) nil")
TEXT = re.compile(r'(\w+)(?: string)? :?= (?:"(.*)"|`([^`]*)`)')


def vap_library(root: Path) -> Iterator[Case]:
    """Yield what the tests in Go apply, in their order; an applied parameter is there from then on."""
    for path in sorted(root.rglob("policy_test.go")):
        code, rules = path.read_text(), [*read(path.parent / "policy.yaml")]
        texts = {name: one or many for name, one, many in TEXT.findall(code)}
        bindings = []
        for rule in rules:
            reference = {"name": rule["metadata"]["name"], "parameterNotFoundAction": "Deny"}
            has_params = "paramKind" in rule["spec"]
            binding = {"paramRef": reference} if has_params else {}
            bindings += bound(rule["metadata"]["name"], rule["spec"], **binding)
        for function in code.split("\nfunc Test")[1:]:
            governing = [*bindings, *read(path.parent / "crd-parameter.yaml")]
            for call, sign in APPLIED.findall(function):
                words = [word.strip() for word in call.removeprefix("fmt.Sprintf(").split(",")]
                text = texts.get(words[0], "")
                for word in words[1:]:
                    literal = (
                        word.strip('"').replace("\\n", "\n") if word[:1] == '"' else texts.get(word, "shop")
                    )
                    text = text.replace("%s", literal, 1)
                try:
                    (value,) = (document.value for document in load_documents(text.encode()))
                except (YamlError, ValueError):
                    continue
                if value["kind"].endswith("Param"):
                    governing = [*governing, value]
                else:
                    yield Case(governing, None, value, sign == "==")


def gateway_api(root: Path) -> Iterator[Case]:
    """Yield the invalid examples, and the valid ones of its pages and tests, for their channels."""
    crds = {
        channel: [*chain.from_iterable(map(read, (root / f"config/crd/{channel}").glob("*.yaml")))]
        for channel in ("standard", "experimental")
    }
    for folder in "hack/invalid-examples", "examples", "conformance":
        for path in sorted((root / folder).rglob("*.yaml")):
            channel = "standard" if "/standard/" in str(path) else "experimental"
            for value in read(path):
                if "gateway.networking" in str(value.get("apiVersion")):
                    yield Case(crds[channel], None, value, folder == "hack/invalid-examples")


def istio(root: Path) -> Iterator[Case]:
    """Yield the examples of its definitions; an invalid one names its error."""
    crds = read(root / "manifests/charts/base/files/crd-all.gen.yaml")
    for path in sorted((root / "pkg/config/validation/testdata/crds").glob("*.yaml")):
        for value in read(path):
            is_refused = value.pop("_err", None) is not None
            yield Case(crds, None, value, is_refused)


NAMES = {"plural": "nets", "kind": "Net"}
XRD = {"group": "x.io", "scope": "Namespaced", "names": NAMES, "versions": [{"name": "v1", "served": True}]}
XRD["versions"][0]["referenceable"] = True  # type: ignore[index]
STEPS = [{"step": "a", "functionRef": {"name": "f"}}]
COMPOSITION = {
    "compositeTypeRef": {"apiVersion": "x.io/v1", "kind": "Net"},
    "mode": "Pipeline",
    "pipeline": STEPS,
}
MRD = {**XRD, "state": "Active", "versions": [{"name": "v1", "served": True, "storage": True}]}
CHANGES = (
    ("v2 CompositeResourceDefinition", XRD, {"scope": "Cluster"}, True),
    ("v2 CompositeResourceDefinition", XRD, {"group": "y.io"}, True),
    ("v2 CompositeResourceDefinition", XRD, {"names": {**NAMES, "kind": "Mesh"}}, True),
    ("v2 CompositeResourceDefinition", XRD, {"names": {**NAMES, "plural": "NETS"}}, True),
    ("v2 CompositeResourceDefinition", XRD, {"metadata": {"labels": {"a": "b"}}}, False),
    ("v1 CompositeResourceDefinition", {**XRD, "scope": "LegacyCluster"}, {"claimNames": NAMES}, False),
    ("v1 Composition", COMPOSITION, {"compositeTypeRef": {"apiVersion": "x.io/v2", "kind": "Net"}}, True),
    ("v1 Composition", COMPOSITION, {"pipeline": [{"step": "b", "functionRef": {"name": "g"}}]}, False),
    ("v1alpha1 ManagedResourceDefinition", MRD, {"state": "Inactive"}, True),
    ("v1alpha1 ManagedResourceDefinition", {**MRD, "state": "Inactive"}, {"state": "Active"}, False),
)


def crossplane(root: Path) -> Iterator[Case]:
    """Yield changes that its transition rules are for, and what its tests create; names tell invalid ones."""
    crds = [*chain.from_iterable(map(read, (root / "cluster/crds").glob("*.yaml")))]
    for named, spec, change, is_refused in CHANGES:
        version, kind = named.split()
        old = {
            "apiVersion": f"apiextensions.crossplane.io/{version}",
            "kind": kind,
            "metadata": {"name": "nets.x.io"},
        }
        old["spec"] = spec
        yield Case(crds, old, {**old, "spec": {**spec, **change}}, is_refused)
    for path in sorted((root / "test/e2e/manifests").rglob("*.yaml")):
        # Those of environments are of an older version.
        is_created = path.parent.name in ("setup", "validation") and "/environment/" not in str(path)
        for value in read(path) if is_created else ():
            if str(value.get("apiVersion")).partition("/")[0].endswith("crossplane.io"):
                name = value["metadata"].get("name", "")
                yield Case(crds, None, value, "invalid" in path.name or "invalid" in name)


def of_kind(by_kind: Mapping[str, Sequence[Object]], kind: GroupKind, _: bytes) -> Sequence[Object]:
    return by_kind.get(kind.kind, ())


@pytest.mark.skipif(not SUITES.name, reason="RECONCILER_ADMISSION_SUITES names no folder")
@pytest.mark.parametrize(
    ("name", "cases", "least", "unjudged", "different"),
    [
        ("policies", kyverno, 2700, 120, 0),
        ("gatekeeper-library", gatekeeper, 380, 50, 0),
        ("vap-library", vap_library, 640, 0, 0),
        # What ends in an error is not judged.
        ("istio", istio, 100, 4, 0),
        # Placeholders of its tests are no valid values: a server refuses them too.
        ("gateway-api", gateway_api, 500, 0, 3),
        # One is invalid for its controller alone.
        ("crossplane", crossplane, 100, 0, 1),
    ],
)  # fmt: skip
def test_verdicts_of_a_public_library_are_equal(
    name: str, cases: Any, least: int, unjudged: int, different: int
) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for case in cases(SUITES / name):
        value: Object = case.new or case.old or {}
        space = (value.get("metadata") or {}).get("namespace")
        spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}] if space else []
        by_kind: dict[str, list[Object]] = {}
        for item in (*case.governing, *spaces):
            by_kind.setdefault(str(item.get("kind")), []).append(item)
        defined = (crd["spec"] for crd in by_kind.get("CustomResourceDefinition", ()))
        complete = frozenset((GroupKind(s["group"], s["names"]["kind"]), ALL_NAMESPACES) for s in defined)
        cluster = Cluster("c", Snapshot(present=True, complete=complete), read_main=partial(of_kind, by_kind))
        found = {str(j.verdict) for j in Judge(cluster).judge(ObjectChange(case.old, case.new))}
        if "refused" not in found and "not judged" in found:
            counts["not judged"] += 1
        elif ("refused" in found) == case.is_refused:
            counts["equal"] += 1
        else:
            wrong.append((identity_of(value), case.is_refused))
    print(name, dict(counts), "different", len(wrong), wrong[:5])

    assert len(wrong) <= different, wrong[:20]
    assert counts["equal"] >= least
    assert counts["not judged"] <= unjudged

"""What an object of a manifest file is: a manifest, a stalled owner, foreign, or of uncertain identity."""

from typing import Any

import pytest

from reconciler.names.ids import ObjectKey
from reconciler.policy import Limits, Policy
from reconciler.read.files import parse_file, yaml_limits
from reconciler.read.manifests import Classification, classify_broken, classify_object

PORCH = "config.porch.kpt.dev"
VARIANT = f"apiVersion: {PORCH}/v1alpha1\nkind: PackageVariant\n"
NAMED = "metadata: {name: web}\n"
UPSTREAM = "upstream: {repo: b, package: w}"
SIDES = f"{UPSTREAM}, downstream: {{repo: e, package: p}}"
SPEC = f"spec: {{{SIDES}}}\n"


def classified(text: str) -> Classification:
    """Classify the only object of a file, with `team` as the namespace of those without."""
    content = parse_file("f.yaml", text.encode(), yaml_limits(Limits()))
    if content.broken:
        (broken,) = content.broken
        return classify_broken(broken, "f.yaml", "team")
    (parsed,) = content.objects
    return classify_object(parsed, Policy(default_namespace="team"))


def key(namespace: str = "team", kind: str = "PackageVariant") -> ObjectKey:
    return ObjectKey(PORCH, kind, namespace, "web")


CASES: dict[str, tuple[Any, ...]] = {
    "a manifest": (f"{VARIANT}{NAMED}spec: {{}}\n", key()),
    "in a namespace": (f"{VARIANT}metadata: {{name: web, namespace: a}}\nspec: {{}}\n", key("a")),
    "with a status": (f"{VARIANT}{NAMED}spec: {{}}\nstatus: odd\n", key()),
    "an unknown field, with its downstream": (
        f"{VARIANT}{NAMED}spec: {{downstream: {{repo: e, package: p}}, upstrem: {{repo: b, package: w}}}}\n",
        key(),
        "4:43 UnknownField: Unknown field spec.upstrem | Did you mean upstream?",
        ("e", "p"),
    ),
    "a wrong type in its downstream": (
        f"{VARIANT}{NAMED}spec: {{downstream: {{repo: [e], package: p}}, {UPSTREAM}}}\n",
        key(),
        "4:27 InvalidManifest: spec.downstream.repo must be a string, but is a list",
    ),
    "a wrong type instead of its downstream": (
        f"{VARIANT}{NAMED}spec: {{downstream: [e], upstream: {{repo: b, package: w}}}}\n",
        key(),
        "4:20 InvalidManifest: spec.downstream must be a mapping, but is a list",
    ),
    "an unknown annotation of ours": (
        f"{VARIANT}metadata:\n  name: web\n  annotations: {{reconciler.dev/pausd: 'true'}}\n{SPEC}",
        key(),
        (
            "5:17 UnknownAnnotation: reconciler.dev/pausd is unknown on a PackageVariant"
            " | Did you mean reconciler.dev/paused?"
        ),
        ("e", "p"),
    ),
    "no name": (f"{VARIANT}{SPEC}", None,
        "1:1 MissingField: Missing required field metadata.name | Give it a name."),
    "a generated name": (f"{VARIANT}metadata: {{generateName: w}}\n{SPEC}", None,
        ("3:11 MissingField: Missing required field metadata.name"
        " | Give it a name; generateName is not enough.")),
    "a name that Kubernetes refuses": (f"{VARIANT}metadata: {{name: W}}\n{SPEC}", None,
        ("3:18 InvalidName: metadata.name 'W' is not a valid Kubernetes name"
        " | Use lower-case letters, digits and dashes, and start and end with a letter or digit.")),
    "a name that is no text": (f"{VARIANT}metadata: {{name: 5}}\n{SPEC}", None,
        ("3:18 InvalidManifest: metadata.name must be a string, but is the number 5"
        " | Put it in quotes, as it is written: without them it is a number.")),
    "a name that YAML reads as a boolean": (f"{VARIANT}metadata: {{name: n}}\n{SPEC}", None,
        ("3:18 InvalidManifest: metadata.name must be a string, but is the boolean false"
        " | Put it in quotes: without them y, n, yes, no, on, off, true and false are booleans.")),
    "metadata of another type": (f"{VARIANT}metadata: [web]\n{SPEC}", None,
        "3:11 InvalidManifest: metadata must be a mapping, but is a list"),
    "a namespace that Kubernetes refuses": (f"{VARIANT}metadata: {{name: web, namespace: a.b}}\n{SPEC}",
        None, ("3:34 InvalidName: metadata.namespace 'a.b' is not a valid Kubernetes name"
        " | Use lower-case letters, digits and dashes, and start and end with a letter or digit.")),
    "another version": (f"apiVersion: {PORCH}/v1alpha2\nkind: PackageVariant\n{NAMED}{SPEC}", key(),
        (f"1:13 UnsupportedVersion: PackageVariant {PORCH}/v1alpha2 is not supported; {PORCH}/v1alpha1 is"
        f" | Use apiVersion: {PORCH}/v1alpha1."), ("e", "p")),
    "a misspelt kind": (f"apiVersion: {PORCH}/v1alpha1\nkind: PackageVariants\n{NAMED}{SPEC}", key(),
        (f"2:7 UnknownKind: Unknown kind PackageVariants of {PORCH} | Did you mean PackageVariant?"),
        ("e", "p")),
    "an unknown kind of our group": (f"apiVersion: {PORCH}/v1alpha1\nkind: Zebra\n{NAMED}", None,
        (f"2:7 UnknownKind: Unknown kind Zebra of {PORCH}"
        " | Known here: PackageVariant, PackageVariantSet, Repository.")),
    "a kind that is ours alone in another group": (
        f"apiVersion: other.dev/v1\nkind: PackageVariant\n{NAMED}{SPEC}",
        key(),
        (
            "1:13 UnknownGroup: Unknown API group other.dev of kind PackageVariant"
            f" | Use apiVersion: {PORCH}/v1alpha1."
        ),
        ("e", "p"),
    ),
    "a misspelt group of a common kind": (
        f"apiVersion: config.porch.ktp.dev/v1alpha1\nkind: Repository\n{NAMED}",
        key(kind="Repository"),
        (
            "1:13 UnknownGroup: Unknown API group config.porch.ktp.dev of kind Repository"
            f" | Use apiVersion: {PORCH}/v1alpha1."
        ),
    ),
    "a kind of ours without an apiVersion": (f"kind: PackageVariant\n{NAMED}{SPEC}", key(),
        (f"1:1 MissingField: Missing required field apiVersion | Add apiVersion: {PORCH}/v1alpha1."),
        ("e", "p")),
    "an apiVersion of ours without a kind": (f"apiVersion: {PORCH}/v1alpha1\n{NAMED}", None,
        ("1:1 MissingField: Missing required field kind"
        " | Add the kind, one of PackageVariant, PackageVariantSet, Repository.")),
    "a misspelt kind without an apiVersion": (f"kind: PackageVarient\n{NAMED}{SPEC}", key(),
        ("1:1 MissingField: Missing required field apiVersion"
        f" | Add apiVersion: {PORCH}/v1alpha1 and kind: PackageVariant."), ("e", "p")),
    "a misspelt kind in a misspelt group": (
        f"apiVersion: config.porch.ktp.dev/v1alpha1\nkind: PackageVarient\n{NAMED}{SPEC}",
        key(),
        (
            "1:13 UnknownGroup: Unknown API group config.porch.ktp.dev of kind PackageVarient"
            f" | Use apiVersion: {PORCH}/v1alpha1 and kind: PackageVariant."
        ),
        ("e", "p"),
    ),
    "a text": ("text\n", None, ("1 InvalidManifest: This is not a Kubernetes object, but the text 'text'"
        " | Start the manifest with apiVersion, kind and metadata.")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_object_of_ours_is_a_manifest_or_stalls_with_its_fault(case: tuple[Any, ...]) -> None:
    """A case has a text, the key of its object, its fault with a hint, and the package that it claims."""
    text, owner, fault, claim = (*case, *("", None)[len(case) - 2 :])
    found = classified(text)

    faults = [
        f"{str(p.location).removeprefix('f.yaml:')} {p.reason}: {p.message}{' | ' * bool(p.hint)}{p.hint}"
        for p in found.problems
    ]
    assert faults == ([fault] if fault else [])
    assert (found.key, found.claim) == (owner, claim)
    assert (found.manifest is not None) is (not fault)
    # What has no certain identity may be any object of its file.
    assert found.broken == ("" if owner else "f.yaml")
    assert {p.subject for p in found.problems} <= {owner.subject if owner else ""}
    assert (found.foreign, found.document) == ("", None)


@pytest.mark.parametrize(
    ("text", "foreign", "broken"),
    [
        (f"apiVersion: {PORCH}/v1alpha1\nkind: PackageRev\n{NAMED}", f"PackageRev.{PORCH}", ""),
        (f"apiVersion: source.dev/v1\nkind: Repository\n{NAMED}", "Repository.source.dev", ""),
        ("apiVersion: v1\nkind: ConfigMap\n", "ConfigMap", ""),
        *(
            (f"apiVersion: {group}/v1alpha1\nkind: {kind}\n{NAMED}", f"{kind}.{group}", "")
            for group, kind in (("porch.kpt.dev", "PackageRevision"), (PORCH, "FunctionConfig"))
        ),
        (f"kind: Thing\n{NAMED}", "(no kind)", "f.yaml"),
        (f"apiVersion: v1\n{NAMED}", "(no kind)", "f.yaml"),
        (f"apiVersion: v1\nkind: 5\n{NAMED}", "(no kind)", "f.yaml"),
        (f"apiVersion: 5\nkind: Thing\n{NAMED}", "(no kind)", "f.yaml"),
        ("a: 1\n", "(no kind)", "f.yaml"),
        ("- a\n", "(a list)", "f.yaml"),
    ],
)
def test_foreign_object_is_noted_and_one_without_a_kind_keeps_its_file(text, foreign, broken) -> None:
    assert classified(text) == Classification(foreign=foreign, broken=broken)


PORTER = "schemaVersion: 1.0.2\nname: a\nbundle: {repository: x}\n"


@pytest.mark.parametrize(
    ("text", "schema_type"),
    [
        (PORTER, "Installation"),
        (f"{PORTER}namespace: dev\n", "Installation"),
        ("schemaType: Installation\nname: a\n", "Installation"),
        (f"kind: Thing\n{PORTER}", None),
        (f"apiVersion: v1\n{PORTER}", None),
        ("schemaVersion: 1.0.2\nname: a\n", None),
        ("name: a\nbundle: {repository: x}\n", None),
    ],
)
def test_installation_may_lack_its_type(text: str, schema_type: str | None) -> None:
    document = classified(text).document

    assert (document and document.value["schemaType"]) == schema_type


ITEM = f"apiVersion: {PORCH}/v1alpha1, kind: PackageVariant, {NAMED}".strip()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"- {{{ITEM}}}\n", "1:3"),
        ("- a: 1\n- {apiVersion: pkg.crossplane.io/v1, kind: Provider, metadata: {name: a}}\n", "2:3"),
        (f"apiVersion: v1\nkind: Lst\nitems:\n- {{{ITEM}}}\n", "4:3"),
        (f"apiVersion: v1\nkind: List\nitmes:\n- {{{ITEM}}}\n", "4:3"),
        (f"apiVersion: v1\nkind: List\nitems: {{a: {{{ITEM}}}}}\n", "3:12"),
        (
            f"apiVersion: v1\nkind: List\nitems:\n- {{kind: List, apiVersion: v1, items: [{{{ITEM}}}]}}\n",
            "4:40",
        ),
    ],
)
def test_object_of_ours_where_nothing_reads_it_is_an_error_and_keeps_its_file(text: str, line: str) -> None:
    found = classified(text)

    (problem,) = found.problems
    assert str(problem.location) == f"f.yaml:{line}"
    assert problem.message == "Nothing reads the object here"
    assert found.broken == "f.yaml"


@pytest.mark.parametrize("field", ["spec", "items"])
def test_object_inside_one_of_another_api_is_of_that_api(field: str) -> None:
    text = f"apiVersion: example.com/v1\nkind: Template\n{field}: [{{{ITEM}}}]\n"
    assert classified(text) == Classification(foreign="Template.example.com")


@pytest.mark.parametrize(
    ("group", "meant"),
    [("pkg.crosplane.io", "pkg.crossplane.io"), ("data.packging.carvel.dev", "data.packaging.carvel.dev")],
)
def test_misspelt_group_of_a_dependency_dialect_is_an_error_and_keeps_its_file(group, meant) -> None:
    found = classified(f"apiVersion: {group}/v1\nkind: Provider\n{NAMED}")

    (problem,) = found.problems
    assert str(problem.location) == "f.yaml:1:13"
    assert problem.message == f"Unknown API group {group} of kind Provider"
    assert problem.hint == f"Did you mean {meant}?"
    assert found.broken == "f.yaml"


@pytest.mark.parametrize("group", ["ops.crossplane.io", "pkg.crossplane.example.com", "carvel.dev"])
def test_neighbour_of_a_dependency_dialect_is_foreign(group: str) -> None:
    assert classified(f"apiVersion: {group}/v1\nkind: X\n").foreign == f"X.{group}"

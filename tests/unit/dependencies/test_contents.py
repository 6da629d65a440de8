"""What a package brings: the kinds of its CRDs, those that its XRDs imply, and its compositions."""

from typing import Any

from reconciler.dependencies.catalog.index import composition_names, provided_kinds

XRD: dict[str, Any] = {
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "xnetworks.x.io"},
    "spec": {"group": "x.io", "names": {"kind": "XNetwork", "plural": "xnetworks"},
        "claimNames": {"kind": "Network", "plural": "networks"},
        "versions": [{"name": "v1", "served": True}, {"name": "v2", "served": False}]},
}  # fmt: skip
DEFINITION: dict[str, Any] = {
    "kind": "InfrastructureDefinition",
    "metadata": {"name": "databases.x.io"},
    "spec": {
        "crdSpecTemplate": {
            "group": "x.io",
            "version": "v1alpha1",
            "names": {"kind": "Database", "plural": "databases"},
        }
    },
}
PUBLICATION: dict[str, Any] = {
    "kind": "InfrastructurePublication",
    "metadata": {"name": "databases.x.io"},
    "spec": {"infrastructureDefinitionRef": {"name": "databases.x.io"}},
}

CRD: dict[str, Any] = {
    "kind": "CustomResourceDefinition",
    "spec": {"group": "x.io", "names": {"kind": "Bucket", "plural": "buckets"},
        "versions": [{"name": "v1", "served": True}]},
}  # fmt: skip
COMPOSITION: dict[str, Any] = {"kind": "Composition", "metadata": {"name": "small"}}


def versioned(*objects: dict[str, Any]) -> set[str]:
    return {str(gvk) for gvk in provided_kinds(objects) if gvk.version}


def test_a_package_has_the_kinds_of_its_definitions_and_publications_and_its_compositions() -> None:
    contents = [COMPOSITION, PUBLICATION, CRD, DEFINITION, XRD]

    assert versioned(*contents) == {
        "x.io/v1/Bucket",
        "x.io/v1/XNetwork",
        "x.io/v1/Network",
        "x.io/v1alpha1/Database",
        "x.io/v1alpha1/DatabaseRequirement",
    }
    assert composition_names(contents) == {"small"}


def test_definitions_and_publications_of_the_design_bring_kinds_too() -> None:
    assert versioned(DEFINITION) == {"x.io/v1alpha1/Database"}
    assert versioned(PUBLICATION, DEFINITION) == {
        "x.io/v1alpha1/Database",
        "x.io/v1alpha1/DatabaseRequirement",
    }
    other = {**PUBLICATION, "spec": {"infrastructureDefinitionRef": {"name": "queues.x.io"}}}
    assert versioned(DEFINITION, other) == {"x.io/v1alpha1/Database"}

"""Exports of kubectl become manifests: what a cluster added is gone, what has no equivalent is told."""

from typing import Any

import pytest

from reconciler.base.errors import ConfigurationError
from reconciler.krm.yaml import emit, load_documents
from reconciler.workdir.porch_export import convert_export

API = "config.porch.kpt.dev/v1alpha1"


def exported(kind: str, name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an object as `kubectl get -o yaml` prints it."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["config.porch.kpt.dev/packagevariants"],
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        **more.pop("metadata", {}),
    }
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec, **more}


def variant(name: str, **more: Any) -> dict[str, Any]:
    spec = {
        "upstream": {"repo": "blueprints", "package": "web", "revision": 1},
        "downstream": {"repo": "edge", "package": name},
        **more.pop("spec", {}),
    }
    return exported("PackageVariant", name, spec, **more)


def package_set(name: str, **more: Any) -> dict[str, Any]:
    spec = {
        "upstream": {"repo": "blueprints", "package": "web", "revision": 1},
        "targets": [{"repositories": [{"name": "edge"}]}],
    }
    return {
        **exported("PackageVariantSet", name, spec, **more),
        "apiVersion": API.replace("alpha1", "alpha2"),
    }


def git_repository(name: str, **more: Any) -> dict[str, Any]:
    spec = {"type": "git", "git": {"repo": f"https://git.example/{name}.git", "branch": "main"}, **more}
    return exported("Repository", name, spec)


def convert(*objects: dict[str, Any]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the converted manifests by kind, and the notes, apart from those of Repositories to register."""
    conversion = convert_export({"porch.yaml": f"{emit(listed(*objects))}\n".encode()})
    values = {
        kind: [document.value for document in load_documents(text.encode())]
        for kind, text in conversion.manifests.items()
    }
    return values, [line for line in conversion.lines() if "reconciler repo add" not in line]


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(objects)}


@pytest.mark.parametrize(
    "metadata",
    [
        {
            "ownerReferences": [
                {"apiVersion": API, "kind": "PackageVariantSet", "name": "all", "uid": "uid-all"}
            ]
        },
        {"labels": {"config.porch.kpt.dev/packagevariantset": "uid-all"}},
    ],
    ids=["reference", "label"],
)
def test_variants_of_a_set_are_left_to_the_set(metadata: dict[str, Any]) -> None:
    values, notes = convert(package_set("all"), variant("web", metadata=metadata))

    assert values.keys() == {"PackageVariantSet"}
    (target,) = values["PackageVariantSet"][0]["spec"]["targets"]
    assert target["template"] == {"adoptionPolicy": "adoptExisting"}
    assert "PackageVariantSet default/all: 1 PackageVariant of a set is left out: the set makes them" in notes

    alone, _ = convert(variant("web", metadata=metadata))
    assert alone.keys() == {"PackageVariant"}, "without its set it is converted"


def test_set_of_which_no_variant_exists_keeps_its_policy() -> None:
    values, notes = convert(package_set("all"))

    assert "template" not in values["PackageVariantSet"][0]["spec"]["targets"][0]
    assert notes == []


def test_set_of_the_first_version_is_translated() -> None:
    old = exported(
        "PackageVariantSet",
        "old",
        {
            "upstream": {"package": {"repo": "blueprints", "name": "web"}, "revision": "v2"},
            "targets": [{"package": {"repo": "edge", "name": "web"}}],
        },
    )
    values, _ = convert(old)

    (value,) = values["PackageVariantSet"]
    assert value["apiVersion"] == API.replace("alpha1", "alpha2")
    assert value["spec"]["upstream"] == {"repo": "blueprints", "package": "web", "revision": 2}


REPOSITORY_FIELDS = [
    ({"git": {"repo": "x", "secretRef": {"name": "auth"}}}, "credentials come from the environment"),
    ({"sync": {"schedule": "*/10 * * * *"}}, "repositories are read by every run"),
    ({"mutators": [{"image": "set-labels"}]}, "no equivalent: write functions into Kptfiles"),
    ({"upstream": {"name": "x"}}, "no equivalent: name the upstream in a PackageVariant"),
    ({"mystery": True}, "spec.mystery is left out (it has no equivalent)"),
]


@pytest.mark.parametrize(("spec", "note"), REPOSITORY_FIELDS, ids=lambda value: next(iter(value)))
def test_field_without_an_equivalent_is_told_and_gone(spec: dict[str, Any], note: str) -> None:
    values, notes = convert(git_repository("edge", **spec))

    (value,) = values["Repository"]
    assert value["spec"].keys() <= {"type", "git"}
    assert "secretRef" not in value["spec"]["git"]
    assert [line for line in notes if note in line] == notes
    assert len(notes) == 1
    assert notes[0].startswith("Repository default/edge: ")


def test_objects_that_are_no_manifests_are_told_once_for_each_kind() -> None:
    revisions = [
        exported("PackageRevision", f"r{n}", {}) | {"apiVersion": "porch.kpt.dev/v1alpha1"} for n in (1, 2)
    ]
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    oci = git_repository("images", type="oci")

    values, notes = convert(variant("web"), *revisions, other, other, oci)

    assert values.keys() == {"PackageVariant"}
    assert notes == [
        "every PackageRevision: left out, what it describes is in Git, and is read there",
        "every ConfigMap: left out, not of Porch: `reconciler snapshot import` takes what sets select",
        "Repository default/images: left out, only Git repositories are read",
    ]


FOLLOWED = "(that is what Porch calls the head of the branch; each change of the package on it is proposed)"
NAMES = "(numbers are revisions, names are workspaces)"
UPSTREAMS = [
    ({"revision": -1}, {"branch": "main"}, f"revision: -1 -> branch: main {FOLLOWED}"),
    ({"revision": "main"}, {"branch": "main"}, f"revision: main -> branch: main {FOLLOWED}"),
    ({"workspaceName": "main"}, {"branch": "main"}, f"workspaceName: main -> branch: main {FOLLOWED}"),
    (
        {"revision": -1, "workspaceName": "v2"},
        {"workspaceName": "v2"},
        "revision: -1 is left out (Porch ignores it beside a workspaceName)",
    ),
    (
        {"revision": "v1.2.0"},
        {"workspaceName": "v1.2.0"},
        f"revision: v1.2.0 -> workspaceName: v1.2.0 {NAMES}",
    ),
    (
        {"revision": "^1.2"},
        {"version": "^1.2"},
        "revision: ^1.2 -> version: ^1.2 (it is a range of versions)",
    ),
    ({"revision": "v3"}, {"revision": "v3"}, ""),
    ({"workspaceName": "wip"}, {"workspaceName": "wip"}, ""),
]


@pytest.mark.parametrize(("written", "meant", "note"), UPSTREAMS)
def test_upstreams_are_written_as_they_are_called_here(
    written: dict[str, Any], meant: dict[str, Any], note: str
) -> None:
    values, notes = convert(
        git_repository("blueprints"),
        variant("web", spec={"upstream": {"repo": "blueprints", "package": "web", **written}}),
    )

    (value,) = values["PackageVariant"]
    assert value["spec"]["upstream"] == {"repo": "blueprints", "package": "web", **meant}
    assert notes == ([f"PackageVariant default/web: spec.upstream.{note}"] if note else [])


def test_file_that_is_no_yaml_and_objects_of_one_name_are_told() -> None:
    one, other = variant("web"), variant("web", spec={"adoptionPolicy": "adoptExisting"})
    files = {"a.yaml": one, "b.yaml": one, "c.yaml": other}
    exports = {name: f"{emit(value)}\n".encode() for name, value in files.items()} | {"d.yaml": b"a: [\n"}

    notes = [line for line in convert_export(exports).lines() if "repo add" not in line]

    assert notes[0].startswith("d.yaml: left out, it is not YAML: line 2")
    assert notes[1:] == [
        "PackageVariant default/web: the one of c.yaml is left out (that of a.yaml has the same name)"
    ]


def test_lists_of_one_kind_and_several_documents_are_read() -> None:
    typed = {"kind": "RepositoryList", "apiVersion": API, "items": [{"metadata": {"name": "a"}, "spec": {}}]}
    data = f"{emit(typed)}\n---\n{emit(variant('web'))}\n".encode()

    assert convert_export({"a": data}).manifests.keys() == {"Repository", "PackageVariant"}


@pytest.mark.parametrize("data", [b"", b"kind: List\napiVersion: v1\nitems: []\n", b"- a\n", b"a: [\n"])
def test_file_without_such_objects_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError) as caught:
        convert_export({"porch.yaml": data})

    assert "porch.yaml" in str(caught.value)

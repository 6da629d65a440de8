"""generate-folders and enable-gcp-services: what they make of the lists in a package."""

from collections.abc import Mapping

import pytest

from reconciler.functions.pipeline import run_steps
from reconciler.functions.step import PipelineResult, Stage, Step
from reconciler.names.objects import File, Files
from reconciler.policy import FunctionPolicy

HIERARCHY = """\
apiVersion: {api}
kind: ResourceHierarchy
metadata:
  name: tree
  namespace: hierarchy
  annotations:
    config.kubernetes.io/local-config: "true"
    team: infra
spec:
{spec}"""
CURRENT = "blueprints.cloud.google.com/v1alpha3"
CONFIG = """\
  parentRef:
    kind: Organization
    external: 123
  subtrees:
    teams:
    - Team "One"
    - Team_2
  config:
  - Dev:
      $subtree: teams
  - Prod:
    - web
  - Empty
"""


def run(function: str, files: Mapping[str, str]) -> PipelineResult:
    given = {path: File.of(text.encode()) for path, text in files.items()}
    return run_steps(given, [Step("", Stage.MUTATORS, 0, image=function)], [], FunctionPolicy())


def texts(files: Files, end: str = "") -> dict[str, str]:
    return {path: file.data.decode() for path, file in files.items() if end in path}


def folders(api: str, spec: str, **more: str) -> dict[str, str]:
    given = {"h.yaml": HIERARCHY.format(api=api, spec=spec), **more}
    result = run("generate-folders:v0.1", given)
    assert result.error == ""
    again = run("generate-folders:v0.1", texts(result.files))
    assert texts(again.files) == texts(result.files), "a second run changes nothing"
    assert result.files["h.yaml"].data.decode() == given["h.yaml"]
    return texts(result.files, "folder_")


def folder(name: str, display: str, annotation: str, reference: str) -> str:
    return f"""\
apiVersion: resourcemanager.cnrm.cloud.google.com/v1beta1
kind: Folder
metadata:
  name: {name}
  annotations:
    team: infra
{annotation}  namespace: hierarchy
spec:
  displayName: {display}
{reference}"""


def test_folders_of_the_current_version_refer_to_their_parents() -> None:
    made = folders(CURRENT, CONFIG)

    inside = "  folderRef:\n    name: dev\n"
    at_root = '  organizationRef:\n    external: "123"\n'
    assert made["hierarchy/folder_dev.yaml"] == folder("dev", "Dev", "", at_root)
    assert made["hierarchy/folder_dev.team-one.yaml"] == folder("dev.team-one", 'Team "One"', "", inside)
    assert sorted(made) == [
        f"hierarchy/folder_{name}.yaml"
        for name in ("dev.team-2", "dev.team-one", "dev", "empty", "prod.web", "prod")
    ]


def test_folders_of_an_older_version_are_annotated() -> None:
    made = folders("cft.dev/v1alpha2", CONFIG.replace("Organization", "Folder"))

    mark = "    cnrm.cloud.google.com/folder-ref: {}\n"
    assert made["hierarchy/folder_dev.yaml"] == folder("dev", "Dev", mark.format('"123"'), "")
    assert made["hierarchy/folder_prod.web.yaml"] == folder("prod.web", "web", mark.format("prod"), "")


def test_folders_of_layers() -> None:
    spec = "  organization: 5\n  layers: [a, b]\n  config:\n    a: [x, w]\n    b: [z]\n"

    made = folders("cft.dev/v1alpha1", spec)

    assert sorted(made) == [f"hierarchy/folder_{name}.yaml" for name in ("w", "w.z", "x", "x.z")]
    assert 'cnrm.cloud.google.com/organization-id: "5"' in made["hierarchy/folder_x.yaml"]
    assert "cnrm.cloud.google.com/folder-ref: x\n" in made["hierarchy/folder_x.z.yaml"]
    assert "team" not in made["hierarchy/folder_x.yaml"], "the oldest version inherits no annotations"


def test_a_folder_that_is_there_keeps_its_file() -> None:
    there = "# Ours.\napiVersion: resourcemanager.cnrm.cloud.google.com/v1beta1\nkind: Folder\n"
    there += "metadata:\n  name: empty\n  namespace: hierarchy\nspec:\n  displayName: old\n"

    made = run(
        "generate-folders:v0.1", {"h.yaml": HIERARCHY.format(api=CURRENT, spec=CONFIG), "f.yaml": there}
    )

    assert "hierarchy/folder_empty.yaml" not in made.files
    assert made.files["f.yaml"].data.startswith(b"# Ours.\n")
    assert b"displayName: Empty\n" in made.files["f.yaml"].data


@pytest.mark.parametrize(
    ("api", "old", "new", "error"),
    [
        (CURRENT, "    external: 123\n", "", "has an undefined parentRef"),
        (CURRENT, "Organization", "Project", "has an unsupported parentRef kind"),
        (CURRENT, "$subtree: teams", "$subtree: none", 'references non-existent subtree "none"'),
        (CURRENT, "  - Empty\n", "  - 5\n", "has the folder 5"),
        (CURRENT, "    - web\n", "      web: {}\n", "has folders that are no list"),
        ("cft.dev/v1alpha1", CONFIG, "  layers: [a]\n  config: {}\n", 'Layer "a" of ResourceHierarchy tree'),
    ],
)
def test_hierarchy_that_is_wrong_changes_nothing(api: str, old: str, new: str, error: str) -> None:
    given = {"h.yaml": HIERARCHY.format(api=api, spec=CONFIG.replace(old, new))}

    result = run("generate-folders:v0.1", given)

    assert error in result.error
    assert texts(result.files) == given


SERVICES = """\
apiVersion: blueprints.cloud.google.com/v1alpha1
kind: ProjectServiceSet
metadata:
  name: proj1-service
  namespace: projects
  annotations:
    team: infra
    config.kubernetes.io/local-config: "true"
spec:
  services:
  - compute.googleapis.com
  projectID: proj1
"""
SERVICE = """\
apiVersion: serviceusage.cnrm.cloud.google.com/v1beta1
kind: Service
metadata:
  name: proj1-service-{short}
  annotations:
    team: infra
    blueprints.cloud.google.com/ownerReference: blueprints.cloud.google.com/ProjectServiceSet/proj1-service
  namespace: projects
spec:
  resourceID: {short}.googleapis.com
  projectRef:
    external: proj1
"""
PLACE = "gcp/projects/service_proj1-service-{}.yaml"


def test_services_are_made_beside_their_set() -> None:
    result = run("enable-gcp-services:v0.1.0", {"gcp/set.yaml": SERVICES})

    assert texts(result.files) == {
        "gcp/set.yaml": SERVICES,
        PLACE.format("compute"): SERVICE.format(short="compute"),
    }
    assert [each.message for each in result.results] == ["generated service"]
    again = run("enable-gcp-services:v0.1.0", texts(result.files))
    assert texts(again.files) == texts(result.files)
    assert [each.message for each in again.results] == ["recreated service"]


def test_services_that_the_set_does_not_name_any_more_go() -> None:
    other = SERVICE.format(short="redis").replace("Set/proj1", "Set/proj2")
    given = {
        "gcp/set.yaml": SERVICES,
        PLACE.format("compute"): "# Mine.\n" + SERVICE.format(short="compute").replace("proj1\n", "old\n"),
        PLACE.format("spanner"): SERVICE.format(short="spanner"),
        "other.yaml": other,
    }

    result = run("enable-gcp-services:v0.1", given)

    assert texts(result.files) == {
        "gcp/set.yaml": SERVICES,
        PLACE.format("compute"): "# Mine.\n" + SERVICE.format(short="compute"),
        "other.yaml": other,
    }
    assert [each.message for each in result.results] == ["recreated service", "pruned service"]


def test_a_set_without_a_namespace_becomes_local_config() -> None:
    bare = SERVICES.replace("  namespace: projects\n", "").replace(
        '  annotations:\n    team: infra\n    config.kubernetes.io/local-config: "true"\n', ""
    )

    result = run("enable-gcp-services:v0.1", {"set.yaml": bare})

    assert set(result.files) == {"set.yaml", "service_proj1-service-compute.yaml"}
    assert b'config.kubernetes.io/local-config: "true"' in result.files["set.yaml"].data


@pytest.mark.parametrize(
    ("services", "error"),
    [
        ("  services: []", "at least one service must be specified under `spec.services[]`"),
        ("  services: [googleapis]", "invalid service specified: googleapis"),
    ],
)
def test_services_that_are_wrong_change_nothing(services: str, error: str) -> None:
    given = {"set.yaml": SERVICES.replace("  services:\n  - compute.googleapis.com", services)}

    result = run("enable-gcp-services:v0.1", given)

    assert f"failed to add services: {error}" in result.error
    assert texts(result.files) == given

"""What is deployed: kustomize builds it, Kubernetes' schemas accept it, and it is locked down."""

import importlib
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.inventory.shard import parse_shard
from tests.support.ci import need

VERSIONS = ("1.29", "1.37")
"""The oldest with `backoffLimitPerIndex` on by default, and the newest that has schemas here."""
VARIANTS = ("cronjob", "sharded", "index-sync")


@cache
def built(directory: Path) -> str:
    need("kubectl")
    command = ["kubectl", "kustomize", str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def build(project_root: Path, variant: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(built(project_root / "deploy" / variant)))


@pytest.fixture
def schemas() -> Any:
    """Return the library with Kubernetes' schemas, which takes longer to import than all others."""
    return importlib.import_module("kubernetes_validate")


def cronjob(project_root: Path, variant: str) -> dict[str, Any]:
    (found,) = [one for one in build(project_root, variant) if one["kind"] == "CronJob"]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_it(project_root: Path, variant: str, version: str, schemas: Any) -> None:
    documents = build(project_root, variant)

    assert {"CronJob", "ConfigMap", "NetworkPolicy", "ServiceAccount"} == {d["kind"] for d in documents}
    for document in documents:
        schemas.validate(document, version, strict=True)


def test_the_schemas_would_notice(project_root: Path, schemas: Any) -> None:
    wrong = cronjob(project_root, "cronjob")
    wrong["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["readOnlyRoot"] = True

    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_runs_with_the_least(project_root: Path, variant: str) -> None:
    job = cronjob(project_root, variant)
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert (
        job["spec"]["startingDeadlineSeconds"] < job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    )
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"]


def test_the_user_is_the_image_s(project_root: Path) -> None:
    pod = cronjob(project_root, "cronjob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    user = re.search(r"(?m)^USER (\d+):(\d+)$", (project_root / "Dockerfile").read_text())

    assert user is not None
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == tuple(
        map(int, user.groups())
    )


def test_every_index_is_a_shard(project_root: Path) -> None:
    job = cronjob(project_root, "sharded")["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    shard = container["args"][container["args"].index("--shard") + 1]

    shards = [parse_shard(shard, {"JOB_COMPLETION_INDEX": str(i)}) for i in range(job["completions"])]

    assert job["completionMode"] == "Indexed"
    assert {(one.part, one.parts) for one in shards} == {(i, len(shards)) for i in range(len(shards))}


@pytest.mark.parametrize("variant", VARIANTS)
def test_exit_codes_are_handled_as_documented(project_root: Path, variant: str) -> None:
    rules = cronjob(project_root, variant)["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    codes = {code: rule["action"] for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])}

    assert {code for code, action in codes.items() if action == "Count"} == {1, 5, 6}
    assert {code for code, action in codes.items() if action.startswith("Fail")} == {2, 3, 4, 7}


def test_a_prefix_and_another_namespace_hold_together(project_root: Path, tmp_path: Path) -> None:
    need("kubectl")
    shutil.copytree(project_root / "deploy", tmp_path / "deploy")
    overlay = "resources: [../deploy/sharded]\nnamePrefix: blue-\nnamespace: fleets\n"
    (tmp_path / "blue").mkdir()
    (tmp_path / "blue/kustomization.yaml").write_text(overlay)

    ran = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path / "blue")], capture_output=True, text=True, check=True
    )

    documents = {d["kind"]: d for d in yaml.safe_load_all(ran.stdout)}
    pod = documents["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == documents["ServiceAccount"]["metadata"]["name"] == "blue-reconciler"
    assert (
        pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]
        == documents["ConfigMap"]["metadata"]["name"]
    )
    assert {d["metadata"]["namespace"] for d in documents.values()} == {"fleets"}


def workflow(project_root: Path) -> dict[str, Any]:
    (found,) = [one for one in build(project_root, "argo-workflows") if one["kind"] == "CronWorkflow"]
    return found


def test_argo_workflows_have_everything_of_the_cronjob(project_root: Path) -> None:
    spec = workflow(project_root)["spec"]["workflowSpec"]
    pod = cronjob(project_root, "cronjob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    own = next(one["container"] for one in spec["templates"] if "container" in one)

    assert {k: v for k, v in own.items() if k != "args"} == {
        k: v for k, v in container.items() if k not in {"args", "name"}
    }
    assert spec["securityContext"] == pod["securityContext"]
    assert spec["volumes"] == pod["volumes"]
    assert spec["automountServiceAccountToken"] is False
    kinds = {document["kind"] for document in build(project_root, "argo-workflows")}
    assert kinds == {
        *("CronWorkflow", "ConfigMap", "NetworkPolicy", "ServiceAccount"),
        *("Role", "RoleBinding", "Secret"),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_what_argo_workflows_need(project_root: Path, version: str, schemas: Any) -> None:
    own = [one for one in build(project_root, "argo-workflows") if one["kind"] != "CronWorkflow"]

    assert {one["kind"] for one in own} >= {"Role", "RoleBinding", "Secret"}
    for document in own:
        schemas.validate(document, version, strict=True)


def test_every_item_of_the_sequence_is_a_shard(project_root: Path) -> None:
    fleet, shard = workflow(project_root)["spec"]["workflowSpec"]["templates"]
    ((step,),) = fleet["steps"]
    count = int(step["withSequence"]["count"])
    argument = shard["container"]["args"][shard["container"]["args"].index("--shard") + 1]

    shards = [parse_shard(argument.replace("{{inputs.parameters.index}}", str(i)), {}) for i in range(count)]

    assert {(one.part, one.parts) for one in shards} == {(i, count) for i in range(count)}
    assert workflow(project_root)["spec"]["workflowSpec"]["parallelism"] == count


def test_argo_tries_again_what_the_cronjob_tries_again(project_root: Path) -> None:
    shard = workflow(project_root)["spec"]["workflowSpec"]["templates"][1]
    codes = re.search(r"in \[([\d, ]+)\]", shard["retryStrategy"]["expression"])
    rules = cronjob(project_root, "cronjob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    counted = next(rule["onExitCodes"]["values"] for rule in rules if rule["action"] == "Count")

    assert codes is not None
    assert [int(code) for code in codes.group(1).split(",")] == counted

"""Fleets as plain values: variants, repositories, neighbours, settings."""

from dataclasses import dataclass, field
from typing import Any

import yaml

INSTANCE = "fleet"
CATALOG = "catalog"
API = "config.porch.kpt.dev"
SITE = {"apiVersion": "example.com/v1", "kind": "Site"}
IMAGES = "ghcr.io/kptdev/krm-functions-catalog"
STARLARK = """\
for resource in ctx.resource_list["items"]:
  if resource["kind"] == "Deployment":
    annotations = resource["metadata"].get("annotations", {})
    annotations["example.com/checked"] = "yes"
    resource["metadata"]["annotations"] = annotations
"""
PIPELINES: dict[str, tuple[str, dict[str, str]]] = {
    "setters": ("apply-setters:v0.2.0", {"tier": "gold"}),
    "rename": ("ensure-name-substring:v0.2.0", {"prepend": "east-"}),
    "namespace": ("set-namespace:v0.4.1", {"namespace": "tenants"}),
    "labels": ("set-labels:v0.2.0", {"team": "blue"}),
    "search": ("search-replace:v0.2.0", {"by-value": "registry.example", "put-value": "mirror.example"}),
    "starlark": ("starlark:v0.5.0", {"source": STARLARK}),
}
FORMS = ("revision", "workspace", "tag", "version", "branch", "none")


@dataclass
class VariantSpec:
    """A PackageVariant, or a set that generates one for each path."""

    name: str
    package: str
    repository: str
    paths: list[str]
    form: str = "revision"
    number: int = 1
    adoption: str = "adoptNone"
    context: bool = False
    injection: bool = False
    pipeline: str = "none"
    policy: str = ""
    deletion: str = "delete"
    is_set: bool = False
    annotations: dict[str, str] = field(default_factory=dict)

    def selector(self) -> dict[str, Any]:
        """Return the upstream selector fields that `form` asks for."""
        match self.form:
            case "revision":
                return {"revision": self.number}
            case "workspace":
                return {"workspaceName": f"v{self.number}"}
            case "tag":
                return {"tag": "stable"}
            case "version":
                return {"version": f"<={self.number}.0.0"}
            case "branch":
                return {"branch": "main"}
            case _:
                return {}

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as data."""
        template: dict[str, Any] = {"adoptionPolicy": self.adoption, "deletionPolicy": self.deletion}
        if self.context:
            template["packageContext"] = {"data": {"region": "east"}}
        if self.injection:
            template["injectors"] = [{"kind": "Site", "name": "north"}]
        if self.pipeline != "none":
            steps = [(name, *PIPELINES[name]) for name in self.pipeline.split("+")]
            template["pipeline"] = {
                "mutators": [{"name": n, "image": f"{IMAGES}/{i}", "configMap": c} for n, i, c in steps]
            }
        annotations = dict(self.annotations)
        if self.policy and not self.is_set:
            annotations["reconciler.dev/on-conflict"] = self.policy
        metadata: dict[str, Any] = {"name": self.name, "namespace": "default"}
        if annotations:
            metadata["annotations"] = annotations
        upstream = {"repo": CATALOG, "package": self.package, **self.selector()}
        if self.is_set:
            target = {
                "repositories": [{"name": self.repository, "packageNames": self.paths}],
                "template": template,
            }
            spec: dict[str, Any] = {"upstream": upstream, "targets": [target]}
            kind, version = "PackageVariantSet", "v1alpha2"
        else:
            downstream = {"repo": self.repository, "package": self.paths[0]}
            spec = {"upstream": upstream, "downstream": downstream, **template}
            kind, version = "PackageVariant", "v1alpha1"
        return {"apiVersion": f"{API}/{version}", "kind": kind, "metadata": metadata, "spec": spec}


@dataclass
class FleetSpec:
    """A fleet before its first run."""

    layout: str = "many"  # many, single or mono
    snapshot: str = "none"  # none, yaml, json, ndjson or import
    clusters: list[str] = field(default_factory=list)
    """Clusters with a snapshot of their own; without any there is one snapshot for all."""
    on_conflict: str = "ask"
    deployment: bool = False
    guard: dict[str, Any] = field(default_factory=dict)
    variants: list[VariantSpec] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)
    corpus: list[str] = field(default_factory=list)
    group: str = "package"
    waves: bool = False
    """Whether packages of sets move one after the other."""
    names: dict[str, str] = field(default_factory=dict)
    """Repositories that were renamed, each by its first name."""

    def repositories(self) -> list[str]:
        """Return the names of the downstream Repositories."""
        first = ["edge-1", "edge-2"] if self.layout == "many" else ["edge-1"]
        return [self.names.get(name, name) for name in first]

    def git_of(self, repository: str) -> tuple[str, str]:
        """Return the Git repository and the directory that a registered Repository is."""
        repository = next((first for first, now in self.names.items() if now == repository), repository)
        if self.layout == "mono":
            return "control", {"edge-1": "fleet"}.get(repository, repository)
        return repository, ""

    def registration(self, repository: str) -> dict[str, Any]:
        """Return the manifest of a Repository."""
        name, directory = self.git_of(repository)
        deployment = self.deployment and repository != CATALOG
        git = {"repo": f"../{name}.git", "branch": "main", "directory": directory}
        return {
            "apiVersion": f"{API}/v1alpha1",
            "kind": "Repository",
            "metadata": {"name": repository, "namespace": "default"},
            "spec": {"type": "git", "deployment": deployment, "git": git},
        }

    def configuration(self) -> dict[str, Any]:
        """Return reconciler.yaml as data."""
        spec: dict[str, Any] = {"manifests": ["manifests"], "onConflict": self.on_conflict}
        guard = {key: value for key, value in self.guard.items() if key != "consents"}
        if guard:
            spec["deletions"] = guard
        if self.group != "package":
            spec["pullRequests"] = {"groupBy": self.group}
        if self.waves:
            spec["rollouts"] = [{"waves": [{"name": "first", "size": 1}, {"name": "rest"}]}]
        if "consents" in self.guard:
            spec["consents"] = self.guard["consents"]
        return {
            "apiVersion": "reconciler.dev/v1alpha1",
            "kind": "Reconciler",
            "metadata": {"name": INSTANCE},
            "spec": spec,
        }


def dump(value: Any) -> str:
    """Return a manifest as people write it."""
    return yaml.safe_dump(value, sort_keys=False)

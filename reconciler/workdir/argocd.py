"""Convert ApplicationSets of Argo CD to PackageVariantSets, and the Repositories that these name."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reconciler.api.porch import PACKAGE_VARIANT_SET, REPOSITORY
from reconciler.base.errors import ConfigurationError, Location
from reconciler.functions.catalog import CLAIMS, REGISTRIES
from reconciler.functions.values import mapping_at, mappings_at, value_at
from reconciler.krm.yaml import PACKAGE_LIMITS, YamlError, emit, load_documents
from reconciler.names.ids import normalise_url
from reconciler.workdir.argocd_generators import (
    SECRET_TYPE,
    Cel,
    NotConvertedError,
    Parameters,
    TemplateScope,
    cluster_name,
    joined,
    read_generator,
    render,
)
from reconciler.workdir.porch_export import Conversion, Note

_ROLE = {"role": "cluster"}
_ALL_OF_CLUSTER = re.compile(r"\{\{\s*\.?(name|nameNormalized|server)\s*\}\}")
_VERSION = re.compile(r"(v\d|\d+\.)[\w.+-]*")
_RANGE = re.compile(r"(?=.*[\d*])[\d.*xX<>=~^| ,v-]*[*xX<>=~^][\d.*xX<>=~^| ,v-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_KUSTOMIZE = {"namespace", "commonLabels", "commonAnnotations", "images"}
_HELM = {"parameters", "values", "valuesObject", "releaseName", "namespace"}
_SOURCE = {"repoURL", "targetRevision", "path", "chart", "helm", "kustomize", "directory", "name"}
_NAMESPACE = (
    "destination.namespace is left: it stays in the Application that shows the package, or add set-namespace"
)
_EXAMPLE = "https://git.example.com/clusters/{cluster}.git"
_BLUEPRINTS = "https://git.example.com/platform/blueprints.git"


class Addresses(NamedTuple):
    """Addresses that no ApplicationSet has: of chart packages and clusters, and the checkouts to read."""

    upstream: str = ""
    downstream: str = ""
    checkouts: Mapping[str, Path] = {}


class _Variant(NamedTuple):
    """One Application: its upstream, the target without its repositories, and where it goes."""

    upstream: Mapping[str, Any]
    target: Mapping[str, Any]
    repository: str = ""
    package: str = ""


def convert_application_sets(exports: Mapping[str, bytes], addresses: Addresses) -> Conversion:
    """Convert ApplicationSets; Secrets of clusters become Repositories with their labels.

    What has no equivalent is noted with its reason; an ApplicationSet that cannot be converted is left out.

    Args:
        exports: Files by name: from kubectl or from a repository.
        addresses: Where packages are, and what Git generators read.

    Raises:
        ConfigurationError: A file is not YAML, or no file has an ApplicationSet that can be converted.
    """
    objects = [each for name, data in exports.items() for each in _objects(name, data)]
    notes: list[Note] = []
    repositories: dict[str, dict[str, Any]] = {}
    for secret in objects:
        if value_at(secret, "metadata", "labels", SECRET_TYPE) == "cluster":
            name, labels = _cluster_of(secret)
            repositories[name] = _repository(name, addresses.downstream, cluster=name, labels=labels)
    converted_sets: list[dict[str, Any]] = []
    sets = [each for each in objects if each.get("kind") == "ApplicationSet"]
    for each in sets:
        subject = f"ApplicationSet {value_at(each, 'metadata', 'name')}"
        own: list[Note] = []
        try:
            converted = list(_Converter(each, subject, addresses, own).sets(repositories))
        except NotConvertedError as error:
            notes.append(Note(f"left out, {error}", subject))
            continue
        notes += own
        converted_sets += converted
    if not converted_sets:
        why = "; ".join(Conversion({}, tuple(notes)).lines())
        message = f"{', '.join(exports)} has no ApplicationSet that can be converted"
        hint = "Export them: kubectl get applicationsets,secrets -n argocd -o yaml."
        if why:
            hint = (
                "Write a set for what it means: the guide From ApplicationSets has what corresponds to what."
            )
        raise ConfigurationError(f"{message}: {why}" if why else message, hint=hint)
    if not addresses.downstream:
        text = "their addresses are examples: correct them, or give --downstream-url with {cluster} in it"
        clusters = [name for name, each in repositories.items() if each["spec"].get("deployment")]
        notes += (Note(text, f"Repository {name}", many=True) for name in clusters)
    texts = {
        "Repository": [repositories[name] for name in sorted(repositories)],
        "PackageVariantSet": sorted(converted_sets, key=lambda each: str(each["metadata"]["name"])),
    }
    return Conversion(
        {kind: "---\n".join(f"{emit(each)}\n" for each in group) for kind, group in texts.items()},
        tuple(dict.fromkeys(notes)),
    )


def _objects(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    try:
        documents = load_documents(data, PACKAGE_LIMITS)
    except YamlError as error:
        raise ConfigurationError(error.message, location=Location(name, error.line)) from error
    for document in documents:
        items = mappings_at(document.value, "items")
        yield from items or ([document.value] if isinstance(document.value, dict) else [])


def _cluster_of(secret: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return name and labels of the cluster of a Secret; nothing else of it is read."""
    plain = value_at(secret, "stringData", "name")
    encoded = str(value_at(secret, "data", "name") or "")
    try:
        name = str(plain or base64.b64decode(encoded, validate=True).decode())
    except ValueError:
        name = ""
    labels = mapping_at(secret, "metadata", "labels")
    own = {key: str(value) for key, value in labels.items() if key != SECRET_TYPE}
    return cluster_name({"name": name or value_at(secret, "metadata", "name")}, ""), own


def _repository(
    name: str, url: str, *, cluster: str = "", labels: Mapping[str, str] = {}, plain: bool = False
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if cluster:
        metadata["labels"] = {**_ROLE, **labels}
        url = (url or _EXAMPLE).replace("{cluster}", cluster)
    if plain:
        metadata["annotations"] = {"reconciler.dev/plain-packages": "true"}
    git = {"repo": url, "branch": "main", **({"createBranch": True} if cluster else {})}
    spec = {"type": "git", **({"deployment": True} if cluster else {}), "git": git}
    return {"apiVersion": REPOSITORY, "kind": "Repository", "metadata": metadata, "spec": spec}


class _Converter:
    """Converts one ApplicationSet."""

    def __init__(
        self, item: Mapping[str, Any], subject: str, addresses: Addresses, notes: list[Note]
    ) -> None:
        spec = mapping_at(item, "spec")
        self.name = str(value_at(item, "metadata", "name"))
        self.spec, self.subject, self.addresses, self.notes = spec, subject, addresses, notes
        self.scope = TemplateScope(spec.get("goTemplate") is True, addresses.checkouts)
        self.upstreams: dict[str, dict[str, Any]] = {}
        policy = value_at(spec, "syncPolicy", "applicationsSync")
        self.keeps = policy in ("create-only", "create-update") or bool(
            value_at(spec, "syncPolicy", "preserveResourcesOnDeletion")
        )
        if policy == "create-only":
            self.note("applicationsSync: create-only is left: packages follow their upstream, with a review")
        if "templatePatch" in spec:
            raise NotConvertedError("templatePatch is a template of its own: write it as fields of the set")
        if value_at(spec, "strategy", "type") == "RollingSync":
            self.note("strategy is left: waves of spec.rollouts in reconciler.yaml do that")

    def note(self, text: str) -> None:
        """Tell what is left of this ApplicationSet."""
        self.notes.append(Note(text, self.subject))

    def sets(self, repositories: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield a set for each upstream; add the Repositories that they name."""
        generators = mappings_at(self.spec, "generators")
        variants = [
            self.variant(each) for generator in generators for each in read_generator(generator, self.scope)
        ]
        if not variants:
            raise NotConvertedError("its generators give nothing")
        upstreams: dict[str, dict[str, list[_Variant]]] = {}
        for each in variants:
            targets = upstreams.setdefault(emit(dict(each.upstream)), {})
            targets.setdefault(emit(dict(each.target)), []).append(each)
        names: list[str] = []
        for number, targets in enumerate(upstreams.values(), 1):
            first = next(iter(targets.values()))[0]
            last = str(first.upstream["package"]).rpartition("/")[2].lower().replace("_", "-")
            name = self.name if len(upstreams) == 1 else f"{self.name}-{last}"
            names.append(name if name not in names else f"{name}-{number}")
            yield {
                "apiVersion": PACKAGE_VARIANT_SET,
                "kind": "PackageVariantSet",
                "metadata": {"name": names[-1]},
                "spec": {
                    "upstream": dict(first.upstream),
                    "targets": [_target(group) for group in targets.values()],
                },
            }
        for each in variants:
            if each.repository and each.repository not in repositories:
                repositories[each.repository] = _repository(
                    each.repository, self.addresses.downstream, cluster=each.repository
                )
        for name, repository in self.upstreams.items():
            repositories.setdefault(name, repository)

    def variant(self, parameters: Parameters) -> _Variant:
        """Return what one set of parameters makes of the template."""
        template = joined(mapping_at(self.spec, "template"), parameters.template)
        spec = mapping_at(template, "spec")
        if "sources" in spec:
            raise NotConvertedError("an Application of several sources: make one package of them")
        repository = self.repository(mapping_at(spec, "destination"), parameters)
        if value_at(spec, "destination", "namespace"):
            self.notes.append(Note(_NAMESPACE, self.subject, many=True))
        name = self.render(value_at(template, "metadata", "name"), parameters)
        made: dict[str, Any] = {}
        if isinstance(name, Cel):
            made["downstream"] = {"packageExpr": name.text}
        elif parameters.selector is not None:
            made["downstream"] = {"package": name}
        if self.keeps:
            made["deletionPolicy"] = "orphan"
        for field in ("labels", "annotations"):
            entries = mapping_at(template, "metadata", field)
            made |= self.entries(field, f"{field.removesuffix('s')}Exprs", entries, parameters)
        source = mapping_at(spec, "source")
        mutators = [*self.helm(source, parameters), *self.kustomize(source, parameters)]
        if mutators:
            made["pipeline"] = {"mutators": mutators}
        target = {"repositorySelector": self.selector(parameters)} if parameters.selector is not None else {}
        if made:
            target["template"] = made
        return _Variant(
            self.upstream(source, parameters), target, repository, "" if isinstance(name, Cel) else name
        )

    def selector(self, parameters: Parameters) -> dict[str, Any]:
        """Return the selector of Repositories; without one the label that all clusters have."""
        return dict(parameters.selector or {"matchLabels": _ROLE})

    def render(self, text: Any, parameters: Parameters) -> str | Cel:
        """Return a string of the template with its parameters."""
        return render("" if text is None else text, parameters.values, self.scope)

    def literal(self, text: Any, field: str, parameters: Parameters) -> str:
        """Return a string that may not differ by cluster."""
        rendered = self.render(text, parameters)
        if isinstance(rendered, Cel):
            raise NotConvertedError(f"{field} depends on the cluster, and the upstream of a set does not")
        return rendered

    def entries(
        self, field: str, expressions: str, given: Mapping[str, Any], parameters: Parameters
    ) -> dict[str, Any]:
        """Return a mapping as a field of literals and a field of expressions."""
        rendered = {str(key): self.render(value, parameters) for key, value in given.items()}
        texts = {key: value for key, value in rendered.items() if isinstance(value, str)}
        exprs = [{"key": k, "valueExpr": v.text} for k, v in rendered.items() if isinstance(v, Cel)]
        return ({field: texts} if texts else {}) | ({expressions: exprs} if exprs else {})

    def function(
        self, name: str, given: Mapping[str, Any], parameters: Parameters
    ) -> Iterator[dict[str, Any]]:
        """Yield a function with a configMap, unless that is empty."""
        newest = ".".join(map(str, CLAIMS[name][-1].newest))
        entries = self.entries("configMap", "configMapExprs", given, parameters)
        if entries:
            yield {"image": f"{REGISTRIES[0]}/{name}:v{newest}", **entries}

    def repository(self, destination: Mapping[str, Any], parameters: Parameters) -> str:
        """Return the Repository of the cluster that an Application goes to, "" where a selector decides."""
        text = str(destination.get("name") or destination.get("server") or "")
        if parameters.selector is not None:
            if not _ALL_OF_CLUSTER.fullmatch(text):
                raise NotConvertedError(f"each cluster of the generator has an Application in {text}")
            return ""
        rendered = self.literal(text, "destination", parameters)
        name = cluster_name(
            parameters.values if "{{" in text and not destination.get("name") else {},
            rendered,
        )
        if not name:
            raise NotConvertedError("an Application without a destination")
        return name

    def upstream(self, source: Mapping[str, Any], parameters: Parameters) -> dict[str, Any]:
        """Return the upstream of a source: a directory of Git, or a package that is made of a chart."""
        url = self.literal(source.get("repoURL"), "source.repoURL", parameters)
        path = self.literal(source.get("path"), "source.path", parameters).strip("/")
        chart = self.literal(source.get("chart"), "source.chart", parameters)
        revision = self.literal(source.get("targetRevision"), "source.targetRevision", parameters)
        for field in source.keys() - _SOURCE:
            raise NotConvertedError(f"source.{field} has no equivalent")
        checkout = self.addresses.checkouts.get(normalise_url(url))
        if chart or "helm" in source or (checkout and (checkout / path / "Chart.yaml").exists()):
            name = chart or path.rpartition("/")[2]
            address = url.rstrip("/") if url.startswith(("https://", "oci://")) else f"oci://{url}"
            if path or address.endswith(".git"):
                address = f"{address.removesuffix('.git')}.git"
            version = f" --version {revision!r}" if revision not in ("", "HEAD") else ""
            command = f"reconciler package from-chart {address}/{path or chart} {name}{version}"
            self.note(f"it installs a chart: make the package {name} of it with `{command}`")
            upstream = self.addresses.upstream or _BLUEPRINTS
            self.upstreams.setdefault("blueprints", _repository("blueprints", upstream))
            return {"repo": "blueprints", "package": name, "revision": 1}
        if path in ("", "."):
            raise NotConvertedError(f"it shows all of {url}: a package is a directory below the root")
        name = re.sub(r"[^a-z0-9]+", "-", normalise_url(url).rpartition("/")[2].lower()).strip("-")
        self.upstreams.setdefault(name, _repository(name, url, plain=True))
        return {"repo": name, "package": path, **_followed(revision, path)}

    def helm(self, source: Mapping[str, Any], parameters: Parameters) -> Iterator[dict[str, Any]]:
        """Yield setters for the values of a chart."""
        helm = mapping_at(source, "helm")
        for field in sorted(helm.keys() - _HELM):
            self.note(f"source.helm.{field} is left: write it into chart.yaml of the package")
        values = mapping_at(helm, "valuesObject")
        if not values and (text := helm.get("values")):  # as Argo CD: an object counts before a text
            try:
                documents = load_documents(str(text).encode(), PACKAGE_LIMITS)
            except YamlError as error:
                raise NotConvertedError(f"source.helm.values is no YAML: {error.message}") from error
            values = (documents[0].value if documents else None) or {}
            if len(documents) > 1 or not isinstance(values, dict):
                raise NotConvertedError("source.helm.values is not one map of values")
        setters: dict[str, Any] = dict(self.scalars(values))
        setters |= {str(each.get("name")): each.get("value") for each in mappings_at(helm, "parameters")}
        if setters:
            listed = ", ".join(f"`{name}: ... # kpt-set: ${{{name}}}`" for name in list(setters)[:3])
            self.note(
                f"its values are setters: write {listed} into valuesInline of chart.yaml of the package"
            )
        yield from self.function("apply-setters", setters, parameters)

    def scalars(self, values: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
        """Yield the values that setters can give, by their dotted names."""
        for key, value in values.items():
            if isinstance(value, dict):
                yield from self.scalars(value, f"{start}{key}.")
            elif isinstance(value, list) or value is None:
                self.note(f"the value {start}{key} is left: write it into values.yaml of the package")
            else:
                yield f"{start}{key}", value

    def kustomize(self, source: Mapping[str, Any], parameters: Parameters) -> Iterator[dict[str, Any]]:
        """Yield functions in place of Kustomize."""
        kustomize = mapping_at(source, "kustomize")
        for field in sorted(kustomize.keys() - _KUSTOMIZE):
            self.note(f"source.kustomize.{field} is left: change the package, or add a function")
        if namespace := kustomize.get("namespace"):
            yield from self.function("set-namespace", {"namespace": namespace}, parameters)
        yield from self.function("set-labels", mapping_at(kustomize, "commonLabels"), parameters)
        yield from self.function("set-annotations", mapping_at(kustomize, "commonAnnotations"), parameters)
        for image in kustomize.get("images") or ():
            name, _, new = str(image).rpartition("=")
            target, _, tag = (new or str(image)).partition(":")
            given = {"name": name or target, "newName": target, "newTag": tag}
            yield from self.function("set-image", {k: v for k, v in given.items() if v}, parameters)


def _target(group: Sequence[_Variant]) -> dict[str, Any]:
    target = dict(group[0].target)
    packages: dict[str, list[str]] = {}
    for each in group:
        if each.repository:
            packages.setdefault(each.repository, []).append(each.package)
    if packages:
        listed = [{"name": name, "packageNames": sorted(names)} for name, names in sorted(packages.items())]
        return {"repositories": listed, **target}
    return target


def _followed(revision: str, path: str) -> dict[str, str]:
    """Return the field of an upstream that means what Argo CD follows."""
    # A package follows the tags that start with its path.
    name = re.sub(r"^refs/(heads|tags)/", "", revision).removeprefix(f"{path}/")
    if _COMMIT.fullmatch(name):
        raise NotConvertedError(f"targetRevision {name[:12]} is a commit: tag it")
    if not revision.startswith("refs/") and _RANGE.fullmatch(name):
        return {"version": name}
    if revision.startswith("refs/tags/") or _VERSION.fullmatch(name):
        return {"tag": name}
    return {"branch": name if name not in ("", "HEAD") else "main"}

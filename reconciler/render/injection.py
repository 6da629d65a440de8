"""Inject into a package: the package context, and objects of the cluster at its injection points."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from reconciler.api.kptfile import INJECTION_PREFIX as PREFIX
from reconciler.api.kptfile import KPTFILE, PACKAGE_CONTEXT_FILE, PACKAGE_CONTEXT_NAME
from reconciler.api.porch import REPOSITORY, InjectionSelector, PackageContext
from reconciler.base.reasons import Reason
from reconciler.base.values import PartlyCompared
from reconciler.dependencies.catalog.cluster_inputs import is_in_index
from reconciler.dependencies.dialects import PORTER_GROUP
from reconciler.dependencies.dialects.carvel import GROUPS as CARVEL_GROUPS
from reconciler.dependencies.dialects.crossplane import GROUPS as CROSSPLANE_GROUPS
from reconciler.dependencies.model.packages import Ecosystem
from reconciler.inventory.inventory import Inventory
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.krm.documents import ResourceDocument, documents_of, edit_document, resources_in
from reconciler.krm.merge import UPSTREAM_IDENTIFIER, identity_of, root_of
from reconciler.krm.values import differences, mapping_at, mappings_at, value_at
from reconciler.krm.yaml import DeleteKey, Edit, SetValue, YamlError
from reconciler.names.ids import GroupKind, Oid, group_of
from reconciler.names.objects import File, Files
from reconciler.render.kptfile import edit_kptfile
from reconciler.render.rendered import Blocked
from reconciler.resolve.resolution import ResolvedVariant

NAME = "name"
PACKAGE_PATH = "package-path"
_NAME = PACKAGE_CONTEXT_NAME.encode()

_NEW = f"""\
apiVersion: v1
kind: ConfigMap
metadata: # kpt-merge: /{PACKAGE_CONTEXT_NAME}
  name: {PACKAGE_CONTEXT_NAME}
  annotations:
    config.kubernetes.io/local-config: "true"
    {UPSTREAM_IDENTIFIER}: '|ConfigMap|default|{PACKAGE_CONTEXT_NAME}'
data:
"""


def ensure_context(
    files: Files, *, deployment: bool, package: str, spec: PackageContext | None
) -> Files | Blocked:
    """Create the package context if needed, set its own keys, then set and remove the variant's keys.

    Idempotent. A context is created for a deployment repository, or if the variant sets or removes keys; an
    existing one keeps its other values, order and comments, and has its own name again if a function renamed
    it. Removal wins over setting.

    Source: porch packagevariant_controller.go, ensurePackageContext; kpt builtins, PackageContext.
    Differs: a missing context is created, and an upstream's is kept instead of dropped.
    """
    data = dict(spec.data or {}) if spec else {}
    removed = tuple(dict.fromkeys(spec.remove_keys or ())) if spec else ()
    path = _context_file(files)
    if not (deployment or data or removed):
        split = resources_in(files[path]) if path in files else None
        context = find_context(split.documents) if split is not None else None
        if context is None or context.data["metadata"].get("name") == PACKAGE_CONTEXT_NAME:
            return files
    name = package.rpartition("/")[2]
    fields = {NAME: name, PACKAGE_PATH: package} if deployment else {}
    file = files.get(path) or File.of(f"{_NEW}  name: {name}\n".encode())
    edited = _edit(path, file, {**fields, **data}, removed)
    return edited if isinstance(edited, Blocked) else {**files, path: edited}


def _context_file(files: Files) -> str:
    """Return the file of the package context: Porch's, unless only another file of the package has one.

    A second ConfigMap of that name would make the package invalid. Sub-packages have their own.
    """
    if PACKAGE_CONTEXT_FILE in files:
        return PACKAGE_CONTEXT_FILE
    inner = tuple(path.removesuffix(KPTFILE) for path in files if path.endswith(f"/{KPTFILE}"))
    for path in sorted(files):
        if path.startswith(inner) or not path.endswith((".yaml", ".yml")) or _NAME not in files[path].data:
            continue
        if find_context(documents_of(files[path])) is not None:
            return path
    return PACKAGE_CONTEXT_FILE


def _edit(path: str, file: File, data: Mapping[str, str], removed: tuple[str, ...]) -> File | Blocked:
    split = resources_in(file)
    if split is None:
        return Blocked(Reason.CONTEXT_NOT_INJECTED, f"{path} is no YAML that can be edited")
    context = find_context(split.documents)
    if context is None:
        return Blocked(
            Reason.CONTEXT_NOT_INJECTED,
            f"{path} has no ConfigMap named {PACKAGE_CONTEXT_NAME}",
            f"Add it to {path}, or delete the file to have it created again.",
        )
    try:
        return edit_document(file, _edits(context.data, data, removed), index=context.index)
    except YamlError as error:
        return Blocked(Reason.CONTEXT_NOT_INJECTED, f"{path} cannot be edited: {error}")


def _edits(context: Any, data: Mapping[str, str], removed: tuple[str, ...]) -> Iterator[Edit]:
    if context["metadata"].get("name") != PACKAGE_CONTEXT_NAME:
        yield SetValue(("metadata", "name"), PACKAGE_CONTEXT_NAME)
    present = mapping_at(context, "data")
    new = sorted(data.keys() - present.keys())
    for key in [*(k for k in present if k in data), *new]:
        if key not in removed and present.get(key) != data[key]:
            yield SetValue(("data", key), data[key])
    yield from (DeleteKey(("data", key)) for key in removed if key in present)


def find_context(documents: Iterable[ResourceDocument]) -> ResourceDocument | None:
    """Return the context by its identity, else the ConfigMap that a function gave a prefix or suffix."""
    maps = [
        d for d in documents if d.identity.kind == "ConfigMap" and isinstance(d.data.get("metadata"), dict)
    ]
    # A function may rename the ConfigMap; its identity has the name of the merge comment.
    named = [d for d in maps if d.identity.name == PACKAGE_CONTEXT_NAME]
    renamed = [d for d in maps if PACKAGE_CONTEXT_NAME in str(d.data["metadata"].get("name"))]
    return next(iter(named or renamed), None)


_CRD = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")


def needed_kinds(
    inventory: Inventory,
    injected: Iterable[ResolvedVariant],
    contents: Mapping[Oid, Files],
    ecosystems: Iterable[Ecosystem] = (),
) -> tuple[GroupKind, ...]:
    """Return the kinds that sets select, that are injected or installed, or that gates read. Sorted.

    Args:
        inventory: The manifests.
        injected: The variants with injectors.
        contents: The upstream packages of these variants that could be read.
        ecosystems: Those of the packages that variants need.
    """
    kinds = {*_selected(inventory), *_installed(inventory, ecosystems), *_gated(inventory)}
    for resolved in injected:
        kinds |= set(_named(resolved.variant.spec.injectors or ()))
        for point in find_points(contents.get(resolved.pin.tree, {})):
            api_version, kind = point.gvk
            kinds.add(GroupKind(group_of(api_version), kind))
    return tuple(sorted(kinds))


def _selected(inventory: Inventory) -> Iterator[GroupKind]:
    for pvs in inventory.sets:
        for target in pvs.manifest.spec.targets or ():
            selector = target.object_selector
            if selector is not None and selector.kind and selector.api_version != REPOSITORY:
                yield GroupKind(group_of(selector.api_version or ""), selector.kind)
            if target.template is not None:
                yield from _named(target.template.injectors or ())


def _named(injectors: Iterable[InjectionSelector]) -> Iterator[GroupKind]:
    for injector in injectors:
        if injector.kind and injector.group is not None:
            yield GroupKind(injector.group, injector.kind)


def _gated(inventory: Inventory) -> Iterator[GroupKind]:
    for rollout in inventory.policy.rollouts:
        for gate in (gate for wave in rollout.waves for gate in wave.gates.objects):
            yield GroupKind(group_of(gate.api_version), gate.kind)


def _installed(inventory: Inventory, ecosystems: Iterable[Ecosystem]) -> Iterator[GroupKind]:
    """Yield the kinds that the resolution of dependencies reads, of the tools that manifests are for.

    A manifest that could not be read is for its tool, too.
    """
    asking = [d.value for d in inventory.documents if not is_in_index(d.source.location)]
    groups = {group_of(str(document.get("apiVersion") or "")) for document in asking}
    porter = [Ecosystem.BUNDLE for document in asking if document.get("schemaType")]
    tools = {*ecosystems, *porter}
    for ecosystem, (api_version, kinds) in _READ.items():
        if ecosystem in tools or not groups.isdisjoint(api_version):
            yield from kinds


_READ = {
    Ecosystem.CARVEL: (
        CARVEL_GROUPS,
        (
            _CRD,
            GroupKind("packaging.carvel.dev", "PackageInstall"),
            GroupKind("data.packaging.carvel.dev", "Package"),
        ),
    ),
    Ecosystem.XPKG: (
        CROSSPLANE_GROUPS,
        (
            _CRD,
            GroupKind("pkg.crossplane.io", "Lock"),
            *(
                GroupKind("pkg.crossplane.io", f"{kind}{suffix}")
                for kind in ("Provider", "Configuration", "Function")
                for suffix in ("", "Revision")
            ),
        ),
    ),
    Ecosystem.BUNDLE: (frozenset[str](), (GroupKind(PORTER_GROUP, "Installation"),)),
    Ecosystem.KPT: (frozenset[str](), (_CRD,)),
}
"""The API groups of a tool's manifests, and its kinds that snapshots have; CRDs show the served APIs."""


INJECTION_POINT = "kpt.dev/config-injection"
INJECTED = "kpt.dev/injected-resource"
INJECTED_NAME = "kpt.dev/injected-resource-name"
REQUIRED, OPTIONAL = "required", "optional"


class InjectionPoint(PartlyCompared, frozen=True):
    """A resource with the injection annotation, and the condition that reports its state.

    `errors` are reasons why it is invalid; `resource` is its content, `name` its name as written.
    """

    UNCOMPARED = frozenset({"resource", "name"})

    file: str
    required: bool
    condition_type: str
    errors: tuple[str, ...] = ()
    index: int = 0
    resource: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def gvk(self) -> tuple[str, str]:
        """The apiVersion and the kind of the resource."""
        return str(self.resource.get("apiVersion", "")), str(self.resource.get("kind", ""))


class InjectionResult(Struct, frozen=True):
    """The object for one point, or the reason why there is none."""

    point: InjectionPoint
    source: SnapshotObject | None = None
    error: str = ""


class Injected(Struct, frozen=True):
    """A package after injection. `failure` lists the required points without an object; None: no points."""

    files: Files
    failure: str | None = None


def find_points(files: Files) -> tuple[InjectionPoint, ...]:
    """Return the injection points of a package, by file and position in it.

    Total: a file that is not YAML has none.

    Source: porch packagevariant injection.go, findInjectionPoints.
    Differs: Porch stops at the first file that is not YAML, such as a Helm template.
    """
    return tuple(point for path in sorted(files) for point in _points(path, files[path].data))


def _points(path: str, data: bytes) -> Iterator[InjectionPoint]:
    if not path.endswith((".yaml", ".yml")) and path.rpartition("/")[2] != KPTFILE:
        return
    for document in documents_of(File.of(data)) if INJECTION_POINT.encode() in data else ():
        if point := _point(path, document):
            yield point


def _point(path: str, document: ResourceDocument) -> InjectionPoint | None:
    resource = document.data
    annotations = mapping_at(resource, "metadata", "annotations")
    if INJECTION_POINT not in annotations:
        return None
    # The name as written: `name: n` is a boolean for Kubernetes, but people search for the `n`.
    _, kind, _, name = identity_of(root_of(document.tree))
    value = annotations[INJECTION_POINT]
    errors: tuple[str, ...] = ()
    if value not in (REQUIRED, OPTIONAL):
        errors = (f'{path}: {kind}/{name} has invalid "{INJECTION_POINT}" annotation value of "{value}"',)
    condition = f"{PREFIX}{kind}.{name}"
    return InjectionPoint(path, value == REQUIRED, condition, errors, document.index, resource, name)


def check_points(points: Iterable[InjectionPoint]) -> str:
    """Return the errors of a package's points as one sentence, "" if there are none.

    Source: porch packagevariant injection.go, validateInjectionPoints.
    """
    errors: list[str] = []
    files: dict[str, str] = {}
    for point in points:
        errors += point.errors
        name = point.condition_type
        if name in files:
            errors.append(f'duplicate injection conditionType "{name}" ({files[name]} and {point.file})')
        files[name] = point.file
    return f"errors in injection points: {', '.join(errors)}" if errors else ""


def inject_config(
    files: Files,
    injectors: Sequence[InjectionSelector],
    snapshot: Snapshot,
    namespace: str,
    context: PackageContext | None = None,
) -> Injected | Blocked:
    """Fill every point that an injector matches, and write a condition for each point.

    Idempotent. A required point without an object does not block the package: it is not ready. Where the
    package context is a point, the keys that are ours or in `context` keep their values.

    Source: porch packagevariant injection.go, ensureConfigInjection; seed 000, Configuration Injection.
    Differs: conditions and gates of deleted points are deleted too; an injector may name its point;
    both annotations are written, Porch's and the seed's.
    """
    points = find_points(files)
    if error := check_points(points):
        return Blocked(Reason.INVALID_PACKAGE, error, "Correct the annotations in the upstream package.")
    results = [choose_source(point, injectors, snapshot, namespace) for point in points]
    for result in results:
        if result.source is not None:
            path, index = result.point.file, result.point.index
            try:
                edited = edit_document(files[path], _fill(result.point, result.source, context), index=index)
            except YamlError as error_:
                why = f"Configuration cannot be injected into {path}: {error_}"
                return Blocked(Reason.INVALID_PACKAGE, why)
            files = {**files, path: edited}
    with_conditions = _with_conditions(files, results)
    if isinstance(with_conditions, Blocked):
        return with_conditions
    empty = [f"{r.point.condition_type}: {r.error}" for r in results if r.error and r.point.required]
    return Injected(with_conditions, "; ".join(empty) if results else None)


def choose_source(
    point: InjectionPoint, injectors: Sequence[InjectionSelector], snapshot: Snapshot, namespace: str
) -> InjectionResult:
    """Choose the object of the first injector that matches the point and names one in the namespace."""
    api_version, kind = point.gvk
    group_kind = GroupKind(group_of(api_version), kind)
    error = _unavailable(point, injectors, snapshot, namespace)
    objects = {o.name: o for o in snapshot.of_kind(api_version, kind) if o.namespace == namespace}
    if not error and not objects:
        error = f"no in-cluster resources of type {api_version}.{kind}"
    if error:
        return InjectionResult(point, error=error)
    matching = (injector for injector in injectors if _matches(injector, point))
    source = next((objects[i.name] for i in matching if i.name and i.name in objects), None)
    if source is None:
        return InjectionResult(
            point, error="no resource matched any injection selector for this injection point"
        )
    if source.api_version != api_version and not snapshot.converts(group_kind):
        version = f"{kind}.{api_version.rpartition('/')[2]}.{group_kind.group}"
        return InjectionResult(
            point,
            error=f'resource "{source.name}" is known as {source.api_version} only, which may differ: '
            f"import it as {version}",
        )
    name = injected_field(api_version, kind)
    if source.body.get(name) is None:
        return InjectionResult(point, error=f'field "{name}" not found in resource "{source.name}"')
    return InjectionResult(point, source)


def _unavailable(
    point: InjectionPoint, injectors: Sequence[InjectionSelector], snapshot: Snapshot, namespace: str
) -> str:
    """Return the reason why no object can be chosen at all, "" if there is none."""
    if not injectors:
        return "no injectors defined"
    if not snapshot.present and snapshot.cluster:
        return f"there is no snapshot of cluster {snapshot.cluster} in {snapshot.path}"
    api_version, kind = point.gvk
    group_kind = GroupKind(group_of(api_version), kind)
    is_recorded = snapshot.served is not None or group_kind in snapshot.definitions
    if is_recorded and not snapshot.serves(api_version, kind, namespace):
        versions = snapshot.versions_of(group_kind)
        others = f", only for {' and '.join(sorted(versions))}" if versions else ""
        return f"the cluster has no schema for {api_version}.{kind}{others}"
    return ""


def _matches(injector: InjectionSelector, point: InjectionPoint) -> bool:
    api_version, kind = point.gvk
    target = injector.target
    pairs = (
        (injector.group, group_of(api_version)),
        (injector.version, api_version.rpartition("/")[2]),
        (injector.kind, kind),
        (target.kind if target else None, kind),
        (target.name if target else None, point.name),
    )
    return all(expected is None or expected == actual for expected, actual in pairs)


def asks_for(injectors: Iterable[InjectionSelector], resource: dict[str, Any]) -> bool:
    """Return whether an injector names the object that a resource was filled from."""
    annotations = mapping_at(resource, "metadata", "annotations")
    name = annotations.get(INJECTED_NAME) or annotations.get(INJECTED)
    point = InjectionPoint(
        "",
        required=False,
        condition_type="",
        resource=resource,
        name=mapping_at(resource, "metadata").get("name", ""),
    )
    return any(injector.name == name and _matches(injector, point) for injector in injectors)


def injected_field(api_version: str, kind: str) -> str:
    """Return the field of an object that is injected as a whole."""
    return "data" if (api_version, kind) == ("v1", "ConfigMap") else "spec"


def _fill(point: InjectionPoint, source: SnapshotObject, context: PackageContext | None) -> Iterator[Edit]:
    annotations = point.resource["metadata"]["annotations"]
    for name in (INJECTED, INJECTED_NAME):
        if annotations.get(name) != source.name:
            yield SetValue(("metadata", "annotations", name), source.name)
    name = injected_field(source.api_version, source.kind)
    value = source.body[name]
    if name == "data" and point.name == PACKAGE_CONTEXT_NAME and isinstance(value, Mapping):
        present = mapping_at(point.resource, "data")
        requested = (*(context.data or ()), *(context.remove_keys or ())) if context else ()
        own_keys = {NAME, PACKAGE_PATH, *requested}
        value = {key: text for key, text in value.items() if key not in own_keys}
        value |= {key: text for key, text in present.items() if key in own_keys}
    if point.resource.get(name) != value:
        yield SetValue((name,), value)


def _with_conditions(files: Files, results: Sequence[InjectionResult]) -> Files | Blocked:
    def edits(kptfile: dict[str, Any]) -> Iterator[Edit]:
        gates = value_at(kptfile, "info", "readinessGates")
        conditions = value_at(kptfile, "status", "conditions")
        if not results and PREFIX not in f"{gates}{conditions}":
            return
        new_gates, new_conditions = merged_gates(gates, results), merged_conditions(conditions, results)
        yield from _list_edits(("info", "readinessGates"), gates, new_gates, "conditionType")
        yield from _list_edits(("status", "conditions"), conditions, new_conditions, "type")

    return edit_kptfile(files, edits) if KPTFILE in files else files


def merged_conditions(existing: Any, results: Sequence[InjectionResult]) -> list[Any]:
    """Return a Kptfile's conditions with those of the points updated, and those of deleted points deleted."""
    injected = {result.point.condition_type: _condition(result) for result in results}
    conditions = [
        c for c in mappings_at(existing) if _type_of(c) in injected or not _type_of(c).startswith(PREFIX)
    ]
    present = {_type_of(c) for c in conditions}
    new = [injected[name] for name in sorted(injected.keys() - present)]
    return [*(injected.get(_type_of(c), c) for c in conditions), *new]


def _condition(result: InjectionResult) -> dict[str, str]:
    source = result.source
    return {
        "type": result.point.condition_type,
        "status": "True" if source else "False",
        "message": f'injected resource "{source.name}" from cluster' if source else result.error,
        "reason": "ConfigInjected" if source else "NoResourceSelected",
    }


def merged_gates(existing: Any, results: Sequence[InjectionResult]) -> list[Any]:
    """Return a Kptfile's readiness gates with those of required points, without those of deleted points.

    A gate that people put on an optional point stays.
    """
    points = {result.point.condition_type for result in results}
    gates = [g for g in mappings_at(existing) if _gate_of(g) in points or not _gate_of(g).startswith(PREFIX)]
    required = {result.point.condition_type for result in results if result.point.required}
    new = sorted(required - {_gate_of(gate) for gate in gates})
    return [*gates, *({"conditionType": name} for name in new)]


def _list_edits(path: tuple[str, ...], old: Any, new: list[Any], key: str) -> Iterator[Edit]:
    if new:
        yield from differences(old, new, path, key=key)
    elif old:
        yield DeleteKey(path)


def _type_of(condition: dict[str, Any]) -> str:
    return str(condition.get("type", ""))


def _gate_of(gate: dict[str, Any]) -> str:
    return str(gate.get("conditionType", ""))

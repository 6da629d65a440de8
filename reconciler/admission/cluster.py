"""One cluster as judgements see it: its snapshot, and the definitions that packages on main bring."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import Struct, field

from reconciler.admission.defaults import field as value_at
from reconciler.admission.defaults import items, with_defaults
from reconciler.admission.immutable import Version
from reconciler.admission.structural import Structural, schemas_of
from reconciler.base.lazy import regex
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, defined_kind
from reconciler.names.ids import GroupKind

CRD: Final = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")
POLICY: Final = GroupKind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
BINDING: Final = POLICY._replace(kind=f"{POLICY.kind}Binding")
NAMESPACE: Final = GroupKind("", "Namespace")
NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace."""
UNASKED: Final = tuple(
    POLICY._replace(kind=kind)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "MutatingAdmissionPolicy")
)
"""Kinds that decide about others by asking services, or change them: they are named."""
DECIDING: Final = (CRD, POLICY, BINDING)
"""Kinds that decide about others; only where all objects of them are known is silence an answer."""
BUILT_IN: Final = frozenset(
    {
        *("", "apps", "batch", "autoscaling", "policy", "extensions", CRD.group, POLICY.group),
        *(
            f"{name}.k8s.io"
            for name in (
                *("rbac.authorization", "networking", "storage", "scheduling", "node", "coordination"),
                *("discovery", "events", "certificates", "apiregistration", "authentication", "resource"),
                *("authorization", "flowcontrol.apiserver", "storagemigration", "internal.apiserver"),
            )
        ),
    }
)
"""Groups of Kubernetes itself: their kinds have no definition."""
_NUMBER: Final = regex(r"v?(\d+)\.(\d+)")


class Definition(Struct, frozen=True, dict=True):  # it keeps its schemas
    """A CustomResourceDefinition of a cluster."""

    spec: Mapping[str, Any]

    @cached_property
    def schemas(self) -> Mapping[str, Structural]:
        """The schemas of the versions that have one."""
        return dict(schemas_of(self.spec))

    @property
    def converts_nothing(self) -> bool:
        """Whether versions of an object differ in nothing but their apiVersion."""
        return value_at(self.spec, "conversion", "strategy") in (None, "None")

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the versions that it serves; `version` is of definitions in v1beta1."""
        listed = [v for v in items(self.spec, "versions") if v.get("served") is not False]
        names = [*(v.get("name") for v in listed), *(() if listed else (self.spec.get("version"),))]
        return tuple(sorted(str(name) for name in names if name))


class Cluster(Struct, frozen=True, dict=True):  # it keeps indexes
    """A cluster.

    `read_main` returns the objects of a kind that its packages on main have, in files that hold these bytes.
    """

    name: str
    snapshot: Snapshot = field(default_factory=Snapshot)
    is_recent: bool = True
    """Whether the lists of the snapshot are not older than its policy allows."""
    read_main: Callable[[GroupKind, bytes], Sequence[Mapping[str, Any]]] = lambda _, __: ()

    @cached_property
    def version(self) -> Version | None:
        """Version of Kubernetes, None if it is not known."""
        match = _NUMBER.match(self.snapshot.versions.get("kubernetes", ""))
        return (int(match[1]), int(match[2])) if match else None

    def knows(self, kind: GroupKind, namespace: str = ALL_NAMESPACES) -> bool:
        """Tell whether the snapshot has every object of a kind, and is not too old."""
        served = self.snapshot.served
        is_absent = served is not None and kind == POLICY and not any(name == kind.kind for _, name in served)
        return self.is_recent and (is_absent or self.snapshot.is_complete(kind, namespace))

    def objects(self, kind: GroupKind) -> Sequence[Mapping[str, Any]]:
        """Return the objects of a kind: those of packages on main, then those that only the snapshot has.

        A snapshot that is too old has none: what it has may have changed since.
        """
        if kind not in self._objects:
            self._objects[kind] = self._read(kind)
        return self._objects[kind]

    def _read(self, kind: GroupKind, holding: bytes = b"") -> Sequence[Mapping[str, Any]]:
        values = list(self.read_main(kind, holding))
        names = {identity[1:] for value in values if (identity := identity_of(value)) is not None}
        for (api_version, name), members in self.snapshot.objects.items():
            if self.is_recent and (api_version.rpartition("/")[0], name) == kind:
                values += [item.body for item in members if (item.namespace, item.name) not in names]
        return values

    @cached_property
    def _objects(self) -> dict[GroupKind, Sequence[Mapping[str, Any]]]:
        return {}

    @cached_property
    def unknown(self) -> str:
        """The lists that are missing to judge everything, as a clause; "" for none."""
        if not self.snapshot.present:
            return "it has no snapshot, so its definitions are not known"
        if not self.is_recent:
            return "its snapshot is older than snapshot.maxAge"
        missing = [str(kind) for kind in DECIDING if not self.knows(kind)]
        return f"its snapshot does not list {', '.join(missing)} completely" if missing else ""

    def definition(self, kind: GroupKind) -> Definition | None:
        """Return the definition of a kind; the cluster has those of packages on main as these are.

        Definitions are the largest files of a package: those of other groups are not read.
        """
        if kind.group not in self._definitions:
            # Kubernetes names a definition by its plural and its group.
            values = self._read(CRD, kind.group.encode())
            self._definitions[kind.group] = dict(definitions_of(values))
        return self._definitions[kind.group].get(kind)

    @cached_property
    def _definitions(self) -> dict[str, Mapping[GroupKind, Definition]]:
        return {}

    @cached_property
    def policies(self) -> tuple[tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...]], ...]:
        """The policies, each with its bindings: one without is not in force."""
        bindings: dict[str, list[Mapping[str, Any]]] = {}
        for binding in self.objects(BINDING):
            bindings.setdefault(str(value_at(binding, "spec", "policyName")), []).append(binding)
        bound = (
            (policy, bindings.get(str(value_at(policy, "metadata", "name"))))
            for policy in self.objects(POLICY)
        )
        return tuple((policy, tuple(members)) for policy, members in bound if members)

    @cached_property
    def kinds_of_policies(self) -> dict[GroupKind, bool]:
        """Whether policies may be for a kind, as far as it was asked."""
        return {}

    @property
    def parameters(self) -> frozenset[GroupKind]:
        """The kinds of the parameters of policies."""
        kinds = (value_at(policy, "spec", "paramKind") for policy in self.objects(POLICY))
        return frozenset(
            GroupKind(str(kind.get("apiVersion")).rpartition("/")[0], str(kind.get("kind")))
            for kind in kinds
            if isinstance(kind, Mapping)
        )

    @cached_property
    def governing(self) -> tuple[object, ...]:
        """All that decides about objects of all kinds, but for stored versions and definitions."""
        snapshot, kinds = self.snapshot, (POLICY, BINDING, NAMESPACE, *sorted(self.parameters))
        lists = [*map(str, sorted(snapshot.complete)), *map(str, sorted(snapshot.resources.items()))]
        served = None if snapshot.served is None else sorted(snapshot.served)
        objects = tuple(self.objects(kind) for kind in kinds)
        return self.version, self.is_recent, snapshot.present, snapshot.unreadable, lists, served, objects

    def defining(self, kind: GroupKind) -> tuple[Mapping[str, Any] | None, ...]:
        """Return the definitions that decide about a kind: clusters with what governs alike answer alike."""
        kinds = (k for k in (kind, *sorted(self.parameters)) if k.group not in BUILT_IN)
        return tuple(d.spec if (d := self.definition(k)) is not None else None for k in kinds)

    def resource_of(self, kind: GroupKind) -> tuple[str, bool | None]:
        """Return the plural of a kind, and whether its objects are in namespaces, None for unknown."""
        definition = self.definition(kind) if kind.group not in BUILT_IN else None
        if definition is not None:
            is_namespaced = definition.spec.get("scope") == "Namespaced"
            return str(value_at(definition.spec, "names", "plural")), is_namespaced
        return self.snapshot.resources.get(kind) or (kind.plural, _is_namespaced(kind))

    def namespace(self, name: str) -> Mapping[str, Any] | None:
        """Return a namespace with the label of its name, None where it is not known."""
        for value in self.objects(NAMESPACE):
            if value_at(value, "metadata", "name") == name:
                labels = {**(value_at(value, "metadata", "labels") or {}), NAME_LABEL: name}
                return {**value, "metadata": {**value["metadata"], "labels": labels}}
        return None

    def completed(self, value: Mapping[str, Any], definition: Definition | None = None) -> Mapping[str, Any]:
        """Return an object with the defaults of its kind; `definition` counts where there is none on main."""
        if (identity := identity_of(value)) is None or identity[0].group in BUILT_IN:
            return with_defaults(value, str(identity[0])) if identity is not None else value
        definition = self.definition(identity[0]) or definition
        version = str(value["apiVersion"]).rpartition("/")[2]
        schema = definition.schemas.get(version) if definition is not None else None
        return value if schema is None else schema.complete(value)


_CLUSTER_KINDS: Final = frozenset(
    {
        *("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "StorageClass"),
        *("PriorityClass", "RuntimeClass", "IngressClass", "CustomResourceDefinition", "APIService"),
        *("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "CSIDriver", "CSINode"),
        *("VolumeAttachment", "VolumeAttributesClass", "FlowSchema", "PriorityLevelConfiguration"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CertificateSigningRequest"),
        *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ClusterTrustBundle"),
        *("IPAddress", "ServiceCIDR", "DeviceClass", "ResourceSlice", "StorageVersionMigration"),
    }
)


def _is_namespaced(kind: GroupKind) -> bool | None:
    """Tell whether objects of a built-in kind are in namespaces, None for any other kind."""
    if kind.kind in _CLUSTER_KINDS:
        return False
    return True if kind.group in BUILT_IN else None


def identity_of(value: Mapping[str, Any]) -> tuple[GroupKind, str, str] | None:
    """Return kind, namespace and name of an object, None where it has none."""
    metadata, kind, api_version = value.get("metadata"), value.get("kind"), value.get("apiVersion")
    if not isinstance(metadata, Mapping) or not isinstance(kind, str) or not isinstance(api_version, str):
        return None
    group = api_version.rpartition("/")[0]
    return GroupKind(group, kind), str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def definitions_of(values: Iterable[Mapping[str, Any]]) -> Iterator[tuple[GroupKind, Definition]]:
    """Yield the definitions among objects, by what they define."""
    for value in values:
        if value.get("kind") == CRD.kind and (defined := defined_kind(value)) is not None:
            yield defined[0], Definition(defined[1])

"""Versions of kinds that a cluster does not serve, and stored versions that must not leave a definition.

Source: kubernetes.io/docs/reference/using-api/deprecation-guide; apiextensions,
ValidateCustomResourceDefinitionStoredVersions.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from reconciler.admission.cluster import BUILT_IN, CRD, Cluster, Definition
from reconciler.admission.defaults import items
from reconciler.admission.immutable import Fault, Version
from reconciler.inventory.snapshot import defined_kind
from reconciler.names.ids import GroupKind

_FOR_TOOLS: Final = (
    *("kpt.dev", "kustomize.config.k8s.io", "config.kubernetes.io", "meta.pkg.crossplane.io"),
    "meta.dev.upbound.io",
)
"""Groups of what tools read, which no cluster serves."""
_REMOVED: Final = """\
1.16 extensions/v1beta1 Deployment DaemonSet ReplicaSet NetworkPolicy PodSecurityPolicy
1.16 apps/v1beta1 Deployment StatefulSet ControllerRevision
1.16 apps/v1beta2 Deployment DaemonSet ReplicaSet StatefulSet ControllerRevision
1.22 admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration ValidatingWebhookConfiguration
1.22 apiextensions.k8s.io/v1beta1 CustomResourceDefinition
1.22 apiregistration.k8s.io/v1beta1 APIService
1.22 certificates.k8s.io/v1beta1 CertificateSigningRequest
1.22 coordination.k8s.io/v1beta1 Lease
1.22 extensions/v1beta1 Ingress
1.22 networking.k8s.io/v1beta1 Ingress IngressClass
1.22 rbac.authorization.k8s.io/v1beta1 Role RoleBinding ClusterRole ClusterRoleBinding
1.22 rbac.authorization.k8s.io/v1alpha1 Role RoleBinding ClusterRole ClusterRoleBinding
1.22 scheduling.k8s.io/v1beta1 PriorityClass
1.22 storage.k8s.io/v1beta1 CSIDriver CSINode StorageClass VolumeAttachment
1.25 batch/v1beta1 CronJob
1.25 discovery.k8s.io/v1beta1 EndpointSlice
1.25 events.k8s.io/v1beta1 Event
1.25 autoscaling/v2beta1 HorizontalPodAutoscaler
1.25 policy/v1beta1 PodDisruptionBudget PodSecurityPolicy
1.25 node.k8s.io/v1beta1 RuntimeClass
1.26 flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema PriorityLevelConfiguration
1.26 autoscaling/v2beta2 HorizontalPodAutoscaler
1.27 storage.k8s.io/v1beta1 CSIStorageCapacity
1.29 flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema PriorityLevelConfiguration
1.32 flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema PriorityLevelConfiguration
"""
_ENDS: Final[Mapping[tuple[str, str], Version]] = {
    (api_version, kind): (1, int(version.partition(".")[2]))
    for version, api_version, *kinds in map(str.split, _REMOVED.splitlines())
    for kind in kinds
}
"""The version of Kubernetes that serves a kind in an apiVersion no more."""


def find_unserved(
    value: Mapping[str, Any],
    kind: GroupKind,
    cluster: Cluster,
    proposed: Mapping[GroupKind, Definition],
) -> Fault | None:
    """Return why a cluster does not take an object in its apiVersion, None if it may.

    What its definition in the same change serves is served.
    """
    api_version = str(value.get("apiVersion"))
    ends = _ENDS.get((api_version, kind.kind))
    if ends is not None and cluster.version is not None and cluster.version >= ends:
        reason = f"Kubernetes serves no {kind.kind} of {api_version} since {ends[0]}.{ends[1]}"
        return Fault("apiVersion", reason, is_update=False)
    if kind.group in BUILT_IN:
        return None
    definition, name = cluster.definition(kind), api_version.rpartition("/")[2]
    if any(d is not None and name in d.served for d in (definition, proposed.get(kind))):
        return None
    if definition is None:
        # Another package may bring it first.
        is_unknown = cluster.knows(CRD) and not cluster.snapshot.versions_of(kind)
        is_for_tools = kind.group.endswith(_FOR_TOOLS)
        reason = f"the cluster has no definition of {kind}"
        return Fault("", reason, is_update=False, is_sure=False) if is_unknown and not is_for_tools else None
    serves = ", ".join(definition.served) or "no version"
    return Fault("apiVersion", f"its definition serves {serves}, not {name}", is_update=False)


def find_unstored(value: Mapping[str, Any], kind: GroupKind, cluster: Cluster) -> Iterator[Fault]:
    """Yield the stored versions of a definition that an update of it would leave out, with its objects."""
    defined = defined_kind(value) if kind == CRD else None
    stored = cluster.snapshot.stored.get(defined[0]) if defined is not None else None
    if defined is None or stored is None:
        return
    for name in stored.dropped_by(str(version.get("name")) for version in items(defined[1], "versions")):
        reason = f"{name} is a stored version, and the kind has {stored.objects}: migrate them first"
        yield Fault("status.storedVersions", reason, is_update=False)

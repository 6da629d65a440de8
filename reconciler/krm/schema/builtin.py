"""The lists of Kubernetes' own kinds that are merged by key, as data.

A line is `Type: part part ...`; a part is one of
`field.Type` (an object), `field[key,key=default]Type` (a list merged by keys; the type of its
elements may be left out), `field[]` (a set of scalars), `a|b|c` (at most one of these fields).
A type that a line does not name has no such list below it.
"""

import re
from functools import cache
from typing import Final

from reconciler.krm.schema.shapes import Shape

OBJECT: Final = "Object"
"""The type of a kind of which only the metadata is known."""

_V1_21: Final = """
ObjectMeta: finalizers[] ownerReferences[uid]
Object: metadata.ObjectMeta
Conditions: conditions[type]
Conditioned: metadata.ObjectMeta status.Conditions

Container: env[name]EnvVar ports[containerPort,protocol=TCP] volumeDevices[devicePath] volumeMounts[mountPath]
EphemeralContainer: env[name]EnvVar volumeDevices[devicePath] volumeMounts[mountPath]
EnvVar: value|valueFrom
EphemeralVolume: volumeClaimTemplate.Object
Volume: ephemeral.EphemeralVolume
PodSpec: containers[name]Container ephemeralContainers[name]EphemeralContainer initContainers[name]Container
PodSpec: hostAliases[ip] imagePullSecrets[name] topologySpreadConstraints[topologyKey,whenUnsatisfiable]
PodSpec: volumes[name]Volume
PodStatus: conditions[type] podIPs[ip]
Pod: metadata.ObjectMeta spec.PodSpec status.PodStatus
PodTemplateSpec: metadata.ObjectMeta spec.PodSpec
PodTemplate: metadata.ObjectMeta template.PodTemplateSpec
WorkloadSpec: template.PodTemplateSpec
Workload: metadata.ObjectMeta spec.WorkloadSpec status.Conditions
JobTemplate: metadata.ObjectMeta spec.WorkloadSpec
CronJobSpec: jobTemplate.JobTemplate
CronJob: metadata.ObjectMeta spec.CronJobSpec

NodeSpec: podCIDRs[]
NodeStatus: addresses[type] conditions[type]
Node: metadata.ObjectMeta spec.NodeSpec status.NodeStatus
ServiceSpec: ports[port,protocol=TCP]
Service: metadata.ObjectMeta spec.ServiceSpec status.Conditions
ServiceAccount: metadata.ObjectMeta secrets[name]
ComponentStatus: metadata.ObjectMeta conditions[type]
WebhookConfiguration: metadata.ObjectMeta webhooks[name]Webhook
CSINodeSpec: drivers[name]
CSINode: metadata.ObjectMeta spec.CSINodeSpec
Kustomization: configMapGenerator[name] secretGenerator[name]
"""

_SINCE: Final = """
Resources: claims[name]
Handler: exec|grpc|httpGet|sleep|tcpSocket
Lifecycle: postStart.Handler preStop.Handler
Container: resources.Resources lifecycle.Lifecycle
Container: livenessProbe.Handler readinessProbe.Handler startupProbe.Handler
EphemeralContainer: ports[containerPort,protocol=TCP]
Volume: configMap|csi|downwardAPI|emptyDir|ephemeral|hostPath|image|nfs|persistentVolumeClaim|projected|secret
PodSpec: resourceClaims[name] schedulingGates[name]
PodStatus: hostIPs[ip] resourceClaimStatuses[name]
Webhook: matchConditions[name]
AdmissionPolicySpec: matchConditions[name] variables[name]
AdmissionPolicy: metadata.ObjectMeta spec.AdmissionPolicySpec status.Conditions
"""

_KINDS_V1_21: Final = """
v1 Binding ConfigMap Endpoints Event LimitRange PersistentVolume ResourceQuota Secret
v1 ComponentStatus=ComponentStatus Namespace=Conditioned Node=Node PersistentVolumeClaim=Conditioned
v1 Pod=Pod PodTemplate=PodTemplate ReplicationController=Workload
v1 Service=Service ServiceAccount=ServiceAccount
admissionregistration.k8s.io/v1,v1beta1 MutatingWebhookConfiguration=WebhookConfiguration
admissionregistration.k8s.io/v1,v1beta1 ValidatingWebhookConfiguration=WebhookConfiguration
apiextensions.k8s.io/v1,v1beta1 CustomResourceDefinition
apiregistration.k8s.io/v1,v1beta1 APIService=Conditioned
apps/v1 ControllerRevision DaemonSet=Workload Deployment=Workload ReplicaSet=Workload StatefulSet=Workload
authentication.k8s.io/v1 TokenRequest TokenReview
authentication.k8s.io/v1beta1 TokenReview
authorization.k8s.io/v1,v1beta1 LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview
authorization.k8s.io/v1,v1beta1 SubjectAccessReview
autoscaling/v1 HorizontalPodAutoscaler Scale
autoscaling/v2beta1,v2beta2 HorizontalPodAutoscaler
batch/v1 CronJob=CronJob Job=Workload
batch/v1beta1 CronJob=CronJob
certificates.k8s.io/v1,v1beta1 CertificateSigningRequest
coordination.k8s.io/v1,v1beta1 Lease
discovery.k8s.io/v1,v1beta1 EndpointSlice
events.k8s.io/v1,v1beta1 Event
extensions/v1beta1 Ingress
flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema PriorityLevelConfiguration
kustomize.config.k8s.io/v1beta1 Kustomization=Kustomization
networking.k8s.io/v1 Ingress IngressClass NetworkPolicy
networking.k8s.io/v1beta1 Ingress IngressClass
node.k8s.io/v1,v1beta1 RuntimeClass
policy/v1 PodDisruptionBudget=Conditioned
policy/v1beta1 Eviction PodDisruptionBudget=Conditioned PodSecurityPolicy
rbac.authorization.k8s.io/v1,v1beta1 ClusterRole ClusterRoleBinding Role RoleBinding
scheduling.k8s.io/v1,v1beta1 PriorityClass
storage.k8s.io/v1,v1beta1 CSIDriver CSINode=CSINode StorageClass VolumeAttachment
storage.k8s.io/v1beta1 CSIStorageCapacity
"""

_KINDS_SINCE: Final = """
admissionregistration.k8s.io/v1,v1beta1,v1alpha1 ValidatingAdmissionPolicy=AdmissionPolicy
admissionregistration.k8s.io/v1,v1beta1,v1alpha1 MutatingAdmissionPolicy=AdmissionPolicy
apiextensions.k8s.io/v1 CustomResourceDefinition=Conditioned
apps/v1beta1,v1beta2 DaemonSet=Workload Deployment=Workload ReplicaSet=Workload StatefulSet=Workload
autoscaling/v2 HorizontalPodAutoscaler=Conditioned
certificates.k8s.io/v1 CertificateSigningRequest=Conditioned
extensions/v1beta1 DaemonSet=Workload Deployment=Workload ReplicaSet=Workload
flowcontrol.apiserver.k8s.io/v1beta2,v1beta3,v1 FlowSchema=Conditioned PriorityLevelConfiguration=Conditioned
networking.k8s.io/v1 ServiceCIDR=Conditioned
"""

_PART: Final = re.compile(r"(?P<field>\w+)(?:\[(?P<keys>[\w,=]*)\](?P<items>\w*)|\.(?P<ref>\w+))\Z")


@cache
def type_shape(name: str, *, since: bool = True) -> Shape | None:
    """Return the shape of a type by its short name; `since` False knows Kubernetes 1.21 only."""
    parts = _types(since=since).get(name)
    return None if parts is None else _shape(parts, since=since)


def kind_shape(api_version: str, kind: str, *, since: bool = True) -> Shape | None:
    """Return the shape of a kind that Kubernetes itself serves, None of any other kind."""
    name = _kinds(since=since).get((api_version, kind))
    return None if name is None else type_shape(name, since=since)


def _shape(parts: tuple[str, ...], *, since: bool) -> Shape:
    fields: dict[str, Shape] = {}
    unions = []
    for part in parts:
        if "|" in part:
            unions.append(frozenset(part.split("|")))
            continue
        found = _PART.match(part)
        if found is None:
            raise ValueError(f"{part!r} is no part of a type")
        shape = type_shape(found["ref"], since=since) if found["ref"] else _list(found, since=since)
        if shape is not None:
            fields[found["field"]] = shape
    return Shape(fields=fields, unions=tuple(unions))


def _list(found: re.Match[str], *, since: bool) -> Shape:
    named = [key.partition("=") for key in found["keys"].split(",") if key]
    return Shape(
        keys=tuple(name for name, _, _ in named),
        defaults={name: default for name, _, default in named if default},
        items=type_shape(found["items"], since=since) if found["items"] else None,
    )


@cache
def _types(*, since: bool) -> dict[str, tuple[str, ...]]:
    types: dict[str, tuple[str, ...]] = {}
    for line in (_V1_21 + _SINCE if since else _V1_21).splitlines():
        name, _, parts = line.partition(":")
        if name:
            types[name] = types.get(name, ()) + tuple(parts.split())
    return types


@cache
def _kinds(*, since: bool) -> dict[tuple[str, str], str]:
    kinds: dict[tuple[str, str], str] = {}
    for line in (_KINDS_V1_21 + _KINDS_SINCE if since else _KINDS_V1_21).splitlines():
        served, _, names = line.partition(" ")
        group, slash, versions = served.rpartition("/")
        for word in names.split():
            kind, _, name = word.partition("=")
            kinds |= {(f"{group}{slash}{version}", kind): name or OBJECT for version in versions.split(",")}
    return kinds

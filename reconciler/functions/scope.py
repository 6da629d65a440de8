"""Whether an object lives in a namespace, by the table that the function catalog uses."""

from typing import Final

from reconciler.functions.resource import Resource

_CLUSTER_SCOPED: Final = frozenset(
    (
        *(
            (group, "v1", kind)
            for group, kinds in {
                "": ("ComponentStatus", "Namespace", "Node", "PersistentVolume"),
                "admissionregistration.k8s.io": (
                    "MutatingWebhookConfiguration",
                    "ValidatingWebhookConfiguration",
                ),
                "apiextensions.k8s.io": ("CustomResourceDefinition",),
                "apiregistration.k8s.io": ("APIService",),
                "authentication.k8s.io": ("TokenReview",),
                "authorization.k8s.io": (
                    "SelfSubjectAccessReview",
                    "SelfSubjectRulesReview",
                    "SubjectAccessReview",
                ),
                "certificates.k8s.io": ("CertificateSigningRequest",),
                "networking.k8s.io": ("IngressClass",),
                "node.k8s.io": ("RuntimeClass",),
                "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding"),
                "scheduling.k8s.io": ("PriorityClass",),
                "storage.k8s.io": ("CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"),
            }.items()
            for kind in kinds
        ),
        ("policy", "v1beta1", "PodSecurityPolicy"),
        ("flowcontrol.apiserver.k8s.io", "v1beta1", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "v1beta1", "PriorityLevelConfiguration"),
        ("flowcontrol.apiserver.k8s.io", "v1beta2", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "v1beta2", "PriorityLevelConfiguration"),
        ("rbac.authorization.k8s.io", "v1beta1", "ClusterRole"),
        ("rbac.authorization.k8s.io", "v1beta1", "ClusterRoleBinding"),
    )
)
_NAMESPACED: Final = frozenset(
    (
        *(
            (group, "v1", kind)
            for group, kinds in {
                "": (
                    "Binding",
                    "ConfigMap",
                    "Endpoints",
                    "Event",
                    "LimitRange",
                    "PersistentVolumeClaim",
                    "Pod",
                    "PodTemplate",
                    "ReplicationController",
                    "ResourceQuota",
                    "Secret",
                    "Service",
                    "ServiceAccount",
                ),
                "apps": ("ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
                "authorization.k8s.io": ("LocalSubjectAccessReview",),
                "autoscaling": ("HorizontalPodAutoscaler",),
                "batch": ("CronJob", "Job"),
                "coordination.k8s.io": ("Lease",),
                "discovery.k8s.io": ("EndpointSlice",),
                "events.k8s.io": ("Event",),
                "networking.k8s.io": ("Ingress", "NetworkPolicy"),
                "policy": ("PodDisruptionBudget",),
                "rbac.authorization.k8s.io": ("Role", "RoleBinding"),
            }.items()
            for kind in kinds
        ),
        ("autoscaling", "v2beta1", "HorizontalPodAutoscaler"),
        ("autoscaling", "v2beta2", "HorizontalPodAutoscaler"),
        ("batch", "v1beta1", "CronJob"),
        ("discovery.k8s.io", "v1beta1", "EndpointSlice"),
        ("events.k8s.io", "v1beta1", "Event"),
        ("extensions", "v1beta1", "Ingress"),
        ("networking.k8s.io", "v1beta1", "Ingress"),
        ("policy", "v1beta1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io", "v1beta1", "Role"),
        ("rbac.authorization.k8s.io", "v1beta1", "RoleBinding"),
        ("storage.k8s.io", "v1beta1", "CSIStorageCapacity"),
    )
)


def is_namespaced(resource: Resource) -> bool:
    """Tell whether an object is namespaced; one of an unknown kind is if it says its namespace.

    Source: kpt-functions-sdk go/fn, precomputedIsNamespaceScoped.
    """
    version = resource.api_version.rpartition("/")[2]
    known = (resource.group, version, resource.kind)
    if known in _NAMESPACED:
        return True
    return known not in _CLUSTER_SCOPED and "namespace" in resource.metadata

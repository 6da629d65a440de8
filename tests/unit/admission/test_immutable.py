"""Fields that no update may change, by kind and version of Kubernetes."""

from typing import Any

import pytest

from reconciler.admission.immutable import FIELDS, ImmutableField, find_faults, quantity, same
from reconciler.krm.yaml import load_documents

OLD, NEW = (1, 31), (1, 33)


def read(text: str) -> dict[str, Any]:
    (document,) = load_documents(text.encode())
    return dict(document.value)


POD = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i:1}]}}"
PLACED = POD.replace("spec: {", "spec: {nodeSelector: {a: b}, affinity: {nodeAffinity: {a: b}}, ")
RESIZED = POD.replace("i:1", "i:1, resources: {limits: {cpu: 1}}")
SELECTOR = "selector: {matchLabels: {a: b}}"
BALANCER = "type: LoadBalancer, loadBalancerClass"
LOCAL = "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort"
HTTP = "scheme: HTTP, path: /"
CHECKED = "timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3"
COMPLETED = [
    ("livenessProbe: {httpGet: {port: 80}}", f"livenessProbe: {{httpGet: {{port: 80, {HTTP}}}, {CHECKED}}}"),
    ("readinessProbe: {grpc: {port: 80}}", f"readinessProbe: {{grpc: {{port: 80, service: ''}}, {CHECKED}}}"),
    ("lifecycle: {preStop: {httpGet: {port: 80}}}",
        f"lifecycle: {{preStop: {{httpGet: {{port: 80, {HTTP}}}}}}}"),
    ("env: [{name: n, valueFrom: {fieldRef: {fieldPath: a}}}]",
        "env: [{name: n, valueFrom: {fieldRef: {fieldPath: a, apiVersion: v1}}}]"),
    ("ports: [{containerPort: 80}]", "ports: [{containerPort: 80, protocol: TCP}]"),
    ("resources: {limits: {cpu: 1}}", "resources: {limits: {cpu: 1}, requests: {cpu: 1}}"),
]  # fmt: skip
"""Fields of a container, and the same with what the API server fills in."""
CLAIM = "volumeClaimTemplates: [{metadata: {name: data}, spec: {resources: {requests: {storage: 1Gi}}}}]"


def container(fields: str) -> str:
    return POD.replace("i:1", f"i:1, {fields}")


@pytest.mark.parametrize(
    ("kind", "old", "new", "faults"),
    [
        ("Deployment.apps", SELECTOR, "selector: {matchLabels: {a: c}}", ["spec.selector"]),
        ("Deployment.apps", f"{SELECTOR}, strategy: a", "selector: {matchLabels: {a: c}}, strategy: a",
            ["spec.selector"]),
        ("Deployment.apps", "replicas: 1", "replicas: 2", []),
        ("Deployment.apps", f"{SELECTOR}, strategy: null", f"{SELECTOR}, paused: false", []),
        ("DaemonSet.apps", SELECTOR, "selector: {matchLabels: {a: c}}", ["spec.selector"]),
        ("StatefulSet.apps", "serviceName: a", "serviceName: b", ["spec.serviceName"]),
        ("StatefulSet.apps", "serviceName: ''", "minReadySeconds: 5", []),
        ("StatefulSet.apps", "{}", "podManagementPolicy: OrderedReady", []),
        ("StatefulSet.apps", CLAIM, CLAIM.replace("1Gi", "2Gi"), ["spec.volumeClaimTemplates"]),
        ("StatefulSet.apps", CLAIM, CLAIM.replace("1Gi", "1024Mi"), []),
        ("StatefulSet.apps", CLAIM, CLAIM.replace("data}", "data, creationTimestamp: null}"), []),
        ("StatefulSet.apps", CLAIM, CLAIM.replace("data}", "data, labels: {a: b}}"),
            ["spec.volumeClaimTemplates"]),
        ("StatefulSet.apps", CLAIM, CLAIM.replace("spec: {", "spec: {volumeMode: Filesystem, "), []),
        ("Job.batch", f"template: {POD}", f"template: {POD.replace('i:1', 'i:2')}", ["spec.template"]),
        ("Job.batch", f"template: {POD}",
            f"template: {POD.replace('i:1', 'i:1, imagePullPolicy: IfNotPresent')}", []),
        ("Job.batch", f"suspend: true, template: {POD}", f"template: {POD.replace('i:1', 'i:2')}",
            ["spec.template"]),
        ("Job.batch", f"suspend: true, template: {POD}", f"template: {PLACED}", []),
        ("Job.batch", f"suspend: true, template: {POD}",
            f"template: {POD.replace('spec: {', 'spec: {affinity: {podAffinity: {a: b}}, ')}",
            ["spec.template"]),
        ("Job.batch", f"template: {POD}", f"template: {POD.replace('i:1', 'i:1, tty: false')}", []),
        *(("Job.batch", f"template: {container(old)}", f"template: {container(new)}", [])
            for old, new in COMPLETED),
        ("Job.batch", f"template: {container('livenessProbe: {httpGet: {port: 80}}')}",
            f"template: {container('livenessProbe: {httpGet: {port: 80, scheme: HTTPS}}')}",
            ["spec.template"]),
        ("Job.batch", "backoffLimit: 1", "backoffLimit: 2", []),
        ("Job.batch", "completions: 1", "completions: 2", ["spec.completions"]),
        ("Job.batch", "completions: 1, completionMode: Indexed",
            "completions: 2, parallelism: 2, completionMode: Indexed", []),
        ("PersistentVolumeClaim", "accessModes: [a]", "accessModes: [b]", ["spec.accessModes"]),
        ("PersistentVolumeClaim", "storageClassName: a", "{}", ["spec.storageClassName"]),
        ("PersistentVolumeClaim", "{}", "storageClassName: a", []),
        ("PersistentVolumeClaim", "{}", "volumeName: a", []),
        ("PersistentVolumeClaim", "volumeName: a", "{}", ["spec.volumeName"]),
        ("PersistentVolumeClaim", "{}", "selector: {matchLabels: {a: b}}", ["spec.selector"]),
        ("PersistentVolumeClaim", "dataSource: {name: a}", "dataSourceRef: {name: a}", []),
        ("PersistentVolumeClaim", "dataSource: {name: a}", "dataSource: {name: b}", ["spec.dataSource"]),
        ("PersistentVolumeClaim", "{}", "resources: {limits: {storage: 1Gi}}", ["spec.resources"]),
        ("PersistentVolumeClaim", "volumeAttributesClassName: a", "volumeAttributesClassName: b", []),
        ("PersistentVolumeClaim", "volumeAttributesClassName: a", "{}", ["spec.volumeAttributesClassName"]),
        ("PersistentVolumeClaim", "resources: {requests: {storage: 2Gi}}",
            "resources: {requests: {storage: 1Gi}}", ["spec.resources.requests.storage"]),
        ("PersistentVolumeClaim", "resources: {requests: {storage: 1Gi}}",
            "resources: {requests: {storage: 2Gi}}", []),
        ("PersistentVolume", "nfs: {path: /a}", "nfs: {path: /b}", ["spec.nfs"]),
        ("PersistentVolume", "csi: {driver: a}", "csi: {driver: a, controllerExpandSecretRef: {name: b}}",
            []),
        ("Service", "clusterIP: 10.0.0.1", "clusterIP: 10.0.0.2", ["spec.clusterIP"]),
        ("Service", "clusterIP: None", "{}", []),
        ("Service", "{}", "clusterIP: None", ["spec.clusterIP"]),
        ("Service", "{}", "clusterIP: 10.0.0.1", []),
        ("Service", "type: ExternalName", "clusterIP: None", []),
        ("Service", "clusterIPs: [10.0.0.1]", "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, '2001:db8::1']",
            []),
        ("Service", "clusterIPs: [a, b]", "clusterIPs: [a, c]", ["spec.clusterIP"]),
        ("Service", "ipFamilies: [IPv4]", "ipFamilies: [IPv6]", ["spec.ipFamilies"]),
        ("Service", "ipFamilies: [IPv4]", "ipFamilies: [IPv4, IPv6]", []),
        ("Service", f"{BALANCER}: a", f"{BALANCER}: b", ["spec.loadBalancerClass"]),
        ("Service", f"{BALANCER}: a", "type: ClusterIP", []),
        ("Service", f"{LOCAL}: 30001", f"{LOCAL}: 30002", ["spec.healthCheckNodePort"]),
        ("Service", f"{LOCAL}: 30001", f"{LOCAL}: 0", []),
        ("Service", f"{LOCAL}: 30001", f"{LOCAL.replace('Local', 'Cluster')}: 30002", []),
        ("ServiceCIDR.networking.k8s.io", "cidrs: [10.0.0.0/8]", "cidrs: [10.0.0.0/9]", ["spec.cidrs"]),
        ("ServiceCIDR.networking.k8s.io", "cidrs: [10.0.0.0/8]", "cidrs: [10.0.0.0/8, '2001:db8::/64']", []),
        ("ResourceQuota", "scopes: [BestEffort, Terminating]", "scopes: [Terminating, BestEffort]", []),
        ("CSIDriver.storage.k8s.io", "{}", "attachRequired: true, podInfoOnMount: true", []),
        ("PersistentVolume", "csi: {driver: a, readOnly: false}", "csi: {driver: a}", []),
        ("Pod", "containers: [{image: a}]", "containers: [{image: b}], tolerations: [{key: a}]", []),
        ("Pod", "containers: [{image: a}]", "containers: [{image: a, args: [b]}]", ["spec"]),
        ("Pod", "nodeSelector: {a: b}", "nodeSelector: {a: b, c: d}", ["spec"]),
        ("Pod", "schedulingGates: [{name: a}]", "nodeSelector: {a: b}", []),
        ("Pod", "{}", "serviceAccountName: a, nodeName: b", []),
        ("Pod", "serviceAccountName: a", "serviceAccountName: b", ["spec"]),
        ("Service", "ports: [{port: 80}]", "ports: [{port: 80, protocol: TCP, targetPort: 80}]", []),
        ("CustomResourceDefinition.apiextensions.k8s.io", "scope: Namespaced", "scope: Cluster",
            ["spec.scope"]),
        ("IngressClass.networking.k8s.io", "controller: a.b/c", "controller: a.b/d", ["spec.controller"]),
    ],
)  # fmt: skip
def test_update_of_a_spec_has_these_faults(kind: str, old: str, new: str, faults: list[str]) -> None:
    sides = [read(f"spec: {{{text}}}" if text != "{}" else "spec: {}") for text in (old, new)]

    assert [f.path for f in find_faults(*sides, kind, OLD) if f.is_update] == faults


@pytest.mark.parametrize(
    ("kind", "old", "new", "faults"),
    [
        ("Secret", "type: a", "type: b", ["type"]),
        ("Secret", "{}", "type: Opaque", []),
        ("Secret", "immutable: true\ndata: {a: Yg==}", "immutable: true\nstringData: {a: b}", []),
        ("Secret", "immutable: true\ndata: {a: Yg==}", "immutable: true\nstringData: {a: c}", ["data"]),
        ("ConfigMap", "immutable: true\ndata: {a: b}", "data: {a: c}", ["immutable", "data"]),
        ("ConfigMap", "data: {a: b}", "data: {a: c}\nimmutable: true", []),
        ("RoleBinding.rbac.authorization.k8s.io", "roleRef: {name: a}", "roleRef: {name: b}", ["roleRef"]),
        (
            "RoleBinding.rbac.authorization.k8s.io",
            "roleRef: {name: a}",
            "roleRef: {name: a, apiGroup: rbac.authorization.k8s.io}",
            [],
        ),
        ("PriorityClass.scheduling.k8s.io", "value: 1", "value: 2", ["value"]),
        ("EndpointSlice.discovery.k8s.io", "addressType: IPv4", "addressType: IPv6", ["addressType"]),
        ("VolumeAttributesClass.storage.k8s.io", "driverName: a", "driverName: a\nparameters: {}", []),
        ("RuntimeClass.node.k8s.io", "handler: a", "handler: b", ["handler"]),
        ("StorageClass.storage.k8s.io", "parameters: {a: '1'}", "parameters: {a: '2'}", ["parameters"]),
        ("StorageClass.storage.k8s.io", "{}", "reclaimPolicy: Delete", []),
        ("StorageClass.storage.k8s.io", "{}", "allowVolumeExpansion: true", []),
    ],
)
def test_update_of_an_object_has_these_faults(kind: str, old: str, new: str, faults: list[str]) -> None:
    assert [fault.path for fault in find_faults(read(old), read(new), kind, OLD)] == faults


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("roleRef", "cannot change roleRef"),
        ("provisioner", "updates to provisioner are forbidden"),
        ("value", "may not be changed in an update"),
        ("spec.selector", "field is immutable"),
    ],
)
def test_reason_is_in_the_words_of_the_api_server(path: str, reason: str) -> None:
    assert ImmutableField(path, frozenset(), OLD, NEW).reason == reason


def at(path: str, value: object, beside: str = "") -> dict[str, Any]:
    """Return an object with a value at a path, and with another field beside it."""
    *parents, last = path.split(".")
    built: dict[str, Any] = {last: value} | ({"mountOptions": beside} if beside else {})
    for name in reversed(parents):
        built = {name: built}
    return {"metadata": {"labels": {"a": beside}}} | built


ROWS = [(kind, rule) for kind, rules in FIELDS.items() for rule in rules]


@pytest.mark.parametrize(("kind", "rule"), ROWS, ids=[f"{kind} {rule.path}" for kind, rule in ROWS])
def test_row_refuses_its_field_alone_and_in_its_versions_alone(kind: str, rule: ImmutableField) -> None:
    values = ([1], [2]) if "set" in rule.flags else ({"name": "a"}, {"name": "b"})
    old, new = (at(rule.path, value) for value in values)
    first, last = max(rule.since, (1, 30)), min(rule.before, (1, 40))

    assert [f.path for f in find_faults(old, new, kind, first)] == [rule.path]
    assert [f.path for f in find_faults(old, new, kind, (1, last[1] - 1))] == [rule.path]
    assert not list(find_faults(old, at(rule.path, values[0], "b"), kind, first)), (
        "a field beside it may change"
    )
    for version in [(1, rule.since[1] - 1)] * (rule.since[1] > 0) + [rule.before] * (rule.before[1] < 100):
        assert not list(find_faults(old, new, kind, version))
    is_general = rule.since[1] == 0 and rule.before[1] > 100
    assert bool(list(find_faults(old, new, kind, None))) is is_general, "an unknown version refuses less"


def test_resources_of_a_suspended_job_and_the_least_size_of_a_claim_depend_on_the_version() -> None:
    jobs = [read(f"spec: {{suspend: true, template: {pod}}}") for pod in (POD, RESIZED)]
    claims = [read(f"spec: {{resources: {{requests: {{storage: {size}}}}}}}") for size in ("2Gi", "1Gi")]

    assert [bool(list(find_faults(*jobs, "Job.batch", v))) for v in (OLD, (1, 36), None)] == [
        True,
        False,
        False,
    ]
    reasons = [[f.reason for f in find_faults(*claims, "PersistentVolumeClaim", v)] for v in (OLD, NEW)]
    assert reasons == [
        ["field can not be less than previous value"],
        ["field can not be less than status.capacity"],
    ]


def test_fault_depends_on_the_version_of_kubernetes() -> None:
    sides = [read(f"spec: {{revisionHistoryLimit: {limit}}}") for limit in (1, 2)]

    assert [fault.path for fault in find_faults(*sides, "StatefulSet.apps", OLD)] == [
        "spec.revisionHistoryLimit"
    ]
    assert not list(find_faults(*sides, "StatefulSet.apps", NEW))
    assert not list(find_faults(*sides, "StatefulSet.apps", None)), "an unknown version refuses nothing more"


@pytest.mark.parametrize(("labels", "count"), [("{a: b}", 0), ("{a: c}", 1), ("{}", 1)])
def test_selector_has_to_select_its_own_template_also_in_a_new_object(labels: str, count: int) -> None:
    new = read(f"spec: {{{SELECTOR}, template: {{metadata: {{labels: {labels}}}}}}}")

    assert len(list(find_faults(None, new, "Deployment.apps", None))) == count


@pytest.mark.parametrize(
    "kind", ["Deployment.apps", "Service", "Pod", "StatefulSet.apps", "Job.batch", "PersistentVolume"]
)
@pytest.mark.parametrize(
    "text",
    ["spec: text", "spec: [a]", "spec: {strategy: a, ports: [a], template: {spec: {volumes: {a: b}}}}"],
)
def test_object_of_a_wrong_shape_has_no_fault(kind: str, text: str) -> None:
    assert not list(find_faults(read(text), read(text), kind, OLD))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1Gi", 1 << 30),
        ("1024Mi", 1 << 30),
        ("1500m", "1.5"),
        ("1k", 1000),
        (2, 2),
        ("1e3", 1000),
        ("a", None),
        ("", None),
    ],
)
def test_quantity_is_a_number(text: object, number: object) -> None:
    assert quantity(text) == (None if number is None else type(quantity(text))(str(number)))


def test_amounts_are_the_same_only_where_they_are_amounts() -> None:
    assert same({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}})
    assert not same({"parameters": {"size": "1"}}, {"parameters": {"size": "1000m"}})

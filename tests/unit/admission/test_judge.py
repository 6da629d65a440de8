"""What the API server of a cluster would answer to one object of a change, by its documented rules."""

from collections.abc import Sequence
from typing import Any

import pytest

from reconciler.admission.cluster import CRD, POLICY, Cluster
from reconciler.admission.defaults import with_defaults
from reconciler.admission.judge import Judge, ObjectChange
from reconciler.admission.policies import find_unasked
from reconciler.base.errors import Location
from reconciler.inventory.snapshot import ALL_NAMESPACES, Snapshot, SnapshotObject
from reconciler.krm.yaml import load_documents
from reconciler.names.ids import GroupKind

LIMITS = GroupKind("x.io", "Limit")


def read(text: str) -> dict[str, Any]:
    (document,) = load_documents(text.encode())
    return dict(document.value)


def verdicts(
    old: str, new: str, governing: Sequence[dict[str, Any]], *, complete: Sequence[GroupKind] = ()
) -> list[tuple[str, str]]:
    """Return verdict and message of each judgement; a side is "" where the object is not there."""
    snapshot = Snapshot(present=True, complete=frozenset((kind, ALL_NAMESPACES) for kind in complete))
    on_main = [
        *governing,
        read("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: dev}}"),
    ]
    cluster = Cluster("c", snapshot, read_main=lambda kind, _: [v for v in on_main if v["kind"] == kind.kind])
    change = ObjectChange(*(read(text) if text else None for text in (old, new)))
    return [(str(j.verdict), str(j.message)) for j in Judge(cluster).judge(change)]


def definition(schema: str, versions: Sequence[str] = ("v1",), more: str = "") -> dict[str, Any]:
    listed = "".join(
        f"  - {{name: {name}, served: true, storage: {str(name == versions[0]).lower()}, "
        f"schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {schema}}}}}}}}}\n"
        for name in versions
    )
    return read(f"""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: limits.x.io}}
spec:
  group: x.io
  scope: Cluster
  names: {{kind: Limit, plural: limits}}
  {more or "conversion: {strategy: None}"}
  versions:
{listed}""")


def limit(spec: str, version: str = "v1") -> str:
    return f"apiVersion: x.io/{version}\nkind: Limit\nmetadata: {{name: a}}\nspec: {spec}\n"


RULES = "x-kubernetes-validations: [{rule: 'self == oldSelf', message: fixed}]"
FIXED = f"{{type: object, properties: {{a: {{type: string, {RULES}}}, b: {{type: string}}}}}}"
OPTIONAL = (
    "rule: 'oldSelf.hasValue() || self == \"a\"', optionalOldSelf: true, "
    'messageExpression: \'oldSelf.hasValue() ? "old" : "new " + self\''
)
SET_ONCE = (
    f"{{type: object, properties: {{a: {{type: string, x-kubernetes-validations: [{{{OPTIONAL}}}]}}}}}}"
)
MODE = "{type: object, properties: {m: {type: string, default: x, nullable: true, enum: [x, y]}}}"
MAP = "{type: object, additionalProperties: {type: string}}"
LIST = "{type: object, properties: {l: {type: array, items: {type: string, default: z}}}}"
PORT = "{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], pattern: '^[0-9]+%?$'}"
OPEN = "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: integer}}}"
WEBHOOK = "conversion: {strategy: Webhook}"


@pytest.mark.parametrize(
    ("crd", "old", "new", "answers"),
    [
        pytest.param(definition(FIXED), limit("{a: p}"), limit("{a: q}"), [("refused", "spec.a: fixed")],
            id="transition"),
        pytest.param(definition(FIXED), limit("{b: p}"), limit("{a: q}"), [],
            id="a value that is new has no old one"),
        pytest.param(definition(FIXED), limit("{a: p}"), limit("{b: q}"), [],
            id="one that goes is not compared"),
        pytest.param(definition(SET_ONCE), "", limit("{a: b}"), [("refused", "spec.a: new b")],
            id="optional oldSelf, new"),
        pytest.param(definition(SET_ONCE), limit("{a: a}"), limit("{a: b}"), [], id="optional oldSelf, old"),
        pytest.param(definition(MODE), "", limit("{m: null}"),
            [("refused", "spec.m: must be of type string")], id="null that the enum lacks"),
        pytest.param(definition(MODE), "", limit("{}"), [], id="default"),
        pytest.param(definition(MAP), "", limit("{a: null}"), [], id="null in a map goes"),
        pytest.param(definition(LIST), "", limit("{l: [null, b]}"), [], id="null in a list gets the default"),
        pytest.param(definition(f"{{type: object, properties: {{p: {PORT}}}}}"), "", limit("{p: 5}"), [],
            id="a pattern is for texts"),
        pytest.param(definition(f"{{type: object, properties: {{p: {PORT}}}}}"), "", limit("{p: 5x}"),
            [("refused", "spec.p: should match '^[0-9]+%?$'")], id="int or string"),
        pytest.param(definition(OPEN), "", limit("{b: {c: [1]}, a: 1}"), [], id="unknown fields stay"),
        pytest.param(definition(OPEN), "", limit("{b: 1, a: x}"),
            [("refused", "spec.a: must be of type integer")], id="known ones are checked"),
        pytest.param(definition(FIXED, ("v1", "v2")), limit("{a: p}"), limit("{a: q}", "v2"),
            [("refused", "spec.a: fixed")], id="another version, alike"),
        pytest.param(definition(FIXED, ("v1", "v2"), WEBHOOK), limit("{a: p}"), limit("{a: q}", "v2"),
            [("not judged", "spec.a: fixed")], id="another version, converted"),
        pytest.param(definition(OPEN, ("v1", "v2"), WEBHOOK), limit("{a: 1}"), limit("{a: p}", "v2"),
            [("not judged", "spec.a: must be of type integer")], id="a fault that conversion may explain"),
        pytest.param(definition(OPEN), "", limit("{}", "v3"),
            [("refused", "apiVersion: its definition serves v1, not v3")], id="a version that is not served"),
        pytest.param(
            {
                **definition(OPEN, ()),
                "spec": {**definition(OPEN, ())["spec"], "versions": [], "version": "v1"},
            },
            "",
            limit("{}"),
            [],
            id="the version of a definition in v1beta1",
        ),
    ],
)  # fmt: skip
def test_custom_resource_is_judged_by_its_definition(
    crd: dict[str, Any], old: str, new: str, answers: list[tuple[str, str]]
) -> None:
    assert verdicts(old, new, [crd]) == answers


@pytest.mark.parametrize(
    ("api_version", "kind", "is_known"),
    [
        ("resource.k8s.io/v1", "ResourceClaim", True),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", True),
        ("x.io/v1", "Limit", False),
        ("meta.dev.upbound.io/v1alpha1", "Project", True),
    ],
)
def test_kinds_of_kubernetes_and_of_tools_have_no_definition(
    api_version: str, kind: str, *, is_known: bool
) -> None:
    new = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n"

    assert (verdicts("", new, [], complete=[CRD]) == []) is is_known


def policy(expression: str, rule: str = "", *, binding: str = "", **spec: str) -> list[dict[str, Any]]:
    """Return a policy with this validation and its binding."""
    rule = rule or LIMIT_RULE
    more = "".join(f"  {key}: {value}\n" for key, value in spec.items())
    kind = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy"
    return [
        read(f"""\
{kind}
metadata: {{name: p}}
spec:
  matchConstraints: {{resourceRules: [{{{rule}}}]}}
{more}{"" if "validations" in spec else f'  validations: [{{expression: "{expression}", message: bad}}]'}"""),
        read(f"""\
{kind}Binding
metadata: {{name: p}}
spec: {{policyName: p, validationActions: [Deny]{binding}}}
"""),
    ]


APP = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
"""
DEPLOYMENTS = "apiGroups: [apps], apiVersions: ['*'], operations: ['*'], resources: [deployments]"
OLD_APPS = DEPLOYMENTS.replace("'*'", "v1beta1", 1)
PARAMS = {"paramKind": "{apiVersion: x.io/v1, kind: Limit}"}
DENY = ", paramRef: {name: a, parameterNotFoundAction: Deny}"
REFUSED = [("refused", "policy p: bad")]
BROKEN = "policy p: failed to configure binding: "
NO_PARAMS = f"{BROKEN}no params found for policy binding with `Deny` parameterNotFoundAction"
NAMESPACED = f"{BROKEN}cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
WARN = read("""\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Warn, Audit], paramRef: {name: z, parameterNotFoundAction: Deny}}
""")
ALL = ", paramRef: {selector: {matchLabels: {for: apps}}, parameterNotFoundAction: Deny}"
HERE = "policy p cannot be judged: its parameters are in its namespace, which is not known"
TWICE = "[{expression: object.nope == 1}, {expression: 'false', message: bad}]"
NAME = "+ object.metadata.name"
COMPUTED = "[{expression: 'false', message: bad, messageExpression: '\"no \" + object.metadata.name'}]"
SPACED = ", paramRef: {name: a, namespace: shop}"
OF_LABELS = "}}], objectSelector: {{{}}}, excludeResourceRules: [{{resources: [x]"
EVERYTHING = "apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']"
SCOPED = f"{BROKEN}paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
UNLISTED = "policy p cannot be judged: not all parameters of kind ConfigMap are known"
CONDITIONS = "[{name: a, expression: object.nope == 1}, {name: b, expression: 'false'}]"
SPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, labels: {{env: {}}}}}\n"
OF_SPACE = "}], namespaceSelector: {matchLabels: {env: N}}, excludeResourceRules: [{resources: [x]"
SPACES = f"apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [namespaces]{OF_SPACE}"
NO_SPACE = "policy p cannot be judged: it selects namespaces, and that of the object is not known"
NAMED = "{kubernetes.io/metadata.name: shop}"
LIMIT_RULE = "apiGroups: ['x.io'], apiVersions: [v1], operations: ['*'], resources: [limits]"
CONVERTED = "policy p cannot be judged: it is for another version of Deployment"
DEFAULT = definition("{type: object, default: {}, properties: {most: {type: integer, default: 3}}}")


@pytest.mark.parametrize(
    ("old", "new", "governing", "answers"),
    [
        pytest.param(APP, "", policy("request.operation != 'DELETE'", DEPLOYMENTS),
            [("refused", "policy p for its deletion: bad")], id="deletion"),
        pytest.param(APP, "", policy("oldObject.metadata.name == 'web' && object == null", DEPLOYMENTS), [],
            id="a deletion has an old object only"),
        pytest.param("", APP, policy("object.spec.replicas == 1", DEPLOYMENTS), [],
            id="a default of a built-in kind"),
        pytest.param("", APP,
            [*policy("false", DEPLOYMENTS), read(str(policy("false")[0]).replace("'p'", "'other'"))], REFUSED,
            id="a policy beside one for another kind"),
        pytest.param("", APP, policy("false", OLD_APPS), [("not judged", CONVERTED)],
            id="a rule for another version"),
        pytest.param("", APP,
            policy("false", OLD_APPS + "}], matchPolicy: Exact, excludeResourceRules: [{resources: [x]"), [],
            id="exactly another version"),
        pytest.param("", APP, policy("namespaceObject.metadata.labels.env == 'prod'", DEPLOYMENTS), REFUSED,
            id="the namespace"),
        pytest.param("", APP,
            policy("'kubernetes.io/metadata.name' in namespaceObject.metadata.labels", DEPLOYMENTS), [],
            id="the label of a namespace"),
        pytest.param("", APP.replace("shop", "new"), policy("namespaceObject != null", DEPLOYMENTS),
            [("not judged", "policy p cannot be judged: its namespace is not known")],
            id="a namespace that is not known"),
        pytest.param("", limit("{}"), [*policy("namespaceObject == null"), DEFAULT], [], id="no namespace"),
        pytest.param(
            "",
            APP,
            [
                *policy("object.spec.replicas > params.spec.most", DEPLOYMENTS, binding=DENY, **PARAMS),
                DEFAULT,
                read(limit("{}")),
            ],
            REFUSED,
            id="a parameter with defaults",
        ),
        pytest.param("", APP, [*policy("true", DEPLOYMENTS, binding=DENY, **PARAMS), DEFAULT],
            [("refused", NO_PARAMS)], id="no parameter"),
        pytest.param("", APP,
            [*policy("true", DEPLOYMENTS, binding=DENY, failurePolicy="Ignore", **PARAMS), DEFAULT], [],
            id="no parameter, and errors are ignored"),
        pytest.param("", APP, policy("false", DEPLOYMENTS, failurePolicy="Ignore"), REFUSED,
            id="failurePolicy is about errors alone"),
        pytest.param(
            "",
            APP,
            policy(
                "false",
                DEPLOYMENTS,
                matchConditions="[{name: u, expression: 'request.userInfo.username == \"x\"'}]",
            ),
            [("not judged", 'policy p cannot be judged: Key not found in map : "userInfo"')],
            id="who asks is not known",
        ),
        pytest.param(
            "",
            APP,
            policy(
                "variables.b",
                DEPLOYMENTS,
                variables="[{name: a, expression: object.x}, {name: b, expression: 'true || variables.a'}]",
            ),
            [],
            id="a variable that fails and does not matter",
        ),
        pytest.param(
            "",
            APP,
            [
                *policy("true", DEPLOYMENTS, binding=DENY.replace("name: a", "name: z"), **PARAMS),
                DEFAULT,
                WARN,
            ],
            [("refused", NO_PARAMS)],
            id="no parameter, and a binding that warns",
        ),
        pytest.param(
            "",
            APP,
            [
                *policy("params.spec.most > 3", DEPLOYMENTS, binding=ALL, **PARAMS),
                DEFAULT,
                read(limit("{}").replace("name: a", "name: a, labels: {for: apps}")),
                read(limit("{most: 1}").replace("name: a", "name: b, labels: {for: apps}")),
                read(limit("{most: 0}").replace("name: a", "name: c")),
            ],
            REFUSED,
            id="parameters by their labels",
        ),
        pytest.param("", APP, [*policy("false", DEPLOYMENTS)[:1], WARN], [("warned", "policy p: bad")],
            id="warn"),
        pytest.param("", limit("{}"),
            [*policy("true", binding=DENY, paramKind="{apiVersion: v1, kind: ConfigMap}"), DEFAULT],
            [("refused", NAMESPACED)], id="a parameter in a namespace, for an object in none"),
        pytest.param("", APP.replace(", namespace: shop", ""),
            policy("true", DEPLOYMENTS, binding=DENY, paramKind="{apiVersion: v1, kind: ConfigMap}"),
            [("not judged", HERE)], id="a parameter in the namespace of an object that names none"),
        pytest.param("", APP, policy("", DEPLOYMENTS, validations=TWICE),
            [("not judged", 'policy p cannot be judged: Key not found in map : "nope"'), *REFUSED],
            id="one validation fails, and another one cannot be judged"),
        pytest.param("", APP, policy("false", DEPLOYMENTS, matchConditions=CONDITIONS), [],
            id="a condition that is false decides"),
        pytest.param("", APP, policy("false", DEPLOYMENTS.replace("deployments", "deployments/*")), REFUSED,
            id="all of it"),
        pytest.param("", APP, policy("false", f"{OLD_APPS}}}, {{{DEPLOYMENTS}"), REFUSED,
            id="a rule for another version, and one for its own"),
        pytest.param(SPACE.format("a"), SPACE.format("b"), policy("false", SPACES.replace("N", "a")), [],
            id="labels that a namespace has no more"),
        pytest.param(SPACE.format("a"), SPACE.format("b"), policy("false", SPACES.replace("N", "b")), REFUSED,
            id="its new labels"),
        pytest.param("", APP, policy("false", DEPLOYMENTS + OF_SPACE.replace("N", "dev")), REFUSED,
            id="the labels of its namespace"),
        pytest.param("", APP, policy("false", DEPLOYMENTS + OF_SPACE.replace("N", "prod")), [],
            id="other labels than those of its namespace"),
        pytest.param("", APP.replace("shop", "new"), policy("false", DEPLOYMENTS + OF_SPACE),
            [("not judged", "policy p cannot be judged: the labels of namespace new are not known")],
            id="the labels of a namespace that is not known"),
        pytest.param("", limit("{}"), [*policy("false", LIMIT_RULE + OF_SPACE), DEFAULT], REFUSED,
            id="an object in no namespace is not selected by one"),
        pytest.param("", SPACE.format("a"), policy("false", SPACES.replace("{env: N}", NAMED)), REFUSED,
            id="a namespace by the label of its name"),
        pytest.param(SPACE.format("a"), "", policy("false", SPACES.replace("N", "a")),
            [("refused", "policy p for its deletion: bad")], id="the labels of a namespace that goes"),
        pytest.param("", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
            policy("false", SPACES.replace("N", "a")), [], id="a namespace without labels"),
        pytest.param("", APP.replace(", namespace: shop", ""), policy("false", DEPLOYMENTS + OF_SPACE),
            [("not judged", NO_SPACE)], id="a namespace that the object does not name"),
        pytest.param("", APP, policy("false", DEPLOYMENTS + ", scope: Cluster"), [], id="scope"),
        pytest.param("", APP, policy("false", DEPLOYMENTS + ", resourceNames: [other]"), [], id="names"),
        pytest.param("", APP, policy("false", DEPLOYMENTS.replace("deployments", "deployments/scale")), [],
            id="a subresource"),
        pytest.param("", APP, policy("false", SPACES.replace("namespaces", "pods").partition("}")[0]),
            [("refused", "policy p for its Pods: bad")], id="the Pods of a workload"),
        pytest.param("", APP,
            policy("false", DEPLOYMENTS, matchConditions="[{name: a, expression: 'true'}]"), REFUSED,
            id="a condition that holds"),
        pytest.param("", APP, policy("", DEPLOYMENTS, validations=COMPUTED),
            [("refused", "policy p: no web")], id="a message that is computed"),
        pytest.param("", APP, policy("", DEPLOYMENTS, validations=COMPUTED.replace(f'no " {NAME}', ' "')),
            REFUSED, id="a message that is computed as nothing"),
        pytest.param("", APP, policy("", DEPLOYMENTS, validations="[{expression: '1'}]"),
            [("not judged", "policy p cannot be judged: its result is no boolean")], id="no boolean"),
        pytest.param("", APP,
            policy("false", DEPLOYMENTS, binding=", matchResources: {resourceRules: [{resources: [x]}]}"),
            [],
            id="a binding for other resources"),
        pytest.param("", APP, policy("false", DEPLOYMENTS + OF_LABELS.format("matchLabels: {a: b}")), [],
            id="labels that it does not have"),
        pytest.param(APP, APP.replace("{name: web,", "{name: web, labels: {a: b},"),
            policy("false", DEPLOYMENTS + OF_LABELS.format("matchLabels: {a: b}")), REFUSED,
            id="labels that it did not have before"),
        pytest.param("", APP,
            policy("false", DEPLOYMENTS + OF_LABELS.format("matchExpressions: [{key: a}]")),
            [("not judged", "policy p cannot be judged: a selector of it is none")],
            id="a selector that is none"),
        pytest.param("", str(policy("true")[0]), policy("false", EVERYTHING), [],
            id="no policy is for policies"),
        pytest.param("", APP, [*policy("true", DEPLOYMENTS, binding=SPACED, **PARAMS), DEFAULT],
            [("refused", SCOPED)], id="a namespace for a parameter that is in none"),
        pytest.param("", APP,
            policy("true", DEPLOYMENTS, binding=DENY, paramKind="{apiVersion: v1, kind: ConfigMap}"),
            [("not judged", UNLISTED)], id="a parameter that may be there"),
        pytest.param("", limit("{}", "v2"), [*policy("false"), definition(OPEN, ("v1", "v2"))], REFUSED,
            id="a rule for another version that is alike"),
    ],
)  # fmt: skip
def test_policy_decides(
    old: str, new: str, governing: list[dict[str, Any]], answers: list[tuple[str, str]]
) -> None:
    found = verdicts(old, new, governing, complete=[LIMITS])

    assert [answer for answer in found if "policy p" in answer[1]] == answers


IMAGES = ("Always: r:5000/i", "Always: i:latest", "IfNotPresent: i:1", "IfNotPresent: i@sha256:0")
ITEMS = "{items: [{fieldRef: {apiVersion: v1}}]}"
PROBES = "{p: 1, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}"


@pytest.mark.parametrize(
    ("kind", "spec", "completed"),
    [
        ("Pod", "serviceAccountName: a",
            ("dnsPolicy: ClusterFirst, restartPolicy: Always, serviceAccount: a, securityContext: {}, "
            "enableServiceLinks: true, schedulerName: default-scheduler, terminationGracePeriodSeconds: 30")),
        ("Pod", "volumes: [{a: b}, {name: s, secret: {}}, {hostPath: {}}, {projected: {defaultMode: 1}}]",
            ("volumes: [{a: b, emptyDir: {}}, {name: s, secret: {defaultMode: 420}}, "
            "{hostPath: {type: ''}}, {projected: {defaultMode: 1}}]")),
        ("Pod", ("volumes: [{projected: {sources: [{serviceAccountToken: {}}, "
            "{downwardAPI: {items: [{fieldRef: {}}]}}]}}, {downwardAPI: {items: [{fieldRef: {}}]}}]"),
            ("volumes: [{projected: {defaultMode: 420, sources: [{serviceAccountToken: "
            f"{{expirationSeconds: 3600}}}}, {{downwardAPI: {ITEMS}}}]}}}}, "
            f"{{downwardAPI: {{defaultMode: 420, {ITEMS[1:]}}}]")),
        *(("Pod", f"containers: [{{image: '{image}', terminationMessagePath: /a}}]",
            (f"containers: [{{image: '{image}', imagePullPolicy: {policy}, resources: {{}}, "
            "terminationMessagePath: /a, terminationMessagePolicy: File}]"))
            for policy, image in (text.split(": ") for text in IMAGES)),
        ("Pod.hostNetwork", "initContainers: [{ports: [{containerPort: 1}]}]",
            "initContainers: [{ports: [{containerPort: 1, protocol: TCP, hostPort: 1}]}]"),
        ("Pod", ("containers: [{ports: [{containerPort: 1}], env: [{name: a}, {valueFrom: {fieldRef: {}}}], "
            "resources: {limits: {cpu: 1, memory: 2}, requests: {cpu: 0}}}]"),
            ("containers: [{ports: [{containerPort: 1, protocol: TCP}], env: [{name: a}, "
            "{valueFrom: {fieldRef: {apiVersion: v1}}}], "
            "resources: {limits: {cpu: 1, memory: 2}, requests: {cpu: 0, memory: 2}}}]")),
        ("Pod",
            ("ephemeralContainers: [{livenessProbe: {p: 1}, readinessProbe: {p: 1}, startupProbe: {p: 1}, "
            "lifecycle: {preStop: {httpGet: {path: /a}}, postStart: {httpGet: {}}}}]"),
            (f"ephemeralContainers: [{{livenessProbe: {PROBES}, readinessProbe: {PROBES}, "
            f"startupProbe: {PROBES}, lifecycle: {{preStop: {{httpGet: {{scheme: HTTP, path: /a}}}}, "
            "postStart: {httpGet: {scheme: HTTP, path: /}}}}]")),
        ("Deployment.apps", "strategy: {type: Recreate}", ("strategy: {type: Recreate}, replicas: 1, "
            "revisionHistoryLimit: 10, progressDeadlineSeconds: 600")),
        ("Deployment.apps", "strategy: {rollingUpdate: {maxSurge: 1}}",
            "strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}"),
        ("StatefulSet.apps", "volumeClaimTemplates: [{}]", ("replicas: 1, revisionHistoryLimit: 10, "
            "podManagementPolicy: OrderedReady, updateStrategy: {type: RollingUpdate}, "
            "volumeClaimTemplates: [{spec: {volumeMode: Filesystem}}]")),
        ("Job.batch", "a: 1", "completions: 1, parallelism: 1, backoffLimit: 6, completionMode: NonIndexed"),
        ("Job.batch", "completions: 2", "completions: 2, parallelism: 1, suspend: false"),
        ("Job.batch", "parallelism: 2", "parallelism: 2, completions: null"),
        ("Service", "ports: [{port: 80}]", ("type: ClusterIP, sessionAffinity: None, "
            "internalTrafficPolicy: Cluster, ports: [{port: 80, targetPort: 80, protocol: TCP}]")),
        ("Service", "type: ExternalName, x: null", "type: ExternalName, internalTrafficPolicy: null"),
        ("Other.x.io", "a: 1, replicas: null", "a: 1, replicas: null"),
    ],
)  # fmt: skip
def test_object_is_completed_as_by_the_api_server(kind: str, spec: str, completed: str) -> None:
    kind, _, more = kind.partition(".h")
    value = read(f"{{{spec}{', hostNetwork: true' if more else ''}}}")

    done = with_defaults({"spec": value}, kind)["spec"]

    for key, part in read(f"{{{completed}}}").items():
        if isinstance(part, list) and "ontainers" in key:  # only what a row is about
            for container, fields in zip(done[key], part, strict=True):
                assert container == container | fields
        else:
            assert done.get(key) == part
    assert None not in done.values()


@pytest.mark.parametrize(
    ("kind", "rules", "named"),
    [
        ("ValidatingWebhookConfiguration", f"{{resources: [x]}}, {{{DEPLOYMENTS}}}", True),
        ("MutatingWebhookConfiguration", "{apiGroups: [''], resources: [pods]}", True),
        ("MutatingAdmissionPolicy", f"{{{DEPLOYMENTS}}}", True),
        ("MutatingAdmissionPolicy", f"{{{LIMIT_RULE}}}", False),
        ("ValidatingWebhookConfiguration", "{apiGroups: ['*'], resources: [pods/*]}", True),
        ("ValidatingWebhookConfiguration", "{apiGroups: [apps], resources: [pods]}", False),
    ],
)  # fmt: skip
def test_what_only_the_api_server_asks_is_named(kind: str, rules: str, *, named: bool) -> None:
    fields = f"webhooks: [{{rules: [{rules}]}}]"
    if kind.endswith("Policy"):
        fields = f"spec: {{matchConstraints: {{resourceRules: [{rules}]}}}}"
    decider = read(f"apiVersion: {POLICY.group}/v1\nkind: {kind}\nmetadata: {{name: w}}\n{fields}")
    cluster = Cluster("c", Snapshot(present=True), read_main=lambda k, _: [decider] if k.kind == kind else [])

    assert list(find_unasked(GroupKind("apps", "Deployment"), cluster)) == ([f"{kind} w"] if named else [])


def test_version_that_objects_are_stored_in_has_to_stay() -> None:
    there = definition(OPEN, ("v1", "v2")) | {"status": {"storedVersions": ["v1", "v2"]}}
    api = ("apiextensions.k8s.io/v1", CRD.kind)
    listed = SnapshotObject(*api, "", "limits.x.io", {}, {}, there, Location("crd.yaml"))
    snapshot = Snapshot(present=True, objects={api: (listed,)})
    judge = Judge(Cluster("c", snapshot))

    (judgement,) = judge.judge_stored(definition(OPEN, ("v1",)))

    assert "v2 is a stored version, and the kind has an unknown number of objects" in judgement.message
    assert list(judge.judge_stored(there)) == []


@pytest.mark.parametrize(("served", "is_known"), [(["Pod"], True), (["Pod", POLICY.kind], False)])
def test_a_cluster_without_the_api_of_policies_has_none(served: list[str], *, is_known: bool) -> None:
    cluster = Cluster("c", Snapshot(present=True, served=frozenset(("v1", kind) for kind in served)))

    assert cluster.knows(POLICY) is is_known

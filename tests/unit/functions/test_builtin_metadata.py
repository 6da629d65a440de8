"""Builtin functions that set names, namespaces, labels and annotations."""

import pytest

from tests.support.builtins import Row, body, check_row, config_of, ids, of_kind


def other(kind: str, name: str, namespace: str = "") -> str:
    """Return a further document of the file."""
    where = f"  namespace: {namespace}\n" if namespace else ""
    return f"---\napiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n{where}"


REFERRING = """apiVersion: v1
kind: Pod
metadata:
  name: {0}a
  namespace: one
spec:
  serviceAccountName: {0}account
  priorityClassName: {0}class
  volumes:
  - configMap:
      name: {0}map
  - configMap:
      name: elsewhere
  - secret:
      secretName: {0}secret
"""
REFERRED = "".join(
    other(kind, "{0}" + name, namespace)
    for kind, name, namespace in (
        *(("ConfigMap", "map", "one"), ("ConfigMap", "elsewhere", "two"), ("Secret", "secret", "one")),
        *(("ServiceAccount", "account", "one"), ("PriorityClass", "class", "")),
    )
)
BINDING = """apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {0}a
  namespace: one
roleRef:
  kind: Role
  name: {0}role
subjects:
- kind: ServiceAccount
  name: {0}account
  namespace: two
- kind: User
  name: role
"""
BINDING += other("Role", "{0}role", "one") + other("ServiceAccount", "{0}account", "two")
DEPENDS = body().replace("name: a\n", "name: {0}a\n") + (
    "  annotations:\n    config.kubernetes.io/depends-on: "
    "/namespaces/one/Secret/{0}secret, /PriorityClass/{0}class, /Secret/secret\n"
)
DEPENDS += other("Secret", "{0}secret", "one") + other("PriorityClass", "{0}class")
NAMESPACE = of_kind("v1", "Namespace")


@pytest.mark.parametrize(
    "row",
    [
        Row("a prefix", {"prepend": "p-"}, body(), body().replace("name: a", "name: p-a"), ()),
        Row("a suffix", {"append": "-s"}, body(), body().replace("name: a", "name: a-s"), ()),
        Row("it is there", {"append": "a"}, body(), body(), ()),
        Row("both", {"append": "a", "prepend": "b"}, body(),
            "error: one of prepend and append must be given"),
        Row("neither", {"append": ""}, body(), "error: one of prepend and append must be given"),
        Row("a namespace keeps its name", {"prepend": "p-"}, NAMESPACE, NAMESPACE),
        Row("references by their fields, in one namespace", {"prepend": "p-"},
            (REFERRING + REFERRED).format(""), (REFERRING + REFERRED).format("p-")),
        Row("references by kind", {"prepend": "p-"}, BINDING.format(""), BINDING.format("p-")),
        Row("dependencies", {"prepend": "p-"}, DEPENDS.format(""), DEPENDS.format("p-")),
        Row("fields of the configuration",
            config_of("EnsureNameSubstring", substring="p-", editMode="prepend",
            additionalNameFields=[{"kind": "ConfigMap", "path": "data/k"}]), body("  k: x"),
            body("  k: p-x").replace("name: a", "name: p-a")),
        Row("a suffix of the configuration",
            config_of("EnsureNameSubstring", substring="-s", editMode="append"), body(),
            body().replace("name: a", "name: a-s")),
        Row("an unknown mode", config_of("EnsureNameSubstring", substring="p-", editMode="x"), body(),
            "error: substring and editMode must be given"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, body(),
            "error: must be a `ConfigMap`"),
    ],
    ids=ids,
)  # fmt: skip
def test_ensure_name_substring(row: Row) -> None:
    check_row("ensure-name-substring:v0.2", row)


def workload(api_version: str, kind: str, *, notes: bool, pod_notes: bool) -> str:
    own = ["  annotations:", '    note: "1"'] if notes else []
    pod = ["    metadata:", "      annotations:", '        note: "1"'] if pod_notes else []
    return of_kind(api_version, kind, *own, "spec:", "  template:", "    spec: {}", *pod)


PODS = [
    *("apps/v1/Deployment", "apps/v1/ReplicaSet", "apps/v1/DaemonSet", "apps/v1/StatefulSet", "batch/v1/Job"),
    "v1/ReplicationController",
]
NO_PODS = ["e.com/v1/StatefulSet", "e.com/v1/Job", "v2/ReplicationController", "e.com/v1/Foo"]


@pytest.mark.parametrize("of", [*PODS, *NO_PODS])
def test_annotations_are_set_on_pods_too(of: str) -> None:
    api_version, _, kind = of.rpartition("/")
    before = workload(api_version, kind, notes=False, pod_notes=False)
    after = workload(api_version, kind, notes=True, pod_notes=of in PODS)
    messages = ('set annotations: {"note":"1"}',) * (2 if of in PODS else 1)

    check_row("set-annotations:v0.1", Row("", {"note": "1"}, before, after, messages))


NOTE = '  annotations:\n    note: "1"\n'


@pytest.mark.parametrize(
    "row",
    [
        Row("fields of the configuration",
            config_of("SetAnnotations", annotations={"note": "1"},
            additionalAnnotationFields=[{"path": "data/notes", "create": True, "kind": "ConfigMap"}]), body(),
            body() + NOTE + 'data:\n  notes:\n    note: "1"\n'),
        Row("fields of another kind",
            config_of("SetAnnotations", annotations={"note": "1"}, fieldSpecs=[{"path": "x", "kind": "Foo"}]),
            body(), body() + NOTE),
        Row("what is there stays", {"note": "1"}, body() + NOTE.replace("note", "z"), body()
            + NOTE.replace("note", "z") + NOTE.partition("\n")[2]),
        Row("two lists of fields",
            config_of("SetAnnotations", annotations={"a": "1"}, additionalAnnotationFields=[{"path": "x"}],
            fieldSpecs=[{"path": "x"}]), body(),
            "error: only one of fieldSpecs and additionalAnnotationFields"),
        Row("fields without a path",
            config_of("SetAnnotations", annotations={"a": "1"}, fieldSpecs=[{"kind": "x"}]), body(),
            "error: fieldSpecs is no list of fields with a path"),
        Row("no annotations", config_of("SetAnnotations"), body(),
            "error: input annotation list cannot be empty"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, body(),
            "error: must be a `ConfigMap`"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_annotations(row: Row) -> None:
    # The configuration is a resource of the package and gets annotations too, in its own file.
    check_row("set-annotations:v0.1", row)


def labels(
    why: str,
    version: str,
    kind: str,
    before: list[str],
    after: list[str],
    *,
    old: str = "old",
    new: str = "web",
) -> Row:
    """Return a rule of `app: web`: the number of labels is that of its places in the result."""
    texts = [
        of_kind(version, kind, *lines).replace("$", label) for lines, label in ((before, old), (after, new))
    ]
    made = texts[1].replace("  name: a\n", "  name: a\n  labels:\n    app: web\n", 1)
    return Row(why, {"app": "web"}, texts[0], made, (f"set {made.count('app: web')} labels in total",))


SPREAD = ["spec:", "  template:", "    spec:"]
APART = """      topologySpreadConstraints:
      - labelSelector:
          matchLabels:
            app: $
            other: x"""
POD_LABELS = "    metadata:\n      labels:\n        app: web"
SELECTOR = "  selector:\n    matchLabels:\n      app: $"
POLICY = """spec:
  podSelector:
    matchLabels:
      app: $
  ingress:
  - from:
    - podSelector:
        matchLabels:
          app: $
          other: x
  egress:
  - to:
    - podSelector:
        matchLabels:
          other: x"""
BUDGET = ["spec:", SELECTOR]
OF_JOB = ["spec:", "  selector:", "    matchLabels:", "      x: x"]
CLAIMS = ["  volumeClaimTemplates:", "  - spec: {}"]


@pytest.mark.parametrize(
    "row",
    [
        labels("selector and pods of a Deployment", "apps/v1", "Deployment", [*SPREAD, APART],
            [*SPREAD, APART, POD_LABELS, SELECTOR]),
        labels("selector of a Service", "v1", "Service", ["spec:", "  ports: []"],
            ["spec:", "  ports: []", "  selector:", "    app: web"]),
        labels("a Job has no selector of ours", "batch/v1", "Job", OF_JOB, OF_JOB),
        labels("pods of a Job", "batch/v1", "Job", ["spec:", "  template:", "    metadata: {}"],
            ["spec:", "  template:", POD_LABELS]),
        labels("a Deployment without a pod template gets none", "apps/v1", "Deployment",
            ["spec:", "  replicas: 3"], ["spec:", "  replicas: 3", SELECTOR]),
        labels("nor does a CronJob get a template of jobs", "batch/v1", "CronJob", ["spec:", "  schedule: x"],
            ["spec:", "  schedule: x"]),
        labels("claims of a StatefulSet, and its present template", "apps/v1", "StatefulSet",
            ["spec:", "  template: {}", *CLAIMS],
            ["spec:", "  template:", POD_LABELS, *CLAIMS, POD_LABELS, SELECTOR]),
        labels("present labels of a NetworkPolicy", "networking.k8s.io/v1", "NetworkPolicy", [POLICY],
            [POLICY]),
        labels("present labels of a PodDisruptionBudget", "policy/v1", "PodDisruptionBudget", BUDGET, BUDGET),
        labels("a kind of another group", "e.com/v1", "PodDisruptionBudget", BUDGET, BUDGET, new="old"),
        Row("labels of the configuration", config_of("SetLabels", labels={"app": "web"}), body(),
            f"{body()}  labels:\n    app: web\n"),
        Row("no labels", config_of("SetLabels"), body(), body(),
            ("no `labels` arguments are given in FunctionConfig",)),
        Row("a list", config_of("SetLabels", labels=["x"]), body(),
            "error: cannot unmarshal array into Go struct field SetLabels.labels of type map[string]string"),
        Row("a number", config_of("SetLabels", labels={"a": 1}), body(),
            "error: cannot unmarshal number into Go struct field SetLabels.labels of type string"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, body(),
            "error: unknown FunctionConfig `Foo.`"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_labels(row: Row) -> None:
    check_row("set-labels:v0.2", row)


LOCAL = '  annotations:\n    config.kubernetes.io/local-config: "true"\n'
ORIGIN = "  annotations:\n    internal.kpt.dev/upstream-identifier: '|ConfigMap|{}|a'\n"
CRD = of_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
WEBHOOK = (
    CRD
    + "spec:\n  conversion:\n    webhook:\n      clientConfig:\n        service:\n          namespace: {}\n"
)
SUBJECTS = "subjects:\n- kind: ServiceAccount\n  name: account\n  namespace: {}\n- kind: User\n  name: user\n"
CLUSTER_BINDING = of_kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") + SUBJECTS
SECRET = "  annotations:\n    config.kubernetes.io/depends-on: /namespaces/{}/Secret/secret\n"
FOO = of_kind("e.com/v1", "Foo")
TO = {"namespace": "prod"}


def inside(namespace: str, text: str = "") -> str:
    return (text or body()) + f"  namespace: {namespace}\n"


def summary(old: str, count: int) -> str:
    return f'namespace [{old}] updated to "prod", {count} value(s) changed'


NOTHING = 'all matching namespaces are already "prod". no value changed'


@pytest.mark.parametrize(
    "row",
    [
        Row("none", TO, body(), inside("prod"), (summary("default", 1), NOTHING)),
        Row("another", TO, inside("old"), inside("prod"), (summary("old", 1), NOTHING)),
        Row("the same", TO, inside("prod"), inside("prod"), (NOTHING, NOTHING)),
        Row("the matching one", {**TO, "namespaceMatcher": "old"}, inside("old")
            + other("Secret", "b", "kept"), inside("prod") + other("Secret", "b", "kept"),
            (summary("old", 1), NOTHING)),
        Row("subjects of a binding", TO, CLUSTER_BINDING.format("old"), CLUSTER_BINDING.format("prod"),
            (summary("old", 1), NOTHING)),
        Row("a Namespace", TO, NAMESPACE, NAMESPACE.replace("name: a", "name: prod")),
        Row("local configuration", TO, body() + LOCAL, body() + LOCAL, (NOTHING, NOTHING)),
        *(Row(f"local configuration is {value}", TO, body() + LOCAL.replace('"true"', value),
            inside("prod", body() + LOCAL.replace('"true"', value))) for value in ("false", '"false"', '""')),
        *(Row(f"local configuration is {value}", TO, body() + LOCAL.replace('"true"', value),
            body() + LOCAL.replace('"true"', value)) for value in ("true", '"yes"')),
        Row("a webhook of a definition", TO, WEBHOOK.format("old"), WEBHOOK.format("prod")),
        Row("no webhook", TO, CRD, CRD, (NOTHING, NOTHING)),
        Row("the catalog makes half a webhook", TO, CRD, WEBHOOK.format("prod"), None, compatible=True),
        Row("an unknown kind with one", TO, inside("old", FOO), inside("prod", FOO)),
        Row("an unknown kind without", TO, FOO, FOO, (NOTHING, NOTHING)),
        Row("a dependency on an object of the package", TO, inside("old") + SECRET.format("old")
            + other("Secret", "secret", "old"), inside("prod") + SECRET.format("prod")
            + other("Secret", "secret", "prod"), (summary("old", 2), summary("old", 1))),
        Row("a dependency on another object", TO, inside("old") + SECRET.format("old"), inside("prod")
            + SECRET.format("old"), (summary("old", 1), NOTHING)),
        Row("a dependency in another namespace than the matching one", {**TO, "namespaceMatcher": "old"},
            inside("old") + SECRET.format("kept") + other("Secret", "secret", "kept"),
            inside("prod") + SECRET.format("kept") + other("Secret", "secret", "kept")),
        Row("the origin matches", {**TO, "namespaceMatcher": "first"}, inside("old")
            + ORIGIN.format("first"), inside("prod") + ORIGIN.format("first")),
        Row("two origins", TO, body() + ORIGIN.format("one") + other("ConfigMap", "b")
            + ORIGIN.format("two"), inside("prod", body() + ORIGIN.format("one"))
            + inside("prod", other("ConfigMap", "b") + ORIGIN.format("two"))),
        Row("no namespace", {"namespace": ""}, body(), "error: `data.namespace` should not be empty"),
        Row("of the configuration", config_of("SetNamespace", namespace="prod"), body(), inside("prod")),
        Row("no namespace there", config_of("SetNamespace"), body(),
            "error: `namespace` should not be empty"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, body(),
            "error: unknown FunctionConfig Kind=Foo"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_namespace(row: Row) -> None:
    check_row("set-namespace:v0.4", row)


@pytest.mark.parametrize(
    "row",
    [
        Row("two origins", TO, body() + ORIGIN.format("one") + other("ConfigMap", "b")
            + ORIGIN.format("two"), "error: expect a single upstream namespace, found [one two]"),
        Row("no origin in the catalog", TO, body(), inside("prod"),
            ("ConfigMap a does not have upstream origin.", summary("default", 1), NOTHING),
            compatible=True),
        Row("no origin in a namespace", TO, inside("old"), inside("prod"),
            ("ConfigMap old/a does not have upstream origin.", summary("old", 1), NOTHING),
            compatible=True),
    ],
    ids=ids,
)  # fmt: skip
def test_set_namespace_before_0_4_3(row: Row) -> None:
    check_row("set-namespace:v0.4.2", row)


@pytest.mark.parametrize("version", ["v0.4.3", "v0.4.4", "v0.4.5"])
def test_set_namespace_says_what_kpt_recorded_of_0_4_3(version: str) -> None:
    """The recorded results of kpt's case `basicpipeline-semver` have no warning of missing origins."""
    row = Row("no origin", TO, body(), inside("prod"), (summary("default", 1), NOTHING), compatible=True)

    check_row(f"set-namespace:{version}", row)


ACCOUNT = of_kind("v1", "ServiceAccount").replace("name: a", "name: account")


@pytest.mark.parametrize("version", ["v0.1", "v0.1.4", "v0.2", "v0.2.0"])
@pytest.mark.parametrize(
    "row",
    [
        Row("none", TO, body(), inside("prod"), ()),
        Row("another", TO, inside("old"), inside("prod")),
        Row("local configuration", TO, body() + LOCAL, body() + LOCAL + "  namespace: prod\n"),
        Row("a kind that is not known", TO, FOO, inside("prod", FOO)),
        Row("a cluster-scoped kind", TO, CRD, CRD),
        Row("a namespace", TO, body(kind="Namespace"),
            body(kind="Namespace").replace("name: a", "name: prod")),
        Row("a webhook of a definition", TO, WEBHOOK.format("old"), WEBHOOK.format("prod")),
        Row("the account of a binding", TO, CLUSTER_BINDING.format("old"), CLUSTER_BINDING.format("old")),
        Row("the default account of a binding", TO,
            CLUSTER_BINDING.replace("name: account", "name: default").format("old"),
            CLUSTER_BINDING.replace("name: account", "name: default").format("prod")),
        Row("of the configuration",
            config_of("SetNamespaceConfig", namespace="prod",
            additionalNamespaceFields=[{"path": "data/namespace", "kind": "ConfigMap", "create": True}]),
            body("  x: y"),
            body("  x: y", "  namespace: prod").replace("  name: a\n", "  name: a\n  namespace: prod\n")),
        Row("two lists of fields",
            config_of("SetNamespace", namespace="prod", additionalNamespaceFields=[{"path": "x"}],
            fieldSpecs=[{"path": "x"}]), body(),
            "error: only one of fieldSpecs and additionalNamespaceFields"),
        Row("no namespace", {"namespace": ""}, body(), "error: input namespace cannot be empty"),
        Row("another configuration", {"apiVersion": "v1", "kind": "Foo"}, body(),
            "error: must be a `ConfigMap`"),
        Row("what these versions do not know", {**TO, "namespaceMatcher": "old"}, body(),
            "error: data.namespaceMatcher is no field"),
    ],
    ids=ids,
)  # fmt: skip
def test_set_namespace_like_kustomize(row: Row, version: str) -> None:
    check_row(f"set-namespace:{version}", row)


@pytest.mark.parametrize(
    ("version", "name", "namespace"),
    [("v0.1", "account", "old"), ("v0.2", "account", "prod"), ("v0.2", "another", "old")],
)
def test_set_namespace_of_accounts_in_the_package(version: str, name: str, namespace: str) -> None:
    account = ACCOUNT.replace("account", name)
    before = CLUSTER_BINDING.format("old") + "---\n" + account
    after = CLUSTER_BINDING.format(namespace) + "---\n" + inside("prod", account)

    check_row(f"set-namespace:{version}", Row("", TO, before, after))


@pytest.mark.parametrize(
    "row",
    [
        Row("it replaces any", TO, inside("old"), inside("prod"),
            ('namespace "old" updated to "prod", 1 value(s) changed',)),
        Row("the same", TO, inside("prod"), inside("prod"),
            ('all namespaces are already "prod". no value changed',)),
        Row("subjects of a binding", TO, CLUSTER_BINDING.format("old"), CLUSTER_BINDING.format("prod")),
        Row("a Namespace", TO, NAMESPACE, NAMESPACE.replace("name: a", "name: prod")),
        Row("two of one name", TO, inside("old") + "---\n" + inside("other"),
            "error: duplicate ConfigMap prod/a after the namespace was set"),
        Row("two of an unknown kind, one in a namespace", TO, inside("old", FOO) + "---\n" + FOO,
            inside("prod", FOO) + "---\n" + FOO),
    ],
    ids=ids,
)  # fmt: skip
def test_old_set_namespace(row: Row) -> None:
    check_row("set-namespace:v0.4.1", row)

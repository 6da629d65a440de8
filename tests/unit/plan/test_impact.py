"""Impact: which differences are equal, and which risks a difference has."""

import pytest

from reconciler.names.objects import File, Files, Mode
from reconciler.plan.impact import Impact, ImpactReader
from reconciler.policy import RiskPolicy


def files(**texts: str) -> Files:
    """Return files by name; `kpt` is the Kptfile, every other name a YAML file."""
    names = {"kpt": "Kptfile", "context": "package-context.yaml"}
    return {names.get(name, f"{name}.yaml"): File.of(text.encode()) for name, text in texts.items()}


def resource(kind: str, name: str = "web", group: str = "", body: str = "") -> str:
    version = f"{group}/v1" if group else "v1"
    return f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: {name}\n{body}"


def impact(before: Files, after: Files, *names: str, policy: RiskPolicy | None = None) -> Impact:
    return ImpactReader(policy or RiskPolicy()).impact(before, after, names)


def risks(before: Files, after: Files, policy: RiskPolicy | None = None) -> list[str]:
    found = impact(before, after, policy=policy).risks
    return [f"{risk.category}: {risk.action} {risk.subject}" for risk in found]


LINES = "".join(f"line{n}: {n}\n" for n in range(9))


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        pytest.param((files(a="x: 1\n"), files(a="x: 2\n")), (files(a="x: 1\n"), files(a="x: 2\n")), True,
            id="same"),
        pytest.param((files(a="x: 1\n"), files(a="x: 2\n")), (files(a="x: 1\n"), files(a="x: 3\n")), False,
            id="value"),
        pytest.param((files(a="x: 1\n"), files(a="x: 2\n")), (files(b="x: 1\n"), files(b="x: 2\n")), False,
            id="path"),
        pytest.param((files(a=f"x: 1\n{LINES}"), files(a=f"x: 2\n{LINES}")),
            (files(a=f"x: 1\n{LINES}own: 1\n"), files(a=f"x: 2\n{LINES}own: 1\n")), True,
            id="far-from-other-lines"),
        pytest.param(({}, files(kpt="name: web\n")), ({}, files(kpt="name: db\n")), True,
            id="own-name-in-Kptfile"),
        pytest.param(({}, files(a="name: web\n")), ({}, files(a="name: db\n")), True,
            id="own-name-elsewhere"),
        pytest.param(({}, files(kpt="name: PackageVariant.web.label.0\n")),
            ({}, files(kpt="name: PackageVariant.db.label.0\n")), True,
            id="own-name-in-the-name-of-a-function"),
        pytest.param(({}, files(a="name: db\n")), ({}, files(a="name: db\n")), False,
            id="name-of-another-package"),
        pytest.param(({}, files(kpt="name: websocket\n")), ({}, files(kpt="name: dbsocket\n")), False,
            id="part-of-a-name"),
        pytest.param(({}, {"a": File.of(b"x")}), ({}, {"a": File.of(b"x", Mode.EXECUTABLE)}), False,
            id="mode"),
        pytest.param(({"a": File.of(b"\xff1")}, {"a": File.of(b"\xff2")}),
            ({"a": File.of(b"\xff1")}, {"a": File.of(b"\xff3")}), False, id="binary"),
    ],
)  # fmt: skip
def test_differences_are_equal_if_their_text_is(one, other, is_equal) -> None:
    reader = ImpactReader(RiskPolicy())
    digests = [reader.impact(*sides, [name]).digest for sides, name in ((one, "web"), (other, "db"))]

    assert (digests[0] == digests[1]) is is_equal


@pytest.mark.parametrize(
    ("text", "added"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb\n", 2), (b"a\n\n", 2), (b"\xff\n", 0)]
)
def test_new_file_adds_each_of_its_lines(text: bytes, added: int) -> None:
    new, gone = impact({}, {"a": File.of(text)}), impact({"a": File.of(text)}, {})

    assert (new.added, new.removed, gone.added, gone.removed) == (added, 0, 0, added)


@pytest.mark.parametrize("name", ["rbac", "Role", "v1", "web"])
def test_kinds_that_are_names_of_the_package_are_risks(name: str) -> None:
    role = resource("Role", group="rbac.authorization.k8s.io")

    assert [risk.subject for risk in impact({}, files(a=role), name).risks] == ["Role web"]


def test_impact_counts_files_and_lines() -> None:
    found = impact(files(a="x: 1\ny: 2\n", b="z: 1\n", c="q: 1\n"), files(a="x: 2\ny: 2\n", c="q: 1\n"))

    assert (found.files, found.added, found.removed) == (2, 1, 2)


CASES = [
    ("Role", "rbac.authorization.k8s.io", "rbac"),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io", "rbac"),
    ("ServiceAccount", "", "rbac"),
    ("CustomResourceDefinition", "apiextensions.k8s.io", "crd"),
    ("Namespace", "", "namespace"),
    ("PersistentVolumeClaim", "", "storage"),
    ("StorageClass", "storage.k8s.io", "storage"),
    ("ValidatingWebhookConfiguration", "admissionregistration.k8s.io", "admission"),
]


@pytest.mark.parametrize(("kind", "group", "category"), CASES, ids=[case[0] for case in CASES])
def test_resource_of_a_class_is_a_risk_when_it_comes_changes_or_goes(kind, group, category) -> None:
    old, new = files(a=resource(kind, group=group)), files(a=resource(kind, group=group, body="x: 1\n"))

    assert risks({}, new) == [f"{category}: adds {kind} web"]
    assert risks(old, new) == [f"{category}: changes {kind} web"]
    assert risks(old, {}) == [f"removal: removes {kind} web", f"{category}: removes {kind} web"]
    assert risks(old, old) == []


NOTED = "  labels: {labels}\n  annotations: {annotations}\n"


@pytest.mark.parametrize(
    ("kind", "labels", "annotations", "is_risk"),
    [
        ("ClusterRole", "{helm.sh/chart: web-2}", "{}", False),
        ("ClusterRole", "{app.kubernetes.io/version: '2', chart: web-2.0.0}", "{checksum/x: b}", False),
        ("ClusterRole", "{team: blue}", "{}", False),
        ("ClusterRole", "{rbac.authorization.k8s.io/aggregate-to-admin: 'true'}", "{}", True),
        ("ClusterRoleBinding", "{}", "{rbac.authorization.kubernetes.io/autoupdate: 'true'}", True),
    ],
)
def test_metadata_of_a_role_is_a_risk_where_it_grants_something(kind, labels, annotations, is_risk) -> None:
    old, new = (
        files(a=resource(kind, group="rbac.authorization.k8s.io", body=body))
        for body in ("", NOTED.format(labels=labels, annotations=annotations))
    )

    assert bool(risks(old, new)) is is_risk


@pytest.mark.parametrize(("label", "is_risk"), [("helm.sh/chart", False), ("env", True)])
def test_label_of_a_namespace_decides_about_what_is_in_it(label: str, *, is_risk: bool) -> None:
    old, new = (files(a=resource("Namespace", body=f"  labels: {{{label}: {n}}}\n")) for n in ("a", "b"))

    assert bool(risks(old, new)) is is_risk


@pytest.mark.parametrize(
    "text",
    [
        resource("ConfigMap"),
        resource("Role"),  # a Role of another group
        resource("Namespace").replace(
            "  name: web\n", "  annotations: {config.kubernetes.io/local-config: 'true'}\n"
        ),
        "kind: [\n",
        "- 1\n",
    ],
    ids=["other kind", "other group", "local", "broken", "no resource"],
)
def test_other_files_are_no_risk(text: str) -> None:
    assert risks({}, files(a=text)) == []


def test_resource_that_moves_to_another_file_is_no_risk() -> None:
    role = resource("Role", group="rbac.authorization.k8s.io")

    assert risks(files(a=role), files(b=role)) == []


def test_resource_that_gets_or_loses_its_namespace_moves() -> None:
    service = resource("Service")
    placed = service.replace("  name: web\n", "  name: web\n  namespace: shop\n")

    assert placed != service
    assert risks(files(a=service), files(a=placed)) == ["removal: moves Service web to namespace shop"]
    assert risks(files(a=placed), files(a=service)) == ["removal: moves Service shop/web to no namespace"]


def test_items_of_a_list_are_resources() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"

    assert risks({}, files(a=text)) == ["namespace: adds Namespace a"]


def pod(image: str) -> Files:
    return files(pod=resource("Pod", body=f"spec:\n  containers:\n  - image: {image}\n"))


NGINX = "docker.io/library/nginx:1"


@pytest.mark.parametrize(
    ("before", "after", "registries", "images"),
    [
        (pod("nginx:1"), pod("nginx:2"), (), []),
        (pod("nginx:1"), pod("docker.io/nginx:2"), (), []),
        (pod("nginx:1"), pod("ghcr.io/nginx:2"), (), ["ghcr.io/nginx:2"]),
        (pod("nginx:1"), pod("localhost:5000/nginx"), (), ["localhost:5000/nginx"]),
        ({}, pod("nginx:1"), (), []),
        ({}, pod("nginx:1"), ("ghcr.io",), [NGINX]),
        ({}, pod("ghcr.io/acme/nginx:1"), ("ghcr.io/acme/",), []),
        ({}, pod("ghcr.io/acme-evil/nginx:1"), ("ghcr.io/acme",), ["ghcr.io/acme-evil/nginx:1"]),
        (pod("nginx:1"), files(), (), []),
        ({}, pod("{name: nginx}"), ("ghcr.io",), []),
    ],
)
def test_image_of_a_registry_that_is_not_in_use_is_a_risk(before, after, registries, images) -> None:
    policy = RiskPolicy(registries=registries)

    assert [line for line in risks(before, after, policy) if line.startswith("registry")] == [
        f"registry: uses {image}" for image in images
    ]


@pytest.mark.parametrize(
    ("image", "qualified"),
    [
        ("nginx", "docker.io/library/nginx"),
        ("acme/app", "docker.io/acme/app"),
        ("acme/my.team/app", "docker.io/acme/my.team/app"),
        ("ghcr.io/acme/app:1", "ghcr.io/acme/app:1"),
        ("localhost/app", "localhost/app"),
        ("localhost:5000/app", "localhost:5000/app"),
        ("registry:5000/app", "registry:5000/app"),
        ("ghcr.io", "ghcr.io"),
        ("app.v1:2", "docker.io/library/app.v1:2"),
    ],
)
def test_image_has_the_registry_that_engines_take(image: str, qualified: str) -> None:
    assert risks({}, pod(image), RiskPolicy(registries=("r.example",))) == [f"registry: uses {qualified}"]


def test_registry_of_an_unchanged_file_is_in_use() -> None:
    other = files(other=resource("Pod", "b", body="image: ghcr.io/a:1\n"))

    assert risks({**pod("nginx:1"), **other}, {**pod("ghcr.io/b:1"), **other}) == []


def context(name: str, rest: str = "") -> File:
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
    return File.of(f"{head}data:\n  image: {name}.io/{name}:1\n{rest}".encode())


MODES = (Mode.REGULAR, Mode.EXECUTABLE)


def test_reader_of_many_packages_tells_of_each_what_a_new_one_tells() -> None:
    roles = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {}\n"
    sides = []
    for name in ("web", "db"):
        before = {"package-context.yaml": context(name, roles.format(name)), "app.yaml": context("app")}
        after = {"package-context.yaml": context(f"{name}-2"), "app.yaml": context("app2")}
        own = (name,)
        sides += [(before, after, own), (after, before, own), ({}, after, own), (before, {}, ())]
        changed = {"package-context.yaml": File.of(b"name: app\n"), "app.yaml": context("app")}
        sides += [(changed, {**changed, "Kptfile": File.of(name.encode(), mode)}, own) for mode in MODES]
        sides += [(changed, {**changed, "Kptfile": File.of(b"\0")}, own)]
        sides += [(changed, {**changed, "Kptfile": File.of(b"\0 web")}, own)]
    reader = ImpactReader(RiskPolicy())

    impacts = [reader.impact(*each) for each in sides]

    assert impacts == [ImpactReader(RiskPolicy()).impact(*each) for each in sides]
    risks = {risk.subject for impact in impacts for risk in impact.risks}
    assert {"ServiceAccount web", "ServiceAccount db", "web-2.io/web-2:1"} <= risks


def test_an_installation_of_porter_is_a_resource_that_may_go() -> None:
    text = "schemaType: Installation\nschemaVersion: 1.0.2\nname: shop-db\nnamespace: ns\n"

    assert risks(files(a=text), {}) == ["removal: removes Installation ns/shop-db"]
    assert risks(files(a=text), files(a=f"{text}bundle: {{repository: g.io/db}}\n")) == []

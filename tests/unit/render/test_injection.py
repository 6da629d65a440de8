"""Config injection: the object of each point, and the failure of points without one."""

from typing import Any

import msgspec
import pytest
import yaml

from reconciler.api.porch import InjectionSelector, InjectionTarget, PackageContext
from reconciler.base.errors import Location
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.objects import Files
from reconciler.render.injection import Injected, InjectionPoint, find_points, inject_config
from reconciler.render.rendered import Blocked
from tests.support.model import kptfile, package

TEAM = """\
apiVersion: hr.example.com/v1
kind: Team
metadata:
  name: {name} # the point
  annotations:
    kpt.dev/config-injection: {how}
spec:
  code: default
"""


def a_package(how: str = "required", *names: str, extra: str = "") -> Files:
    points = {f"{name}.yaml": TEAM.format(name=name, how=how) for name in names or ("team",)}
    return package({"Kptfile": kptfile("web", extra), **points})


def a_team(name: str, code: str, namespace: str = "default") -> SnapshotObject:
    body: dict[str, Any] = {"spec": {"code": code}} if code else {"spec": None} if name == "older" else {}
    return SnapshotObject("hr.example.com/v1", "Team", namespace, name, {}, {}, body, Location("s.yaml"))


def a_snapshot(*objects: SnapshotObject, served: bool | None = None) -> Snapshot:
    kinds = None if served is None else frozenset({("hr.example.com/v1", "Team")} if served else ())
    return Snapshot(present=True, objects={("hr.example.com/v1", "Team"): objects}, served=kinds)


def inject(files: Files, snapshot: Snapshot, *injectors: InjectionSelector) -> Injected:
    result = inject_config(files, injectors, snapshot, "default")
    assert isinstance(result, Injected), result
    assert inject_config(result.files, injectors, snapshot, "default") == result, "injecting twice is once"
    return result


def text(injected: Injected, path: str) -> str:
    return injected.files[path].data.decode()


def test_first_matching_injector_wins() -> None:
    snapshot = a_snapshot(a_team("alpha", "A1"), a_team("beta", "B2"))
    injectors = (
        InjectionSelector(name="missing"),
        InjectionSelector(name="beta", kind="Other"),
        InjectionSelector(name="beta"),
        InjectionSelector(name="alpha"),
    )

    assert "code: B2" in text(inject(a_package(), snapshot, *injectors), "team.yaml")


ALPHA = a_team("alpha", "A1")
EMPTY: dict[str, tuple[SnapshotObject | None, bool | None, str]] = {
    "no injectors defined": (ALPHA, None, ""),
    "no in-cluster resources of type hr.example.com/v1.Team": (a_team("alpha", "A1", "other"), None, "alpha"),
    "no resource matched any injection selector for this injection point": (ALPHA, None, "beta"),
    'field "spec" not found in resource "alpha"': (a_team("alpha", ""), None, "alpha"),
    'field "spec" not found in resource "older"': (a_team("older", ""), False, "older"),
    "the cluster has no schema for hr.example.com/v1.Team": (None, False, "alpha"),
}


@pytest.mark.parametrize("message", EMPTY)
def test_empty_required_point_does_not_block(message: str) -> None:
    team, served, name = EMPTY[message]
    injectors = [InjectionSelector(name=name)] if name else []

    result = inject(a_package(), a_snapshot(*([team] if team else []), served=served), *injectors)

    assert result.failure == f"config.injection.Team.team: {message}"
    assert "code: default" in text(result, "team.yaml")


NEXT = "hr.example.com/v2"


def a_definition(*served: str, **conversion: Any) -> SnapshotObject:
    versions = [{"name": name, "served": name in served} for name in ("v1", "v2")]
    spec = {"group": "hr.example.com", "names": {"kind": "Team"}, "versions": versions, **conversion}
    kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return SnapshotObject(*kind, "", "teams", {}, {}, {"spec": spec}, Location("s.yaml"))


OTHER = "config.injection.Team.team: "
UNKNOWN = (
    f'{OTHER}resource "alpha" is known as {NEXT} only, which may differ: import it as Team.v1.hr.example.com'
)
VERSIONS = {
    "v1 is served, and nothing converts": ((a_definition("v1", "v2"),), None, ""),
    "the definition says so": ((a_definition("v1", "v2", conversion={"strategy": "None"}),), None, ""),
    "a webhook converts": ((a_definition("v1", "v2", conversion={"strategy": "Webhook"}),), None,
        UNKNOWN),
    "v1 is not served": ((a_definition("v2"),), None,
        f"{OTHER}the cluster has no schema for hr.example.com/v1.Team, only for {NEXT}"),
    "the list has the preferred version": ((), frozenset({(NEXT, "Team")}),
        f"{OTHER}the cluster has no schema for hr.example.com/v1.Team, only for {NEXT}"),
    "nothing tells": ((), None,
        UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize("case", VERSIONS)
def test_object_of_another_version_is_injected_where_it_cannot_differ(case: str) -> None:
    definitions, served, failure = VERSIONS[case]
    team = msgspec.structs.replace(a_team("alpha", "A1"), api_version=NEXT)
    objects = {(NEXT, "Team"): (team,), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): definitions}
    snapshot = Snapshot(present=True, objects=objects, served=served)

    result = inject(a_package(), snapshot, InjectionSelector(name="alpha"))

    assert result.failure == failure
    assert ("code: A1" in text(result, "team.yaml")) is not bool(failure)


@pytest.mark.parametrize("context", [None, PackageContext(data={"tier": "gold"}, remove_keys=["region"])])
def test_injection_into_the_package_context_leaves_the_keys_that_are_ours(context) -> None:
    point = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations:\n"
        "    kpt.dev/config-injection: optional\ndata:\n  name: web\n  tier: gold\n"
    )
    body = {"data": {"name": "other", "package-path": "x", "region": "east", "tier": "dirt", "zone": "a"}}
    source = SnapshotObject("v1", "ConfigMap", "default", "src", {}, {}, body, Location("s.yaml"))
    snapshot = Snapshot(present=True, objects={("v1", "ConfigMap"): (source,)})
    files = package({"Kptfile": kptfile("web"), "package-context.yaml": point})

    result = inject_config(files, [InjectionSelector(name="src")], snapshot, "default", context)

    assert isinstance(result, Injected)
    assert (
        inject_config(result.files, [InjectionSelector(name="src")], snapshot, "default", context) == result
    )
    data = yaml.safe_load(text(result, "package-context.yaml"))["data"]
    others = {"tier": "gold"} if context else {"region": "east", "tier": "dirt"}
    assert data == {"name": "web", "zone": "a", **others}


def test_empty_optional_point_is_no_failure() -> None:
    result = inject(a_package("optional"), a_snapshot())

    assert result.failure == ""
    assert "readinessGates" not in text(result, "Kptfile")
    assert "reason: NoResourceSelected" in text(result, "Kptfile")


def test_conditions_of_deleted_points_are_deleted() -> None:
    extra = (
        "info:\n  readinessGates:\n  - conditionType: config.injection.Team.gone\n  - conditionType: mine\n"
        "status:\n  conditions:\n  - type: config.injection.Team.gone\n    status: 'True'\n"
    )

    result = inject(package({"Kptfile": kptfile("web", extra)}), a_snapshot())

    assert result.failure is None
    assert "Team.gone" not in text(result, "Kptfile")
    assert "conditionType: mine" in text(result, "Kptfile")


def test_invalid_and_ambiguous_points_block() -> None:
    for files in (a_package("maybe"), {**a_package("required", "a"), **a_package("required", "a", extra="")}):
        twice = {**files, "again/a.yaml": files.get("a.yaml", files[next(iter(files))])}

        assert isinstance(inject_config(twice, (), a_snapshot(), "default"), Blocked)


def test_file_that_is_no_yaml_is_unchanged() -> None:
    helm = {"templates/x.yaml": "{{ .Values.x }}: kpt.dev/config-injection\n"}

    result = inject(
        {**a_package(), **package(helm)}, a_snapshot(a_team("alpha", "A1")), InjectionSelector(name="alpha")
    )

    assert text(result, "templates/x.yaml") == helm["templates/x.yaml"]


def test_name_is_shown_as_written() -> None:
    files = package({"Kptfile": kptfile("web"), "team.yaml": TEAM.format(name="n", how="required")})

    result = inject(files, a_snapshot(a_team("alpha", "A1")), InjectionSelector(name="alpha"))

    assert "type: config.injection.Team.n\n" in text(result, "Kptfile")


def test_gates_and_conditions_of_others_keep_place_and_comments() -> None:
    theirs = (
        "info:\n  readinessGates:\n  # zebra first\n  - conditionType: zebra # why\n  - conditionType: ant\n"
        "  - conditionType: config.injection.Team.gone\n"
        'status:\n  conditions:\n  - type: zebra\n    status: "True" # seen\n'
        "  - type: config.injection.Team.team\n    status: Unknown # ours\n"
    )

    result = inject(
        a_package(extra=theirs), a_snapshot(a_team("alpha", "A1")), InjectionSelector(name="alpha")
    )

    assert text(result, "Kptfile").endswith(
        "info:\n  readinessGates:\n  # zebra first\n  - conditionType: zebra # why\n  - conditionType: ant\n"
        "  - conditionType: config.injection.Team.team\n"
        'status:\n  conditions:\n  - type: zebra\n    status: "True" # seen\n'
        '  - type: config.injection.Team.team\n    status: "True" # ours\n'
        '    message: injected resource "alpha" from cluster\n    reason: ConfigInjected\n'
    )


def test_points_of_a_package_are_in_the_order_of_files_and_documents() -> None:
    second = TEAM.format(name="two", how="optional")
    files = package(
        {
            "b.yaml": TEAM.format(name="one", how="required") + "---\na: 1\n---\n" + second,
            "a.yml": TEAM.format(name="first", how="required"),
            "sub/Kptfile": "kind: Kptfile\nmetadata:\n  name: k\n  annotations:\n"
            "    kpt.dev/config-injection: optional\n",
            "c.txt": TEAM.format(name="no", how="required"),
        }
    )

    assert find_points(files) == (
        InjectionPoint("a.yml", required=True, condition_type="config.injection.Team.first"),
        InjectionPoint("b.yaml", required=True, condition_type="config.injection.Team.one"),
        InjectionPoint("b.yaml", required=False, condition_type="config.injection.Team.two", index=2),
        InjectionPoint("sub/Kptfile", required=False, condition_type="config.injection.Kptfile.k"),
    )
    assert [point.name for point in find_points(files)] == ["first", "one", "two", "k"]


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_points_of_a_file_with_several_documents_are_filled_in_its_line_ends(line_break: str) -> None:
    both = "---\n".join(TEAM.format(name=name, how="optional") for name in ("alpha", "beta"))
    files = package({"Kptfile": kptfile("web"), "teams.yaml": both.replace("\n", line_break)})
    snapshot = a_snapshot(a_team("one", "A1"), a_team("two", "B2"))
    injectors = [
        InjectionSelector(name=name, target=InjectionTarget(name=point))
        for point, name in (("alpha", "one"), ("beta", "two"))
    ]

    lines = text(inject(files, snapshot, *injectors), "teams.yaml").split(line_break)

    assert [line.strip() for line in lines if "code:" in line] == ["code: A1", "code: B2"]
    assert not any("\r" in line or "\n" in line for line in lines)

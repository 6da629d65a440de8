"""Provenance: where the fields of a package come from."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.api.porch import InjectionSelector, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.inventory.inventory import FieldPath, RepositoryView, ReviewedLock, Source
from reconciler.inventory.snapshot import SnapshotObject
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.names.objects import File, Files
from reconciler.plan.chart_values import ChangedValue
from reconciler.records.state import UpstreamLock
from reconciler.report.explain import Origin, find_origins
from tests.support.model import blueprint
from tests.support.plan_values import PACKAGE, WEB, a_desired_variant, a_pin, a_resolved
from tests.support.points import team_point
from tests.support.sets import repository, snapshot, world
from tests.support.values import replace
from tests.unit.plan.test_chart_values import side as charts

KPTFILE = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n"
EDGE = repository("edge")
BLUE = SnapshotObject(
    "hr.example.com/v1", "Team", "default", "blue", {}, {}, {"spec": {}}, Location("snapshot/teams.yaml", 3)
)


def origins(key: ObjectName, *injectors: str) -> list[Origin]:
    spec = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="web", revision=1),
        injectors=[InjectionSelector(name=name) for name in injectors],
    )
    variant = a_desired_variant(key=key, spec=spec)
    resolved = a_resolved(variant=variant, view=EDGE.key, pin=a_pin(1))
    inventory = replace(world(views=(EDGE,)), snapshot=snapshot(BLUE))
    return list(find_origins(resolved, blueprint("web", team_yaml=team_point("required")), inventory, {}))


@pytest.mark.parametrize(
    ("injector", "value", "source", "at"),
    [
        ("blue", "blue", "object Team default/blue of the snapshot", BLUE.location),
        ("red", "(not injected)", "", None),
    ],
)
def test_injected_field_comes_from_an_object_or_says_why_not(injector, value, source, at) -> None:
    (origin,) = (origin for origin in origins(WEB, injector) if origin.file == "team.yaml")

    assert origin.field.startswith("Team/team")
    assert (origin.value, origin.location) == (value, at)
    assert source in origin.source


def test_generated_manifests_come_from_the_lock_of_their_cluster() -> None:
    first, *others = origins(ObjectName("default", "dependencies@prod"))

    assert first == Origin("*", "", "", "the lock of cluster prod, where no person says otherwise")
    assert {origin.file for origin in others} == {"Kptfile"}


PIN = UpstreamLock(
    namespace="default", name="web", repository="b", package="web", selector={}, commit="a" * 40, tree=""
)
HELD = replace(PIN, held=True)


@pytest.mark.parametrize(
    ("offers", "lock", "reviewed", "source", "place"),
    [
        (2, PIN, None, "the lock", ""),
        (2, HELD, None, "the lock, held by a person", ""),
        (2, PIN, HELD, "the lock, held by a person", "locks/upstreams/default/web.json"),
        (2, HELD, PIN, "the lock", "locks/upstreams/default/web.json"),
        (1, HELD, None, "spec.upstream.revision", "web.yaml"),
    ],
)
def test_revision_that_is_not_the_newest_comes_from_the_lock_that_decides(
    offers: int, lock: UpstreamLock, reviewed: UpstreamLock | None, source: str, place: str
) -> None:
    spec = PackageVariantSpec(upstream=Upstream(repo="blueprints", package="web", revision=1))
    variant = a_desired_variant(spec=spec)
    resolved = a_resolved(variant=variant, view=EDGE.key, pin=a_pin(1), offers=a_pin(offers))
    main = ReviewedLock(pins={WEB: reviewed}) if reviewed else None
    inventory = world(views=(EDGE,), locks={WEB: lock}, reviewed=main)

    origin = find_origins(resolved, blueprint("web"), inventory, {})[0]

    assert (origin.source, origin.location.path if origin.location else "") == (source, place)


# Every field by its whole origin

EDGE_AT, WEB_AT = Location("repositories.yaml", 1), Location("web.yaml", 1)


def fields_of(
    spec: dict[str, Any] | None = None,
    trace: Mapping[str, str] | None = None,
    *,
    view: RepositoryView = EDGE,
    files: Mapping[str, Any] | None = None,
    upstream: Files = MappingProxyType({}),
    changed: Iterable[ChangedValue] = (),
    path: str = "web",
    resolved: Mapping[str, Any] | None = None,
    **variant: Any,
) -> list[Origin]:
    wanted = PackageVariantSpec.model_validate(
        {"upstream": {"repo": "blueprints", "package": "web", "revision": 1}, **(spec or {})}
    )
    desired = replace(a_desired_variant(spec=wanted, source=Source(WEB_AT)), **variant)
    package = PackageKey(PACKAGE.url, path)
    item = a_resolved(
        variant=desired, view=view.key, downstream=package, **{"pin": a_pin(1), **(resolved or {})}
    )
    inventory = world(views=(view,))
    return list(
        find_origins(item, files or blueprint("web"), inventory, trace or {}, upstream, changed=changed)
    )


class Lines(dict[FieldPath, int]):
    """The lines of some fields; all others are on the first one."""

    def mark(self, path: FieldPath) -> tuple[int, int]:
        return self.get(path, 1), 0


@pytest.mark.parametrize(
    ("resolved", "ref"),
    [
        ({"base": a_pin(2)}, "web/v1"),
        ({"base": a_pin(2), "moved": "It moved"}, "web/v2"),
        ({"base": a_pin(2), "draft_base": a_pin(3), "moved": "It moved"}, "web/v3"),
        ({"moved": "It moved"}, "web/v1"),
    ],
)
def test_package_keeps_its_upstream_where_the_tag_moved_without_consent(resolved, ref) -> None:
    found = fields_of(resolved=resolved)

    assert found[0].value.endswith(f" {ref}")
    assert found[1].source.startswith(f"upstream {ref} at commit ")


def context_origins(spec: dict[str, Any], *, deployment: bool = False, path: str = "web") -> list[Origin]:
    view = replace(EDGE, manifest=EDGE.manifest.model_copy(update={"spec": deployed(deployment)}))
    return fields_of({"packageContext": spec}, view=view, path=path)[6:]


def deployed(deployment: bool) -> Any:  # a fact of the Repository
    return EDGE.manifest.spec.model_copy(update={"deployment": deployment})


def in_context(field: str, value: str, source: str, at: Location = WEB_AT) -> Origin:
    return Origin("package-context.yaml", f"data.{field}", value, source, at)


def test_package_context_comes_from_the_repository_and_the_manifest() -> None:
    where = "Repository default/edge is for deployment"

    assert context_origins({}) == []
    assert context_origins({}, deployment=True, path="a/b/web") == [
        in_context("name", "web", where, EDGE_AT),
        in_context("package-path", "a/b/web", where, EDGE_AT),
    ]
    assert context_origins({"data": {"b": "2", "a": "1"}, "removeKeys": ["z", "y"]}) == [
        in_context("a", "1", "spec.packageContext.data.a"),
        in_context("b", "2", "spec.packageContext.data.b"),
        in_context("y", "(removed)", "spec.packageContext.removeKeys"),
        in_context("z", "(removed)", "spec.packageContext.removeKeys"),
    ]
    assert context_origins({"data": {"a": "1"}, "removeKeys": ["a", "name"]}, deployment=True) == [
        in_context("package-path", "web", where, EDGE_AT),
        in_context("a", "(removed)", "spec.packageContext.removeKeys"),
        in_context("name", "(removed)", "spec.packageContext.removeKeys"),
    ]


FLEET = ObjectName("default", "fleet")


@pytest.mark.parametrize(
    ("variant", "trace", "source", "line"),
    [
        pytest.param({}, {}, "spec.downstream.package", 1, id="manifest of its own"),
        pytest.param({"requested_by": ("prod/gw", "b")}, {}, "required by prod/gw", 1,
            id="required by others"),
        pytest.param({"set_key": FLEET}, {}, "PackageVariantSet default/fleet: downstream.package", 1,
            id="a set without a target"),
        pytest.param({"set_key": FLEET, "target_path": ("spec", "targets", 0)},
            {"downstream.package": "the target's default"},
            "PackageVariantSet default/fleet: downstream.package = the target's default", 20,
            id="default of a target"),
        pytest.param({"set_key": FLEET, "target_path": ("spec", "targets", 0)},
            {"downstream.package": "template.downstream.packageExpr: 'x'"},
            "PackageVariantSet default/fleet: downstream.package = template.downstream.packageExpr: 'x'", 22,
            id="expression"),
        pytest.param({"set_key": FLEET, "target_path": ("spec", "targets", 0)},
            {"downstream.package": "literal"},
            "PackageVariantSet default/fleet: downstream.package = literal", 21, id="literal"),
        pytest.param({"set_key": FLEET, "target_path": ("spec", "targets", 0)},
            {"downstream.package": "repositories[2].packageNames[1]: text"},
            "PackageVariantSet default/fleet: downstream.package = repositories[2].packageNames[1]: text", 23,
            id="place in lists"),
    ],
)  # fmt: skip
def test_field_of_a_set_is_found_in_its_target(variant, trace, source, line) -> None:
    lines: dict[FieldPath, int] = {
        ("spec", "targets", 0): 20,
        ("spec", "targets", 0, "template", "downstream", "package"): 21,
        ("spec", "targets", 0, "template", "downstream", "packageExpr"): 22,
        ("spec", "targets", 0, "repositories", 2, "packageNames", 1): 23,
    }
    at = Source(WEB_AT, marks=Lines(lines))

    origin = fields_of({}, trace, source=at, **variant)[3]

    assert (origin.field, origin.source) == ("metadata.name", source)
    assert origin.location is not None
    assert origin.location.line == line


SETTERS = {"pipeline": {"mutators": [{"image": "apply-setters:v0.2", "configMap": {"size": "3"}}]}}
DEFAULTS = "defaults of chart web 1.2.0, where nothing above says otherwise"
COPIED = "spec.code of Team {}, by apply-replacements"
SEEN = [
    ("Values", ("team",), COPIED.format("blue")),
    ("Values", ("size",), "spec.pipeline.mutators[0].configMap.size"),
    ("Values", ("other",), "defaults of chart web 1.2.0"),
    ("Capabilities", ("KubeVersion",), "the snapshot of the cluster, or an edit in the package"),
    ("Capabilities", ("other",), "upstream web/v1"),
    ("Chart", ("", "version"), "upstream web/v1"),
]


def test_values_of_charts_come_from_upstream_setters_objects_or_the_package() -> None:
    upstream, local = charts("1"), charts("2", team="blue", hosts=["c"])
    local = {**local, "chart.yaml": File.of(local["chart.yaml"].data.replace(b"v1.30.0", b"v1.31.0"))}
    changed = [ChangedValue("web", kind, path, "1", "2") for kind, path, _ in SEEN]

    found = fields_of(SETTERS, files=local, upstream=upstream, changed=changed)

    assert [(o.field, o.source) for o in found if o.file in ("chart.yaml", "v.yaml")] == [
        (
            "helmCharts[0].templateOptions.kubeVersion",
            "the snapshot of the cluster, or an edit in the package",
        ),
        ("helmCharts[0].values.size", "spec.pipeline.mutators[0].configMap.size"),
        ("helmCharts[0].values.team", COPIED.format("blue")),
        ("helmCharts[0].values.hosts", "an edit in the package"),
        ("helmCharts[0].values.empty", "upstream web/v1: chart.yaml"),
        ("image.tag", "an edit in the package"),
        ("values", DEFAULTS),
    ]
    assert [(o.field, o.source) for o in found[-len(SEEN) :]] == [
        (value.name, source) for value, (*_, source) in zip(changed, SEEN, strict=True)
    ]
    assert found[-1].value == "1 -> 2"
    assert {o.file for o in found[-len(SEEN) :]} == {""}


@pytest.mark.parametrize(
    ("present", "mutator", "validator"),
    [
        ("a.b.c.0", "web.set.0", "web.check.0"),
        ("PackageVariant.default.web.set.0", "default.web.set.0", "web.check.0"),
        ("PackageVariant.default.web.check.0", "web.set.0", "default.web.check.0"),
    ],
)
def test_function_of_a_variant_has_the_name_that_it_has_in_the_package(present, mutator, validator) -> None:
    functions = {"mutators": [{"image": "a", "name": "set"}], "validators": [{"image": "b", "name": "check"}]}
    text = f"{KPTFILE}pipeline: {{mutators: [{{image: i, name: {present}}}]}}\n"

    found = fields_of({"pipeline": functions}, files={"Kptfile": File.of(text.encode())})

    assert [(o.field, o.value, o.source) for o in found if o.field.startswith("pipeline")] == [
        (f"pipeline.mutators[PackageVariant.{mutator}]", "a", "spec.pipeline.mutators[0]"),
        (f"pipeline.validators[PackageVariant.{validator}]", "b", "spec.pipeline.validators[0]"),
    ]

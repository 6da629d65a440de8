"""The use cases of package dependencies, each a small cluster and what is decided there."""

import pytest

from reconciler.dependencies.lock.format import lock_solution
from reconciler.dependencies.lock.revisions import PreviousLock, reconcile_revisions
from reconciler.dependencies.model.cluster import build_catalogue
from reconciler.dependencies.model.instances import Resolution, record_bytes
from reconciler.dependencies.model.packages import Candidate, Ecosystem, PackageId
from reconciler.dependencies.solve.resolve import resolve_cluster
from reconciler.dependencies.versions import parse_loose
from tests.support.dependency_manifests import (
    bundle,
    crossplane,
    install,
    installation,
    needs,
    package,
    provider,
    resolved,
    told,
    world_of,
)
from tests.support.dependency_worlds import pins_of
from tests.support.text import assert_lines
from tests.support.values import replace


def test_what_is_installed_is_upgraded_where_its_own_range_lets_it() -> None:
    text = (
        install("shop", "web.io", "")
        + install("mine", "db.io", "<=2.0.0")
        + package("web.io", "1.0.0", needs("db.io", ">=2.0.0"))
        + package("db.io", "1.0.0")
        + package("db.io", "2.0.0")
        + package("db.io", "3.0.0")
    )

    before = install("mine", "db.io", "1.0.0") + package("db.io", "1.0.0")
    locked = lock_solution(world_of(before), resolve_cluster(world_of(before))).packages
    alone = install("mine", "db.io", "<=2.0.0") + text[text.index("---\napiVersion: data") :]

    found = resolved(text, pins=locked)
    assert "carvel:db.io@install/prod/mine 1.0.0 for user" in resolved(alone, pins=locked)
    assert "carvel:db.io@install/prod/mine 2.0.0 for user" in found


ISSUER = "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}"
EITHER = "{or: [" + ISSUER + ", {package: {refName: certs.io, version: ''}}]}"

ISSUERS = "provides: [{apiVersion: certs.io/v1, kind: Issuer}]"


def test_a_declined_package_is_not_installed_for_an_api_that_it_provides() -> None:
    text = (
        install("shop", "web.io", "", "dependencies: {override: [{refName: certs.io, install: false}]}")
        + package("web.io", "1.0.0", EITHER)
        + package("certs.io", "1.0.0", ISSUERS)
        + "---\n{kind: Cluster, choices: {discovery: true}}\n"
    )

    assert "certs.io@" not in resolved(text)
    assert "carvel:certs.io@namespace/prod 1.0.0" in resolved(text.replace("install: false", "install: true"))


def test_an_override_by_alias_declines_every_alternative_of_its_dependency() -> None:
    declined = "dependencies: {override: [{refName: certificates, install: false}]}"
    aliased = EITHER.removesuffix("}") + ", alias: certificates}"
    text = package("web.io", "1.0.0", aliased) + package("certs.io", "1.0.0", ISSUERS)
    discovery = "---\n{kind: Cluster, choices: {discovery: true}}\n"

    found = resolved(install("shop", "web.io", "", declined) + text + discovery)

    assert "nothing there meets it, and nothing may be installed" in found


@pytest.mark.parametrize(
    ("text", "provided_by"),
    [
        (
            install("shop", "web.io", "")
            + package("web.io", "1.0.0", "{gvk: {apiVersion: certs.io/v1, kind: Issuer}}")
            + package("certs.io", "1.0.0", "provides: [{apiVersion: certs.io/v1, kind: Issuer}]"),
            "carvel:certs.io@namespace/prod 1.0.0 for carvel:web.io@install/prod/shop",
        ),
        (
            provider("platform", "v1.0.0", "Configuration")
            + crossplane("platform", "v1.0.0", "[{crd: {apiVersion: s3.io/v1, kind: Bucket}}]")
            + crossplane("aws", "v1.0.0", kinds="s3.io/v1/Bucket"),
            "xpkg:x.io/aws@cluster v1.0.0 for xpkg:x.io/platform@cluster",
        ),
    ],
    ids=["Carvel", "Crossplane"],
)
def test_discovery_installs_the_provider_of_an_api_only_if_asked_to(text: str, provided_by: str) -> None:
    assert provided_by in resolved(text + "---\n{kind: Cluster, choices: {discovery: true}}\n")
    (explanation,) = resolve_cluster(world_of(text)).explanations
    assert explanation.code == "E-API"


def test_an_optional_package_is_added_if_nothing_changes_for_it() -> None:
    text = (
        install("shop", "web.io", "")
        + package("web.io", "1.0.0", needs("db.io"), needs("metrics.io", "", ", optional: true"))
        + package("db.io", "2.0.0")
    )

    free = package("metrics.io", "1.0.0")
    clashing = package("metrics.io", "1.0.0", needs("db.io", "<2.0.0"))
    assert "carvel:metrics.io@namespace/prod 1.0.0" in resolved(text + free)
    assert "skipped metrics.io of carvel:web.io@install/prod/shop" in resolved(text + clashing)


def test_an_optional_package_that_is_there_must_fit() -> None:
    world = world_of(
        install("shop", "web.io", "")
        + install("mine", "metrics.io", "1.0.0")
        + package("web.io", "1.0.0", needs("metrics.io", ">=2.0.0", ", optional: true"))
        + package("metrics.io", "1.0.0")
    )

    (explanation,) = resolve_cluster(world).explanations
    assert "web.io 1.0.0 accepts only metrics.io >=2.0.0" in str(explanation)


OVERRIDDEN = """dependencies:
    override:
    - {refName: db.io, versionSelection: {constraints: 1.0.0}}
    - {refName: cache.io, install: false}"""


def test_an_override_replaces_a_range_and_may_decline_to_install() -> None:
    text = (
        install("shop", "web.io", "", OVERRIDDEN)
        + package("web.io", "1.0.0", needs("db.io", ">=2.0.0"), needs("cache.io", "", ", optional: true"))
        + package("db.io", "1.0.0")
        + package("db.io", "2.0.0")
        + package("cache.io", "1.0.0")
    )

    assert "carvel:db.io@namespace/prod 1.0.0" in resolved(text)
    assert "skipped cache.io" in resolved(text)


def test_install_false_only_checks_what_is_there() -> None:
    text = (
        install("shop", "web.io", "", "dependencies: {install: false}")
        + package("web.io", "1.0.0", needs("db.io", ">=1.0.0"))
        + package("db.io", "1.0.0")
    )

    assert [e.code for e in resolve_cluster(world_of(text)).explanations] == ["E-DECLINED"]
    assert "<- carvel:db.io@install/prod/mine (installed)" in resolved(text + install("mine", "db.io", ""))


def test_one_per_cluster_is_used_from_every_namespace() -> None:
    found = resolved(
        install("a", "one.io", "", namespace="x")
        + install("b", "two.io", "", namespace="y")
        + package("one.io", "1.0.0", needs("certs.io"))
        + package("two.io", "1.0.0", needs("certs.io"))
        + package("certs.io", "1.0.0", "installationType: onePerCluster")
    )

    assert found.count("certs.io@cluster 1.0.0") == 1
    assert found.count("<- carvel:certs.io@cluster (candidate)") == 2


def test_the_current_namespace_comes_before_the_global_one() -> None:
    found = resolved(
        installation("a", "app")
        + installation("near", "olm")
        + installation("far", "olm", "")
        + bundle("app", "1.0.0", "{requires: [{name: olm, reference: r.io/olm}]}")
        + bundle("olm", "1.0.0")
    )

    assert "  olm <- bundle:r.io/olm@install/prod/near (installed)" in found


def test_an_installation_of_another_namespace_is_not_looked_at() -> None:
    found = resolved(
        installation("a", "app")
        + installation("far", "olm", "elsewhere")
        + bundle("app", "1.0.0", "{requires: [{name: olm, reference: r.io/olm}]}")
        + bundle("olm", "1.0.0")
    )

    assert "  olm <- bundle:r.io/olm@shared (candidate)" in found


def test_a_binding_reaches_the_dependency_of_its_alias_alone() -> None:
    bound = "custom: {reconciler.dev/dependencies: {second: mine}}"
    found = resolved(
        installation("a", "app", more=bound)
        + installation("mine", "olm")
        + bundle(
            "app",
            "1.0.0",
            "{requires: [{name: first, reference: r.io/db}, {name: second, reference: r.io/db}]}",
        )
        + bundle("db", "1.0.0")
        + bundle("olm", "1.0.0")
    )

    assert "  first <- bundle:r.io/db@shared (candidate)" in found
    assert "  second <- bundle:r.io/olm@install/prod/mine (binding)" in found


def test_a_user_provided_installation_is_taken_whatever_the_criteria_say() -> None:
    text = installation(
        "a", "app", more="custom: {reconciler.dev/dependencies: {sql: onsite/beast}}"
    ) + bundle(
        "app",
        "1.0.0",
        "{requires: [{name: sql, reference: r.io/sqlserver, version: v1.2.x, labels: {a: b}}]}",
    )
    there = (
        "---\n{kind: Cluster, installations: [{name: beast, namespace: onsite, package: 'bundle:r.io/other', "
    )
    there += "version: 9.0.0}]}\n"

    assert "sql <- binding:onsite/beast (binding)" in resolved(text + there)
    assert [e.code for e in resolve_cluster(world_of(text)).explanations] == ["E-BIND"]


MYSQL = (
    "{requires: [{name: db, interface: {name: mysql, version: 5.7.x, outputs: [{name: url, type: string}]}}]}"
)
HELM = bundle(
    "helm-mysql",
    "1.0.0",
    "{provides: [{interface: io.cnab.interface.mysql, version: 5.7.9}]}",
    "outputs: [{name: url, type: string}]",
)
AZURE = HELM.replace("helm-mysql", "azure-mysql")


def test_the_reference_of_the_author_comes_before_the_default() -> None:
    found = resolved(
        installation("a", "app")
        + bundle("app", "1.0.0", MYSQL.replace("{name: db,", "{name: db, reference: r.io/azure-mysql,"))
        + HELM
        + AZURE
        + "---\n{kind: Cluster, choices: {defaults: {io.cnab.interface.mysql: 'bundle:r.io/helm-mysql'}}}\n"
    )

    assert "db <- bundle:r.io/azure-mysql@shared (default)" in found
    assert "helm-mysql@" not in found


def test_an_installation_that_implements_the_interface_comes_before_the_default() -> None:
    there = "---\n{kind: Cluster, installations: [{name: db, namespace: prod, package: 'bundle:r.io/x', "
    there += "version: 1.0.0, provides: {io.cnab.interface.mysql: 5.7.1}}]}\n"
    text = installation("a", "app") + bundle(
        "app", "1.0.0", MYSQL.replace(", outputs: [{name: url, type: string}]", "")
    )

    assert "db <- installed:prod/db (installed)" in resolved(text + there)


def test_an_external_installation_offers_what_it_declares() -> None:
    external = (
        "custom: {reconciler.dev/external: true, provides: [{interface: io.cnab.interface.mysql, "
        "version: 5.7.2, outputs: [{name: url, type: string}]}]}"
    )
    found = resolved(
        installation("a", "app")
        + bundle("app", "1.0.0", MYSQL)
        + installation("shared", "meta", more=external)
    )

    assert "db <- installed:prod/shared (installed)" in found


def test_crossplane_has_one_of_each_package_and_one_owner_of_each_kind_in_a_cluster() -> None:
    found = resolved(
        provider("platform", "v1.0.0", "Configuration")
        + provider("aws", "v1.2.0")
        + crossplane("platform", "v1.0.0", "[{provider: x.io/aws, version: '>=v1.0.0'}]")
        + crossplane("aws", "v1.2.0")
        + crossplane("aws", "v1.3.0")
    )

    assert_lines(
        found,
        """
        xpkg:x.io/aws@cluster v1.2.0 for user
        xpkg:x.io/platform@cluster v1.0.0 for user
          x.io/aws >=v1.0.0 <- xpkg:x.io/aws@cluster (installed)
        """,
    )
    for kind, codes in {"Queue": [], "Bucket": ["E-OWN-CRD"]}.items():
        world = world_of(
            provider("aws", "v1.0.0")
            + provider("store", "v1.0.0")
            + crossplane("aws", "v1.0.0", kinds="s3.io/v1/Bucket")
            + crossplane("store", "v1.0.0", kinds=f"s3.io/v1/{kind}")
        )
        assert [explanation.code for explanation in resolve_cluster(world).explanations] == codes


def test_a_package_needs_and_owns_what_its_chosen_version_says_alone() -> None:
    found = resolved(
        provider("aws", "v1.0.0")
        + provider("queues", "v1.0.0")
        + crossplane("aws", "v0.9.0", "[{provider: x.io/old}]")
        + crossplane("aws", "v1.0.0", "[{provider: x.io/net}]", "s3.io/v1/Bucket")
        + crossplane("aws", "v2.0.0", "[{provider: x.io/new}]", "s3.io/v1/Bucket s3.io/v1/Queue")
        + crossplane("queues", "v1.0.0", kinds="s3.io/v1/Queue")
        + "".join(crossplane(name, "v1.0.0") for name in ("net", "new", "old"))
    )

    assert_lines(
        found,
        """
        xpkg:x.io/aws@cluster v1.0.0 for user
          x.io/net <- xpkg:x.io/net@cluster (candidate)
        xpkg:x.io/net@cluster v1.0.0 for xpkg:x.io/aws@cluster
        xpkg:x.io/queues@cluster v1.0.0 for user
        """,
    )


def test_a_circle_of_crossplane_packages_is_avoided_where_it_can_be() -> None:
    found = resolved(
        provider("a", "v1.0.0")
        + crossplane("a", "v1.0.0", "[{package: x.io/b}]")
        + crossplane("b", "v2.0.0", "[{package: x.io/a}]")
        + crossplane("b", "v1.0.0")
    )

    assert "xpkg:x.io/b@cluster v1.0.0" in found


def test_two_packages_cannot_own_one_composition() -> None:
    world = world_of(provider("a", "v1.0.0") + provider("b", "v1.0.0"))
    several = [
        Candidate(PackageId(Ecosystem.XPKG, f"x.io/{name}"), parse_loose("v1.0.0"), compositions=(owned,))
        for name, owned in (("a", "networks"), ("b", "networks"))
    ]
    apart = [several[0], replace(several[1], compositions=("clusters",))]
    of_neither = replace(several[0], version=parse_loose("v0.9.0"), compositions=())

    for candidates in (several, [*several, of_neither]):
        solution = resolve_cluster(replace(world, catalogue=build_catalogue(candidates)))
        assert [explanation.code for explanation in solution.explanations] == ["E-OWN-COMPOSITION"]
    together = replace(world, catalogue=build_catalogue(apart))
    solution = resolve_cluster(together)
    locked = reconcile_revisions(
        together, solution, lock_solution(together, solution), PreviousLock(Resolution())
    ).resolution
    assert list(locked.compositions) == ["clusters", "networks"]


def test_a_field_that_came_with_a_later_version_of_the_provider() -> None:
    need = "{gvk: {apiVersion: db.io/v1, kind: Database, providedBy: {refName: db.io, version: '>=1.5.0'}}}"
    old = (
        install("shop", "web.io", "")
        + install("mine", "db.io", "<=1.4.0")
        + package("web.io", "1.0.0", need)
        + package("db.io", "1.4.0", "provides: [{apiVersion: db.io/v1, kind: Database}]")
        + package("db.io", "1.5.0", "provides: [{apiVersion: db.io/v1, kind: Database}]")
    )

    (explanation,) = resolve_cluster(world_of(old)).explanations
    assert "requires the API db.io/v1/Database of db.io >=1.5.0" in str(explanation)
    assert "<- carvel:db.io@install/prod/mine (planned)" in resolved(old.replace("<=1.4.0", "<=1.5.0"))


def test_words_about_a_dependency_that_does_not_exist_are_warned_about() -> None:
    said = "dependencies: {override: [{refName: gone.io, install: false}]}"
    solution = resolve_cluster(world_of(install("shop", "web.io", "", said) + package("web.io", "1.0.0")))

    assert [warning.message for warning in solution.warnings] == [
        "web.io 1.0.0 has no dependency gone.io, so what is said about it has no effect"
    ]
    assert solution.warnings[0].location.line == 7
    assert solution.problems == ()


def test_values_by_name_beside_values_by_alias_are_warned_about() -> None:
    by_name, by_alias = "{refName: db.io, secretRef: {name: a}}", "{alias: store, secretRef: {name: b}}"
    both = f"dependencies: {{values: [{by_name}, {by_alias}]}}"
    own = install("shop", "web.io", "", both) + package("db.io", "1.0.0")
    aliased = package("web.io", "1.0.0", needs("db.io", more=", alias: store"))

    assert [warning.message for warning in resolve_cluster(world_of(own + aliased)).warnings] == [
        "The values for db.io are not used: those for its alias store are"
    ]
    plain = package("web.io", "1.0.0", needs("db.io"), needs("log.io", more=", alias: store"))
    assert resolve_cluster(world_of(own + plain + package("log.io", "1.0.0"))).warnings == ()


def test_other_inputs_are_another_instance_and_never_written_down() -> None:
    def asks(value: str) -> str:
        head = "{requires: [{name: db, bundle: {reference: r.io/db, version: 1.x}, "
        return head + "sharing: {mode: true, group: {name: g}}, parameters: {password: " + value + "}}]}"

    world = world_of(
        installation("a", "a")
        + installation("b", "b")
        + bundle("a", "1.0.0", asks("hunter2"))
        + bundle("b", "1.0.0", asks("swordfish"))
        + bundle("db", "1.0.0")
    )
    body = record_bytes(lock_solution(world, resolve_cluster(world)))

    assert told(resolve_cluster(world)).count("bundle:r.io/db@shared/prod/g/inputs=") == 4
    assert b"hunter2" not in body
    assert b"swordfish" not in body


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ("", "no version of metrics.io is published"),
        (package("metrics.io", "1.0.0-rc.1"), "no version of metrics.io fits: 1.0.0-rc.1 is published"),
        (
            package("metrics.io", "1.0.0", needs("db.io", "<2.0.0")),
            "metrics.io 1.0.0 requires db.io <2.0.0, but no version of db.io fits: 2.0.0 is published",
        ),
        (
            install("mine", "db.io", "2.0.0")
            + package("db.io", "1.0.0")
            + package("metrics.io", "1.0.0", needs("db.io", "<2.0.0")),
            "metrics.io 1.0.0 requires db.io <2.0.0 and PackageInstall prod/mine asks for db.io 2.0.0",
        ),
    ],
)
def test_a_skipped_requirement_has_its_reason_in_the_lock(metrics: str, reason: str) -> None:
    optional = needs("metrics.io", "", ", optional: true")
    text = install("shop", "web.io", "") + package("web.io", "1.0.0", optional) + package("db.io", "2.0.0")
    world = world_of(text + metrics)

    (skipped,) = lock_solution(world, resolve_cluster(world)).skipped
    assert (skipped.requirement, skipped.reason) == ("metrics.io", reason)


CONTRADICTION = (
    package("web.io", "1.0.0", needs("db.io"))
    + package("web.io", "2.0.0", needs("db.io", ">=2.0.0"))
    + package("shop.io", "1.0.0", needs("db.io"))
    + package("shop.io", "2.0.0", needs("db.io", "<2.0.0"))
    + package("log.io", "1.0.0", needs("db.io"))
    + package("log.io", "2.0.0", needs("db.io"), needs("new.io"))
    + package("new.io", "1.0.0")
    + package("db.io", "1.0.0")
)
DB2 = package("db.io", "2.0.0")


def three(version: str) -> str:
    roots = "".join(install(name, f"{name}.io", version) for name in ("log", "shop", "web"))
    return roots + CONTRADICTION


def test_install_that_contradicts_what_is_held_stalls_too_and_no_other() -> None:
    strict = CONTRADICTION.replace("version: ''", "version: '<2.0.0'", 2)
    roots = "".join(install(name, f"{name}.io", "1.0.0") for name in ("log", "shop", "web"))
    pins = pins_of(resolve_cluster(world_of(roots + strict)))
    late = install("late", "late.io", "") + package("late.io", "1.0.0", needs("db.io", ">=2.0.0"))

    solution = resolve_cluster(
        world_of(three("2.0.0").replace(CONTRADICTION, strict) + DB2 + late, pins=pins)
    )

    stalled = {name for explanation in solution.explanations for name in explanation.stalled}
    assert stalled == {f"PackageInstall prod/{name}" for name in ("late", "shop", "web")}
    assert {i.package.name: str(one.candidate.version) for i, one in solution.resolved.items()} == {
        "log.io": "2.0.0",
        "new.io": "1.0.0",
        "db.io": "1.0.0",
        "shop.io": "1.0.0",
        "web.io": "1.0.0",
    }


def test_install_without_a_solution_by_itself_preempts_nobody() -> None:
    """It contests a kind with what it needs: the manifest of that package has nothing to do with it."""
    kind = "provides: [{apiVersion: x.io/v1, kind: Queue}]"
    catalogue = package("b.io", "1.0.0", needs("d.io"), kind) + package("d.io", "1.0.0", kind)
    roots = install("b", "b.io", "") + install("d", "d.io", "")

    solution = resolve_cluster(world_of(roots + catalogue))

    assert [explanation.stalled for explanation in solution.explanations] == [("PackageInstall prod/b",)]
    assert [i.package.name for i in solution.resolved] == ["d.io"]


def test_who_owns_a_kind_in_the_lock_keeps_it_beside_a_lower_name() -> None:
    kind = "provides: [{apiVersion: x.io/v1, kind: Queue}]"
    late = install("late", "late.io", "") + package("late.io", "1.0.0", kind)
    pins = pins_of(resolve_cluster(world_of(late)))
    text = (
        late
        + package("late.io", "1.1.0", kind)
        + install("aws", "aws.io", "")
        + package("aws.io", "1.0.0", kind)
    )

    solution = resolve_cluster(world_of(text, pins=pins))

    assert [explanation.stalled for explanation in solution.explanations] == [("PackageInstall prod/aws",)]
    assert [str(one.candidate) for one in solution.resolved.values()] == ["late.io 1.0.0"]

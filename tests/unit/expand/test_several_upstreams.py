"""A set with several upstreams: one variant for each and each target, all or nothing."""

from typing import Any

from reconciler.expand import Desired, expand
from reconciler.expand.owners import single_sets
from reconciler.krm.yaml import load_documents
from reconciler.names.ids import ObjectName
from reconciler.plan.set_diff import diff_variants
from reconciler.policy import Limits, Policy
from reconciler.run.plan import named_urls
from tests.support.sets import blueprints, package_set, record_all, repository, source, world
from tests.support.values import replace

MANIFEST = """\
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata: {name: charts, namespace: default}
spec:
  upstreams:
  - {repo: blueprints, package: web, revision: 1}
  - repo: blueprints
    package: db
    revision: 1
  targets:
  - repositories: [{name: east}, {name: west}]
"""
FLEET = (blueprints("web", "db"), repository("east"), repository("west"))


def charts(text: str = MANIFEST) -> Any:
    (document,) = load_documents(text.encode())
    at = replace(source("charts.yaml"), marks=document)
    return package_set("charts", spec=document.value["spec"], at=at)


def names(desired: Desired) -> list[str]:
    return [variant.key.name for variant in desired.variants]


def test_every_upstream_gets_to_every_target_under_its_own_name() -> None:
    desired = expand(world(charts(), views=FLEET))

    assert names(desired) == ["charts-east-db", "charts-east-web", "charts-west-db", "charts-west-web"]
    assert {v.spec.upstream.package for v in desired.variants if v.spec.upstream} == {"web", "db"}
    assert desired.targets == {ObjectName("default", "charts"): 4}


def test_what_is_wrong_with_one_upstream_is_at_its_line_and_changes_nothing() -> None:
    text = MANIFEST.replace("package: db\n", "package: dbs\n")
    before = world(charts(), views=FLEET)
    records = record_all(before)
    inventory = replace(world(charts(text), views=FLEET), records=records)

    desired = expand(inventory)

    (problem,) = desired.problems
    assert (problem.location.line, str(problem.message)) == (
        7,
        "could not find upstream package revision 'dbs/1' in repo 'blueprints'",
    )
    assert desired.variants == ()
    assert diff_variants(desired, inventory).delete == ()


def test_upstream_that_leaves_the_list_takes_its_packages_alone_with_it() -> None:
    records = record_all(world(charts(), views=FLEET))
    text = MANIFEST.replace("  - {repo: blueprints, package: web, revision: 1}\n", "")
    inventory = replace(world(charts(text), views=FLEET), records=records)

    diff = diff_variants(expand(inventory), inventory)

    why = "spec.upstreams of PackageVariantSet default/charts has no web any more"
    assert [(change.key.name, str(change.message)) for change in diff.delete] == [
        ("charts-east-web", why),
        ("charts-west-web", why),
    ]


def test_list_takes_over_from_the_one_upstream_that_the_set_had() -> None:
    one = MANIFEST.replace("upstreams:\n  - {repo", "upstream: {repo").replace(
        "  - repo: blueprints\n    package: db\n    revision: 1\n", ""
    )
    records = record_all(world(charts(one), views=FLEET))
    inventory = replace(world(charts(), views=FLEET), records=records)

    diff = diff_variants(expand(inventory), inventory)

    assert [change.key.name for change in diff.create] == ["charts-east-db", "charts-west-db"]
    assert (diff.update, diff.delete, diff.transfer) == ((), (), ())


def test_fault_of_a_target_is_reported_once() -> None:
    desired = expand(world(charts(MANIFEST.replace("name: west", "name: north")), views=FLEET))

    assert len(desired.problems) == 2, "one for each package, which the message names"
    assert len({problem.message for problem in desired.problems}) == 2


def test_limit_of_targets_counts_those_of_all_upstreams() -> None:
    inventory = world(charts(), views=FLEET)
    policy: Policy = replace(inventory.policy, limits=replace(Limits(), targets_per_set=3))

    (problem,) = expand(replace(inventory, policy=policy)).problems

    assert problem.message == "the set has 4 targets, more than 3"


def test_single_set_has_the_fields_of_its_upstream_where_they_are() -> None:
    web, db = single_sets(charts())

    assert web.source.at("spec", "upstream", "revision").line == 6
    assert db.source.at("spec", "upstream", "revision").line == 9
    assert db.source.at("spec", "targets", 0).line == web.source.at("spec", "targets", 0).line == 11


def test_shard_reads_the_repositories_of_all_upstreams() -> None:
    text = MANIFEST.replace("- repo: blueprints", "- repo: others")
    others = repository("others")
    inventory = world(charts(text), views=(*FLEET, others))

    assert {others.url, FLEET[0].url} <= named_urls(inventory, frozenset())

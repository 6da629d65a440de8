"""Values that a policy or strategy drops are listed, with the policy and its source."""

import pytest

from reconciler.objects import Files
from reconciler.policy import OnConflict, Strategy
from reconciler.render.conflicts import ON_CONFLICT, ON_CONFLICT_FIELDS, PolicySources, conflict_policy
from reconciler.render.update import UpdateRefused, update_package
from reconciler.render.update.conflict_policy import describe_decision
from tests.support.model import kptfile, package

SOURCES = PolicySources("PackageVariant default/web (manifests/web.yaml)", "fleet.yaml")


def resource(color: str, note: str = "") -> str:
    annotations = f"  annotations:\n    {ON_CONFLICT}: {note}\n" if note else ""
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n{annotations}data:\n  color: {color}\n"


@pytest.mark.parametrize("choice", ["upstream", "local"])
@pytest.mark.parametrize(
    ("level", "policy", "source"),
    [
        ("field of Kptfile", f"{ON_CONFLICT_FIELDS}: data.*={{}}", "Kptfile"),
        ("field of variant", f"{ON_CONFLICT_FIELDS}: data.*={{}}", SOURCES.variant),
        ("resource", f"{ON_CONFLICT}: {{}}", "app.yaml"),
        ("Kptfile", f"{ON_CONFLICT}: {{}}", "Kptfile"),
        ("variant", f"{ON_CONFLICT}: {{}}", SOURCES.variant),
        ("configuration", "onConflict: {}", "fleet.yaml"),
    ],
)
def test_decision_names_the_policy_and_where_it_is_written(
    level: str, policy: str, source: str, choice: str
) -> None:
    fields, note = {ON_CONFLICT_FIELDS: f"data.*={choice}"}, {ON_CONFLICT: choice}
    own = {"field of Kptfile": fields, "Kptfile": note}.get(level, {})
    head = kptfile("web", "".join(f"  annotations:\n    {key}: {text}\n" for key, text in own.items()))
    mark = choice if level == "resource" else ""
    files = [package({"Kptfile": head, "app.yaml": resource(c, mark)}) for c in ("old", "new", "mine")]
    annotations = {"field of variant": fields, "variant": note}.get(level, {})
    fallback = OnConflict(choice if level == "configuration" else "ask")
    policy_in_force = conflict_policy(files[2], annotations, fallback, SOURCES)

    (decided,) = update_package(*files, on_conflict=policy_in_force).decided

    decision = describe_decision(policy_in_force, decided.winner, decided.rule, decided.conflict.path)
    assert decision == (choice, policy.format(choice), source)
    assert (decided.conflict.upstream, decided.conflict.local) == ("new", "mine")


def without(texts: dict[str, str], *names: str, **changed: str) -> Files:
    """Return a package of texts, some of them left out and some changed (`a_yaml` is a.yaml)."""
    kept = {name: text for name, text in texts.items() if name not in names}
    return package(
        {"Kptfile": kptfile("web"), **kept, **{n.replace("_", "."): t for n, t in changed.items()}}
    )


@pytest.mark.parametrize("strategy", [Strategy.FORCE_DELETE_REPLACE, Strategy.COPY_MERGE])
def test_strategy_lists_every_local_change_that_it_replaces(strategy: Strategy) -> None:
    texts = {"changed.yaml": "a: 1\n", "removed.yaml": "b: 1\n", "same.yaml": "c: 1\n", "gone.yaml": "d: 1\n"}
    upstream = without(texts, "gone.yaml", same_yaml="c: 2\n")
    local = without(texts, "removed.yaml", changed_yaml="a: 9\n", gone_yaml="d: 9\n")

    updated = update_package(without(texts), upstream, local, strategy=strategy)

    dropped = {each.conflict.path: each.conflict.local for each in updated.decided}
    assert dropped == {"changed.yaml": "a: 9\n", "removed.yaml": None, "gone.yaml": "d: 9\n"}
    policy = conflict_policy(local, {}, OnConflict.ASK, SOURCES)
    decisions = {describe_decision(policy, s.winner, s.rule, s.conflict.path) for s in updated.decided}
    assert decisions == {("upstream", f"updateStrategy: {strategy}", "Kptfile")}


def test_strategy_lists_what_people_added_and_it_removes() -> None:
    original = package({"Kptfile": kptfile("web"), "a.yaml": "a: 1\n"})
    local = package({"Kptfile": kptfile("web"), "a.yaml": "a: 1\n", "mine.txt": "mine\n"})

    updated = update_package(original, original, local, strategy=Strategy.FORCE_DELETE_REPLACE)

    assert "mine.txt" not in updated.files
    assert [(s.conflict.path, s.conflict.local) for s in updated.decided] == [("mine.txt", "mine\n")]


def test_both_members_of_a_union_are_listed() -> None:
    def pod(volume: str) -> str:
        head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  volumes:\n  - name: v\n"
        return f"{head}    {volume}\n"

    volumes = ("emptyDir: {}", "configMap: {name: theirs}", "secret: {secretName: mine}")
    files = [package({"Kptfile": kptfile("web"), "pod.yaml": pod(volume)}) for volume in volumes]

    updated = update_package(*files, on_conflict=OnConflict.UPSTREAM)

    values = {each.conflict.field.rpartition(".")[2]: each.conflict.local for each in updated.decided}
    assert values == {"configMap": None, "secret": "{secretName: mine}"}
    assert "secretName" not in updated.files["pod.yaml"].data.decode()


@pytest.mark.parametrize("policy", [OnConflict.ASK, OnConflict.UPSTREAM, OnConflict.LOCAL])
def test_removed_resource_that_upstream_moved_and_changed_is_a_conflict(
    policy: OnConflict,
) -> None:
    head = {"Kptfile": kptfile("web"), "other.yaml": resource("x").replace("app", "other")}
    original = package({**head, "app.yaml": resource("old")})
    upstream = package({**head, "moved.yaml": resource("new")})

    updated = update_package(original, upstream, package(head), on_conflict=policy)

    named = [*updated.conflicts, *(each.conflict for each in updated.decided)]
    assert [(each.reason, each.local) for each in named] == [("DeletedLocally", None)]
    assert "moved.yaml" not in updated.files


@pytest.mark.parametrize("edited", [False, True])
def test_resource_that_people_moved_goes_with_upstreams_removal_unless_edited(*, edited: bool) -> None:
    head = {"Kptfile": kptfile("web")}
    mine = resource("mine" if edited else "old")

    updated = update_package(
        package({**head, "app.yaml": resource("old")}), package(head), package({**head, "moved.yaml": mine})
    )

    assert [each.reason for each in updated.conflicts] == (["DeletedUpstream"] if edited else [])
    assert ("moved.yaml" in updated.files) == edited


@pytest.mark.parametrize("turned", [False, True])
def test_file_that_is_a_directory_on_the_other_side_is_refused(*, turned: bool) -> None:
    head = {"Kptfile": kptfile("web")}
    sides = [package({**head, "a": "theirs\n"}), package({**head, "a/b.txt": "mine\n"})]

    with pytest.raises(UpdateRefused, match=r"directories on the other: a$"):
        update_package(package(head), *(reversed(sides) if turned else sides))

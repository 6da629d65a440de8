"""PackageVariants as Porch reconciles them: upstreams, workspaces, deletion, context, downstreams.

Where a decision of ours differs, the rule of that decision stands here, never the name of a case,
and `docs/divergences.md` lists the cases it applies to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Downstream, PackageContext, PackageVariantSpec, Upstream
from reconciler.errors import Location, Problem
from reconciler.expand import DesiredVariant
from reconciler.ids import Lifecycle, ObjectName, Oid
from reconciler.inventory import Commit, Draft, PackageRevision, PackageState, RepositoryView, Source
from reconciler.plan.changes import MoveRef, WriteDraft, WriteRemoval
from reconciler.plan.drafts import next_workspace
from reconciler.plan.world import make_target
from reconciler.render.context import ensure_context
from reconciler.resolve.ownership import find_owner
from reconciler.resolve.upstreams import find_upstream
from tests.support.conformance import Case, vectors
from tests.support.model import MAIN, NAMESPACE, ModelWorld, blueprint, package

PART = "porch"
OURS = "fleet/default/my-pv"


def oid(number: int) -> Oid:
    return Oid(f"{number:040x}")


def a_view(name: str, packages: Mapping[str, PackageState]) -> RepositoryView:
    world = ModelWorld()
    world.add_repository(name)
    view = world.inventory().repositories[ObjectName(NAMESPACE, name)]
    return replace(view, packages=packages)


def upstream_views(revisions: Iterable[Mapping[str, Any]]) -> Iterator[RepositoryView]:
    """Yield the repositories that hold these revisions; the index of each is its commit."""
    found: dict[str, dict[str, PackageState]] = {}
    for index, revision in enumerate(revisions):
        spec = revision["spec"]
        path = spec.get("packageName", "")
        packages = found.setdefault(spec.get("repository", ""), {})
        packages[path] = with_revision(packages.get(path, PackageState(path)), index, spec)
    for name, packages in found.items():
        head = next((p.published[0].commit for p in packages.values() if p.published), Commit(oid(0), 0))
        mains = [p.main_tree for p in packages.values() if p.main_tree]
        view = a_view(name, packages)
        yield replace(view, head=Commit(mains[0], 0) if mains else head)


def with_revision(state: PackageState, index: int, spec: Mapping[str, Any]) -> PackageState:
    workspace, number = spec.get("workspaceName", ""), spec.get("revision", 0)
    if workspace == "main" and number <= 0:
        return replace(state, main_tree=oid(index), main_header=KptfileHeader())
    ref = f"refs/tags/{state.path}/{workspace}"
    commit = Commit(oid(index), 0)
    one = PackageRevision(state.path, workspace, number, Lifecycle.PUBLISHED, ref, commit, oid(index))
    return replace(state, published=(*state.published, one))


def look_up(upstream: Mapping[str, Any], revisions: list[Mapping[str, Any]]) -> int | None:
    views = {view.key: view for view in upstream_views(revisions)}
    spec = PackageVariantSpec(upstream=Upstream.model_validate(upstream))
    variant = DesiredVariant(ObjectName(NAMESPACE, "pv"), "uid", spec, Source(Location("pv.yaml", 1)))
    found = find_upstream(variant, replace(ModelWorld().inventory(), repositories=views))
    return None if isinstance(found, Problem) else int(found.tree, 16)


@pytest.mark.parametrize("case", vectors(PART, "PvUpstreamSelection"))
def test_upstream_selection(case: Case) -> None:
    upstream, revisions = case["upstream"], case["packageRevisions"]

    found = look_up(upstream, revisions)

    if upstream.get("repo") and not upstream.get("workspaceName") and "revision" not in upstream:
        assert found == latest_published(upstream, revisions), "D9: without a selector, the latest published"
    else:
        assert found == case["expectedFound"]


def latest_published(upstream: Mapping[str, Any], revisions: list[Mapping[str, Any]]) -> int | None:
    numbered = [
        (revision["spec"]["revision"], -index)
        for index, revision in enumerate(revisions)
        if revision["spec"].get("repository") == upstream["repo"]
        and revision["spec"].get("packageName") == upstream["package"]
        and revision["spec"].get("revision", 0) > 0
    ]
    return -max(numbered)[1] if numbered else None


@pytest.mark.parametrize("case", vectors(PART, "PvPublishedUpstream"))
def test_published_upstream(case: Case) -> None:
    upstream = {k: v for k, v in case["upstream"].items() if k != "workspaceName"}

    assert look_up(upstream, case["packageRevisions"]) == case["expectedFound"]


@pytest.mark.parametrize("case", vectors(PART, "WorkspaceName"))
def test_workspace_name(case: Case) -> None:
    revisions = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    drafts = [
        a_draft(case["package"], revision["spec"]["workspaceName"])
        for revision in revisions
        if revision["spec"].get("packageName", "") == case["package"]
        and revision["spec"].get("repository", "") == case["repo"]
    ]
    state = PackageState(case["package"], drafts=tuple(drafts))

    target = make_target(a_view("deployments", {}), state, ModelWorld().inventory())

    assert next_workspace(target) == case["expected"]


def a_draft(path: str, workspace: str, *, owner: str = "", lifecycle: str = "Draft") -> Draft:
    return Draft(
        path=path,
        workspace=workspace,
        lifecycle=Lifecycle(lifecycle),
        ref=f"refs/heads/drafts/{path}/{workspace}",
        tip=Commit(oid(1), 0),
        tree=oid(1002),
        header=KptfileHeader(owner=owner, location=f"deployments/{path}" if owner else ""),
        base=oid(3),
        base_tree=None,
        written=oid(1002) if owner else None,
    )


@pytest.mark.parametrize("case", vectors(PART, "DeletionPolicy"))
def test_deletion_policy(case: Case) -> None:
    variant = yaml.safe_load(case["packageVariant"])
    spec = PackageVariantSpec.model_validate(variant["spec"])
    world = world_with(spec)
    bring_to(world, spec, yaml.safe_load(case["packageRevision"])["spec"].get("lifecycle", "Draft"))
    world.variants.clear()

    (change,) = [c for c in world.plan().changes if c.package.path == spec.downstream.package]

    calls = [call.partition(":")[0] for call in case["expectedClientCalls"]]
    assert list(what_porch_would_call(change.writes)) == calls


def world_with(spec: PackageVariantSpec) -> ModelWorld:
    world = ModelWorld()
    world.add_repository(spec.upstream.repo)
    world.add_repository(spec.downstream.repo)
    path = spec.upstream.package
    world.publish(spec.upstream.repo, path, blueprint(path), spec.upstream.revision or 1)
    return world


def bring_to(world: ModelWorld, spec: PackageVariantSpec, lifecycle: str) -> None:
    """Let the variant's package get into this state of its life."""
    name = spec.downstream.repo
    repository = world.repositories[name]
    world.variants["my-pv"] = spec
    world.run()
    (draft,) = world.drafts(name)
    if lifecycle == "Proposed":
        repository.refs[draft.replace("/drafts/", "/proposed/")] = repository.refs.pop(draft)
    elif lifecycle in {"Published", "DeletionProposed"}:
        world.merge(name, draft)
        world.run()
    if lifecycle == "DeletionProposed":
        world.variants.clear()
        world.run()


def what_porch_would_call(writes: Iterable[object]) -> Iterator[str]:
    """Translate: a branch that goes is an object deleted; a proposal or a release is one updated."""
    for write in writes:
        if isinstance(write, MoveRef) and write.to is None:
            yield "deleting object"
        elif isinstance(write, WriteDraft | WriteRemoval):
            yield "updating object"


@pytest.mark.parametrize("case", vectors(PART, "PackageContextInjection"))
def test_package_context(case: Case) -> None:
    """Byte for byte: every text of the vector comes out as Porch writes it."""
    given = yaml.safe_load(case["packageRevisionResources"])["spec"]
    wanted = yaml.safe_load(case["expectedPackageRevisionResources"])["spec"]["resources"]
    spec = yaml.safe_load(case["packageVariant"])["spec"].get("packageContext")

    files = ensure_context(
        package(given["resources"]),
        deployment=False,
        package=given["packageName"],
        spec=PackageContext.model_validate(spec) if spec else None,
    )

    assert not case["expectedError"]
    assert {path: file.data.decode() for path, file in files.items()} == wanted


@pytest.mark.parametrize("case", vectors(PART, "DownstreamSelection"))
def test_downstream_selection(case: Case) -> None:
    spec = PackageVariantSpec.model_validate(yaml.safe_load(case["packageVariant"])["spec"])
    items = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    here = [i for i in items if i["spec"]["packageName"] == spec.downstream.package]
    expected = [yaml.safe_load(text)["spec"] for text in case["expected"]]
    state = state_of(spec.downstream.package, here)
    view = a_view(spec.downstream.repo, {state.path: state})
    inventory = replace(ModelWorld().inventory(), repositories={view.key: view})

    target = make_target(view, state, inventory)

    adoptable = [i for i in here if not is_owned(i) and i["spec"]["lifecycle"] == "Draft"]
    if spec.adoption_policy == "adoptExisting" and adoptable:
        assert target.draft is None, "D4, D5: a draft of other people is never taken over"
    elif [s for s in expected if s["lifecycle"] != "Published"]:
        owned = [s["workspaceName"] for s in expected]
        assert target.draft is not None
        assert target.draft.workspace == max(owned), "D4: one draft per variant, the newest"
        assert {d.workspace for d in target.drafts} == set(owned)
    elif expected:
        whole = find_owner(state.main_header, target.key, inventory)
        latest = max(here, key=lambda i: i["spec"].get("revision", 0))
        assert (whole is not None) == is_owned(latest), "D5: the package has one owner, not each revision"
        assert target.draft is None
    else:
        assert target.draft is None
        assert target.owner is None


def is_owned(item: Mapping[str, Any]) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == "pv-uid" for owner in owners)


def state_of(path: str, items: list[Mapping[str, Any]]) -> PackageState:
    state = PackageState(path)
    for index, item in enumerate(sorted(items, key=lambda i: i["spec"].get("revision", 0))):
        spec, owner = item["spec"], OURS if is_owned(item) else ""
        if spec["lifecycle"] == "Published":
            header = KptfileHeader(owner=owner, location=f"deployments/{path}" if owner else "")
            state = with_revision(replace(state, main_tree=oid(index), main_header=header), index, spec)
        else:
            one = a_draft(path, spec["workspaceName"], owner=owner, lifecycle=spec["lifecycle"])
            state = replace(state, drafts=(*state.drafts, one))
    return state


def test_formers_of_a_moved_variant_are_pruned() -> None:
    """What the downstream vectors ask of revisions of other targets, on a whole world."""
    spec = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="foo", revision=1),
        downstream=Downstream(repo="deployments", package="foo"),
    )
    world = world_with(spec)
    bring_to(world, spec, "Draft")
    world.variants["my-pv"] = spec.model_copy(
        update={"downstream": Downstream(repo="deployments", package="bar")}
    )

    changes = {change.package.path: change for change in world.plan().changes}

    assert list(what_porch_would_call(changes["foo"].writes)) == ["deleting object"]
    assert [type(write) for write in changes["bar"].writes] == [WriteDraft]
    assert world.repositories["deployments"].at(MAIN).packages == {}

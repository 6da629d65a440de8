"""PackageVariants as Porch reconciles them: upstreams, workspaces, deletion, context, downstreams.

Where a decision of ours differs, the rule of that decision stands here, never the name of a case,
and `docs/contributing/divergences.md` lists the cases it applies to.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.porch import Downstream, PackageContext, PackageVariantSpec, Upstream
from reconciler.base.errors import Location
from reconciler.base.reasons import Reason
from reconciler.git.commits import parse_annotations
from reconciler.inventory.inventory import (
    Commit,
    Draft,
    PackageRevision,
    PackageState,
    RepositoryView,
    Source,
)
from reconciler.names.ids import Lifecycle, ObjectName, Oid
from reconciler.names.problems import Problem
from reconciler.names.refs import draft_ref, tag_ref
from reconciler.plan.changes import MoveRef, Op, WriteDraft, WriteRemoval
from reconciler.plan.context import make_target
from reconciler.plan.drafts import next_workspace
from reconciler.render.injection import ensure_context
from reconciler.resolve.ownership import find_owner
from reconciler.resolve.upstreams import find_upstream
from tests.support.conformance import VARIABLE, Case, absence, skip_absent, vectors
from tests.support.git import kptfile as git_kptfile
from tests.support.git import make_repository
from tests.support.model import MAIN, NAMESPACE, ModelWorld, blueprint, kptfile, package
from tests.support.plan_values import a_desired_variant
from tests.support.porch_divergences import divergent_cases, is_owned, listed_cases, rule_of
from tests.support.sets import a_package
from tests.support.small_world import repository
from tests.support.values import replace
from tests.support.world import World, git

PART = "porch"
API_VERSION = "reconciler.dev/v1alpha1"
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
        packages[path] = with_revision(packages.get(path, a_package(path)), index, spec)
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


def look_up(upstream: Mapping[str, Any], revisions: list[Mapping[str, Any]]) -> int | str:
    """Return the index of the revision that is found, or what is said where there is none."""
    views = {view.key: view for view in upstream_views(revisions)}
    spec = PackageVariantSpec(upstream=Upstream.model_validate(upstream))
    variant = a_desired_variant(
        key=ObjectName(NAMESPACE, "pv"), uid="uid", spec=spec, source=Source(Location("pv.yaml", 1))
    )
    found = find_upstream(variant, replace(ModelWorld().inventory(), repositories=views))
    return found.message if isinstance(found, Problem) else int(found.tree, 16)


@pytest.mark.parametrize("case", vectors(PART, "PvUpstreamSelection"))
def test_upstream_selection(case: Case) -> None:
    upstream, revisions = case["upstream"], case["packageRevisions"]

    found = look_up(upstream, revisions)

    error = case["expectedErrorPrefix"]
    is_porchs = str(found).startswith(error) if error else found == case["expectedFound"]
    assert is_porchs is not bool(rule_of(case))
    if rule_of(case):
        assert found == latest_published(upstream, revisions), "D9: without a selector, the latest published"


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
    """Porch ignores the workspace beside a revision; here both must name one revision."""
    found = look_up(case["upstream"], case["packageRevisions"])

    error = case["expectedErrorContains"]
    is_porchs = error in str(found) if error else found == case["expectedFound"]
    assert is_porchs is not bool(rule_of(case))
    if rule_of(case):
        assert "has revision 1 under workspace doesnt-matter: it is not-the-same" in str(found)


@pytest.mark.parametrize("case", vectors(PART, "WorkspaceName"))
def test_workspace_name(case: Case) -> None:
    revisions = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    drafts = [
        a_draft(case["package"], revision["spec"]["workspaceName"])
        for revision in revisions
        if revision["spec"].get("packageName", "") == case["package"]
        and revision["spec"].get("repository", "") == case["repo"]
    ]
    state = a_package(case["package"], drafts=tuple(drafts))

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
    if change.reason is Reason.ORPHANED and change.before is not None and not main_has(world, spec):
        # Differs: a first draft keeps its owner, and so its row, until people merge or close it.
        before = what_became_of(world, spec)
        world.run()
        assert (change.op, change.writes, what_became_of(world, spec)) == (Op.KEEP, (), before)
        assert before == ("Draft", True)
        return
    assert list(what_porch_would_call(change.writes)) == calls
    expected = yaml.safe_load(case["expectedPackageRevision"] or "")
    world.run()
    unchanged = ("DeletionProposed", True)
    assert what_became_of(world, spec) == (expected_of(expected) if calls else unchanged)


def main_has(world: ModelWorld, spec: PackageVariantSpec) -> bool:
    return spec.downstream.package in world.repositories[spec.downstream.repo].at(MAIN).packages


def what_became_of(world: ModelWorld, spec: PackageVariantSpec) -> tuple[str, bool]:
    """Return the lifecycle of the package after the run, and whether it is still the variant's."""
    repository, path = world.repositories[spec.downstream.repo], spec.downstream.package
    proposed = any(ref.startswith("refs/heads/deletionProposed/") for ref in repository.refs)
    packages = repository.at(MAIN).packages
    heads = [ref for ref in world.drafts(spec.downstream.repo) if path in repository.at(ref).packages]
    if not heads and path not in packages:
        return "", False
    header = repository.at(heads[0] if heads else MAIN).header(path)
    if proposed:
        return "DeletionProposed", bool(header.owner)
    return "Draft" if heads else "Published", bool(header.owner)


def expected_of(revision: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Return the same of a vector; of what is deleted it says nothing."""
    if revision is None:
        return "", False
    uids = [owner["uid"] for owner in revision["metadata"].get("ownerReferences") or []]
    return revision["spec"]["lifecycle"], "pv-uid" in uids


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
    """The revisions that Porch works on are our draft, or without one what is published and ours."""
    spec = PackageVariantSpec.model_validate(yaml.safe_load(case["packageVariant"])["spec"])
    items = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    here = [i for i in items if i["spec"]["packageName"] == spec.downstream.package]
    porchs = [yaml.safe_load(text)["spec"]["workspaceName"] for text in case["expected"]]
    state = state_of(spec.downstream.package, here)
    view = a_view(spec.downstream.repo, {state.path: state})
    inventory = replace(ModelWorld().inventory(), repositories={view.key: view})

    target = make_target(view, state, inventory)

    published = [revision.workspace for revision in state.published[-1:]]
    is_ours = find_owner(state.main_header, target.key, inventory) is not None
    ours = [target.draft.workspace] if target.draft else published if is_ours else []
    assert (ours == porchs) is not bool(rule_of(case))
    if rule_of(case) == "drafts":
        assert ours == [max(porchs)], "one draft per variant, the newest"
        assert {draft.workspace for draft in target.drafts} == set(porchs)
    elif rule_of(case):
        assert target.draft is None, "D5: neither an older revision nor a draft of other people"


@pytest.mark.parametrize("case", vectors(PART, "DownstreamSelection"))
def test_writes_to_existing_drafts(case: Case) -> None:
    """Drafts of former targets go, drafts of other people stay."""
    spec = PackageVariantSpec.model_validate(yaml.safe_load(case["packageVariant"])["spec"])
    items = yaml.safe_load(case["packageRevisionList"]).get("items") or []
    world = world_with(spec)
    names = {stand(world, item): item for item in items}
    world.variants["my-pv"] = spec

    changes = world.plan().changes

    if not rule_of(case):
        calls = [call for change in changes for call in calls_to(names, change.writes)]
        assert sorted(calls) == sorted(case["expectedClientCalls"]), "in one push, so in no order"
        return
    (change,) = (each for each in changes if each.package.path == spec.downstream.package)
    drafts = sorted(ref for ref, item in names.items() if item["spec"]["lifecycle"] == "Draft")
    removed = [write.ref for write in change.writes if isinstance(write, MoveRef) and write.to is None]
    written = [write.ref for write in change.writes if isinstance(write, WriteDraft)]
    if rule_of(case) == "drafts":
        assert (removed, written) == (drafts[:-1], drafts[-1:]), (
            "the newest is updated, the others are closed"
        )
    elif drafts:
        new = draft_ref(spec.downstream.package, f"packagevariant-{1 + len(items)}")
        assert (removed, written) == ([], [new]), "D5: a draft of its own beside that of other people"
    else:
        assert (removed, written, change.reason) == ([], [], Reason.PACKAGE_EXISTS), "D5: one owner"


def stand(world: ModelWorld, item: Mapping[str, Any]) -> str:
    """Let a package revision of a vector stand in the world; return its ref."""
    spec = item["spec"]
    repository, path = world.repositories[spec["repository"]], spec["packageName"]
    notes = (
        f"  annotations:\n    reconciler.dev/owner: {OURS}\n    reconciler.dev/location: deployments/{path}\n"
    )
    draft = {"draft.txt": spec["workspaceName"]} if spec["lifecycle"] == "Draft" else {}
    files = package({"Kptfile": kptfile(path, notes if is_owned(item) else ""), **draft})
    main = repository.at(MAIN)
    oid = repository.commit(
        {**main.packages, path: files}, (main.oid,), time=world.tick(), ours=is_owned(item)
    )
    if spec["lifecycle"] == "Draft":
        ref = draft_ref(path, spec["workspaceName"])
    else:
        ref = tag_ref(path, spec["revision"])
        repository.refs[MAIN] = oid
    repository.refs[ref] = oid
    return ref


def calls_to(names: Mapping[str, Mapping[str, Any]], writes: Iterable[Any]) -> Iterator[str]:
    """Translate the writes to what stands: what goes is deleted, what is written is updated."""
    for write in writes:
        item = names.get(write.ref)
        if item and isinstance(write, MoveRef) and write.to is None:
            yield f"deleting object: {item['metadata']['name']}"
        elif item and not is_owned(item):
            yield f"updating object: {item['metadata']['name']}"


def state_of(path: str, items: list[Mapping[str, Any]]) -> PackageState:
    state = a_package(path)
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


def test_the_document_lists_every_case_with_another_answer() -> None:
    """One by one, with the decision; with other vectors than those beside the project there are others."""
    if VARIABLE in os.environ:
        pytest.skip("the list is of the vectors beside the project")
    if not divergent_cases():
        skip_absent(absence(f"of PackageVariants in {PART}/"))

    assert listed_cases() == divergent_cases()


@pytest.mark.parametrize("case", vectors(PART, "DraftCreation"))
def test_drafts(case: Case, tmp_path: Path) -> None:
    """On real repositories: published by an approval, then an upgrade or an edit of it as a draft."""
    expected, source = case["expected"], case["sourceRevision"]["spec"]
    world = PublishedWorld(tmp_path / "w", case)

    world.change()

    commit = parse_annotations(world.draft_message(expected["packageName"], expected["workspaceName"]))[0]
    assert (commit.package, commit.workspace) == (expected["packageName"], expected["workspaceName"])
    assert commit.task is not None
    assert commit.task["type"] == expected["task"]["type"]
    if expected["task"]["type"] == "upgrade":
        fields = ("oldUpstream", "newUpstream")
        refs = {field: commit.task["upgrade"][f"{field}Ref"]["name"] for field in fields}
        local = commit.task["upgrade"]["localPackageRevisionRef"]["name"]
        wanted = {field: expected["task"][field] for field in refs}
        assert (refs, local) == (wanted, expected["task"]["localPackageRevisionRef"])
    else:
        name = f"{source['repository']}.{source['packageName']}.{source['workspaceName']}"
        assert commit.task["edit"]["sourceRef"]["name"] == name
    assert world.labels() == (expected["labels"] or {}, expected["annotations"] or {})


class PublishedWorld:
    """A variant of a vector whose package was published once."""

    def __init__(self, root: Path, case: Case) -> None:
        self.case = case
        source = case["sourceRevision"]["spec"]
        self.downstream = {"repo": source["repository"], "package": source["packageName"]}
        self.upstream = case["packageVariant"]["spec"].get("upstream") or {
            "repo": "upstream-repo",
            "package": source["packageName"],
            "revision": 1,
        }
        package_name = self.upstream["package"]
        root.mkdir()
        upstream = make_repository(root / f"{self.upstream['repo']}.git", {})
        for number in range(1, 1 + max(2, self.upstream["revision"])):
            upstream.commit(
                {f"{package_name}/Kptfile": git_kptfile(package_name), f"{package_name}/n": f"{number}\n"}
            )
            upstream.tag(f"{package_name}/v{number}")
        make_repository(root / f"{self.downstream['repo']}.git", {"README.md": "downstream\n"})
        names = (self.upstream["repo"], self.downstream["repo"])
        files = {f"{name}.yaml": repository(name) for name in names}
        configuration = {"apiVersion": API_VERSION, "kind": "Reconciler", "metadata": {"name": "fleet"}}
        make_repository(root / "control.git", {"reconciler.yaml": yaml.safe_dump(configuration), **files})
        self.world = World(root)
        self._ask({**self.upstream, "revision": 1, "workspaceName": None}, {})
        assert self.world.run("approve", "--all").code == 0

    def change(self) -> None:
        """Ask for what the vector asks for, so that there is something to draft."""
        is_edit = self.case["op"] == "edit"
        self._ask(self.upstream, {"packageContext": {"data": {"a": "b"}}} if is_edit else {})

    def _ask(self, upstream: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        given = {k: v for k, v in upstream.items() if v is not None}
        metadata = {**self.case["packageVariant"]["metadata"], "name": "pv", "namespace": "default"}
        spec = {"upstream": given, "downstream": self.downstream, **more}
        kind = {"apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "PackageVariant"}
        with self.world.edit("control", "Ask") as copy:
            (copy / "pv.yaml").write_text(yaml.safe_dump({**kind, "metadata": metadata, "spec": spec}))
        said = self.world.run("apply")
        assert said.code == 0, said.out + said.err

    def draft_message(self, path: str, workspace: str) -> str:
        repo = self.world.root / f"{self.downstream['repo']}.git"
        return git(repo, "log", "-1", "--format=%B", f"drafts/{path}/{workspace}")

    def labels(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the labels and annotations of the package revision, as the status branch records them."""
        (item,) = json.loads(self.world.run("status", "--output", "json").out)["items"]
        return item["labels"], item["annotations"]

"""The laws of the plan on worlds in memory, where people do whatever people do between two runs."""

import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.porch import Downstream, Function, PackageContext, PackageVariantSpec, Pipeline, Upstream
from reconciler.expand import expand
from reconciler.inventory.inventory import Inventory, PullState, ReviewedLock
from reconciler.names.ids import ObjectName, PackageKey
from reconciler.plan.changes import Op, Plan, WriteDraft
from reconciler.policy import LockMode, LockPolicy, ReviewedLockPolicy
from reconciler.records.state import WANTED_LOCK, UpstreamLock, lock_bytes, lock_path
from reconciler.resolve.ownership import find_owner
from tests.support.model import MAIN, NAMESPACE, ModelWorld, blueprint, package, resolve
from tests.support.values import replace

half = settings(max_examples=settings().max_examples // 2)
"""A story plays for a tenth of a second; `make laws` has ten times as many."""
CLUSTERS = ("cluster-a", "cluster-b")
NAMES = ("one", "two", "three")
HOW = ("merge", "squash", "rebase")


def new_world() -> ModelWorld:
    world = ModelWorld()
    world.add_repository("blueprints")
    for name in CLUSTERS:
        world.add_repository(name, deployment=name == CLUSTERS[0])
    for name in ("web", "db"):
        world.publish("blueprints", name, blueprint(name, a_yaml="a: 1\n", b_yaml="b: 1\n"), 1)
    return world


def lively_world() -> ModelWorld:
    """Return a world with a draft, a published package, and a chain of two variants from it."""
    return deepcopy(_lively_world())


@cache
def _lively_world() -> ModelWorld:
    world = new_world()
    for name, cluster, package_name in (("one", CLUSTERS[0], "web"), ("two", CLUSTERS[1], "db")):
        world.variants[name] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package=package_name),
            downstream=Downstream(repo=cluster, package=package_name),
        )
    world.add_repository("far")
    for name, (repo, up), down in (
        ("chained", (CLUSTERS[1], "db"), "near"),
        ("further", ("far", "near"), "end"),
    ):
        world.variants[name] = PackageVariantSpec(
            upstream=Upstream(repo=repo, package=up), downstream=Downstream(repo="far", package=down)
        )
    world.run()
    world.merge(CLUSTERS[1], world.drafts(CLUSTERS[1])[0])
    world.run()
    return world


def variant(draw: random.Random, world: ModelWorld) -> PackageVariantSpec:
    name = draw.choice(("web", "db"))
    tags = world.repositories["blueprints"].refs
    revisions = [int(r.rpartition("/v")[2]) for r in tags if r.startswith(f"refs/tags/{name}/")]
    context = draw.choice((None, PackageContext(data={"region": draw.choice("xyz")})))
    selector = draw.choice(({"revision": draw.choice(revisions)}, {"revision": 1}, {}, {"branch": "main"}))
    pipeline = Pipeline(mutators=[Function(image="set-labels:v0.1", name=draw.choice("ab"))])
    return PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package=name, **selector),
        pipeline=draw.choice((None, pipeline)),
        downstream=Downstream(repo=draw.choice(CLUSTERS), package=draw.choice(("web", "db", "deep/web"))),
        adoption_policy=draw.choice((None, "adoptNone", "adoptExisting")),
        deletion_policy=draw.choice((None, "delete", "orphan")),
        package_context=context,
    )


def want(draw: random.Random, world: ModelWorld) -> None:
    name = draw.choice(NAMES)
    spec = variant(draw, world)
    taken = {other.downstream for key, other in world.variants.items() if key != name}
    if spec.downstream not in taken:
        world.variants[name] = spec


def forget(draw: random.Random, world: ModelWorld) -> None:
    if world.variants:
        del world.variants[draw.choice(sorted(world.variants))]


def rename(draw: random.Random, world: ModelWorld) -> None:
    if world.variants:
        spec = world.variants.pop(draw.choice(sorted(world.variants)))
        world.variants[f"renamed-{draw.randint(0, 99)}"] = spec


def release(draw: random.Random, world: ModelWorld) -> None:
    name = draw.choice(("web", "db"))
    tags = world.repositories["blueprints"].refs
    number = 1 + sum(ref.startswith(f"refs/tags/{name}/") for ref in tags)
    files = {"a_yaml": f"a: {number}\n", "b_yaml": "b: 1\n", f"new{number}_yaml": "n: 1\n"}
    world.publish("blueprints", name, blueprint(name, **files), number)


def a_draft(draw: random.Random, world: ModelWorld) -> tuple[str, str, str] | None:
    places = (*CLUSTERS, "far") if "far" in world.repositories else CLUSTERS
    found = [(name, ref) for name in places for ref in world.drafts(name)]
    if not found:
        return None
    name, ref = draw.choice(found)
    return name, ref, ref.removeprefix("refs/heads/").partition("/")[2].rpartition("/")[0]


def edit_draft(draw: random.Random, world: ModelWorld) -> None:
    if found := a_draft(draw, world):
        name, ref, path = found
        world.edit(name, path, {draw.choice(("b.yaml", "mine.yaml")): f"b: {draw.randint(2, 9)}\n"}, ref=ref)


def merge_draft(draw: random.Random, world: ModelWorld) -> None:
    if found := a_draft(draw, world):
        name, ref, _ = found
        world.merge(name, ref, how=draw.choice(HOW), keep_branch=draw.random() < 0.5)


def merge_deletion(draw: random.Random, world: ModelWorld) -> None:
    for name in CLUSTERS:
        for ref in sorted(world.repositories[name].refs):
            if "/delete/" in ref and draw.random() < 0.5:
                world.merge(name, ref, how=draw.choice(HOW), keep_branch=draw.random() < 0.5)


def close_pull(draw: random.Random, world: ModelWorld) -> None:
    found = [(n, p.head) for n in CLUSTERS for p in world.repositories[n].pulls if p.state is PullState.OPEN]
    if found:
        name, head = draw.choice(found)
        world.close(name, head)
        if draw.random() < 0.3:
            world.repositories[name].refs.pop(f"refs/heads/{head}", None)


def delete_branch(draw: random.Random, world: ModelWorld) -> None:
    if found := a_draft(draw, world):
        del world.repositories[found[0]].refs[found[1]]


def hotfix(draw: random.Random, world: ModelWorld) -> None:
    name = draw.choice(CLUSTERS)
    packages = world.repositories[name].at(MAIN).packages
    if packages:
        path = draw.choice(sorted(packages))
        world.edit(name, path, {"b.yaml": f"b: {draw.randint(2, 9)}\n"})


def revert_main(draw: random.Random, world: ModelWorld) -> None:
    name = draw.choice(CLUSTERS)
    repository = world.repositories[name]
    history = list(repository.first_parents(repository.refs[MAIN]))
    packages = repository.at(MAIN).packages
    if packages:
        path = draw.choice(sorted(packages))
        world.push(name, {path: draw.choice(history).packages.get(path)})


def intrude(draw: random.Random, world: ModelWorld) -> None:
    path = draw.choice(("web", "other"))
    name = draw.choice(CLUSTERS)
    if path not in world.repositories[name].at(MAIN).packages:
        world.push(name, {path: blueprint(path, b_yaml="b: theirs\n")})


def copy_package(draw: random.Random, world: ModelWorld) -> None:
    name = draw.choice(CLUSTERS)
    packages = world.repositories[name].at(MAIN).packages
    if packages:
        world.push(name, {"copied": packages[draw.choice(sorted(packages))]})


def lose_state(draw: random.Random, world: ModelWorld) -> None:
    if draw.random() < 0.3:
        world.lose_state()


def break_file(draw: random.Random, world: ModelWorld) -> None:
    """A manifest stops parsing: its variant is gone, its file is named as broken."""
    if world.variants and not world.broken:
        name = draw.choice(sorted(world.variants))
        del world.variants[name]
        world.broken = frozenset({f"variants/{name}.yaml"})


def mend_file(_: random.Random, world: ModelWorld) -> None:
    world.broken = frozenset()


def go_down(draw: random.Random, world: ModelWorld) -> None:
    repository = world.repositories[draw.choice((*CLUSTERS, "blueprints"))]
    repository.down = not repository.down


def a_pin(draw: random.Random, world: ModelWorld) -> UpstreamLock | None:
    """Return the pin of some variant, at any commit that its package was published with."""
    if not world.locks:
        return None
    lock = world.locks[draw.choice(sorted(world.locks))]
    refs = world.repositories[lock.repository].refs
    commits = sorted({oid for ref, oid in refs.items() if ref.startswith(f"refs/tags/{lock.package}/")})
    return msgspec.structs.replace(lock, commit=draw.choice(commits or [lock.commit]))


def hold(draw: random.Random, world: ModelWorld) -> None:
    """A person holds a floating upstream somewhere, or lets it go."""
    if pin := a_pin(draw, world):
        pin = msgspec.structs.replace(pin, held=draw.random() < 0.7)
        world.locks[pin.key], world.state[lock_path(pin)] = pin, lock_bytes(pin)


def review(draw: random.Random, world: ModelWorld) -> None:
    """Pins are reviewed from now on; a pin is merged, or reverted, on main of the control repository."""
    world.policy = replace(
        world.policy, lock=LockPolicy(LockMode.REVIEWED, ReviewedLockPolicy(draw.random() < 0.3))
    )
    merged = dict(world.reviewed.pins) if world.reviewed else {}
    if pin := a_pin(draw, world):
        merged[pin.key] = pin
    world.reviewed = ReviewedLock(pins=merged)


PEOPLE: tuple[Callable[[random.Random, ModelWorld], None], ...] = (
    want,
    want,
    release,
    release,
    edit_draft,
    edit_draft,
    merge_draft,
    merge_draft,
    merge_draft,
    close_pull,
    hotfix,
    forget,
    rename,
    delete_branch,
    revert_main,
    merge_deletion,
    intrude,
    copy_package,
    lose_state,
    break_file,
    mend_file,
    go_down,
    hold,
    review,
)

stories = st.lists(st.tuples(st.integers(0, len(PEOPLE) - 1), st.integers(0, 2**16)), min_size=3, max_size=16)
Story = list[tuple[int, int]]


@pytest.mark.parametrize("seed", range(6))
def test_laws_hold_in_some_stories(seed: int) -> None:
    draw = random.Random(seed)
    story = [(draw.randrange(len(PEOPLE)), draw.randrange(2**16)) for _ in range(10)]

    check_acts(story, order=seed)
    check_end(story)


@pytest.mark.slow
@half
@given(stories, st.integers(0, 2**16))
def test_laws_hold_after_every_act(story: Story, order: int) -> None:
    check_acts(story, order)


def check_acts(story: Story, order: int) -> None:
    world = lively_world()
    for act, seed in story:
        PEOPLE[act](random.Random(seed), world)
        plan = world.plan()
        before = deepcopy(world)
        before.shuffle = order
        assert before.plan() == plan, "law 2: order changes no byte"
        check_each_package_once(world.inventory(), plan)
        check_times(world.inventory(), plan)
        world.apply(plan)
        check_people(before, world)
        check_one_of_each(world.inventory())
        again = world.plan()
        assert {c.op for c in again.changes} <= {Op.KEEP, Op.BLOCK}, [c for c in again.changes if c.pending]
        assert again.is_empty, "law 1: a second run writes nothing"
        assert (again.records, again.status) == (world.state, world.status)


def check_each_package_once(inventory: Inventory, plan: Plan) -> None:
    """Law 3: every package of a variant, and every one that is ours, is in the plan once, with a reason."""
    named = {source.manifest.spec.downstream.repo for source in inventory.variants}
    planned = [(change.package.url, change.package.path) for change in plan.changes]
    assert len(planned) == len(set(planned))
    for view in inventory.repositories.values():
        for path, state in view.packages.items() if view.is_available else ():
            owner = state.main_header.owner if state.main_header else ""
            if state.exists and (view.key.name in named or owner.startswith("fleet/")):
                assert (view.url, path) in planned
    assert all(change.reason for change in plan.changes)


def check_times(inventory: Inventory, plan: Plan) -> None:
    """Law 5: a commit is as old as its newest input: manifest, pinned commit, commit of a person."""
    resolution = resolve(inventory, expand(inventory))
    resolved = {(r.variant.key, r.downstream): r for r in resolution.variants}
    for change in plan.changes:
        made = resolved.get((change.variant, change.package)) if change.variant else None
        for write in change.writes:
            if isinstance(write, WriteDraft) and made is not None:
                draft = made.draft
                people = draft.foreign_commit_time if draft is not None and draft.append_only else 0
                assert write.time == max(made.variant.source.time, made.pin.commit.time, people)


def check_people(before: ModelWorld, after: ModelWorld) -> None:
    """Law 6: a person's commit stays reachable, or main has the content of the draft that it was on."""
    for name in CLUSTERS:
        old, new = before.repositories[name], after.repositories[name]
        reached = set().union(*(new.ancestors(oid) for oid in new.refs.values()))
        for ref, tip in old.refs.items():
            path = ref.removeprefix("refs/heads/drafts/").rpartition("/")[0]
            if any(not old.commits[oid].ours for oid in old.ancestors(tip) - reached):
                assert old.commits[tip].tree(path) in [
                    c.tree(path) for c in new.first_parents(new.refs[MAIN])
                ]
            if ref.startswith("refs/tags/"):
                assert new.refs[ref] == tip, "a published revision moved"


def check_one_of_each(inventory: Inventory) -> None:
    """A head has one open pull request, a package one draft of ours."""
    for view in inventory.repositories.values():
        if view.is_available:
            pulls = [p.head for p in inventory.pulls[view.url] if p.state is PullState.OPEN]
            assert len(pulls) == len(set(pulls))
            for state in view.packages.values():
                drafts = [d.header for d in state.drafts if not d.append_only]
                key = PackageKey(view.url, state.path)
                assert sum(find_owner(header, key, inventory) is not None for header in drafts) <= 1


def live(story: Story) -> ModelWorld:
    """Let people act one by one, and run after each act."""
    world = lively_world()
    for act, seed in story:
        PEOPLE[act](random.Random(seed), world)
        world.run()
    return world


@pytest.mark.slow
@half
@given(stories)
def test_laws_hold_at_the_end(story: Story) -> None:
    check_end(story)


def check_end(story: Story) -> None:
    world = live(story)
    refs = {name: repository.refs for name, repository in live(story).repositories.items()}
    assert refs == {n: r.refs for n, r in world.repositories.items()}, "law 5: the same commits"
    check_ignorance(world)
    check_bad_variant(world)
    told = {record.key for record in world.records.values() if record.deletion_proposed}
    world.lose_state()
    ended = {change.variant for change in world.plan().changes if change.op in {Op.DELETE, Op.ORPHAN}}
    assert ended <= {*(ObjectName(NAMESPACE, name) for name in world.variants), *told}, "law 1: no state"


def check_ignorance(world: ModelWorld) -> None:
    """Law 4: what cannot be read deletes nothing."""
    blinds = [deepcopy(world) for _ in range(3)]
    blinds[0].readable = False
    blinds[1].broken = frozenset(record.manifest for record in world.records.values())
    blinds[2].lose_state()
    for blind in blinds:
        blind.variants.clear()
        plan = blind.plan()
        assert {change.op for change in plan.changes} <= {Op.KEEP, Op.CLOSE}, plan.changes
        kept = {path for path in plan.record_owners if path in blind.state and path != WANTED_LOCK}
        assert set(plan.records) >= kept


def check_bad_variant(world: ModelWorld) -> None:
    """Law 7: one bad variant changes nothing for the others."""
    plan, lame = world.plan(), deepcopy(world)
    lame.variants["lame"] = PackageVariantSpec(
        upstream=Upstream(repo="blueprints", package="nowhere", revision=1),
        downstream=Downstream(repo=CLUSTERS[0], package="lame"),
    )
    others = [change for change in lame.plan().changes if change.variant != (NAMESPACE, "lame")]
    known = {change.package for change in plan.changes}
    assert tuple(change for change in others if change.package in known) == plan.changes


@pytest.mark.parametrize("count", [50])
def test_renaming_every_variant_transfers_and_deletes_nothing(count: int) -> None:
    world = new_world()
    for number in range(count):
        world.variants[f"old-{number}"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=1),
            downstream=Downstream(repo=CLUSTERS[0], package=f"web-{number}"),
        )
    world.run()
    world.variants = {name.replace("old", "new"): spec for name, spec in world.variants.items()}

    plan = world.plan()

    assert [change.op for change in plan.changes] == [Op.TRANSFER] * count


def test_the_policy_of_a_guard_is_not_needed_for_a_world_of_keeps() -> None:
    world = new_world()
    world.policy = replace(world.policy, deletions=replace(world.policy.deletions, count=0))
    world.push(CLUSTERS[0], {"theirs": package({"Kptfile": "kind: Kptfile\n"})})

    assert world.plan().refusals == ()

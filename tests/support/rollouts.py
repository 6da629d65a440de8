"""A fleet in memory whose set rolls revisions out in waves, and what must hold of every run of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from reconciler.api.kptfile import KptfileHeader
from reconciler.api.meta import ObjectMeta
from reconciler.api.porch import (
    PACKAGE_VARIANT_SET,
    FunctionTemplate,
    PackageContextTemplate,
    PackageVariantSet,
    PackageVariantSetSpec,
    PipelineTemplate,
    RepositoryTarget,
    Target,
    Upstream,
    VariantTemplate,
)
from reconciler.base.errors import Location
from reconciler.base.values import read_record
from reconciler.expand import expand
from reconciler.inventory.inventory import CheckState, Inventory, PullRequest, PullState, Source, Sourced
from reconciler.inventory.snapshot import Snapshot, SnapshotObject
from reconciler.names.ids import ObjectName, PackageKey, RolloutKey
from reconciler.names.objects import tree_id
from reconciler.plan.build import build_plan
from reconciler.plan.changes import Change, Plan, WriteGroup
from reconciler.policy import Policy, RolloutPolicy
from reconciler.policy.rollouts import Gates, ObjectGate, Wave
from reconciler.records.state import ROLLOUTS_DIRECTORY, RolloutRecord
from reconciler.render import render_packages
from reconciler.render.unchanged import find_unchanged, with_unchanged, without_guesses
from reconciler.resolve.fleet import ResolvedFleet
from reconciler.resolve.rollout_model import GO, SKIP, Rollout
from tests.support.model import EPOCH, MAIN, NAMESPACE, ModelRepository, ModelWorld, blueprint, resolve
from tests.support.values import replace

EDGES = ("a1", "a2", "b1", "b2", "c1", "c2")
ORDER = ("first", "second", "third")
WAVE_OF = dict(zip(EDGES, (wave for wave in ORDER for _ in range(2)), strict=True))
SOAK_S = 600
SET = ObjectName(NAMESPACE, "fleet")
APPLICATION = ("argoproj.io/v1alpha1", "Application")


def _selector(wave: str) -> dict[str, object]:
    return {"matchLabels": {"wave": wave}}


GATE = ObjectGate(*APPLICATION, name="{repository}", namespace="argocd")
POLICY = RolloutPolicy(
    waves=(
        Wave("first", selector=_selector("first"), gates=Gates(approval=True)),
        Wave(
            "second", selector=_selector("second"), max_open="1", soak_s=SOAK_S, gates=Gates(objects=(GATE,))
        ),
        Wave("third"),
    )
)


@dataclass
class RolloutWorld(ModelWorld):
    """Six repositories in three waves: after the first a person is asked, the second soaks and has a gate.

    The set has the one package `web`, or several `packages`.
    """

    revision: int = 1
    packages: tuple[str, ...] = ("web",)
    targets: list[str] = field(default_factory=lambda: list(EDGES))
    clusters: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    setters: dict[str, str] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    seen_health: dict[str, str] = field(default_factory=dict)
    taken: int | None = EPOCH
    failed_checks: list[str] = field(default_factory=list)
    passed_checks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rollouts: dict[RolloutKey, RolloutRecord] = field(default_factory=dict)
    first_seen: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy = Policy(instance="fleet", rollouts=(POLICY,))
        self.add_repository("blueprints")
        for path in self.packages:
            for number in (1, 2, 3):
                self.publish("blueprints", path, blueprint(path, app_yaml=config_map(number)), number)
        for edge in EDGES:
            self.add_repository(edge)
        self.take_snapshot()

    # what people do

    def take_snapshot(self) -> None:
        self.taken, self.seen_health = self.tick(), dict(self.health)

    def order(self, key: str, value: str | None) -> None:
        self.orders.pop(key, None)
        if value is not None:
            self.orders[key] = value

    def revert(self, edge: str) -> bool:
        """A person takes back the last commit that changed the package; False if there is none."""
        repository = self.repositories[edge]
        head, *earlier = repository.first_parents(repository.refs[MAIN])
        before = next((c for c in earlier if c.tree("web") != head.tree("web")), None)
        if head.tree("web") is None or before is None:
            return False
        self.push(edge, {"web": before.packages.get("web")}, message="revert")
        return True

    def open_drafts(self) -> Iterator[tuple[str, str]]:
        for edge in EDGES:
            for ref in self.drafts(edge):
                yield edge, ref

    def merge_all(self) -> None:
        """Merge every open draft."""
        for edge, ref in list(self.open_drafts()):
            self.merge(edge, ref)

    def finish(self) -> Plan:
        """Run and merge until nothing is left to do."""
        while not self.run().is_empty or list(self.open_drafts()):
            self.merge_all()
        return self.run()

    def _write(self, repository: ModelRepository, write: object) -> int:
        """Write as a run does; what a group proposes, which only a rollback does here, is merged at once."""
        if not isinstance(write, WriteGroup):
            return super()._write(repository, write)
        before = repository.at(MAIN).packages
        parts = {part.path: part.files for part in write.parts if part.tree is not None}
        assert all(tree_id(parts[part.path]) == part.tree for part in write.parts if part.tree)
        self.push(repository.name, {**before, **parts}, message="merge a rollback")
        return 1

    @staticmethod
    def _ensure(repository: ModelRepository, wanted: PullRequest) -> int:
        if "/group/" in wanted.head:
            return 0
        return ModelWorld._ensure(repository, wanted)

    # what is there

    def upstream(self, revision: int) -> str:
        return self.repositories["blueprints"].refs[f"refs/tags/web/v{revision}"]

    def has_revision(self, edge: str, ref: str) -> bool:
        """Whether a branch has the package at the revision that the set asks for."""
        commit = self.repositories[edge].at(ref)
        lock = commit.header("web").upstream_lock if "web" in commit.packages else None
        return lock is not None and lock.commit == self.upstream(self.revision)

    def has_draft(self, edge: str) -> bool:
        return any(self.has_revision(edge, ref) for ref in self.drafts(edge))

    def look(self) -> None:
        """Remember when runs first saw packages with the revision on main: no time counts from earlier."""
        for edge in EDGES:
            if self.repositories[edge].down:
                continue
            if self.has_revision(edge, MAIN):
                self.first_seen.setdefault((edge, self.revision), self.time)
            else:
                self.first_seen.pop((edge, self.revision), None)

    def is_complete(self, wave: str, members: list[str]) -> bool:
        """Whether the next wave may move, as docs/rollouts.md tells it: no code of the rule is used."""
        label = f"web/v{self.revision}/{wave}"
        if label in self.orders.get(SKIP, ""):
            return True
        for edge in members:
            if self.repositories[edge].down or not self.has_revision(edge, MAIN):
                return False
            if wave == "second":
                due = self.first_seen[edge, self.revision] + SOAK_S
                if self.time < due or self.taken < due or self.seen_health.get(edge, "Healthy") != "Healthy":
                    return False
        return wave != "first" or not members or label in self.orders.get(GO, "")

    # what a run does

    def plan(self) -> Plan:
        """Plan as a run does: again while it finds packages that their rollout does not change."""
        inventory = self.inventory()
        while True:
            desired = expand(inventory)
            resolution = resolve(inventory, desired)
            contents = self.contents(resolution)
            rendered = render_packages(resolution, contents, inventory)
            rendered = with_unchanged(rendered, resolution, contents, inventory)
            unchanged = find_unchanged(rendered, resolution, inventory)
            if not unchanged:
                fleet = ResolvedFleet(desired, without_guesses(resolution))
                return replace(build_plan(inventory, fleet, rendered), lock=None)
            inventory = replace(inventory, unchanged={**inventory.unchanged, **unchanged})

    def inventory(self) -> Inventory:
        read = super().inventory()
        views = {}
        for key, view in read.repositories.items():
            labels = {"wave": WAVE_OF.get(key.name, "")}
            metadata = view.manifest.metadata.model_copy(update={"labels": labels})
            manifest = view.manifest.model_copy(update={"metadata": metadata})
            cluster = self.clusters.get(key.name, key.name)
            views[key] = replace(view, manifest=manifest, cluster=cluster)
        return replace(
            read,
            repositories=views,
            sets=(self._set(),),
            rollouts=self.rollouts,
            snapshot=self._snapshot(),
            other_checks={
                (self.repositories[edge].url, self.repositories[edge].refs[MAIN]): {
                    "smoke": CheckState.FAILED
                }
                for edge in self.failed_checks
            },
            passed_checks={
                (self.repositories[edge].url, self.repositories[edge].refs[MAIN]): frozenset(names)
                for edge, names in self.passed_checks.items()
            },
            now=self.time,
            earlier=dict(self._earlier()),
        )

    def _earlier(self) -> Iterator[tuple[PackageKey, KptfileHeader | None]]:
        """Yield the Kptfile that main had of each package before its present upstream."""
        for repository in self.repositories.values():
            head, *older = repository.first_parents(repository.refs[MAIN])
            for path in head.packages:
                lock = head.header(path).upstream_lock
                there = takewhile(lambda commit, path=path: path in commit.packages, older)
                headers = (commit.header(path) for commit in there)
                before = (
                    h for h in headers if h.upstream_lock and lock and h.upstream_lock.commit != lock.commit
                )
                yield PackageKey(repository.url, path), next(before, None)

    def _set(self) -> Sourced[PackageVariantSet]:
        is_listed = len(self.packages) > 1
        names = None if is_listed else ["web"]
        targets = [RepositoryTarget(name=edge, package_names=names) for edge in self.targets]
        upstreams = [
            Upstream(repo="blueprints", package=path, revision=self.revision) for path in self.packages
        ]
        spec = PackageVariantSetSpec(
            upstream=None if is_listed else upstreams[0],
            upstreams=upstreams if is_listed else None,
            targets=[Target(repositories=targets, template=self._template())],
        )
        metadata = ObjectMeta(
            name=SET.name, namespace=NAMESPACE, annotations=dict(self.orders), labels=dict(self.labels)
        )
        manifest = PackageVariantSet(
            api_version=PACKAGE_VARIANT_SET, kind="PackageVariantSet", metadata=metadata, spec=spec
        )
        return Sourced(SET, manifest, Source(Location("set.yaml", 1), EPOCH))

    def _template(self) -> VariantTemplate | None:
        context = PackageContextTemplate(data=dict(self.values)) if self.values else None
        setters = FunctionTemplate(image="apply-setters:v0.2", config_map=dict(self.setters))
        pipeline = PipelineTemplate(mutators=[setters]) if self.setters else None
        return VariantTemplate(package_context=context, pipeline=pipeline) if context or pipeline else None

    def _snapshot(self) -> Snapshot:
        """Return the health of each package, beside applications of the same names that are of no matter."""
        applications = [_application("another", edge, "Degraded") for edge in EDGES]
        applications += [
            _application("argocd", edge, self.seen_health.get(edge, "Healthy")) for edge in EDGES
        ]
        return Snapshot(present=True, objects={APPLICATION: tuple(applications)}, taken=self.taken)

    def apply_part(self, plan: Plan, effects: int) -> bool:
        """Do the first effects of a plan, the records last; return whether all were done."""
        steps = list(self._steps(plan))
        for step in steps[:effects]:
            step()
        return effects >= len(steps)

    def _steps(self, plan: Plan) -> Iterator[Callable[[], object]]:
        by_url = {r.url: r for r in self.repositories.values()}
        calls: list[Callable[[], object]] = []
        for change in plan.changes:
            repository = by_url[change.package.url]
            # The refs of one repository are one atomic push.
            yield lambda c=change, r=repository: [self._write(r, write) for write in c.writes]
            if change.pull is not None:
                calls.append(lambda r=repository, pull=change.pull: self._ensure(r, pull))
            calls += [
                lambda r=repository, head=closing.head: self._end_pulls(r, head, PullState.CLOSED)
                for closing in change.close
            ]
        yield from calls
        yield lambda: self.apply(Plan(records=plan.records, status=plan.status))

    def _read_state(self) -> None:
        super()._read_state()
        records = (
            read_record(data, RolloutRecord)
            for path, data in self.state.items()
            if path.startswith(f"{ROLLOUTS_DIRECTORY}/")
        )
        self.rollouts = {record.rollout: record for record in records}


def _application(namespace: str, name: str, health: str) -> SnapshotObject:
    body = {
        "apiVersion": APPLICATION[0],
        "kind": APPLICATION[1],
        "metadata": {"namespace": namespace, "name": name},
        "status": {"health": {"status": health}, "sync": {"status": "Synced"}},
    }
    return SnapshotObject(*APPLICATION, namespace, name, {}, {}, body, Location("snapshot.yaml"))


def config_map(number: int) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  revision: '{number}'\n"


def with_a_new_revision(policies: tuple[RolloutPolicy, ...], *packages: str) -> RolloutWorld:
    """Return a fleet with the first revision everywhere, that asks for the second one now."""
    world = RolloutWorld(packages=packages or ("web",))
    world.policy = replace(world.policy, rollouts=())
    world.finish()
    world.policy = replace(world.policy, rollouts=policies)
    world.revision = 2
    return world


def the_rollout(plan: Plan) -> Rollout:
    (rollout,) = plan.rollouts
    return rollout


def row(plan: Plan, edge: str) -> Change:
    return next(change for change in plan.changes if change.package.url.endswith(f"/{edge}"))


def updated(plan: Plan) -> list[str]:
    """Return the edges that get a draft, and not only another text of their pull request."""
    return [c.package.url.rpartition("/")[2] for c in plan.changes if c.written is not None]

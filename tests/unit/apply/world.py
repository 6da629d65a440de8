"""A downstream repository and the changes that a plan could hold for it."""

from dataclasses import dataclass, field
from pathlib import Path

from reconciler.apply.outcome import Result, Target
from reconciler.apply.repository import apply_repository
from reconciler.base.reasons import Reason
from reconciler.forge.local.forge import LocalForge
from reconciler.forge.registry import Forge
from reconciler.git.repository import Mirror, Mirrors
from reconciler.inventory.inventory import PullRequest
from reconciler.names.ids import ObjectName, Oid, PackageKey
from reconciler.names.objects import File, tree_id
from reconciler.plan.changes import Change, ClosePull, MoveRef, Op, Write, WriteDraft, WriteRemoval
from reconciler.policy import CommitPolicy
from reconciler.report.report import Names
from tests.support.git import EPOCH, Repo, kptfile, make_repository
from tests.support.plan_values import a_change, a_write

POLICY = CommitPolicy()
TIME = EPOCH + 1000


@dataclass
class Edge:
    """One repository that is written to; `mirror()` sees it as a new run does."""

    root: Path
    repo: Repo = field(init=False)

    def __post_init__(self) -> None:
        start = {"README.md": "edge\n", "db/Kptfile": kptfile("db"), "db/cm.yaml": "a: 1\n"}
        self.repo = make_repository(self.root / "edge.git", start)

    def mirror(self) -> Mirror:
        mirror = Mirrors(self.root / "cache").open(str(self.repo.path))
        mirror.fetch()
        return mirror

    def target(self, mirror: Mirror | None = None, forge: Forge | None = None) -> Target:
        mirror = mirror or self.mirror()
        return Target(mirror, forge or LocalForge(mirror, POLICY), POLICY, Names("demo"))

    def apply(self, *changes: Change, target: Target | None = None) -> Result:
        return apply_repository(target or self.target(), changes)

    def draft(
        self, package: str = "web", text: str = "v1", *, expect: Oid | None = None, onto: str = "main"
    ) -> WriteDraft:
        files = {"Kptfile": File.of(kptfile(package).encode()), "cm.yaml": File.of(text.encode())}
        return a_write(
            ref=f"refs/heads/drafts/{package}/packagevariant-1",
            expect=expect,
            onto=self.repo.oid(onto),
            path=package,
            files=files,
            tree=tree_id(files),
            message="Creating\n",
            time=TIME,
        )

    def removal(self, package: str = "db") -> WriteRemoval:
        ref = f"refs/heads/reconciler/demo/delete/{package}"
        return WriteRemoval(ref, None, self.repo.oid("main"), package, f"Delete {package}\n", TIME)

    def change(
        self, package: str, *writes: Write, close: tuple[ClosePull, ...] = (), pull: bool = True
    ) -> Change:
        heads = [w.ref.removeprefix("refs/heads/") for w in writes if not isinstance(w, MoveRef)]
        return a_change(
            package=PackageKey("file:///edge", package),
            repository=ObjectName("default", "edge"),
            op=Op.CREATE,
            reason=Reason.NEW,
            writes=writes,
            close=close,
            pull=PullRequest(heads[0], "main", f"Create {package}", "Why.") if heads and pull else None,
        )

    def created(self, package: str = "web") -> Change:
        return self.change(package, self.draft(package))

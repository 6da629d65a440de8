"""Lives of an operator: sets over clusters with waves, groups, reviewed locks, orders, outages, other names.

A life has the driver, the traces and the shrinking of the combination machine; its fleet is that of
tests/support/edge_fleet.py, in which packages share pull requests and travel in waves.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from reconciler.base.errors import Exit
from tests.support.combination import trees
from tests.support.combination.fleet import run_line
from tests.support.combination.ledger import ViolationError
from tests.support.combination.moves import MOVES, SOLO, close_by_name, snapshots, where
from tests.support.edge_fleet import (
    EDGES,
    FOLLOW,
    GO,
    PAUSE,
    ROLL_BACK,
    SKIP,
    EdgeFleet,
    blueprint,
    make_empty,
)
from tests.support.git import Repo
from tests.support.world import Said, git

OPERATIONS = "operations"
"""How traces and tests call these lives."""
REVISIONS = 3
PACKAGES = ("web", "db")
NAMES = {"web": ("web", "shop"), "db": ("db",)}
GROUPS = ("package", "package", "repository", "wave", "set", "upstream")
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "group": GROUPS,
    "waves": (0, 2, 2, 3),
    "budget": (0, 0, 1),
    "auto": (False, False, False, True),
    "soak": ("", "", "", "1h"),
}
ROUNDS = 8
TOKEN = re.compile(rb"k\d{4}x")
Arguments = dict[str, Any]


@dataclass
class Wish:
    """What people ask of one set."""

    revision: int = 1
    name: str = "web"
    own: str = ""
    orders: dict[str, str] = field(default_factory=dict)
    is_there: bool = True
    edges: tuple[str, ...] = EDGES
    selects: bool = False
    """Whether its clusters are those with an object in their snapshot."""
    memory: str = ""
    """A value that its template gives every package."""


def draw_settings(random: Random) -> dict[str, Any]:
    """Draw the configuration of a life."""
    lock = random.choice(["automatic", "automatic", "reviewed"])
    drawn = {k: random.choice(v) for k, v in CHOICES.items()}
    return {"theme": OPERATIONS, "lock": lock, "published": random.random() < 0.7} | drawn


@dataclass
class OperatorLife:
    """A fleet with its history; each step is followed by two runs."""

    root: Path
    settings: dict[str, Any]
    history: list[tuple[str, Arguments]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    tokens: dict[bytes, str] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    """Clusters in which a person ever closed, deleted or took back something."""
    places: dict[str, str] = field(default_factory=dict)
    """The cluster of each package without a set."""
    away: str = ""
    count: int = 0
    ending: int | None = None
    """The number of steps before the end, which every life has."""

    def __post_init__(self) -> None:
        self.world: EdgeFleet = make_empty(self.root)
        upstream = Repo(self.root / "blueprints.git")
        for package in PACKAGES:
            upstream.commit(blueprint(REVISIONS, package=package), message=f"{package}\n")
            upstream.tag(f"{package}/v{REVISIONS}")
        self.wishes = {package: Wish(name=package) for package in PACKAGES}
        self.configure({})
        for package in PACKAGES:
            self.ask(package)

    # what people write

    def configure(self, changed: Mapping[str, Any]) -> None:
        """Write the configuration."""
        self.settings |= changed
        chosen = self.settings
        text = f"  pullRequests: {{groupBy: {chosen['group']}}}\n  lock: {{mode: {chosen['lock']}}}\n"
        if chosen["waves"]:
            sizes = [{"name": f"w{n}", "size": 1} for n in range(1, chosen["waves"])] + [{"name": "last"}]
            waves = [wave | {"failureBudget": chosen["budget"]} for wave in sizes]
            waves = [wave | {"soak": chosen["soak"]} for wave in waves] if chosen.get("soak") else waves
            text += f"  rollouts: {json.dumps([{'waves': waves}])}\n"
        if chosen["auto"]:
            text += "  approval: {auto: [{}]}\n"
        self.world.configure(text, instance=chosen.get("instance", "fleet"))

    def ask(self, package: str) -> None:
        """Write the manifest of a set, or remove it."""
        wish, file = self.wishes[package], "set" if package == "web" else package
        if wish.is_there:
            notes = dict(wish.orders)
            target = where(wish.edges, notes, selects=wish.selects)
            if wish.memory:
                target["template"] = {"packageContext": {"data": {"memory": wish.memory}}}
            if wish.selects:
                Repo(self.world.control).commit(snapshots(wish.edges))
            self.world.want(wish.revision, notes, wish.name, package=package, own=wish.own, target=target)
        elif "sha" in git(self.world.control, "ls-tree", "--format=sha", "main", f"manifests/{file}.json"):
            Repo(self.world.control).commit({f"manifests/{file}.json": None})

    # one step

    def play(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Do one step, and let two runs follow."""
        self.count += 1
        self.history.append((name, dict(arguments)))
        STEPS[name][1](self, **arguments)
        self.settle()
        self.check()

    def check(self) -> None:
        """Raise what is violated."""
        if self.violations:
            raise AssertionError("\n".join(self.violations))

    def run(self, *line: str) -> Said:
        """Run a command; a code other than 0 must have a line that says why."""
        said = self.world.run(*line)
        is_told = re.search(
            r"hint: |problem: |refused|waits for a person|failed|answer it", said.out + said.err
        )
        if said.code and "json" not in line and not is_told:
            self.violations.append(f"{' '.join(line)} exits {said.code} and does not say why: {said}")
        if said.code not in {*Exit}:
            self.violations.append(f"{' '.join(line)} exits {said.code}")
        return said

    def settle(self) -> None:
        """Plan, apply, and apply again."""
        planned, before = read(self.run("plan", "-o", "json")), self.world.all_refs()
        applied = self.run("apply", "-o", "json")
        done, after = read(applied), self.world.all_refs()
        self.run("apply")
        again = self.world.all_refs()
        for _ in range(ROUNDS if self.settings["auto"] else 0):  # the run after the one that opened it merges
            after = again
            self.run("apply")
            again = self.world.all_refs()
            if not changed(after, again):
                break
        if planned and done and planned["checksum"] != done["checksum"]:
            self.violations.append("plan and apply differ")
        rows = done.get("changes", [])
        if not any(row["pending"] for row in rows) and not done.get("lock") and done:
            moved = [ref for ref in changed(before, after) if not ref.endswith(("/state", "/status"))]
            self.violations += [f"a plan without effects writes {moved}"] if moved else []
        if changed(after, again) and not self.away:
            self.violations.append(f"a second run writes {changed(after, again)}")
        if applied.code == Exit.UNAVAILABLE and not self.away:
            self.violations.append(f"apply exits {applied.code}: {applied.err[-600:]}")
        self.violations += self.find_lost()
        written = {(r["package"]["url"], w["ref"]) for r in rows for w in r["writes"]}
        for row in rows:
            approve = row["approve"]
            if approve and (row["package"]["url"], f"refs/heads/{approve['head']}") in written:
                self.violations.append(f"one plan writes and merges {approve['head']}")
            edge = row["name"].partition("/")[0]
            if row["reason"] == "Rejected" and edge not in self.judged:
                self.violations.append(f"{row['name']} is Rejected, and nobody rejected it: {row['message']}")

    # what people did stays

    def find_lost(self) -> Iterator[str]:
        """Yield the changes of people that no branch has any more."""
        there = {edge: self.texts(edge) for edge in EDGES}
        for token, edge in self.tokens.items():
            if edge != self.away and token not in there[edge]:
                yield f"{token.decode()} of a person in {edge} is lost"

    def texts(self, edge: str) -> set[bytes]:
        """Return the tokens on all branches of a cluster's repository; all where it cannot be reached."""
        if edge == self.away:
            return {*self.tokens}
        repo = self.world.repo(edge)
        heads = [ref for ref in repo.refs() if ref.startswith("refs/heads/")]
        return {token for head in heads for token in TOKEN.findall(content(repo, head))}

    def give_up(self) -> None:
        """Forget the changes that a person took away."""
        gone = [token for token, edge in self.tokens.items() if token not in self.texts(edge)]
        for token in gone:
            del self.tokens[token]

    def edit(self, edge: str, branch: str, path: str, *, in_value: bool) -> None:
        """Let a person change a package on a branch: a value that upstream has, too, or a file beside it."""
        repo, token = self.world.repo(edge), f"k{self.count:04}x"
        files = {f"{path}/{token}.txt": f"{token}\n"}
        if in_value:
            try:
                text = repo.read(branch, f"{path}/app.yaml").decode()
            except KeyError:
                return
            files = {f"{path}/app.yaml": re.sub(r"(image: .*:)\S+", rf"\g<1>{token}", text)}
        self.commit(edge, branch, files)
        self.tokens[token.encode()] = edge

    def commit(self, edge: str, branch: str, files: Mapping[str, Any]) -> None:
        """Let a person commit to a branch; what they take away with it may be gone."""
        repo = self.world.repo(edge)
        before = set(TOKEN.findall(content(repo, f"refs/heads/{branch}")))
        repo.commit(files, branch=branch, message="Mine\n")
        for token in before - set(TOKEN.findall(content(repo, f"refs/heads/{branch}"))):
            self.tokens.pop(token, None)

    def packages(self, edge: str) -> dict[str, str]:
        """Return the tree of each package on main."""
        names = [SOLO, *(name for names in NAMES.values() for name in names)]
        repo = self.world.repo(edge)
        return {name: repo.tree("main", name) for name in names if self.world.image(edge, name)}

    def wanted(self, edge: str) -> set[str]:
        """Return the packages that manifests want in a cluster."""
        wishes = self.wishes.values()
        return {wish.name for wish in wishes if wish.is_there and edge in wish.edges} | {
            name for name, place in self.places.items() if place == edge
        }

    # the end

    def start(self) -> None:
        """Let both sets publish their first revision, or only propose it."""
        if self.settings.get("published", True):
            self.approve_rounds()
        else:
            self.settle()
            self.check()
        self.history.clear()

    def end(self) -> None:
        """Everything is well again: what is wanted gets there, and goes back where that is ordered."""
        self.ending = len(self.history)
        self.play("come_back", {})
        self.configure({"group": "package", "auto": False, "soak": "", "instance": "fleet"})
        for package, wish in self.wishes.items():
            if wish.is_there:
                wish.orders = {"reconciler.dev/retry": str(self.count)}
                wish.edges, wish.selects = EDGES, False
                self.ask(package)
        self.approve_rounds()
        if not self.settings["waves"]:
            return
        before = {edge: self.packages(edge) for edge in EDGES}
        for package, wish in self.wishes.items():
            wish.revision = wish.revision % REVISIONS + 1
            self.ask(package)
        self.approve_rounds()
        moved = {edge: self.packages(edge) for edge in EDGES}
        for package, wish in self.wishes.items():
            wish.orders = {ROLL_BACK: f"{package}/v{wish.revision}"}
            self.ask(package)
        self.approve_rounds()
        rows = {row["name"]: row for row in read(self.run("plan", "-o", "json")).get("changes", [])}
        for edge in EDGES:
            for name, tree in self.packages(edge).items():
                went, row = before[edge].get(name), rows.get(f"{edge}/{name}", {})
                is_held = row.get("waits") or row.get("conflicts") or "cannot be found" in str(row)
                is_wanted = name in self.wanted(edge) - {SOLO}
                if went and went != moved[edge].get(name) == tree and is_wanted and not is_held:
                    self.violations.append(f"{edge}/{name} is not rolled back: {row.get('message')}")
        self.check()

    def approve_rounds(self) -> None:
        for _ in range(ROUNDS):
            before = self.world.all_refs()
            self.play("approve_all", {})
            if not changed(before, self.world.all_refs()):
                return


def read(said: Said) -> dict[str, Any]:
    """Return what a command printed as JSON, nothing where it printed none."""
    return json.loads(said.out) if said.out.startswith("{") else {}


def changed(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the refs that differ."""
    return [
        f"{name} {ref}"
        for name in sorted(before.keys() & after.keys())
        for ref in sorted(before[name].keys() | after[name].keys())
        if before[name].get(ref) != after[name].get(ref)
    ]


def content(repo: Repo, ref: str) -> bytes:
    """Return every file of a branch as one text."""
    return trees.text(repo, trees.root(repo, ref))


def draw_operations(random: Random, root: Path, count: int) -> dict[str, Any]:
    """Play a life of drawn steps; return its trace, which a ViolationError has as its second argument."""
    settings = draw_settings(random)
    start, life = dict(settings), OperatorLife(root, settings)
    try:
        life.start()
        names = sorted(STEPS)
        for _ in range(count):
            chosen = random.choices(names, [STEPS[name][2] for name in names])[0]
            arguments = STEPS[chosen][0](life, Random(random.randrange(2**32)))
            if arguments is not None:
                life.play(chosen, json.loads(json.dumps(arguments)))
        life.end()
    except AssertionError as violation:
        steps = life.history[: life.ending]
        raise ViolationError(str(violation), {"spec": start, "steps": steps}) from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {"spec": start, "steps": life.history}


def replay_operations(trace: Mapping[str, Any], root: Path) -> OperatorLife:
    """Play a trace again; raise ViolationError where it violates something."""
    life = OperatorLife(root, dict(trace["spec"]))
    try:
        life.start()
        for name, arguments in trace["steps"]:
            life.play(name, arguments)
        life.end()
    except AssertionError as violation:
        raise ViolationError(str(violation)) from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return life


# Steps: how each is drawn, and how it is done


def _order(life: OperatorLife, random: Random) -> Arguments:
    package = random.choice(PACKAGES)
    label = f"{package}/v{life.wishes[package].revision}"
    orders = [{}, {}, {PAUSE: "true"}, {ROLL_BACK: label}, {ROLL_BACK: label}, {SKIP: f"{label}/w1"}]
    orders += [{GO: f"{label}/w1"}, {ROLL_BACK: "v9"}, {SKIP: f"{label}/nosuch"}]
    return {"package": package, "orders": random.choice(orders)}


def order(life: OperatorLife, package: str, orders: dict[str, str]) -> None:
    life.wishes[package].orders = orders
    life.ask(package)


def ask_value(life: OperatorLife, package: str, memory: str) -> None:
    life.wishes[package].memory = memory
    life.ask(package)


def ask_revision(life: OperatorLife, package: str, revision: int) -> None:
    life.wishes[package].revision = revision
    life.ask(package)


def rename(life: OperatorLife, name: str, own: str) -> None:
    life.wishes["web"].name, life.wishes["web"].own = name, own
    life.ask("web")


def drop_or_declare(life: OperatorLife, package: str, *, is_there: bool) -> None:
    life.wishes[package].is_there = is_there
    life.ask(package)


def configure(life: OperatorLife, key: str, value: Any) -> None:
    life.configure({key: value})


def _pull(life: OperatorLife, random: Random) -> Arguments | None:
    items = read(life.world.run("pr", "list", "-o", "json")).get("items", [])
    found = [item for item in items if item["name"].partition("#")[0] in EDGES]
    if not found:
        return None
    chosen = random.choice(found)
    return {"edge": chosen["name"].partition("#")[0], "number": chosen["number"], "head": chosen["head"]}


def approve(life: OperatorLife, edge: str, number: int, head: str) -> None:
    life.run("approve", f"{edge}#{number}")
    if "/delete/" in head:
        life.give_up()


def approve_all(life: OperatorLife) -> None:
    """A person approves everything: what no manifest wants is not published, no cluster loses its package."""
    before = {edge: life.packages(edge) for edge in EDGES if edge != life.away}
    life.run("approve", "--all")
    for edge, packages in before.items():
        after = life.packages(edge)
        for name in after.keys() - life.wanted(edge):
            if after[name] != packages.get(name):
                life.violations.append(f"approve --all publishes {edge}/{name}, which no manifest wants")
        own, names = life.wishes["web"], NAMES["web"]
        has_lost = any(n in packages for n in names) and not any(n in after for n in names)
        if own.is_there and edge in own.edges and life.settings["waves"] and has_lost:
            life.violations.append(f"{edge} lost its package by another name")
    life.give_up()


def close(life: OperatorLife, edge: str, number: int, head: str, *, with_branch: bool = False) -> None:
    life.judged.add(edge)
    life.run("pr", "close", f"{edge}#{number}", "--comment", "No")
    if with_branch and life.world.repo(edge).find(f"refs/heads/{head}"):
        life.world.repo(edge).delete(f"refs/heads/{head}")
    life.give_up()


def edit_draft(life: OperatorLife, edge: str, number: int, head: str, *, in_value: bool = False) -> None:
    del number
    repo = life.world.repo(edge)
    if "/delete/" in head or not repo.find(f"refs/heads/{head}"):
        return
    there = git(repo.path, "diff", "--name-only", f"main...{head}").split()
    paths = sorted({path.partition("/")[0] for path in there if "/" in path})
    if paths:
        life.edit(edge, head, paths[0], in_value=in_value)


def _main(life: OperatorLife, random: Random) -> Arguments | None:
    found = [(edge, name) for edge in EDGES if edge != life.away for name in life.packages(edge)]
    edge, name = random.choice(found) if found else ("", "")
    return {"edge": edge, "name": name, "in_value": random.random() < 0.3} if edge else None


def edit_main(life: OperatorLife, edge: str, name: str, *, in_value: bool) -> None:
    if name in life.packages(edge):
        life.edit(edge, "main", name, in_value=in_value)


def revert(life: OperatorLife, edge: str, name: str, *, in_value: bool) -> None:
    """A person puts an earlier state of a package back on main."""
    del in_value
    repo = life.world.repo(edge)
    for number in range(1, 9):
        if repo.find(f"refs/tags/{name}/v{number}"):
            life.judged.add(edge)
            tree = repo.git[repo.tree(f"{name}/v{number}", name)]
            there = repo.git[repo.tree("main", name)] if name in life.packages(edge) else ()
            files: dict[str, Any] = {f"{name}/{entry.name}": None for entry in there}
            life.commit(edge, "main", files | {f"{name}/{entry.name}": entry.data for entry in tree})
            return


def go_away(life: OperatorLife, edge: str) -> None:
    if not life.away:
        life.away = edge
        (life.root / f"{edge}.git").rename(life.root / f"{edge}.away")


def come_back(life: OperatorLife) -> None:
    if life.away:
        (life.root / f"{life.away}.away").rename(life.root / f"{life.away}.git")
        life.away = ""


def lose_state(life: OperatorLife) -> None:
    for branch in ("state", "status"):
        if Repo(life.world.control).find(f"refs/heads/reconciler/fleet/{branch}"):
            Repo(life.world.control).delete(f"refs/heads/reconciler/fleet/{branch}")


def retag(life: OperatorLife, package: str, revision: int) -> None:
    upstream = Repo(life.root / "blueprints.git")
    upstream.commit(blueprint(revision + 10 * life.count, package=package), message="Again\n")
    upstream.tag(f"{package}/v{revision}")


def follow(life: OperatorLife, package: str) -> None:
    oid = Repo(life.root / "blueprints.git").oid(f"refs/tags/{package}/v{life.wishes[package].revision}")
    order(life, package, {FOLLOW: oid})


def run_from_an_old_checkout(life: OperatorLife) -> None:
    """A person applies a checkout that they did not pull."""
    copy = life.root / "checkout"
    git(life.root, "clone", "-q", str(life.world.control), str(copy))
    git(copy, "reset", "-q", "--hard", "HEAD~1")
    said = run_line(["apply", "--control", str(copy), "--cache-dir", str(life.root / "old")])
    if said.code and "hint: " not in said.out + said.err:
        life.violations.append(f"an old checkout exits {said.code} and does not say why: {said}")
    shutil.rmtree(copy)


def _pull_with(key: str, share: float) -> Any:
    def draw(life: OperatorLife, random: Random) -> Arguments | None:
        found = _pull(life, random)
        return found and {**found, key: random.random() < share}

    return draw


def _package(_life: OperatorLife, random: Random) -> Arguments:
    return {"package": random.choice(PACKAGES)}


def _revision(life: OperatorLife, random: Random) -> Arguments:
    return {**_package(life, random), "revision": random.randint(1, REVISIONS)}


def _value(life: OperatorLife, random: Random) -> Arguments:
    return {**_package(life, random), "memory": random.choice(["", "64Mi", "128Mi"])}


def _setting(_life: OperatorLife, random: Random) -> Arguments:
    key = random.choice(sorted(CHOICES))
    return {"key": key, "value": random.choice(CHOICES[key])}


STEPS: Mapping[str, tuple[Any, Any, int]] = {
    "ask_revision": (_revision, ask_revision, 8),
    "ask_value": (_value, ask_value, 4),
    "order": (_order, order, 6),
    "approve": (_pull, approve, 6),
    "approve_all": (lambda _life, _random: {}, approve_all, 8),
    "close": (_pull_with("with_branch", 0.4), close, 3),
    "edit_draft": (_pull_with("in_value", 0.4), edit_draft, 6),
    "edit_main": (_main, edit_main, 3),
    "revert": (_main, revert, 2),
    "rename": (
        lambda _life, random: {"name": random.choice(NAMES["web"]), "own": random.choice(["", "", "other"])},
        rename,
        4,
    ),
    "drop_or_declare": (
        lambda life, random: {**_package(life, random), "is_there": random.random() < 0.6},
        drop_or_declare,
        3,
    ),
    "configure": (_setting, configure, 2),
    "go_away": (lambda _life, random: {"edge": random.choice(EDGES)}, go_away, 2),
    "come_back": (lambda _life, _random: {}, come_back, 3),
    "lose_state": (lambda _life, _random: {}, lose_state, 1),
    "retag": (_revision, retag, 1),
    "follow": (_package, follow, 1),
    "run_from_an_old_checkout": (lambda _life, _random: {}, run_from_an_old_checkout, 1),
    "close_by_name": (_main, close_by_name, 1),
    **MOVES,
}

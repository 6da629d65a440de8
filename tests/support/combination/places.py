"""Lives in which places change: Repositories come, go, move and break; packages and sources are renamed.

A life has the driver, the traces and the shrinking of the combination machine. It starts from a fleet with a
monorepo, repositories of their own and installed packages, or from the state of an earlier release; its steps
rewrite whatever manifests are there. Oracles are in place_oracles.py.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from reconciler.base.errors import Exit
from tests.e2e.test_former_places import PLACES, registered
from tests.e2e.test_losses import BASE, FAMILY, S3, install, snapshot, xpkg
from tests.support.combination import place_oracles, trees
from tests.support.combination.ledger import ViolationError
from tests.support.combination.operations import changed, read
from tests.support.edge_fleet import CONFIGURATION, blueprint, the_set
from tests.support.git import Repo, make_repository
from tests.support.kept_states import KEPT, restore
from tests.support.small_world import repository
from tests.support.world import Said, World

PLACED = "places"
"""How traces and tests call these lives."""
FLEET = "fleet"
STARTS = (FLEET, *(f"{kept.parent.name}/{kept.name}" for kept in KEPT))
REGISTRY = "y.example.com/a/s3"
SOURCES = (f"{S3}:v1.0.0", f"{REGISTRY}:v1.0.0", "x.example.com/a/s4:v1.0.0")
"""Packages of the install: as it was, of another registry, and one that nobody publishes."""
NAMES = ("occident", "oslo", "bern")
WRONG = {"Repository": "git", "PackageVariantSet": "upstream", "PackageVariant": "upstream"}
ROUNDS = 4
Arguments = dict[str, Any]
Steps = Mapping[str, tuple[Any, Any, int]]
Value = dict[str, Any]


class Place(NamedTuple):
    """A directory of a branch of a Git repository."""

    git: str
    directory: str
    branch: str

    def has(self, git_name: str, path: str) -> bool:
        """Tell whether a path is inside."""
        return self.git == git_name and f"{path}/".startswith(f"{self.directory}/" if self.directory else "")

    def meets(self, other: "Place") -> bool:
        """Tell whether one is inside the other."""
        is_one_branch = (self.git, self.branch) == (other.git, other.branch)
        return is_one_branch and (
            self.has(self.git, other.directory)
            or self.has(self.git, "")
            or other.has(self.git, self.directory)
            or not other.directory
        )


@cache
def parsed(text: str) -> tuple[Value, ...]:
    """Return the documents of a file, which nobody may change."""
    return tuple(value for value in yaml.safe_load_all(text) if value)


def place_of(value: Value) -> Place:
    """Return the place that the manifest of a Repository names."""
    spec = value["spec"]["git"]
    return Place(Path(spec["repo"]).stem, spec.get("directory", ""), spec.get("branch", "main"))


@dataclass
class PlacedLife:
    """A fleet with its history; each step is followed by two runs."""

    root: Path
    start_of: str
    history: list[tuple[str, Arguments]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    broken: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Of a broken file the text as it was, and the kind and name of the document that is wrong, or ""."""
    dropped: dict[str, tuple[str, Value]] = field(default_factory=dict)
    """Manifests that were removed, with their file."""
    known: set[tuple[str, Place]] = field(default_factory=set)
    """Every place that a Repository was ever at."""
    mentioned: set[str] = field(default_factory=set)
    """Repositories that any manifest ever named."""
    locked: set[str] = field(default_factory=set)
    declined: set[tuple[str, str]] = field(default_factory=set)
    """Heads of deletions that people closed in this step, with their Git repository."""
    has_other: bool = False
    count: int = 0

    def __post_init__(self) -> None:
        self.world = self.begin()
        if not (self.root / "fresh.git").exists():
            make_repository(self.root / "fresh.git", {"README.md": "fresh\n"})
        self.control = Repo(self.world.control)
        self.control.time = self.world.clock
        kept = ("x.example.com/acme/platform:v1.0.0",)
        self.sources = kept if "/" in self.start_of else SOURCES[:2]
        """Packages of installs that somebody publishes."""
        self.instance = yaml.safe_load(self.control.read("main", "reconciler.yaml"))["metadata"]["name"]

    def begin(self) -> World:
        """Return the fleet as it is before the first step."""
        kept = next((k for k in KEPT if f"{k.parent.name}/{k.name}" == self.start_of), None)
        return make_fleet(self.root) if kept is None else restore(kept, self.root)

    def steps(self) -> Steps:
        """Return the steps that may be drawn."""
        return STEPS

    def check_more(self) -> Iterator[str]:
        """Yield what is violated of a fleet with more than places."""
        return iter(())

    # manifests

    def texts(self) -> dict[str, str]:
        """Return every manifest file; of a broken one as it was."""
        root = trees.root(self.control, "main")
        return {
            path: self.broken[path][0] if path in self.broken else data.decode()
            for path, data in trees.files(self.control, root, "manifests").items()
        }

    def documents(self) -> Iterator[tuple[str, Value]]:
        """Yield every manifest with its file."""
        for path, text in self.texts().items():
            yield from ((path, value) for value in parsed(text) if "kind" in value)

    def is_wrong(self, path: str, value: Value) -> bool:
        """Tell whether a manifest cannot be understood."""
        _, kind, name = self.broken.get(path, ("", "-", "-"))
        return not kind or (kind, name) == (value["kind"], value["metadata"]["name"])

    def find(self, kind: str, name: str = "", *, wrong: bool = False) -> list[tuple[str, Value]]:
        """Return the manifests of a kind that can be understood; all with `wrong`."""
        return [
            (path, value)
            for path, value in self.documents()
            if value["kind"] == kind
            and name in ("", value["metadata"]["name"])
            and value["metadata"]["name"] != "blueprints"
            and (wrong or not self.is_wrong(path, value))
        ]

    def registered(self) -> dict[str, Place]:
        """Return the place of each Repository that can be understood."""
        return {v["metadata"]["name"]: place_of(v) for _, v in self.find("Repository")}

    def wrong_places(self) -> dict[str, Place]:
        """Return the place of each Repository that cannot be understood."""
        right = self.registered()
        values = [v for _, v in self.find("Repository", wrong=True)]
        return {v["metadata"]["name"]: place_of(v) for v in values if v["metadata"]["name"] not in right}

    def rewrite(self, kind: str, name: str, change: Callable[[Value], Value | None]) -> bool:
        """Change or remove a manifest of a file that is whole."""
        for path, _ in self.find(kind, name):
            if path in self.broken:
                return False
            values = parsed(self.texts()[path])
            altered = [
                change(deepcopy(v)) if (v["kind"], v["metadata"]["name"]) == (kind, name) else v
                for v in values
            ]
            self.write(path, [v for v in altered if v is not None])
            return True
        return False

    def write(self, path: str, values: list[Value]) -> None:
        """Write a file of manifests, or remove one without any."""
        self.control.commit({path: "---\n".join(json.dumps(v, indent=1) + "\n" for v in values) or None})

    def is_free(self, name: str, place: Place) -> bool:
        """Tell whether no other Repository is at a place."""
        there = {**self.registered(), **self.wrong_places()}
        return not any(place.meets(other) for own, other in there.items() if own != name)

    # one step

    def play(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Do one step, and let two runs follow."""
        self.count += 1
        self.declined = set()
        self.history.append((name, dict(arguments)))
        before = self.control.oid("main")
        self.steps()[name][1](self, **arguments)
        if "repository" in name and self.control.oid("main") != before:
            self.remember()
            self.violations += place_oracles.check_compared(self, before)
        self.settle()

    def run(self, *line: str, cache: str = "cache") -> Said:
        """Run a command; nothing is away, so that none may fail in any way but by what people wrote."""
        said = self.world.run(*line, cache=cache)
        if said.code in (Exit.BUG, Exit.USAGE, Exit.UNAVAILABLE) or "Traceback" in said.out + said.err:
            self.violations.append(f"{' '.join(line)} exits {said.code}: {said.out[-800:]}{said.err[-800:]}")
        return said

    def other(self) -> World:
        """Return the fleet as the other instance sees it."""
        return OtherWorld(self.root, self.world.clock, timed=self.world.timed)

    def settle(self) -> None:
        """Apply, apply again from another clone, and look at everything."""
        self.remember()
        before = place_oracles.published(self)
        if self.has_other:
            # Each may wait for a path that the other leaves.
            self.run("apply")
            self.other().run("apply", cache="other-cache")
        said = self.run("apply").out
        self.violations += [f"apply says {each}: {said}" for each in place_oracles.check_sentence(self, said)]
        after = self.world.all_refs()
        plan = read(self.run("apply", "-o", "json", cache="fresh-cache"))
        if self.has_other:
            self.other().run("apply", cache="other-cache")
        again = changed(after, self.world.all_refs())
        if again:
            self.violations.append(f"a second run writes {again}")
        gone = sorted(before - place_oracles.published(self))
        if gone:
            self.violations.append(f"a run takes from main {gone}")
        self.violations += [*place_oracles.check_everything(self, plan), *self.check_more()]
        self.check()

    def remember(self) -> None:
        """Keep which places and names there ever were."""
        self.known |= {*self.registered().items(), *self.wrong_places().items()}
        for _, value in self.documents():
            for target in value.get("spec", {}).get("targets", ()):
                self.mentioned |= {each["name"] for each in target.get("repositories", ())}
        self.mentioned |= {name for name, _ in self.known}

    def check(self) -> None:
        """Raise what is violated."""
        if self.violations:
            raise AssertionError("\n".join(self.violations))

    def end(self) -> None:
        """Everything is right again, and people approve it: nothing is left to do."""
        for path in sorted(self.broken):
            mend(self, path)
        for _ in range(ROUNDS):
            before = self.world.all_refs()
            approve_all(self)
            self.settle()
            if not changed(before, self.world.all_refs()):
                return


class OtherWorld(World):
    """The same repositories from the control repository of another instance."""

    @property
    def control(self) -> Path:
        return self.root / "other.git"


def make_fleet(root: Path) -> World:
    """Two clusters in a monorepo, one with a repository of its own, one with installed packages."""
    root.mkdir()
    upstream = make_repository(root / "blueprints.git")
    for revision in (1, 2):
        upstream.commit(blueprint(revision), message=f"web v{revision}\n")
        upstream.tag(f"web/v{revision}")
    for name in ("mono", "rome", "dev"):
        make_repository(root / f"{name}.git", {"README.md": f"{name}\n"})
    Repo(root / "mono.git").commit({"README.md": "prod\n"}, branch="prod")
    files = {f"manifests/{name}.yaml": registered(name, *place) for name, place in PLACES.items()}
    files |= {f"manifests/{name}.yaml": repository(name) for name in ("blueprints", "dev")}
    files |= {"reconciler.yaml": CONFIGURATION, **BASE, **install("s3", SOURCES[0])}
    files |= {
        **xpkg(REGISTRY, "v1.0.0", kinds=("Db",), needs=FAMILY),
        **snapshot("dev", "Net n", "Db shop/one"),
    }
    files["manifests/set.json"] = the_set(1, target={"repositorySelector": {"matchLabels": {"fleet": "web"}}})
    make_repository(root / "control.git", files)
    world = World(root)
    for line in ("apply",), ("approve", "--all"), ("apply",):
        world.run(*line)
    Repo(world.control).commit(
        {"manifests/set.json": files["manifests/set.json"].replace('"revision": 1', '"revision": 2')}
    )
    return world


def draw_places(random: Random, root: Path, count: int) -> dict[str, Any]:
    """Play a life of drawn steps; return its trace, which a ViolationError has as its second argument."""
    life = PlacedLife(root, FLEET if random.random() < FLEETS else random.choice(STARTS))
    return draw_steps(life, PLACED, random, count)


def draw_steps(life: PlacedLife, theme: str, random: Random, count: int) -> dict[str, Any]:
    """Play drawn steps; return the trace, which a ViolationError has as its second argument."""
    start = {"theme": theme, "start": life.start_of}
    steps = life.steps()
    try:
        life.settle()
        names = sorted(steps)
        for _ in range(count):
            chosen = random.choices(names, [steps[name][2] for name in names])[0]
            arguments = steps[chosen][0](life, Random(random.randrange(2**32)))
            if arguments is not None:
                life.play(chosen, json.loads(json.dumps(arguments)))
        life.end()
    except AssertionError as violation:
        raise ViolationError(str(violation), {"spec": start, "steps": life.history}) from None
    finally:
        shutil.rmtree(life.root, ignore_errors=True)
    return {"spec": start, "steps": life.history}


FLEETS = 0.7
"""The share of lives that do not start from an earlier release."""


def replay_places(trace: Mapping[str, Any], root: Path, kind: type[PlacedLife] = PlacedLife) -> PlacedLife:
    """Play a trace again; raise ViolationError where it violates something."""
    life = kind(root, trace["spec"]["start"])
    try:
        life.settle()
        for name, arguments in trace["steps"]:
            life.play(name, arguments)
        life.end()
    except AssertionError as violation:
        raise ViolationError(str(violation)) from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return life


# Repositories


def _name(life: PlacedLife, random: Random) -> Arguments | None:
    names = sorted(life.registered())
    return {"name": random.choice(names)} if names else None


def remove_repository(life: PlacedLife, name: str) -> None:
    _remove(life, "Repository", name)


def _remove(life: PlacedLife, kind: str, name: str) -> None:
    found = life.find(kind, name)
    if found and life.rewrite(kind, name, lambda _: None):
        life.dropped[f"{kind} {name}"] = found[0]


def retire(life: PlacedLife, name: str) -> None:
    """A person takes a cluster out: its Repository, and its name among the targets of sets."""

    def without(value: Value) -> Value:
        for target in value["spec"]["targets"]:
            if "repositories" in target:
                target["repositories"] = [r for r in target["repositories"] if r["name"] != name]
        value["spec"]["targets"] = [t for t in value["spec"]["targets"] if t.get("repositories") != []]
        return value

    remove_repository(life, name)
    for _, value in life.find("PackageVariantSet"):
        own = value["metadata"]["name"]
        if without(deepcopy(value))["spec"]["targets"]:
            life.rewrite("PackageVariantSet", own, without)
        else:
            _remove(life, "PackageVariantSet", own)


def _dropped(life: PlacedLife, random: Random) -> Arguments | None:
    if not life.dropped:
        return None
    return {"what": random.choice(sorted(life.dropped)), "elsewhere": random.random() < RENAMED}


def bring_back(life: PlacedLife, what: str, *, elsewhere: bool = False) -> None:
    """A person brings back a manifest that was removed, a Repository maybe at another place."""
    if what not in life.dropped:
        return
    path, value = life.dropped[what]
    name = value["metadata"]["name"]
    if elsewhere and value["kind"] == "Repository":
        value = deepcopy(value)
        value["spec"]["git"] |= {"repo": "../fresh.git", "directory": name, "branch": "main"}
    is_free = value["kind"] != "Repository" or life.is_free(name, place_of(value))
    if path in life.broken or life.find(value["kind"], name, wrong=True) or not is_free:
        return
    del life.dropped[what]
    there = [v for p, v in life.documents() if p == path]
    life.write(path, [*there, value])


def _new_place(life: PlacedLife, random: Random, name: str, old: Place) -> Place:
    former = [place for own, place in sorted(life.known) if own == name]
    choices = [old._replace(directory=f"sites/{name}"), Place("fresh", name, "main"), *former]
    if (life.root / f"{old.git}.git/refs/heads/prod").exists():
        choices.append(old._replace(branch="prod"))
    return random.choice([place for place in choices if place != old] or choices)


def _move(life: PlacedLife, random: Random) -> Arguments | None:
    chosen = _name(life, random)
    if chosen is None:
        return None
    name = chosen["name"]
    place = _new_place(life, random, name, life.registered()[name])
    new = random.choice([*NAMES, *(own for own, _ in sorted(life.known))])
    return {**chosen, "place": list(place), "new": new if random.random() < RENAMED else name}


RENAMED = 0.3


def move_repository(life: PlacedLife, name: str, place: list[str], new: str) -> None:
    """A person changes directory, address or branch of a Repository, and maybe its name."""
    target = Place(*place)
    if new != name and new in {**life.registered(), **life.wrong_places()}:
        return

    def moved(value: Value) -> Value:
        value["metadata"]["name"] = new
        value["spec"]["git"] |= {
            "repo": f"../{target.git}.git",
            "directory": target.directory,
            "branch": target.branch,
        }
        return value

    if life.is_free(name, target):
        life.rewrite("Repository", name, moved)


def _rename(life: PlacedLife, random: Random) -> Arguments | None:
    chosen = _name(life, random)
    if chosen is None:
        return None
    place = life.registered()[chosen["name"]]
    new = random.choice([*NAMES, *(own for own, known in life.known if known == place)])
    return {**chosen, "place": list(place), "new": new}


def _addition(life: PlacedLife, random: Random) -> Arguments | None:
    chosen = _name(life, random)
    return chosen and {"like": chosen["name"], "name": random.choice(NAMES)}


def add_repository(life: PlacedLife, like: str, name: str) -> None:
    """A person registers a new cluster, labelled as another one."""
    place = Place("fresh", name, "main")
    found = life.find("Repository", like)
    if not found or life.find("Repository", name, wrong=True) or not life.is_free(name, place):
        return
    value = deepcopy(found[0][1])
    value["metadata"]["name"] = name
    value["spec"]["git"] |= {"repo": "../fresh.git", "directory": name, "branch": "main"}
    life.write(f"manifests/added-{name}.yaml", [value])


# Manifests of every kind


def _document(life: PlacedLife, random: Random, *kinds: str) -> Arguments | None:
    found = [
        {"kind": v["kind"], "name": v["metadata"]["name"]}
        for path, v in life.documents()
        if path not in life.broken
        and v["metadata"]["name"] != "blueprints"
        and (not kinds or v["kind"] in kinds)
    ]
    return random.choice(found) if found else None


def _breakage(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random)
    return found and {**found, "how": random.choice(["field", "kind", "yaml"])}


def break_manifest(life: PlacedLife, kind: str, name: str, how: str) -> None:
    """A person misspells a field or the kind of a manifest, or breaks its file."""
    for path, _ in life.find(kind, name):
        if path in life.broken:
            return
        text = life.texts()[path]
        if how == "yaml":
            life.control.commit({path: f"{{{{{{\n{text}"})
            life.broken[path] = text, "", ""
            return

        def wrong(value: Value) -> Value:
            if how == "kind":
                value["kind"] = f"{kind[:-2]}{kind[-1]}"
                return value
            right = WRONG.get(kind, "package")
            value["spec"][f"{right}s"] = value["spec"].pop(right, None)
            return value

        life.rewrite(kind, name, wrong)
        life.broken[path] = text, kind, name
        return


def _broken(life: PlacedLife, random: Random) -> Arguments | None:
    return {"path": random.choice(sorted(life.broken))} if life.broken else None


def mend(life: PlacedLife, path: str) -> None:
    if path in life.broken:
        life.control.commit({path: life.broken.pop(path)[0]})


def _removable(life: PlacedLife, random: Random) -> Arguments | None:
    return _document(life, random, "PackageVariantSet", "PackageVariant", "Provider", "Configuration")


def remove_manifest(life: PlacedLife, kind: str, name: str) -> None:
    _remove(life, kind, name)


def _package_name(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random, "PackageVariantSet")
    return found and {"name": found["name"], "package": random.choice(["web", "shop"])}


def rename_package(life: PlacedLife, name: str, package: str) -> None:
    """A person gives the package of a set another name, or its own one back."""

    def renamed(value: Value) -> Value:
        for target in value["spec"]["targets"]:
            for each in target.get("repositories", ()):
                each["packageNames"] = [package]
            if "repositories" not in target:
                target.setdefault("template", {}).setdefault("downstream", {})["package"] = package
        return value

    life.rewrite("PackageVariantSet", name, renamed)


def _revision(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random, "PackageVariantSet")
    numbers = [
        int(ref.rpartition("/v")[2]) for ref in life.world.all_refs().get("blueprints.git", {}) if "/v" in ref
    ]
    return {"name": found["name"], "revision": random.choice(numbers)} if found and numbers else None


def ask_revision(life: PlacedLife, name: str, revision: int) -> None:
    def asked(value: Value) -> Value:
        value["spec"]["upstream"]["revision"] = revision
        return value

    life.rewrite("PackageVariantSet", name, asked)


def _source(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random, "Provider", "Configuration")
    there = [v["spec"]["package"] for _, v in life.find(found["kind"], found["name"])] if found else []
    return found and {**found, "package": random.choice([s for s in SOURCES if s not in there])}


def move_source(life: PlacedLife, kind: str, name: str, package: str) -> None:
    """A person installs a package of another registry, misspells one, or goes back."""
    if life.start_of != FLEET:
        package = package.replace("/a/s3", "/acme/platform")

    def moved(value: Value) -> Value:
        value["spec"]["package"] = package
        return value

    life.rewrite(kind, name, moved)


# Pull requests


def _pull(life: PlacedLife, random: Random) -> Arguments | None:
    items = read(life.run("pr", "list", "-o", "json")).get("items", [])
    return {"name": random.choice(items)["name"]} if items else None


def _unwelcome(life: PlacedLife, random: Random) -> Arguments | None:
    """Return a pull request, more often one that deletes something."""
    items = read(life.run("pr", "list", "-o", "json")).get("items", [])
    deletions = [each for each in items if "/delete/" in each["head"]]
    return {"name": random.choice(deletions or items)["name"]} if items else None


def approve(life: PlacedLife, name: str) -> None:
    life.world.run("approve", name)


def close(life: PlacedLife, name: str) -> None:
    before = place_oracles.deletions(life)
    life.world.run("pr", "close", name, "--comment", "No")
    life.declined |= before - place_oracles.deletions(life)


def approve_all(life: PlacedLife) -> None:
    """A person approves everything; nothing is merged where no Repository can be read."""
    life.remember()
    before = place_oracles.unread(life)
    life.world.run("approve", "--all")
    for key, text in place_oracles.unread(life).items():
        if before.get(key, text) != text:
            life.violations.append(f"approve --all merges {key}, where no Repository can be read")


def consent(life: PlacedLife) -> None:
    """A person allows every refused deletion."""
    plan = life.world.run("plan").out
    if "spec.consents: {" in plan:
        life.world.consent()
        life.control = Repo(life.world.control, life.world.clock)


def _neighbour(life: PlacedLife, random: Random) -> Arguments | None:
    chosen = _name(life, random)
    return chosen and {**chosen, "package": random.choice(["theirs", "theirs", "web"])}


def ask_elsewhere(life: PlacedLife, name: str, package: str) -> None:
    """Another instance places a package of its own beside those of this one."""
    found = life.find("Repository", name)
    if not found or not (life.root / "blueprints.git").exists():
        return
    if not life.has_other:
        start = {"reconciler.yaml": CONFIGURATION.replace("fleet", "other")}
        start |= {"manifests/blueprints.yaml": repository("blueprints")}
        make_repository(life.root / "other.git", start)
        life.has_other = True
    place = place_of(found[0][1])
    value = {
        "apiVersion": "config.porch.kpt.dev/v1alpha1",
        "kind": "PackageVariant",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {
            "upstream": {"repo": "blueprints", "package": "web", "revision": 1},
            "downstream": {"repo": "there", "package": package},
        },
    }
    there = registered("there", place.git, place.directory, branch=place.branch)
    Repo(life.root / "other.git").commit(
        {"manifests/there.yaml": there, "manifests/theirs.json": json.dumps(value)}
    )


def approve_elsewhere(life: PlacedLife) -> None:
    if life.has_other:
        life.other().run("approve", "--all", cache="other-cache")


def _nothing(_life: PlacedLife, _random: Random) -> Arguments:
    return {}


STEPS: Steps = {
    "remove_repository": (_name, remove_repository, 3),
    "retire": (_name, retire, 2),
    "bring_back": (_dropped, bring_back, 6),
    "move_repository": (_move, move_repository, 7),
    "rename_repository": (_rename, move_repository, 3),
    "add_repository": (_addition, add_repository, 2),
    "break_manifest": (_breakage, break_manifest, 7),
    "mend": (_broken, mend, 6),
    "remove_manifest": (_removable, remove_manifest, 2),
    "rename_package": (_package_name, rename_package, 4),
    "ask_revision": (_revision, ask_revision, 4),
    "move_source": (_source, move_source, 5),
    "approve": (_pull, approve, 4),
    "approve_all": (_nothing, approve_all, 8),
    "close": (_unwelcome, close, 2),
    "consent": (_nothing, consent, 1),
    "ask_elsewhere": (_neighbour, ask_elsewhere, 2),
    "approve_elsewhere": (_nothing, approve_elsewhere, 1),
}

"""Lives in which installs of three dialects, single variants, groups and waves change beside the places.

Also a Repository that only a snapshot names. Steps and oracles of places.py hold here, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.e2e.test_former_places import registered
from tests.e2e.test_moved_manifests import CARVEL, PORTER, bundle, installation
from tests.support.combination import place_oracles, trees
from tests.support.combination.places import (
    STEPS,
    Arguments,
    PlacedLife,
    Steps,
    Value,
    _document,
    _name,
    break_manifest,
    draw_steps,
    make_fleet,
)
from tests.support.edge_fleet import CONFIGURATION, WAVES
from tests.support.git import Repo
from tests.support.needy_fleet import install
from tests.support.small_world import variant
from tests.support.world import World

NEEDS = "needs"
"""How traces and tests call these lives."""
CARVEL_NEEDS = {"app.io": ("db.io", "log.io"), "new.io": ("db.io",), "db.io": (), "log.io": ()}
PORTER_NEEDS = {"g.io/app": ("db", "log"), "g.io/new": ("db",), "h.io/app": ("db",), "g.io/db": ()}
GROUPS = ("package", "repository", "wave", "set")
BUNDLE = "manifests/clusters/dev/bundle.json"
CLUSTER = "snapshot/dev/repositories.yaml"
SINGLE = "single"


def configuration(group: str, *, waves: bool) -> str:
    """Return the configuration with groups, and waves or none."""
    more = f"  snapshot: {{repositories: true}}\n  pullRequests: {{groupBy: {group}}}\n"
    return CONFIGURATION + more + (WAVES if waves else "")


class NeedyLife(PlacedLife):
    """A fleet whose cluster dev has installs of every dialect, and whose snapshot names a Repository."""

    def begin(self) -> World:
        """Return the fleet with everything installed, and an update in review."""
        self.asked: dict[str, tuple[str, ...]] = {}
        """What each install needs as it was understood last."""
        world = make_fleet(self.root)
        value = json.loads(installation("g.io/app")["manifests/clusters/dev/app.yaml"])
        index = CARVEL | PORTER | bundle("h.io", "app", "db") | bundle("h.io", "db")
        alone = (
            variant("rome", "web", revision=1)
            .replace("web-rome", SINGLE)
            .replace("package: web\n", "package: alone\n")
        )
        Repo(world.control).commit(
            {
                **index,
                **install("app", "app.io"),
                **install("other", "db.io"),
                BUNDLE: json.dumps(value),
                CLUSTER: registered("oslo", "mono", "clusters/oslo"),
                f"manifests/{SINGLE}.yaml": alone.replace(
                    "package: alone\n    revision", "package: web\n    revision"
                ),
                "reconciler.yaml": configuration("repository", waves=True),
            }
        )
        for line in ("apply",), ("approve", "--all"), ("apply",):
            world.run(*line)
        return world

    def steps(self) -> Steps:
        """Return the steps that may be drawn."""
        return STEPS | MORE

    def texts(self) -> dict[str, str]:
        """Return every manifest file, and what the snapshot has of Repositories."""
        there = trees.files(self.control, trees.root(self.control, "main"), "snapshot/dev")
        return super().texts() | {path: data.decode() for path, data in there.items() if path == CLUSTER}

    def installs(self) -> Iterator[tuple[str, str]]:
        """Yield each install of Carvel and Porter, and its package."""
        for path, value in self.documents():
            if value["kind"] == "PackageInstall" and not self.is_wrong(path, value):
                yield f"Carvel {value['metadata']['name']}", value["spec"]["packageRef"]["refName"]
        value = self.bundle()
        yield f"Porter {value['name']}", value["bundle"]["repository"]

    def bundle(self) -> Value:
        """Return the Installation of Porter."""
        return dict(json.loads(self.control.read("main", BUNDLE)))

    def remember(self) -> None:
        """Keep what each install needed when it was understood."""
        super().remember()
        there = {
            f"Carvel {v['metadata']['name']}" for _, v in self.documents() if v["kind"] == "PackageInstall"
        }
        there.add(f"Porter {self.bundle()['name']}")
        needs = {**CARVEL_NEEDS, **PORTER_NEEDS}
        asked = {name: needs[package] for name, package in self.installs() if package in needs}
        self.asked = {name: wants for name, wants in (self.asked | asked).items() if name in there}

    def check_more(self) -> Iterator[str]:
        """What an install needs stays, and a pull request names every install that it removes."""
        place = self.registered().get("dev")
        if place is None:
            return
        direct = {package for _, package in self.installs()}
        files = set()
        for name, wants in self.asked.items():
            dialect, _, own = name.partition(" ")
            for need in wants:
                if dialect == "Carvel" and need not in direct:
                    files.add(f"packageinstalls/shop/{need}.yaml")
                elif dialect == "Porter":
                    files.add(f"installations/shop/{own}-{need}.yaml")
        repo = place_oracles.repositories(self)[place.git]
        for name, pull in place_oracles.pulls(self):
            result = trees.merged(repo, pull["head"], pull["base"]) if name == place.git else None
            if result is None or pull["base"] != place.branch or not repo.find(f"refs/heads/{pull['head']}"):
                continue
            before = trees.listing(repo, trees.root(repo, pull["base"]))
            start = f"{place.directory}/dependencies/".lstrip("/")
            for path in sorted(set(before) - set(trees.listing(repo, result))):
                inside = path.removeprefix(start)
                if path.startswith(start) and inside in files:
                    yield f"pull request {name}#{pull['number']} takes {path}, which is needed: {self.asked}"
                is_install = path.startswith(start) and inside.partition("/")[0] in (
                    "packageinstalls",
                    "installations",
                )
                if is_install and Path(path).stem not in pull["body"]:
                    yield f"pull request {name}#{pull['number']} removes {path} and does not name it"


def draw_needs(random: Random, root: Path, count: int) -> dict[str, Any]:
    """Play a life of drawn steps; return its trace, which a ViolationError has as its second argument."""
    return draw_steps(NeedyLife(root, NEEDS), NEEDS, random, count)


def _install(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random, "PackageInstall")
    return found and {"name": found["name"], "package": random.choice([*CARVEL_NEEDS, "gone.io"])}


def move_install(life: PlacedLife, name: str, package: str) -> None:
    """A person installs another package: with needs in common, one that is generated, or a misspelt one."""

    def moved(value: Value) -> Value:
        value["spec"]["packageRef"]["refName"] = package
        return value

    life.rewrite("PackageInstall", name, moved)


def _renamed_install(life: PlacedLife, random: Random) -> Arguments | None:
    found = _document(life, random, "PackageInstall")
    return found and {"name": found["name"], "new": random.choice(["app", "other", "third"])}


def rename_install(life: PlacedLife, name: str, new: str) -> None:
    """A person gives an install another name."""
    if life.find("PackageInstall", new, wrong=True):
        return

    def renamed(value: Value) -> Value:
        value["metadata"]["name"] = new
        return value

    life.rewrite("PackageInstall", name, renamed)


def _bundle(_life: PlacedLife, random: Random) -> Arguments:
    source = random.choice([*PORTER_NEEDS, "g.io/gone"])
    return {"name": random.choice(["app", "app", "shop"]), "repository": source}


def move_bundle(life: NeedyLife, name: str, repository: str) -> None:
    """A person installs another bundle, maybe under another name."""
    value = life.bundle()
    value["name"], value["bundle"]["repository"] = name, repository
    life.control.commit({BUNDLE: json.dumps(value)})


def configure(life: PlacedLife, group: str, *, waves: bool) -> None:
    """A person changes how packages share pull requests, and whether they travel in waves."""
    life.control.commit({"reconciler.yaml": configuration(group, waves=waves)})


def _single(life: PlacedLife, random: Random) -> Arguments | None:
    chosen = _name(life, random)
    return chosen and {
        **chosen,
        "package": random.choice(["alone", "solo"]),
        "revision": random.choice([1, 2]),
    }


def move_single(life: PlacedLife, name: str, package: str, revision: int) -> None:
    """A person moves or changes a variant without a set."""

    def moved(value: Value) -> Value:
        value["spec"]["downstream"] = {"repo": name, "package": package}
        value["spec"]["upstream"]["revision"] = revision
        return value

    life.rewrite("PackageVariant", SINGLE, moved)


def swap_registration(life: PlacedLife, name: str) -> None:
    """A Repository is declared by the cluster instead of by people, or the other way round."""
    for path, value in life.find("Repository", name):
        if path in life.broken:
            return
        there = [v for p, v in life.documents() if p == path and v is not value]
        new = f"manifests/from-{name}.yaml" if path == CLUSTER else CLUSTER
        beside = [v for p, v in life.documents() if p == new]
        life.write(path, there)
        life.write(new, [*beside, value])


def _breakage(life: PlacedLife, random: Random) -> Arguments | None:
    """Return a manifest of people; a snapshot is written by machines."""
    drawn = STEPS["break_manifest"][0](life, random)
    is_declared = drawn and life.find(drawn["kind"], drawn["name"])[0][0] != CLUSTER
    return dict(drawn) if is_declared else None


MORE: Steps = {
    "move_install": (_install, move_install, 7),
    "rename_install": (_renamed_install, rename_install, 3),
    "move_bundle": (_bundle, move_bundle, 7),
    "configure": (
        lambda _life, random: {"group": random.choice(GROUPS), "waves": random.random() < 0.5},
        configure,
        4,
    ),
    "move_single": (_single, move_single, 5),
    "swap_registration": (_name, swap_registration, 3),
    "break_manifest": (_breakage, break_manifest, 4),
}

"""What must hold where places change: all that was written is on the books, under its right name (D36)."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tests.support.combination import trees
from tests.support.combination.operations import read
from tests.support.git import Repo

if TYPE_CHECKING:
    from tests.support.combination.places import PlacedLife

UPSTREAMS = ("blueprints", "control", "other")
"""Git repositories in which nothing is placed."""
KPTFILE = "/Kptfile"
PROVIDER = "providers/a-fam.yaml"
PULLS = "refs/reconciler/pulls/"
UNSELECTED = re.compile(r"PackageVariantSet default/(\S+) does not select Repository default/(\S+) any more")
UNREGISTERED = re.compile(
    r"Repository default/([\w-]+)(?:, which \S+ \S+ selected,)? is not registered any more"
)
NAMED = re.compile(r"Repository default/([\w-]+)")
MOVED = re.compile(r"Repository default/([\w-]+) moved from [^|\n;]*? to ([^|\n;]*)")
LEFT = {"OwnerStalled", "ManifestUnreadable"}
Books = dict[str, Any]
Key = tuple[str, str]


def repositories(life: "PlacedLife") -> dict[str, Repo]:
    """Return the Git repositories in which packages are placed."""
    names = [path.stem for path in life.world.repositories()]
    return {name: Repo(life.root / f"{name}.git") for name in names if name not in UPSTREAMS}


def owned(life: "PlacedLife", repo: Repo, ref: str) -> Iterator[str]:
    """Yield the packages of a branch that carry the name of this instance."""
    for path, text in trees.files(repo, trees.root(repo, ref)).items():
        if path.endswith(KPTFILE) and f"reconciler.dev/owner: {life.instance}/".encode() in text:
            yield path.removesuffix(KPTFILE)


def heads(repo: Repo) -> list[str]:
    """Return the branches that are not made by a run."""
    return [ref for ref in ("refs/heads/main", "refs/heads/prod") if repo.find(ref)]


def published(life: "PlacedLife") -> set[tuple[str, str, str]]:
    """Return the packages of this instance on branches of people."""
    return {
        (name, ref, path)
        for name, repo in repositories(life).items()
        for ref in heads(repo)
        for path in owned(life, repo, ref)
    }


def pulls(life: "PlacedLife") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the open pull requests with their repository."""
    for name, repo in repositories(life).items():
        for ref in repo.refs():
            if ref.startswith(PULLS):
                value = json.loads(trees.files(repo, trees.root(repo, ref))["pull.json"])
                if value["state"] == "open":
                    yield name, value


def about(head: str) -> str:
    """Return the package that a branch is about."""
    if head.startswith("drafts/"):
        return head.removeprefix("drafts/").rpartition("/")[0]
    start = re.match(r"reconciler/[^/]+/delete/", head)
    return head[start.end() :] if start else ""


def written(life: "PlacedLife") -> Iterator[tuple[str, str, str]]:
    """Yield what this instance has placed and is there: repository, package and what it is."""
    yield from ((name, path, ref) for name, ref, path in published(life))
    for name, repo in repositories(life).items():
        for ref in repo.refs():
            if ref.startswith("refs/heads/drafts/"):
                path = about(ref.removeprefix("refs/heads/"))
                yield from ((name, path, ref) for own in owned(life, repo, ref) if own == path)
    for name, path, pull in own_pulls(life):
        if path:
            yield name, path, f"pull request {pull['number']}"


def deletions(life: "PlacedLife") -> set[Key]:
    """Return the heads of open pull requests that delete a package, with their Git repository."""
    return {(name, pull["head"]) for name, pull in pulls(life) if "/delete/" in pull["head"]}


def own_pulls(life: "PlacedLife") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the open pull requests of this instance with their repository, and package or ""."""
    for name, pull in pulls(life):
        path, repo = about(pull["head"]), repositories(life)[name]
        ref = f"refs/heads/{pull['head']}"
        is_ours = pull["head"].startswith(f"reconciler/{life.instance}/")
        if is_ours or (repo.find(ref) and path in owned(life, repo, ref)):
            yield name, path, pull


def unread(life: "PlacedLife") -> dict[tuple[str, str, str], bytes]:
    """Return the packages on branches of people where no Repository can be read.

    Of a former place without its Kptfile, as people may release what is there, and not what was removed.
    """
    readable, wrong = life.registered().values(), life.wrong_places().values()
    found = {}
    for name, repo in repositories(life).items():
        for ref in heads(repo):
            for path in {
                p.removesuffix(KPTFILE)
                for p in trees.listing(repo, trees.root(repo, ref))
                if p.endswith(KPTFILE)
            }:
                if any(place.has(name, path) for place in readable):
                    continue
                files = trees.files(repo, trees.root(repo, ref), path)
                is_wrong = any(place.has(name, path) for place in wrong)
                found[name, ref, path] = b"\n".join(
                    t for p, t in files.items() if is_wrong or not p.endswith(KPTFILE)
                )
    return found


# checks


def check_everything(life: "PlacedLife", plan: Books) -> Iterator[str]:
    """Yield every violation of a settled fleet, of which `plan` is that of the last run."""
    status, listed = (read(life.run(*line, "-o", "json")) for line in (("status",), ("pr", "list")))
    rows = plan.get("changes", [])
    yield from check_books(life, rows)
    yield from check_names(life, rows, status, listed)
    # Nothing of an owner that is not understood is changed, and no text about it.
    left = {key_of(row) for row in rows if row["reason"] in LEFT}
    texts = {
        **{
            f"row {row['name']}": f"{row['message']} {row['status'] and row['status']['message']}"
            for row in rows
        },
        **{
            f"pull request {name}#{pull['number']}": f"{pull['title']} {pull['body']}"
            for name, path, pull in own_pulls(life)
            if (name, path) not in left
        },
        **{f"status {item['name']}": json.dumps(item) for item in status.get("items", ())},
        "notes": json.dumps([plan.get("notes"), plan.get("needs")]),
    }
    for where, text in texts.items():
        yield from (f"{where} says {violation}: {text[:600]}" for violation in check_sentence(life, text))
    yield from (f"{key} is proposed again, and people declined it" for key in life.declined & deletions(life))
    yield from check_losses(life)
    yield from check_lock(life, rows)
    yield from check_approval(life, rows)
    if plan and not plan["empty"]:
        pending = [row["name"] for row in rows if row["pending"]]
        yield f"the plan after a settled run is not empty: {pending}"


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the Git repository and the path of a row, which may be of a former branch (`PATH@BRANCH`)."""
    return row["package"]["url"].rpartition("/")[2], row["package"]["path"].partition("@")[0]


def check_books(life: "PlacedLife", rows: list[Books]) -> Iterator[str]:
    """Everything that was written is in one row."""
    counted = Counter((key_of(row), row["repository"]["name"]) for row in rows)
    yield from (f"{key} has {count} rows" for key, count in counted.items() if count > 1)
    there = {key for key, _ in counted}
    for name, path, what in sorted(written(life)):
        if (name, path) not in there:
            yield f"{path} of {name} is written ({what}) and is in no row"


def check_names(life: "PlacedLife", rows: list[Books], status: Books, listed: Books) -> Iterator[str]:
    """No package is called by a Repository that is not there, or by one that it is not of."""
    for row in rows:
        if not is_named(life, row["repository"]["name"], *key_of(row)):
            yield f"the row of {key_of(row)} is called {row['name']}, which is another place"
    for item in listed.get("items", ()):
        path, package = about(item["head"]), item["package"]
        if not path or package == path:
            continue
        repository, own = (
            package.removesuffix(path.rpartition("/")[2]).rstrip("/"),
            item["name"].partition("#")[0],
        )
        gits = {
            name
            for name, pull in pulls(life)
            if (pull["head"], pull["number"]) == (item["head"], item["number"])
        }
        if not any(is_named(life, own, name, path) for name in gits):
            yield f"the pull request of {path} is called {item['name']} and is about {package} ({repository})"
    places = {(row["repository"]["name"], row["status"]["name"]) for row in rows if row["status"]}
    for item in status.get("items", ()):
        package = item.get("package") or {}
        key = package.get("repository"), package.get("name")
        if key[0] and key not in places:
            yield f"the status of {item['name']} is about {key}, which is in no row"


def is_named(life: "PlacedLife", name: str, git_name: str, path: str) -> bool:
    """Tell whether a package may be called by a Repository, or by a directory or an address."""
    place = life.registered().get(name)
    if place is not None:
        return place.has(git_name, path)
    known = [(own, place) for own, place in life.known if place.has(git_name, path)]
    return any(
        own == name or name.startswith(f"../{git_name}") or name.partition("@")[0] == p.directory
        for own, p in known
    )


def check_sentence(life: "PlacedLife", text: str) -> Iterator[str]:
    """Yield what a text says that is not so."""
    there = life.registered()
    for owner, name in UNSELECTED.findall(text):
        if name in there and name in selected(life, owner):
            yield f"that {owner} does not select {name}, which it selects"
    for name in UNREGISTERED.findall(text):
        if name in there:
            yield f"that {name} is not registered, and it is"
    for name, after in MOVED.findall(text):
        if (
            name in there
            and not any(part and part in after for part in there[name])
            and "the root" not in after
        ):
            yield f"that {name} moved to {after}, and it is at {there[name]}"
    for name in {*NAMED.findall(text)} - life.mentioned - {"blueprints"}:
        yield f"something of Repository {name}, which never was"
    if "without a controller" in text:
        yield "that a kind stays without its controller"


def selected(life: "PlacedLife", owner: str) -> set[str]:
    """Return the Repositories that a set selects, by its name or its labels."""
    names: set[str] = set()
    labels = {v["metadata"]["name"]: v["metadata"].get("labels", {}) for _, v in life.find("Repository")}
    for _, value in life.find("PackageVariantSet", owner):
        for target in value["spec"]["targets"]:
            names |= {each["name"] for each in target.get("repositories", ())}
            wanted = target.get("repositorySelector", {}).get("matchLabels")
            names |= {n for n, own in labels.items() if wanted and wanted.items() <= own.items()}
    return names


def check_approval(life: "PlacedLife", rows: list[Books]) -> Iterator[str]:
    """Nothing is approved with everything where no Repository is understood."""
    left = {row["name"] for row in rows if row["reason"] in LEFT}
    if left:
        for item in read(life.run("approve", "--all", "--dry-run", "-o", "json")).get("items", ()):
            if item["package"] in left and item["result"] == "would be approved":
                yield f"approve --all would approve {item['package']}, which is not understood: {item}"


def check_compared(life: "PlacedLife", base: str) -> Iterator[str]:
    """A check names every package that the next run changes: before the change nothing was left to do."""
    compared, plan = (
        read(life.run(*line, "-o", "json")) for line in (("check", "--base", base), ("plan", "--all"))
    )
    named = {each["after"]["name"] for each in compared.get("packages", ()) if each["after"]}
    for row in plan.get("changes", ()):
        if row["pending"] and row["name"] not in named:
            yield f"check does not name {row['name']}, of which the next run says {row['op']} {row['reason']}"
    yield from (f"check says {each}" for each in check_sentence(life, json.dumps(compared)))


def check_losses(life: "PlacedLife") -> Iterator[str]:
    """A pull request that takes the last Provider of objects from a cluster names them."""
    with_provider = {key for key in published(life) if has_provider(life, *key)}
    for name, pull in pulls(life):
        repo, path = repositories(life)[name], about(pull["head"])
        key = (name, f"refs/heads/{pull['base']}", path)
        if {key} == with_provider and repo.find(f"refs/heads/{pull['head']}"):
            result = trees.merged(repo, pull["head"], pull["base"])
            is_gone = result is not None and f"{path}/{PROVIDER}" not in trees.listing(repo, result)
            if is_gone and "Net" not in pull["body"]:
                yield f"pull request {name}#{pull['number']} removes {path}/{PROVIDER} and names no object"


def has_provider(life: "PlacedLife", name: str, ref: str, path: str) -> bool:
    """Tell whether a package has the Provider of which the snapshot has an object."""
    repo = repositories(life)[name]
    return f"{path}/{PROVIDER}" in trees.listing(repo, trees.root(repo, ref))


def check_lock(life: "PlacedLife", rows: list[Books]) -> Iterator[str]:
    """What is locked for a manifest stays while it cannot be understood or has no solution."""
    now = locked(life)
    installs = [*life.find("Provider", wrong=True), *life.find("Configuration", wrong=True)]
    is_there = "dev" in life.registered() or "dev" in life.wrong_places()
    is_unsolved = any(
        life.is_wrong(path, v) or v["spec"]["package"] not in life.sources for path, v in installs
    )
    if is_unsolved and is_there:
        if life.locked - now:
            yield f"{life.locked - now} is locked no more, and its manifest has no solution"
        for row in rows:
            is_delivery = key_of(row)[1].endswith("dependencies")
            if is_delivery and row["op"] == "delete" and row["reason"] == "NotDesired":
                yield f"{row['name']} is to be deleted, and its manifest has no solution"
    life.locked = now


def locked(life: "PlacedLife") -> set[str]:
    """Return the packages of Crossplane that are locked for the cluster dev."""
    ref = f"refs/heads/reconciler/{life.instance}/state"
    control = life.control
    if not control.find(ref):
        return set()
    files = trees.files(control, trees.root(control, ref), "locks")
    if "locks/dev.json" not in files:
        return set()
    digest = json.loads(files["locks/dev.json"])["resolution"].partition(":")[2]
    packages = json.loads(files[f"locks/resolutions/{digest}.json"])["packages"]
    return {p["source"] for p in packages if ".example.com/" in p["source"]}

"""What happens in the life of a fleet, by name: how each step is drawn, and how it is done.

A step is drawn as arguments that JSON can hold, and done from them alone; what they name may be gone
when a shortened trace is replayed, and then the step does nothing.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.combination import trees
from tests.support.combination.blueprints import DRAWN
from tests.support.combination.edits import apply_edit, draw_edit, value_lines
from tests.support.combination.fleet import Fleet, Pull
from tests.support.combination.ledger import tokens_in
from tests.support.combination.spec import CATALOG, VariantSpec

if TYPE_CHECKING:
    from tests.support.combination.life import Life

Arguments = dict[str, Any]
Draw = Callable[["Life", Random], Arguments | None]
Do = Callable[..., None]


class Step(NamedTuple):
    """One thing that can happen."""

    draw: Draw
    do: Do
    weight: int
    proposed: bool = False
    """Whether it changes manifests alone, so that a person's branch with it can be checked first."""
    disturbs: bool = False
    """Whether it does nothing but disturb the run after the next step."""


STEPS: dict[str, Step] = {}


def step(weight: int, draw: Draw, *, proposed: bool = False, disturbs: bool = False) -> Callable[[Do], Do]:
    """Register a step under its function's name."""

    def register(do: Do) -> Do:
        STEPS[do.__name__] = Step(draw, do, weight, proposed, disturbs)
        return do

    return register


# what can be chosen


def _package(life: "Life", random: Random) -> Arguments | None:
    found = [
        {"repository": r, "path": p}
        for r in life.fleet.spec.repositories()
        for p in life.fleet.packages(r)
        if not _is_foreign(life.fleet, r, p)
    ]
    return random.choice(found) if found else None


def _is_foreign(fleet: Fleet, repository: str, path: str) -> bool:
    return any(t.repository == repository and t.package == path for t in fleet.ledger.foreign.values())


def _pull(life: "Life", random: Random, *, deletions: bool = True) -> Arguments | None:
    found = [
        {"repository": r, "head": p.head}
        for r in life.fleet.spec.repositories()
        for p in life.fleet.pulls(r)
        if deletions or not p.is_deletion
    ]
    return random.choice(found) if found else None


def choose_variant(life: "Life", random: Random, **more: Any) -> Arguments | None:
    """Return the name of one of the variants, with more arguments."""
    variants = life.fleet.spec.variants
    return {"name": random.choice(variants).name, **more} if variants else None


def _find(life: "Life", repository: str, head: str) -> Pull | None:
    return next((p for p in life.fleet.pulls(repository) if p.head == head), None)


def find_variant(life: "Life", name: str) -> VariantSpec | None:
    """Return the variant of this name."""
    return next((v for v in life.fleet.spec.variants if v.name == name), None)


# people and downstream packages


def _edit_main(life: "Life", random: Random) -> Arguments | None:
    chosen = _package(life, random)
    if chosen is None:
        return None
    edit = draw_edit(random, _content(life.fleet, chosen["repository"], "main", chosen["path"]))
    return {**chosen, "edit": edit} if edit else None


@step(6, _edit_main)
def edit_main(life: "Life", repository: str, path: str, edit: Arguments) -> None:
    _edit(life, repository, path, "main", edit)


def _edit_draft(life: "Life", random: Random) -> Arguments | None:
    chosen = _pull(life, random, deletions=False)
    if chosen is None:
        return None
    pull = _find(life, **chosen)
    content = _content(life.fleet, chosen["repository"], chosen["head"], pull.package) if pull else {}
    edit = draw_edit(random, content) if content else None
    return {**chosen, "edit": edit} if edit else None


@step(6, _edit_draft)
def edit_draft(life: "Life", repository: str, head: str, edit: Arguments) -> None:
    pull = _find(life, repository, head)
    if pull:
        _edit(life, repository, pull.package, head, edit)


def _answer(life: "Life", random: Random) -> Arguments | None:
    found = [
        {
            "repository": c["repository"]["name"],
            "path": c["package"]["path"],
            "file": k["path"],
            "field": k["field"],
        }
        for c in life.last_plan.get("changes", ())
        for k in c["conflicts"]
        if k["field"]
    ]
    return random.choice(found) if found else None


@step(6, _answer)
def answer_conflict(life: "Life", repository: str, path: str, file: str, field: str) -> None:
    pulls = [p for p in life.fleet.pulls(repository) if p.package == path and not p.is_deletion]
    if not pulls:
        return
    content = _content(life.fleet, repository, pulls[0].head, path)
    key = field.replace("]", "").rpartition(".")[2]
    lines = content.get(file, b"").decode().split("\n")
    line = next((one for one in lines if one.strip().startswith(f"{key}: ")), "")
    if line:
        _edit(life, repository, path, pulls[0].head, {"kind": "value", "file": file, "line": line})


def _edit(life: "Life", repository: str, path: str, branch: str, edit: Arguments) -> None:
    fleet, repo = life.fleet, life.fleet.repo(repository)
    if not repo.find(f"refs/heads/{branch}"):
        return
    content = _content(fleet, repository, branch, path)
    token = fleet.ledger.next("k")
    changes = apply_edit(content, edit, token)
    if not changes or all(content.get(p) == data for p, data in changes.items()):
        return
    before = tokens_in(b"\n".join(content.values()))
    repo.commit({f"{path}/{p}": data for p, data in changes.items()}, branch=branch, message="Mine\n")
    after = tokens_in(b"\n".join(_content(fleet, repository, branch, path).values()))
    life.lost_to_a_person(repository, path, before - after)
    fleet.ledger.touched.add((repository, path))
    life.touched_files |= {(repository, path, p) for p in changes}
    fleet.ledger.files |= {(repository, path, p) for p in changes}
    for file in changes:
        if token.encode() in after:
            fleet.ledger.wrote(token, repository, path, file)


def _content(fleet: Fleet, repository: str, branch: str, path: str) -> dict[str, bytes]:
    repo = fleet.repo(repository)
    listed = trees.files(repo, trees.root(repo, branch), path)
    return {p.removeprefix(f"{path}/"): data for p, data in listed.items()}


def _merge(life: "Life", random: Random) -> Arguments | None:
    chosen = _pull(life, random)
    return {**chosen, "how": random.choice(["merge", "squash", "rebase"])} if chosen else None


@step(5, _merge)
def merge(life: "Life", repository: str, head: str, how: str) -> None:
    """A person merges with git, whatever the pull request says."""
    pull, repo = _find(life, repository, head), life.fleet.repo(repository)
    if pull is None or trees.merged(repo, head) is None:
        return
    if how == "rebase" and _has_merges(life.fleet, repository, head):
        how = "squash"
    with life.merging(repository, [pull]):
        life.fleet.repo(repository).merge(head, how=how)


def _has_merges(fleet: Fleet, repository: str, head: str) -> bool:
    repo = fleet.repo(repository)
    walker = repo.git.walk(repo.git[repo.oid(head)].id)
    walker.hide(repo.git[repo.oid("main")].id)
    return any(len(commit.parents) > 1 for commit in walker)


@step(6, _pull)
def approve(life: "Life", repository: str, head: str) -> None:
    pull = _find(life, repository, head)
    if pull:
        with life.merging(repository, [pull]):
            life.command("approve", f"{repository}#{pull.number}")


@step(3, lambda _life, _random: {})
def approve_all(life: "Life") -> None:
    repositories = life.fleet.spec.repositories()
    pulls = {r: life.fleet.pulls(r) for r in repositories}
    with life.merging_all(pulls):
        life.command("approve", "--all")


@step(2, _pull)
def close(life: "Life", repository: str, head: str) -> None:
    pull = _find(life, repository, head)
    if pull:
        life.command("pr", "close", f"{repository}#{pull.number}")
        life.drop_draft(repository, pull)


def _closed(life: "Life", random: Random) -> Arguments | None:
    found = [
        {"repository": r, "number": p.number}
        for r in life.fleet.spec.repositories()
        for p in life.fleet.pulls(r, "closed")
    ]
    return random.choice(found) if found else None


@step(2, _closed)
def reopen(life: "Life", repository: str, number: int) -> None:
    life.command("pr", "reopen", f"{repository}#{number}")


@step(1, _pull)
def delete_branch(life: "Life", repository: str, head: str) -> None:
    pull = _find(life, repository, head)
    if pull:
        life.fleet.repo(repository).delete(f"refs/heads/{head}")
        life.drop_draft(repository, pull)


@step(2, _package)
def revert(life: "Life", repository: str, path: str) -> None:
    """A person puts the oldest published content of a package back on main."""
    repo = life.fleet.repo(repository)
    tags = sorted(ref for ref in repo.refs() if ref.startswith(f"refs/tags/{path}/v"))
    if tags:
        life.put_on_main(repository, path, _content(life.fleet, repository, tags[0], path))


@step(1, _package)
def remove_package(life: "Life", repository: str, path: str) -> None:
    """A person removes a package from main."""
    life.put_on_main(repository, path, {})


def _neighbour(life: "Life", random: Random) -> Arguments:
    paths = [p for v in life.fleet.spec.variants for p in v.paths] or ["web"]
    path = random.choice(paths)
    choices = [f"package:{path}/inner", "package:solo", f"files:{path}-notes", "files:plain", "file:list.txt"]
    return {"repository": random.choice(life.fleet.spec.repositories()), "neighbour": random.choice(choices)}


@step(2, _neighbour)
def add_neighbour(life: "Life", repository: str, neighbour: str) -> None:
    life.add_neighbour(repository, neighbour)


# upstream authors


def _bump(life: "Life", random: Random) -> Arguments | None:
    used = [variant.package for variant in life.fleet.spec.variants]
    package = random.choice([*DRAWN, *life.fleet.spec.corpus, *used, *used])
    content = _content(life.fleet, CATALOG, "main", life.fleet.full(CATALOG, package))
    edits = [e for e in (draw_edit(random, content) for _ in range(random.randint(1, 3))) if e]
    # A Starlark function may set names.
    fixed = "rename" if b"starlark" in content.get("Kptfile", b"") else ""
    edits = [edit for edit in edits if edit["kind"] != fixed]
    follow = random.random() < 0.7
    return (
        {"package": package, "edits": edits, "stable": random.random() < 0.5, "follow": follow}
        if edits
        else None
    )


@step(8, _bump)
def bump(life: "Life", package: str, edits: list[Arguments], stable: bool, follow: bool) -> None:
    """An upstream author publishes a revision, and those who name revisions may ask for it."""
    fleet = life.fleet
    content = _content(fleet, CATALOG, "main", fleet.full(CATALOG, package))
    for edit in edits:
        for file, data in apply_edit(content, edit, fleet.ledger.next("u")).items():
            content = {p: d for p, d in content.items() if p != file} | (
                {file: data} if data is not None else {}
            )
    number = fleet.release(package, content)
    if stable:
        fleet.repo(CATALOG).tag(f"{fleet.full(CATALOG, package)}/stable")
    for variant in fleet.spec.variants:
        if follow and variant.package == package and variant.form in ("revision", "workspace", "version"):
            variant.number = number
            fleet.write_variant(variant)


def _contradiction(life: "Life", random: Random) -> Arguments | None:
    """Choose a line that a package on main and its upstream share."""
    fleet, found = life.fleet, []
    for variant in fleet.spec.variants:
        upstream = _content(fleet, CATALOG, "main", fleet.full(CATALOG, variant.package))
        for path in variant.paths:
            full = fleet.full(variant.repository, path)
            content = _content(fleet, variant.repository, "main", full)
            found += [
                {"name": variant.name, "path": full, "file": file, "line": line}
                for file, line in value_lines(upstream)
                if line in content.get(file, b"").decode().split("\n")
            ]
    return random.choice(found) if found else None


@step(3, _contradiction)
def contradict(life: "Life", name: str, path: str, file: str, line: str) -> None:
    """A person and the upstream author change one value, each to another one."""
    variant = find_variant(life, name)
    if variant is None:
        return
    edit = {"kind": "value", "file": file, "line": line}
    _edit(life, variant.repository, path, "main", edit)
    bump(life, variant.package, [edit], stable=False, follow=True)


def _file_move(life: "Life", random: Random) -> Arguments | None:
    package = random.choice([*DRAWN, *life.fleet.spec.corpus])
    content = _content(life.fleet, CATALOG, "main", life.fleet.full(CATALOG, package))
    files = sorted(p for p in content if p.endswith(".yaml") and "set-values" not in p)
    return {"package": package, "file": random.choice(files)} if files else None


@step(2, _file_move)
def move_file(life: "Life", package: str, file: str) -> None:
    """An upstream author moves a file into a directory, or out of it."""
    fleet = life.fleet
    content = _content(fleet, CATALOG, "main", fleet.full(CATALOG, package))
    if file not in content or "package-context" in file:
        return
    target = file.rpartition("/")[2] if "/" in file else f"parts/{file}"
    if target not in content:
        content[target] = content.pop(file)
        number = fleet.release(package, content)
        for variant in fleet.spec.variants:
            if variant.package == package and variant.form in ("revision", "workspace", "version"):
                variant.number = number
                fleet.write_variant(variant)


def _tag(life: "Life", random: Random) -> Arguments:
    package = random.choice([*DRAWN, *life.fleet.spec.corpus])
    return {"package": package, "number": random.randint(1, max(1, life.fleet.latest(package)))}


@step(2, _tag)
def move_stable(life: "Life", package: str, number: int) -> None:
    path = life.fleet.full(CATALOG, package)
    if life.fleet.repo(CATALOG).find(f"refs/tags/{path}/v{number}"):
        life.fleet.repo(CATALOG).tag(f"{path}/stable", f"{path}/v{number}")


@step(1, _tag)
def retag(life: "Life", package: str, number: int) -> None:
    """An upstream author moves a numbered tag to main."""
    path = life.fleet.full(CATALOG, package)
    if life.fleet.repo(CATALOG).find(f"refs/tags/{path}/v{number}"):
        life.fleet.repo(CATALOG).tag(f"{path}/v{number}")


@step(1, _tag)
def vanish(life: "Life", package: str, number: int) -> None:
    """An upstream author deletes the tag of a revision."""
    ref = f"refs/tags/{life.fleet.full(CATALOG, package)}/v{number}"
    if life.fleet.repo(CATALOG).find(ref) and number < life.fleet.latest(package):
        life.fleet.repo(CATALOG).delete(ref)


# what disturbs the next run


@step(3, lambda _life, random: {"point": random.randint(1, 30)}, disturbs=True)
def kill_the_next_run(life: "Life", point: int) -> None:
    life.killed = point


@step(3, lambda life, random: {"repository": random.choice(life.fleet.spec.repositories())}, disturbs=True)
def decline_the_next_push(life: "Life", repository: str) -> None:
    life.declined = repository


@step(
    2,
    lambda life, random: {"repository": random.choice([CATALOG, *life.fleet.spec.repositories()])},
    disturbs=True,
)
def hide_a_repository(life: "Life", repository: str) -> None:
    life.hidden = repository


@step(1, _pull)
def lose_a_pull_request(life: "Life", repository: str, head: str) -> None:
    """A repository is restored without the refs that hold pull requests."""
    pull = _find(life, repository, head)
    if pull:
        life.fleet.repo(repository).delete(f"refs/reconciler/pulls/{pull.number}")


# commands that only read


@step(1, choose_variant)
def look(life: "Life", name: str) -> None:
    """A person looks around."""
    variant = find_variant(life, name)
    lines = [("status",), ("expand",), ("plan", "-o", "markdown")]
    if variant and not variant.is_set:
        lines += [("status", f"default/{name}"), ("explain", f"{variant.repository}/{variant.paths[0]}")]
    for line in lines:
        life.command(*line)

"""Steps in the control repository: what people ask for, refuse and allow, and what clusters hold.

Each but a consent is put on a branch first, and `check` of that branch is compared with what merging it does.
"""

import json
import re
from random import Random
from typing import TYPE_CHECKING

from tests.support.combination import oracles, trees
from tests.support.combination.blueprints import DRAWN
from tests.support.combination.fleet import Fleet
from tests.support.combination.spec import CATALOG, FORMS, PIPELINES, VariantSpec, dump
from tests.support.combination.steps import STEPS, Arguments, approve_all, choose_variant, find_variant, step

if TYPE_CHECKING:
    from tests.support.combination.life import Life


def _selection(life: "Life", random: Random) -> Arguments | None:
    form = random.choice(FORMS)
    return choose_variant(life, random, form=form, number=random.randint(1, 3))


@step(4, _selection, proposed=True)
def choose_upstream(life: "Life", name: str, form: str, number: int) -> None:
    life.change(name, form=form, number=number)


@step(
    2,
    lambda life, random: choose_variant(
        life, random, policy=random.choice(["", "ask", "upstream", "local", "fail"])
    ),
    proposed=True,
)
def choose_policy(life: "Life", name: str, policy: str) -> None:
    life.change(name, policy=policy)


@step(
    2,
    lambda life, random: choose_variant(life, random, pipeline=random.choice(["none", *PIPELINES])),
    proposed=True,
)
def choose_pipeline(life: "Life", name: str, pipeline: str) -> None:
    life.change(name, pipeline=pipeline)
    for variant in life.fleet.spec.variants:
        if variant.name == name:
            paths = [life.fleet.full(variant.repository, path) for path in variant.paths]
            life.fleet.ledger.repiped |= {(variant.repository, path) for path in paths}


@step(1, lambda life, random: choose_variant(life, random, context=random.random() < 0.5), proposed=True)
def choose_context(life: "Life", name: str, context: bool) -> None:
    life.change(name, context=context)


@step(2, lambda life, random: choose_variant(life, random, injection=random.random() < 0.7), proposed=True)
def choose_injection(life: "Life", name: str, injection: bool) -> None:
    life.change(name, injection=injection)


@step(2, choose_variant, proposed=True)
def remove_variant(life: "Life", name: str) -> None:
    variant = find_variant(life, name)
    if variant:
        life.fleet.spec.variants.remove(variant)
        life.fleet.commit_control({f"manifests/{name}.yaml": None})


def _new_variant(life: "Life", random: Random) -> Arguments:
    return {
        "variant": draw_variant(
            random, f"v{life.count}", life.fleet.spec.repositories(), life.fleet.spec.corpus
        )
    }


@step(3, _new_variant, proposed=True)
def add_variant(life: "Life", variant: Arguments) -> None:
    added = VariantSpec(**variant)
    if find_variant(life, added.name) is None:
        life.fleet.spec.variants.append(added)
        life.fleet.write_variant(added)


@step(
    1,
    lambda life, random: choose_variant(
        life, random, path=random.choice(["web", "db", "moved", "a/b", "web/inner"])
    ),
    proposed=True,
)
def move_variant(life: "Life", name: str, path: str) -> None:
    life.change(name, paths=[path])


@step(1, lambda life, random: choose_variant(life, random, new=f"r{life.count}"), proposed=True)
def rename_variant(life: "Life", name: str, new: str) -> None:
    variant = find_variant(life, name)
    if variant and find_variant(life, new) is None:
        life.fleet.commit_control({f"manifests/{name}.yaml": None})
        variant.name = new
        life.fleet.write_variant(variant)


WRONG = (
    {"reconciler.dev/paused": "yes"},
    {"reconciler.dev/pause": "true"},
    {"reconciler.dev/on-conflict": "theirs"},
    {"reconciler.dev/onconflict": "local"},
)


@step(
    1,
    lambda life, random: choose_variant(life, random, annotations=random.choice([*WRONG, {}, {}])),
    proposed=True,
)
def annotate(life: "Life", name: str, annotations: dict[str, str]) -> None:
    life.change(name, annotations=annotations)


def _fewer_paths(life: "Life", random: Random) -> Arguments | None:
    sets = [v for v in life.fleet.spec.variants if v.is_set]
    if not sets:
        return None
    chosen = random.choice(sets)
    paths = [f"{chosen.name}-{number}" for number in range(1, random.randint(2, 7))]
    return {"name": chosen.name, "paths": paths}


@step(3, _fewer_paths, proposed=True)
def choose_targets(life: "Life", name: str, paths: list[str]) -> None:
    life.change(name, paths=paths)


@step(
    2,
    lambda life, random: choose_variant(life, random, deletion=random.choice(["delete", "orphan"])),
    proposed=True,
)
def choose_deletion(life: "Life", name: str, deletion: str) -> None:
    life.change(name, deletion=deletion)


# the cluster


@step(
    2,
    lambda _life, random: {"site": random.choice(["north", "south"]), "present": random.random() < 0.7},
    proposed=True,
)
def change_site(life: "Life", site: str, present: bool) -> None:
    life.fleet.sites.pop(site, None)
    if present:
        life.fleet.sites[site] = life.fleet.ledger.next("s")
    life.fleet.write_snapshot()


@step(1, lambda life, random: {"names": _several(life, random)}, proposed=True)
def remove_several(life: "Life", names: list[str]) -> None:
    """A person removes many variants at once."""
    spec = life.fleet.spec
    gone = [variant.name for variant in spec.variants if variant.name in names]
    spec.variants = [variant for variant in spec.variants if variant.name not in gone]
    life.fleet.commit_control({f"manifests/{name}.yaml": None for name in gone})


def _several(life: "Life", random: Random) -> list[str]:
    names = [variant.name for variant in life.fleet.spec.variants]
    return sorted(random.sample(names, k=random.randint(0, len(names))))


@step(1, lambda _life, _random: {})
def consent(life: "Life") -> None:
    """A person allows what is refused, by the checksums that the refusals print."""
    hints = [refusal["hint"] for refusal in life.last_plan.get("refusals", ())]
    sums = [checksum for hint in hints for checksum in re.findall(r"\b[0-9a-f]{64}\b", hint)]
    if sums:
        life.fleet.spec.guard["consents"] = dict.fromkeys(sums, "Meant")
        life.fleet.write_configuration()


# Repositories


def _mistake(life: "Life", random: Random) -> Arguments:
    return {"repository": random.choice(life.fleet.spec.repositories()), "how": random.choice(MISTAKES)}


MISTAKES = ("field", "kind", "syntax", "removed", "directory", "address")


@step(3, _mistake)
def mistake_a_repository(life: "Life", repository: str, how: str) -> None:
    """A person breaks, removes or moves a Repository, lets runs follow, and puts it right again.

    Meanwhile all that is ours stays in the plan and on main, also when people approve everything.
    """
    fleet, spec = life.fleet, life.fleet.spec
    git_name, directory = spec.git_of(repository)
    values = {name: spec.registration(name) for name in (CATALOG, *spec.repositories())}
    texts = {name: dump(value) for name, value in values.items()}
    wrong = values[repository]
    match how:
        case "field":
            wrong["spec"]["git"]["brnch"] = wrong["spec"]["git"].pop("branch")
        case "kind":
            wrong["kind"] = "Repositry"
        case "directory":
            wrong["spec"]["git"]["directory"] = f"sites/{repository}"
        case "address":
            if "fresh" not in fleet.repos:
                fleet.add("fresh")
            wrong["spec"]["git"] |= {"repo": "../fresh.git", "directory": repository}
    mistaken = {"removed": "", "syntax": f"{{{{{{\n{texts[repository]}"}.get(how, dump(wrong))
    file, right = "manifests/repositories.yaml", "---\n".join(texts.values())
    fleet.commit_control({file: "---\n".join((texts | {repository: mistaken}).values())})
    before = _contents(fleet, git_name, directory)
    planned = life.command("apply", "-o", "json")
    life.violations += oracles.check_books(fleet, json.loads(planned.out))
    if how not in ("directory", "address"):
        approve_all(life)
    if _contents(fleet, git_name, directory) != before:
        life.violations.append(f"a package of {repository} changes, whose Repository is wrong: {how}")
    fleet.commit_control({file: right})


def _contents(fleet: Fleet, git_name: str, directory: str) -> dict[str, str]:
    """Return the files of a Repository's packages on main, without the Kptfiles, which may be released."""
    repo = fleet.repos[git_name]
    listed = trees.listing(repo, trees.root(repo, "main"))
    return {p: oid for p, oid in listed.items() if p.startswith(directory) and not p.endswith("/Kptfile")}


def _unread_selection(life: "Life", random: Random) -> Arguments | None:
    away = random.choice(["catalog", *life.fleet.spec.repositories()])
    drawn = _selection(life, random)
    return {**drawn, "away": away} if drawn else None


@step(2, _unread_selection, proposed=True)
def choose_while_away(life: "Life", name: str, form: str, number: int, away: str) -> None:
    """A person asks for another revision while a repository cannot be read."""
    life.away = away
    life.change(name, form=form, number=number)


def draw_variant(random: Random, name: str, repositories: list[str], corpus: list[str]) -> Arguments:
    """Draw a variant as arguments."""
    package = random.choice([*DRAWN, *DRAWN, *corpus])
    is_set = random.random() < 0.25
    paths = (
        [f"{name}-{n}" for n in range(1, random.randint(2, 6))] if is_set else [_path(random, package, name)]
    )
    return {
        "name": name,
        "package": package,
        "repository": random.choice(repositories),
        "paths": paths,
        "form": random.choice(FORMS),
        "adoption": random.choice(["adoptNone", "adoptNone", "adoptExisting"]),
        "context": random.random() < 0.3,
        "injection": package not in DRAWN or random.random() < 0.4,
        "pipeline": random.choice(["none", "none", *PIPELINES]),
        "policy": random.choice(["", "", "ask", "upstream", "local"]),
        "deletion": random.choice(["delete", "delete", "orphan"]),
        "is_set": is_set,
    }


def _path(random: Random, package: str, name: str) -> str:
    choices = [package, package, name, f"apps/{package}", f"{package}/inner", "apps"]
    return random.choice(choices)


ALL_STEPS = STEPS
"""Every step: those of steps.py, and those of this module, which registers them there."""

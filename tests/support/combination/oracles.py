"""What must hold after every run, each as a function that returns its violations in sentences."""

import json
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.combination import trees
from tests.support.combination.fleet import Fleet, Pull
from tests.support.combination.ledger import Token, tokens_in
from tests.support.combination.spec import CATALOG, INSTANCE
from tests.support.git import Repo
from tests.support.world import Said

OWNER = f"reconciler.dev/owner: {INSTANCE}/".encode()
OWN_FILES = ("Kptfile", "package-context.yaml")
GUARD = "DeletionGuard"
UNAVAILABLE = 5
SETTLED = ("UpToDate", "InReview", "DraftEdited", "MergeConflict")
MOST_FILES_SHOWN = 100
SAFETY_KEYS = {
    "reconciler.dev/paused": ("true", "false"),
    "reconciler.dev/on-conflict": ("ask", "upstream", "local", "fail"),
}


@dataclass
class Observation:
    """What one settled run showed: its plan afterwards, the status, and every command's output."""

    plan: dict[str, Any]
    status: dict[str, Any]
    results: list[tuple[str, Said]] = field(default_factory=list)

    def change(self, repository: str, path: str) -> dict[str, Any] | None:
        """Return the plan's row for a package."""
        for change in self.plan.get("changes", ()):
            if change["repository"]["name"] == repository and change["package"]["path"] == path:
                return dict(change)
        return None

    def conditions(self, name: str) -> dict[str, str]:
        """Return the conditions of a PackageVariant by type."""
        for item in self.status.get("items", ()):
            if item["name"] == name and item["kind"] == "PackageVariant":
                return {c["type"]: c["status"] for c in item["conditions"]}
        return {}


def check_results(results: list[tuple[str, Said]]) -> Iterator[str]:
    """No command ends with a traceback, and each code but 0 is explained by a line with place and hint."""
    for line, result in results:
        shown = f"{line}: exit {result.code}\n{result.out[-1500:]}{result.err[-1500:]}"
        if result.code == 1 or "Traceback" in result.out + result.err:
            yield f"a command failed unforeseen: {shown}"
        elif result.code not in (0, 10) and not _is_explained(result):
            yield f"a non-zero exit without a line that says why: {shown}"


def _is_explained(result: Said) -> bool:
    try:
        value = json.loads(result.out)
    except ValueError:
        return bool((result.err + result.out).strip())
    if not isinstance(value, dict):
        return bool(result.err.strip())
    if any(not (p["location"]["path"] and p["hint"]) for p in value.get("problems", ())):
        return False
    lines = [*value.get("problems", ()), *value.get("refusals", ()), *value.get("notRead", ())]
    lines += [c for c in value.get("changes", ()) if c["waits"] or c["unready"]]
    lines += [
        e for e in value.get("effects", ()) if not e.get("ok", True) or e.get("error") or e.get("cause")
    ]
    lines += [item for item in value.get("items", ()) if item]
    if result.code == UNAVAILABLE:  # what else is wrong does not say which repository cannot be read
        lines = [line for line in lines if "could not be read" in str(line) or line.get("error")]
        lines += value.get("notRead", ())
    return bool(lines) or bool(result.err.strip())


def check_plan_is_empty(observation: Observation) -> Iterator[str]:
    """A plan after a settled run has nothing to do."""
    plan = observation.plan
    pending = [c["name"] for c in plan.get("changes", ()) if c["pending"] or c["writes"]]
    if pending or not plan.get("empty", True):
        yield f"the plan after a settled run is not empty: {pending}"


def check_books(fleet: Fleet, plan: Mapping[str, Any]) -> Iterator[str]:
    """Each package is in the plan once, and what is ours on main is in it, whatever Repositories say."""
    rows = Counter((c["package"]["url"], c["package"]["path"]) for c in plan.get("changes", ()))
    yield from (f"{key} is in the plan {count} times" for key, count in rows.items() if count > 1)
    there = {(url.rpartition("/")[2], path.partition("@")[0]) for url, path in rows}
    for name, repo in fleet.repos.items():
        files = trees.files(repo, trees.root(repo, "main")) if plan else {}
        for path, text in files.items():
            key = (name, path.removesuffix("/Kptfile"))
            if path.endswith("/Kptfile") and OWNER in text and key not in there:
                yield f"{key} is ours and in no row of the plan"


def check_foreign_files(fleet: Fleet) -> Iterator[str]:
    """Files that are not ours stay on main, and stay there whatever is merged."""
    for token in fleet.ledger.foreign.values():
        repo = fleet.repo(token.repository)
        if is_adopted(fleet, token):
            continue
        if token.text not in trees.text(repo, trees.root(repo, "main")):
            yield f"{token.package}/{token.file} in {token.repository} was not ours and left main"
        for pull in fleet.pulls(token.repository):
            result = trees.merged(repo, pull.head)
            if result is not None and token.text not in trees.text(repo, result):
                yield f"merging {pull.head} removes {token.package}/{token.file}, which is not ours"


def is_adopted(fleet: Fleet, token: Token) -> bool:
    """Whether a variant asks to take over the package that a token stands in."""
    return any(
        variant.repository == token.repository and variant.adoption == "adoptExisting"
        for variant in fleet.spec.variants
        if f"{token.package}/".startswith(
            tuple(f"{fleet.full(variant.repository, path)}/" for path in variant.paths)
        )
    )


def check_merges_stay_inside(fleet: Fleet) -> Iterator[str]:
    """Merging a pull request changes files of its package alone, and its text lists them."""
    for repository in fleet.spec.repositories():
        repo = fleet.repo(repository)
        main, pulls = trees.root(repo, "main"), fleet.pulls(repository)
        for pull in pulls:
            result = trees.merged(repo, pull.head)
            if result is None:
                continue
            changed = changed_files(trees.listing(repo, main), trees.listing(repo, result))
            by_people = {
                file for r, path, file in fleet.ledger.files if (r, path) == (repository, pull.package)
            }
            others = tuple(f"{p.package}/" for p in pulls if p.head == pull.head and p != pull)
            changed = [path for path in changed if not others or not path.startswith(others)]
            yield from _outside(pull, changed, by_people)


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the paths whose content differs."""
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def _outside(pull: Pull, changed: list[str], by_people: set[str]) -> Iterator[str]:
    start = f"{pull.package}/"
    for path in changed:
        if not path.startswith(start):
            yield f"merging {pull.head} changes {path}, outside of its package"
    inside = [path.removeprefix(start) for path in changed if path.startswith(start)]
    if pull.is_deletion or pull.member or len(inside) > MOST_FILES_SHOWN:
        return
    for path in inside:
        if path not in OWN_FILES and path not in by_people and path not in pull.body:
            yield f"merging {pull.head} changes {path}, which its text does not list"


def listed_text(fleet: Fleet, observation: Observation, repository: str, path: str) -> bytes:
    """Return all that is said to reviewers of a package: its pull requests' texts, its row of the plan."""
    texts = [pull.body for pull in fleet.pulls(repository) if pull.package == path]
    change = observation.change(repository, path)
    return "\n".join([*texts, json.dumps(change or {})]).encode()


def conflict_files(observation: Observation, repository: str, path: str) -> set[str]:
    """Return the files of a package in which a whole document or file is a listed conflict."""
    change = observation.change(repository, path) or {}
    return {c["path"] for c in change.get("conflicts", ()) if is_whole(c)}


def is_whole(conflict: Mapping[str, str]) -> bool:
    """Whether a conflict is about a whole file or document, whose text its cells cut off."""
    cells = conflict["upstream"] + conflict["local"]
    return not conflict["upstream"] or not conflict["local"] or "…" in cells or "apiVersion" in cells


def result_text(fleet: Fleet, repository: str, path: str) -> bytes | None:
    """Return the package as it is once its open draft is merged; None where git finds conflicts."""
    repo = fleet.repo(repository)
    for pull in fleet.pulls(repository):
        if pull.package == path and not pull.is_deletion:
            tree = trees.merged(repo, pull.head)
            return None if tree is None else trees.text(repo, tree, path)
    return trees.text(repo, trees.root(repo, "main"), path)


def check_people(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """A person's change is in the result, or in a listed conflict."""
    adopted = [token for token in fleet.ledger.foreign.values() if is_adopted(fleet, token)]
    for token in [*fleet.ledger.people.values(), *adopted]:
        result = result_text(fleet, token.repository, token.package)
        if result is None or token.text in result:
            continue
        if token.text in listed_text(fleet, observation, token.repository, token.package):
            continue
        if token.file in conflict_files(observation, token.repository, token.package):
            continue
        yield f"{token.text.decode()} of a person in {token.repository}:{token.package}/{token.file} is lost"


def check_upstream(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """An upstream change is in the result, in a listed conflict, or dropped by a policy that is named."""
    for variant in fleet.spec.variants:
        wanted = tokens_in(fleet.upstream_text(variant))
        for name in variant.paths:
            path = fleet.full(variant.repository, name)
            change = observation.change(variant.repository, path)
            if change is None or change["reason"] not in SETTLED or change["op"] != "keep":
                continue
            result = result_text(fleet, variant.repository, path)
            listed = listed_text(fleet, observation, variant.repository, path)
            if result is None:
                continue
            for token in sorted(wanted - tokens_in(result) - tokens_in(listed)):
                if (variant.repository, path, token) in fleet.ledger.forgiven:
                    continue
                if _file_of(fleet, variant.package, token) in conflict_files(
                    observation, variant.repository, path
                ):
                    continue
                place = f"{variant.repository}:{path}"
                yield f"upstream's {token.decode()} is missing from {place}, and not listed"


def _file_of(fleet: Fleet, package: str, token: bytes) -> str:
    repo, start = fleet.repo(CATALOG), f"{fleet.full(CATALOG, package)}/"
    listed = trees.files(repo, trees.root(repo, "main"), start.rstrip("/"))
    return next((path.removeprefix(start) for path, data in listed.items() if token in data), "")


def check_conflicts_have_causes(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """A package that no person ever changed, with one pipeline and not adopted, has no conflict."""
    adopting = {
        (v.repository, fleet.full(v.repository, path))
        for v in fleet.spec.variants
        for path in v.paths
        if v.adoption != "adoptNone"
    }
    for change in observation.plan.get("changes", ()):
        key = (change["repository"]["name"], change["package"]["path"])
        has_cause = key in fleet.ledger.touched | fleet.ledger.repiped | adopting
        if change["conflicts"] and not has_cause:
            fields = [(c["path"], c["field"]) for c in change["conflicts"]]
            yield f"{key} has conflicts that no person caused: {fields[:5]}"


def check_answers(
    before: Observation, after: Observation, touched: Collection[tuple[str, str, str]]
) -> Iterator[str]:
    """An edit of a draft answers conflicts in the files that it touches, and no others."""
    for gone in sorted(_open_conflicts(before) - _open_conflicts(after)):
        repository, path, file, field = gone
        if (repository, path, file) not in touched:
            yield f"the conflict {file} {field} of {repository}:{path} is gone without an answer"


def _open_conflicts(observation: Observation) -> set[tuple[str, str, str, str]]:
    return {
        (change["repository"]["name"], change["package"]["path"], conflict["path"], conflict["field"])
        for change in observation.plan.get("changes", ())
        for conflict in change["conflicts"]
    }


def check_status(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """The conditions of each variant are what refs and pull requests show."""
    for variant in fleet.spec.variants:
        if variant.is_set:
            continue
        path = fleet.full(variant.repository, variant.paths[0])
        shown = observation.conditions(variant.name)
        if not shown:
            yield f"the status does not know {variant.name}"
            continue
        yield from _contradictions(fleet, variant.repository, path, variant.name, shown)


def _contradictions(
    fleet: Fleet, repository: str, path: str, name: str, shown: Mapping[str, str]
) -> Iterator[str]:
    repo = fleet.repo(repository)
    drafts = [p for p in fleet.pulls(repository) if p.package == path and not p.is_deletion]
    if len([v for v in fleet.spec.variants if path in [fleet.full(repository, p) for p in v.paths]]) > 1:
        drafts = []  # of several variants that want one package, the draft belongs to another
    is_draft = any(_is_draft_of(ref, path) or _is_in_group(repo, ref, path) for ref in repo.refs())
    is_there = f"{path}/Kptfile" in trees.listing(repo, trees.root(repo, "main"))
    if shown.get("DraftExists") == "True" and not is_draft:
        yield f"{name} has DraftExists=True and no draft in {repository}"
    if shown.get("DraftExists") == "False" and drafts:
        yield f"{name} has DraftExists=False and {drafts[0].head}"
    for condition in ("DownstreamEnsured", "Ready"):
        if shown.get(condition) == "True" and not is_draft and not is_there:
            yield f"{name} has {condition}=True and neither a draft nor a package"


def _is_in_group(repo: Repo, ref: str, path: str) -> bool:
    is_group = ref.startswith(f"refs/heads/reconciler/{INSTANCE}/group/")
    return is_group and f"{path}/Kptfile" in trees.listing(repo, trees.root(repo, ref))


def _is_draft_of(ref: str, path: str) -> bool:
    for start in ("refs/heads/drafts/", "refs/heads/proposed/"):
        if ref.startswith(f"{start}{path}/") and "/" not in ref.removeprefix(f"{start}{path}/"):
            return True
    return False


def check_published(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """A variant that is Ready without a draft has its upstream's commit in main's Kptfile."""
    for variant in fleet.spec.variants:
        commit = fleet.upstream_commit(variant)
        path = fleet.full(variant.repository, variant.paths[0])
        repo = fleet.repo(variant.repository)
        shown = observation.conditions(variant.name)
        change = observation.change(variant.repository, path) or {}
        if variant.is_set or shown.get("Ready") != "True" or commit is None:
            continue
        has_draft = any(_is_draft_of(r, path) for r in repo.refs())
        has_draft |= any(p.package == path for p in fleet.pulls(variant.repository))
        if change.get("reason") not in ("UpToDate", "InReview") or has_draft:
            continue
        data = trees.files(repo, trees.root(repo, "main"), path).get(f"{path}/Kptfile", b"")
        same = trees_are_equal(fleet, variant.package, data, commit)
        if not same:
            yield f"{variant.name} is Ready, and main's Kptfile does not name {commit[:8]}"


def trees_are_equal(fleet: Fleet, package: str, kptfile: bytes, commit: str) -> bool:
    """Whether a Kptfile's lock names the commit, or one with the same content of the package."""
    if commit.encode() in kptfile:
        return True
    repo, path = fleet.repo(CATALOG), fleet.full(CATALOG, package)
    wanted = repo.tree(commit, path)
    for line in kptfile.splitlines():
        word = line.strip().removeprefix(b"commit: ").decode()
        if line.strip().startswith(b"commit: ") and word in repo.git:
            return repo.tree(word, path) == wanted
    return False


def check_unknown_annotations(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """A misspelt key or value of our prefix is a problem of its variant."""
    for variant in fleet.spec.variants:
        wrong = [key for key, value in variant.annotations.items() if is_unknown(key, value)]
        subjects = {p["subject"].rpartition("/")[2] for p in observation.plan.get("problems", ())}
        if wrong and variant.name not in subjects:
            yield f"{variant.name} has {wrong}, and no problem says so"


def is_unknown(key: str, value: str) -> bool:
    """Whether an annotation of our prefix means nothing."""
    if key in SAFETY_KEYS:
        return value not in SAFETY_KEYS[key]
    return key.startswith("reconciler.dev/") and key != "reconciler.dev/retry"


def check_refused_deletions(fleet: Fleet, before: Observation, after: Observation) -> Iterator[str]:
    """A deletion that was refused stays refused until somebody consents, whatever left meanwhile."""
    wanted = {(v.repository, fleet.full(v.repository, path)) for v in fleet.spec.variants for path in v.paths}
    consents = fleet.spec.guard.get("consents")
    for change in before.plan.get("changes", ()):
        key = (change["repository"]["name"], change["package"]["path"])
        if change["reason"] != GUARD or change["op"] != "keep" or key in wanted or consents:
            continue
        now = after.change(*key)
        if now is not None and (now["op"], now["reason"]) != ("keep", GUARD) and now["variant"]:
            yield f"the deletion of {key} was refused, and now it is {now['op']} {now['reason']}"


def check_checksum(
    before: Mapping[str, Any], after: Mapping[str, Any], *, has_effects: bool
) -> Iterator[str]:
    """A plan has the checksum of the empty plan that follows it only if it had no effects."""
    same = before.get("checksum") == after.get("checksum")
    if has_effects and same:
        yield f"a plan with effects has the checksum of the empty plan: {before.get('checksum')}"
    if not has_effects and not same:
        yield f"a plan without effects has another checksum than the empty plan: {before.get('checksum')}"


def check_sound(fleet: Fleet) -> Iterator[str]:
    """Git finds nothing wrong with any repository."""
    for name, repo in fleet.repos.items():
        ran = subprocess.run(
            ["git", "fsck", "--strict", "--no-dangling"],
            cwd=repo.path,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            yield f"{name} is not sound: {ran.stderr[-500:]}"


def check_everything(fleet: Fleet, observation: Observation) -> list[str]:
    """Return every violation that a settled run shows."""
    return [
        *check_results(observation.results),
        *check_plan_is_empty(observation),
        *check_books(fleet, observation.plan),
        *check_foreign_files(fleet),
        *check_merges_stay_inside(fleet),
        *check_people(fleet, observation),
        *check_upstream(fleet, observation),
        *check_conflicts_have_causes(fleet, observation),
        *check_status(fleet, observation),
        *check_published(fleet, observation),
        *check_unknown_annotations(fleet, observation),
    ]


def check_shown(fleet: Fleet, observation: Observation) -> Iterator[str]:
    """Conditions that are shown say what is there, also after a push that was declined."""
    for variant in fleet.spec.variants:
        shown = observation.conditions(variant.name)
        if shown and not variant.is_set:
            path = fleet.full(variant.repository, variant.paths[0])
            yield from _contradictions(fleet, variant.repository, path, variant.name, shown)

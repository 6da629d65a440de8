"""One life of a fleet: a spec and steps, drawn from a seed or replayed from a trace; runs and checks."""

import contextlib
import json
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.world import Runner
from tests.support.combination import oracles, status_oracles, trees
from tests.support.combination.fleet import FOREIGN, Fleet, Pull
from tests.support.combination.ledger import Token, ViolationError, tokens_in
from tests.support.combination.manifest_steps import ALL_STEPS as STEPS
from tests.support.combination.proposals import UNAVAILABLE, Proposal, check_proposal, hidden, propose
from tests.support.combination.themes import Theme
from tests.support.world import Said

DECLINE = "#!/bin/sh\necho 'declined by policy' >&2\nexit 1\n"


@dataclass
class Life:
    """A fleet, its history, and what disturbs its next run."""

    fleet: Fleet
    runner: Runner | None = None
    history: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    results: list[tuple[str, Said]] = field(default_factory=list)
    observation: oracles.Observation = field(default_factory=lambda: oracles.Observation({}, {}))
    touched_files: set[tuple[str, str, str]] = field(default_factory=set)
    declined: str = ""
    hidden: str = ""
    killed: int = 0
    """The failpoint at which the next run is killed."""
    away: str = ""
    """A Repository that cannot be read while a proposal is checked."""
    proposal: Proposal | None = None
    count: int = 0

    @property
    def last_plan(self) -> dict[str, Any]:
        return self.observation.plan

    def play(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Do one step and let runs settle; raise what is violated."""
        self.count += 1
        self.history.append((name, dict(arguments)))
        self.results, self.touched_files = [], set()
        before, chosen = self.observation, STEPS[name]
        self.proposal = None
        if chosen.proposed:
            self._propose(lambda: chosen.do(self, **arguments))
        else:
            chosen.do(self, **arguments)
        if chosen.disturbs:
            return  # it disturbs the run after the next step
        self.settle(before if name in ("edit_draft", "answer_conflict", "look") else None)

    def settle(self, earlier: oracles.Observation | None = None) -> None:
        """Run until nothing is left to do, disturbed first if a step asked for it; check everything.

        The second run has an empty cache: it is that of another clone.

        Args:
            earlier: What was seen before an edit of a draft, which answers what it touches alone.
        """
        is_disturbed = bool(self.killed or self.declined or self.hidden)
        self._disturb()
        before, locks = self.fleet.all_refs(), self.fleet.locks()
        applied = self.command("apply", "-o", "json")
        after = self.fleet.all_refs()
        status = self.command("status", "-o", "json")
        again = self.command("apply", "-o", "json", cache=f"cache-{self.count}")
        shutil.rmtree(self.fleet.root / f"cache-{self.count}")
        earlier_plan, refused = self.last_plan, self.observation
        self.observation = oracles.Observation(read(again), read(status), self.results)
        self.violations += oracles.check_everything(self.fleet, self.observation)
        self.violations += status_oracles.check_everything(self.fleet, self.observation)
        self.violations += oracles.check_refused_deletions(self.fleet, refused, self.observation)
        if earlier is not None:
            self.violations += oracles.check_answers(earlier, self.observation, self.touched_files)
        if applied.code not in (2, 5):
            changed = before != after or locks != self.fleet.locks()
            self.violations += oracles.check_checksum(read(applied), read(again), has_effects=changed)
        if self.proposal is not None and not is_disturbed and applied.code != UNAVAILABLE:
            self.violations += check_proposal(self.proposal, earlier_plan, read(applied))
        if self.fleet.all_refs() != after:
            self.violations.append(f"a second run writes: {_difference(after, self.fleet.all_refs())}")
        if self.violations:
            raise ViolationError("\n".join(self.violations))

    def end(self) -> None:
        """Check what is checked once."""
        self.violations += oracles.check_sound(self.fleet)
        self.violations += status_oracles.check_unknown_name(self.fleet)
        if self.violations:
            raise ViolationError("\n".join(self.violations))

    def _propose(self, change: Callable[[], None]) -> None:
        """Let a person merge a branch of the control repository after `check` has looked at it."""
        self.away = ""
        checked = propose(self, change)
        if checked is not None:
            self.proposal = Proposal(read(checked), checked.code, self.away)

    def command(self, *line: str, cache: str = "cache") -> Said:
        """Run a command, and keep what it printed for the checks."""
        result = self.fleet.run(*line, cache=cache)
        self.results.append((" ".join(line), result))
        return result

    # disturbances

    def _disturb(self) -> None:
        if self.killed and self.runner is not None:
            self.runner.run("apply", *self.fleet.places(), point=f"{self.killed}:kill")
        if self.declined:
            self._run_declined(self.fleet.repo(self.declined).path)
        if self.hidden:
            self._run_hidden(self.hidden)
        self.declined, self.hidden, self.killed = "", "", 0

    def _run_declined(self, path: Path) -> None:
        hook = path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(DECLINE)
        hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
        try:
            self.command("apply", "-o", "json")
            status = read(self.command("status", "-o", "json"))
        finally:
            hook.unlink()
        observation = oracles.Observation({}, status)
        self.violations += status_oracles.check_recorded(self.fleet)
        if status:
            self.violations += oracles.check_shown(self.fleet, observation)

    def _run_hidden(self, repository: str) -> None:
        if self.fleet.spec.layout != "mono":
            with hidden(self.fleet, repository):
                self.command("apply", "-o", "json")
                self.command("plan")

    # what merges and people take away

    @contextlib.contextmanager
    def merging(self, repository: str, pulls: list[Pull]) -> Iterator[None]:
        """Check what the merge of pull requests takes away against what their texts say."""
        with self.merging_all({repository: pulls}):
            yield

    @contextlib.contextmanager
    def merging_all(self, pulls: Mapping[str, list[Pull]]) -> Iterator[None]:
        """Check merges in several repositories."""
        before = {
            (repository, pull): self._sides(repository, pull)
            for repository, listed in pulls.items()
            for pull in listed
        }
        yield
        for (repository, pull), (main, wanted) in before.items():
            self._after_merge(repository, pull, main, wanted)

    def _sides(self, repository: str, pull: Pull) -> tuple[bytes, set[bytes]]:
        repo = self.fleet.repo(repository)
        main = trees.text(repo, trees.root(repo, "main"), pull.package)
        head = trees.text(repo, trees.root(repo, pull.head), pull.package)
        return main, tokens_in(main) | (set() if pull.is_deletion else tokens_in(head))

    def _after_merge(self, repository: str, pull: Pull, main: bytes, wanted: set[bytes]) -> None:
        repo, ledger = self.fleet.repo(repository), self.fleet.ledger
        after = trees.text(repo, trees.root(repo, "main"), pull.package)
        if after == main:
            return
        lost = wanted - tokens_in(after)
        key = (repository, pull.package)
        listed = tokens_in(oracles.listed_text(self.fleet, self.observation, *key) + pull.body.encode())
        if pull.is_deletion:
            ledger.give_up(lost)
            ledger.touched.discard(key)
            ledger.forgiven = {f for f in ledger.forgiven if f[:2] != key}
            return
        self._adopt(repository, pull.package)
        whole = oracles.conflict_files(self.observation, *key)
        for token in sorted(lost & ledger.people.keys()):
            if token not in listed and ledger.people[token].file not in whole:
                self.violations.append(
                    f"merging {pull.head} loses {token.decode()}, which its text does not name"
                )
        ledger.give_up(lost)
        ledger.forgive(*key, (listed | lost) - tokens_in(after))
        if whole:
            ledger.forgive(*key, self._upstream_tokens(*key) - tokens_in(after))

    def _adopt(self, repository: str, path: str) -> None:
        """Let what an adopted package brought be a person's part of it from now on."""
        ledger = self.fleet.ledger
        for text, token in list(ledger.foreign.items()):
            inside = token.repository == repository and f"{token.package}/".startswith(f"{path}/")
            if inside and oracles.is_adopted(self.fleet, token):
                ledger.people[text] = Token(text, repository, path, token.file)
                del ledger.foreign[text]

    def _upstream_tokens(self, repository: str, path: str) -> set[bytes]:
        wanted: set[bytes] = set()
        for variant in self.fleet.spec.variants:
            if variant.repository == repository and path in [
                self.fleet.full(repository, p) for p in variant.paths
            ]:
                wanted |= tokens_in(self.fleet.upstream_text(variant))
        return wanted

    def lost_to_a_person(self, repository: str, path: str, lost: set[bytes]) -> None:
        """Let changes be gone that a person took away."""
        self.fleet.ledger.give_up(lost)
        self.fleet.ledger.forgive(repository, path, lost)

    def drop_draft(self, repository: str, pull: Pull) -> None:
        """Let changes be gone that were on a draft alone, which a person closed."""
        repo = self.fleet.repo(repository)
        main = tokens_in(trees.text(repo, trees.root(repo, "main"), pull.package))
        ledger = self.fleet.ledger
        here = {
            t
            for t, token in ledger.people.items()
            if (token.repository, token.package) == (repository, pull.package)
        }
        ledger.give_up(here - main)

    def put_on_main(self, repository: str, path: str, content: dict[str, bytes]) -> None:
        """Let a person put this content on main, whatever was there."""
        repo = self.fleet.repo(repository)
        there = trees.files(repo, trees.root(repo, "main"), path)
        kept = {
            p
            for p in there
            if any(
                t.package.startswith(f"{path}/") and p.startswith(t.package)
                for t in self.fleet.ledger.foreign.values()
            )
        }
        changes: dict[str, Any] = {p: None for p in there if p not in kept}
        changes |= {f"{path}/{p}": data for p, data in content.items()}
        if {p: d for p, d in changes.items() if d is not None} == there:
            return
        before = tokens_in(b"\n".join(there.values()))
        repo.commit(changes, message="By hand\n")
        after = tokens_in(trees.text(repo, trees.root(repo, "main"), path))
        self.lost_to_a_person(repository, path, before - after)
        self.fleet.ledger.touched.add((repository, path))

    def add_neighbour(self, repository: str, neighbour: str) -> None:
        """Let a person add something of their own beside our packages."""
        repo = self.fleet.repo(repository)
        what, _, path = neighbour.partition(":")
        full = self.fleet.full(repository, path)
        there = trees.listing(repo, trees.root(repo, "main"))
        if any(p == full or p.startswith(f"{full}/") or full.startswith(f"{p}/") for p in there):
            return
        token = self.fleet.ledger.next("f")
        file = {"package": f"{full}/Kptfile", "files": f"{full}/mine.txt"}.get(what, full)
        kptfile = FOREIGN.format(token=token)
        repo.commit({file: kptfile if what == "package" else f"{token}\n"}, message="Mine too\n")
        self.fleet.ledger.guard(token, repository, full, file.removeprefix(f"{full}/"))

    def change(self, name: str, **fields: Any) -> None:
        """Change a variant's manifest."""
        for variant in self.fleet.spec.variants:
            if variant.name == name:
                for key, value in fields.items():
                    setattr(variant, key, value)
                self.fleet.write_variant(variant)


def read(result: Said) -> dict[str, Any]:
    """Return what a command printed as JSON, nothing where it printed none."""
    try:
        value = json.loads(result.out)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def draw_life(random: Random, root: Path, theme: Theme, count: int, runner: Runner | None) -> None:
    """Play a life of drawn steps; raise ViolationError with all that was done before."""
    life = Life(Fleet(root, theme.fleet(random)).build(), runner)
    try:
        life.settle()
        names = sorted(theme.weights)
        for _ in range(count):
            chosen = random.choices(names, [theme.weights[name] for name in names])[0]
            arguments = STEPS[chosen].draw(life, Random(random.randrange(2**32)))
            if arguments is not None:
                life.play(chosen, arguments)
        life.end()
    except AssertionError as violation:
        steps = "\n".join(f"{name} {arguments}" for name, arguments in life.history)
        raise ViolationError(f"{violation}\nafter\n{steps}\nin {life.fleet.spec}") from None
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {ref}: {before[name].get(ref)} -> {after[name].get(ref)}"
        for name in before
        for ref in sorted({*before[name], *after[name]})
        if before[name].get(ref) != after[name].get(ref)
    ]

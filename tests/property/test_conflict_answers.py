"""Conflicts against a naive model: people answer any of them in any way, and the rest stays open (D10)."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.porch import Downstream, PackageVariantSpec, Upstream
from reconciler.inventory.inventory import PullState
from reconciler.render.conflicts import ON_CONFLICT_FIELDS
from tests.support.model import MAIN, ModelWorld, blueprint

LETTERS = "abcde"
WAYS = ("nothing", "upstream", "third", "keep", "keep without a mark", "policy upstream", "policy local")
HOW = {"upstream": "edit", "third": "edit", "keep": "keep", "keep without a mark": "keep"}


def text(values: dict[str, str], letters: str, note: str = "n") -> str:
    """Return a resource with its own fields: half of the letters stand in each of two resources."""
    name = "one" if "a" in letters else "two"
    fields = "".join(f"  {letter}: {values[letter]}\n" for letter in letters if letter in values)
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  note: {note}\n{fields}"


def files(values: dict[str, str], note: str = "n") -> dict[str, str]:
    return {"one.yaml": text(values, "abc", note), "two.yaml": text(values, "de", note)}


@dataclass
class Life:
    """A world with one draft, and what the naive model says of it."""

    count: int
    world: ModelWorld = field(default_factory=ModelWorld)
    upstream: dict[str, str] = field(default_factory=dict)
    draft: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    revision: int = 2
    note: str = "n"

    @property
    def letters(self) -> str:
        return LETTERS[: self.count]

    @property
    def ref(self) -> str:
        (ref,) = self.world.drafts("edge")
        return ref

    def begin(self) -> None:
        """Upstream and main change every value, each in its own way; the draft asks about all of them."""
        self.world.add_repository("blueprints")
        self.world.add_repository("edge", deployment=True)
        self.draft = {letter: f"our-{letter}" for letter in self.letters}
        self.publish(1, {letter: f"old-{letter}" for letter in self.letters})
        self.world.merge("edge", self.ref)
        self.world.run()
        self.write(MAIN)
        self.world.run()
        self.publish(2, {letter: f"new-{letter}" for letter in self.letters})

    def publish(self, revision: int, values: dict[str, str]) -> None:
        self.upstream = values
        named = {path.replace(".", "_"): content for path, content in files(values).items()}
        self.world.publish("blueprints", "web", blueprint("web", **named), revision)
        self.world.variants["web"] = PackageVariantSpec(
            upstream=Upstream(repo="blueprints", package="web", revision=revision),
            downstream=Downstream(repo="edge", package="web"),
        )
        self.world.run()

    def write(self, ref: str) -> None:
        """A person sets the values as the model has them; every other byte stays as it is."""
        there = self.world.repositories["edge"].at(ref).packages["web"]
        changed = {}
        for path in ("one.yaml", "two.yaml"):
            lines = there[path].data.decode().splitlines()
            changed[path] = "".join(f"{self.line(line)}\n" for line in lines)
        self.world.edit("edge", "web", changed, ref=ref)

    def line(self, line: str) -> str:
        key = line.strip().partition(":")[0]
        if line.startswith("  note:"):
            return f"  note: {self.note}"
        return f"  {key}: {self.draft[key]}" if key in self.draft and line.startswith("  ") else line

    def answer(self, letter: str, way: str) -> None:
        if way == "nothing" or letter in self.answers or letter in self.policies:
            return
        if way.startswith("policy"):
            self.policies[letter] = way.removeprefix("policy ")
            self.draft[letter] = self.chosen(letter)
        elif way.startswith("keep"):
            name = next(n.name for n in self.change().conflicts if n.field == f"data.{letter}")
            shown = name if way == "keep" else name.rpartition(" ")[0]
            self.world.push("edge", {}, ref=self.ref, message=f"Mine\n\nKeep: {shown}\n")
            self.answers[letter] = way
        else:
            third = f"third-{letter}-{self.revision}"  # the value that is there would be no edit
            self.draft[letter] = self.upstream[letter] if way == "upstream" else third
            self.write(self.ref)
            self.answers[letter] = way

    def chosen(self, letter: str) -> str:
        return self.upstream[letter] if self.policies[letter] == "upstream" else self.draft[letter]

    def set_policies(self) -> None:
        text = ";".join(f"data.{letter}={choice}" for letter, choice in sorted(self.policies.items()))
        self.world.annotations["web"] = {ON_CONFLICT_FIELDS: text} if text else {}

    def change(self):
        (change,) = self.world.plan().changes
        return change

    def renew(self, letters: set[str]) -> None:
        """Upstream changes some values once more: those are new conflicts, whoever answered the old ones."""
        self.revision += 1
        moved = {k: f"{v}-{self.revision}" if k in letters else v for k, v in self.upstream.items()}
        for letter in letters:
            # A draft that has upstream's value follows it: nothing is asked.
            if self.draft[letter] == self.upstream[letter] or self.policies.get(letter) == "upstream":
                self.draft[letter] = moved[letter]
            else:
                self.answers.pop(letter, None)
        self.publish(self.revision, moved)

    def check(self) -> None:
        self.world.run()
        again = self.world.plan()
        assert again.is_empty
        (change,) = again.changes
        waiting = {letter for letter in self.letters if letter not in self.answers | self.policies}
        assert {note.field.removeprefix("data.") for note in change.conflicts} == waiting
        assert (change.waits, change.ready) == (bool(waiting), False)
        said = {note.conflict.field.removeprefix("data."): note for note in change.answers}
        for letter, way in self.answers.items():
            if letter in said:
                assert (said[letter].by, said[letter].chosen) == (HOW[way], self.draft[letter])
        now = self.world.repositories["edge"].at(self.ref).packages["web"]
        both = (now["one.yaml"].data + now["two.yaml"].data).decode()
        assert all(f"  {letter}: {value}\n" in both for letter, value in self.draft.items())


@settings(deadline=None, max_examples=6, derandomize=True)
@given(st.data())
def test_some_answers_answer_their_own_conflicts(data: st.DataObject) -> None:
    live(data)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_each_answer_answers_its_own_conflict_and_no_other(data: st.DataObject) -> None:
    live(data)


def live(data: st.DataObject) -> None:
    life = Life(data.draw(st.integers(1, 5), "conflicts"))
    life.begin()
    life.check()
    for _ in range(data.draw(st.integers(1, 3), "rounds")):
        for letter in data.draw(st.sets(st.sampled_from(life.letters)), "answered"):
            life.answer(letter, data.draw(st.sampled_from(WAYS), letter))
        life.set_policies()
        if data.draw(st.booleans(), "an edit elsewhere"):
            life.note += "n"
            life.write(life.ref)
        if data.draw(st.booleans(), "the state is lost"):
            life.world.lose_state()
        life.check()
        if data.draw(st.booleans(), "upstream moves"):
            life.renew(data.draw(st.sets(st.sampled_from(life.letters)), "moved"))
            life.check()
    assert all(pull.state is not PullState.CLOSED for pull in life.world.repositories["edge"].pulls)

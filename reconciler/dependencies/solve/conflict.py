"""A smallest set of facts that cannot hold together, the same one whatever the solver does inside."""

from dataclasses import dataclass

from reconciler.dependencies.question import Fact, Question
from reconciler.dependencies.solve.encode import encode
from reconciler.dependencies.solve.oracle import BudgetError, Oracle


def find_conflict(question: Question) -> tuple[tuple[Fact, ...], bool]:
    """Return facts without any one of which the question had an answer, and whether that was proven.

    Of several such sets, facts that come late in the question's order are avoided first.

    Source: U. Junker, QuickXplain (2004).
    """
    facts = question.facts()
    with Oracle(encode(question, guarded=True), question.budget) as oracle:
        search = _Search(oracle, facts)
        try:
            return tuple(search.explain([], False, list(facts))), True
        except BudgetError:
            return tuple(search.smallest), False


_TRIES = 300
"""A conflict of more facts than this can separate is not one that a person reads."""


@dataclass(slots=True)
class _Search:
    oracle: Oracle
    smallest: tuple[Fact, ...]
    tries: int = 0

    def explain(self, background: list[Fact], changed: bool, facts: list[Fact]) -> list[Fact]:  # noqa: FBT001 - QuickXplain's own
        if changed and self._contradict(background):
            return []
        if len(facts) == 1:
            return facts
        half = len(facts) // 2
        first, second = facts[:half], facts[half:]
        late = self.explain([*background, *first], bool(first), second)
        early = self.explain([*background, *late], bool(late), first)
        return [*early, *late]

    def _contradict(self, facts: list[Fact]) -> bool:
        self.tries += 1
        if self.tries > _TRIES:
            raise BudgetError(_TRIES)
        guards = self.oracle.formula.guards
        contradiction = not self.oracle.ask(*(guards[fact] for fact in facts if fact in guards))
        if contradiction:
            core = set(self.oracle.core())
            named = tuple(fact for fact in self.smallest if guards.get(fact) in core)
            self.smallest = named if len(named) < len(self.smallest) else self.smallest
        return contradiction

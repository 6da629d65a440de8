"""What an update has to tell: conflicts, notes, how often splicing gave way."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.krm.merge import FieldConflict, Node, Winner, path_text
from reconciler.policy import OnConflict
from reconciler.render.update.model import Conflict, ConflictPolicy, Place, Rule, RuleKind, Settled, Updated
from reconciler.render.update.settle import judge_of, rule_at

_WINNERS = {Winner.UPSTREAM: OnConflict.UPSTREAM, Winner.LOCAL: OnConflict.LOCAL}


@dataclass(slots=True)
class Ledger:
    """Collects what the merge of one part of a package has to tell."""

    policy: ConflictPolicy
    conflicts: list[Conflict] = field(default_factory=list)
    fatal: list[Conflict] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fallbacks: int = 0

    def settle(
        self,
        path: str,
        resource: str,
        sides: tuple[str | None, str | None, str | None],
        reason: str,
        data: Any = None,
    ) -> bool:
        """Record a conflict about a whole file or resource; tell whether upstream wins it.

        One that a person deleted stays deleted, and one that a person changed stays, whatever the policy.
        """
        verdict = judge_of(self.policy, path, resource, data)(())
        if verdict is Winner.UPSTREAM and None in sides[1:]:
            verdict = Winner.LOCAL
        self._record(Conflict(path, resource, "", *sides, reason), verdict, data)
        return verdict is Winner.UPSTREAM

    def record(self, path: str, resource: str, clashes: Iterable[FieldConflict], data: Any) -> None:
        """Record the clashes within one resource."""
        for clash in clashes:
            texts = (_text(clash.base), _text(clash.upstream), _text(clash.local))
            conflict = Conflict(path, resource, path_text(clash.path), *texts, clash.reason)
            if clash.rule:
                self.rule_out(conflict, _WINNERS[clash.verdict], Rule(RuleKind.MERGE, clash.rule))
            else:
                place = (path, resource, path_text(clash.judged or clash.path))
                self._record(conflict, clash.verdict, data, place)

    def rule_out(self, conflict: Conflict, winner: OnConflict, rule: Rule) -> None:
        """Record what a rule drops without asking anybody: `winner` is the side that stays."""
        place = ": ".join(part for part in (conflict.path, conflict.resource, conflict.field) if part)
        self.notes.append(f"{place}: {winner} stays: {rule.text}")
        self.settled.append(Settled(conflict, winner, rule))

    def is_settled_whole(self, place: Place) -> bool:
        """Tell whether a conflict about the whole file or resource at a place is recorded."""
        found = (*self.conflicts, *self.fatal, *(each.conflict for each in self.settled))
        return any(conflict.place == place for conflict in found)

    def add(self, other: "Ledger") -> None:
        """Take over what another part has to tell."""
        self.conflicts += other.conflicts
        self.fatal += other.fatal
        self.settled += other.settled
        self.notes += other.notes
        self.fallbacks += other.fallbacks

    def updated(self, files: dict[str, Any]) -> Updated:
        """Return the update with everything told, in a stable order."""
        return Updated(
            files,
            tuple(sorted(self.conflicts, key=_order)),
            tuple(sorted(self.settled, key=lambda each: _order(each.conflict))),
            tuple(sorted(self.notes)),
            self.fallbacks,
        )

    def _record(self, conflict: Conflict, verdict: Winner, data: Any, judged: Place | None = None) -> None:
        choice, rule = rule_at(self.policy, judged or conflict.place, data)
        if verdict is not Winner.OPEN:
            place = ": ".join(part for part in (conflict.path, conflict.resource, conflict.field) if part)
            self.notes.append(f"{place}: both sides changed it; {_WINNERS[verdict]} wins by policy")
            self.settled.append(Settled(conflict, _WINNERS[verdict], rule))
            return
        (self.fatal if choice is OnConflict.FAIL else self.conflicts).append(conflict)


def _order(conflict: Conflict) -> tuple[str, str, str, str]:
    return conflict.path, conflict.resource, conflict.field, conflict.reason


def _text(node: Node | None) -> str | None:
    return None if node is None else node.as_value().text

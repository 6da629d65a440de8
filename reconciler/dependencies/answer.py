"""What a question's answer is: an assignment, a reason why there is none, or running out of steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.dependencies.question import Fact, Way
from reconciler.dependencies.world import Instance


@dataclass(frozen=True, slots=True)
class Answer:
    """Every instance that is needed, at one place of its candidates, and how each demand is met.

    Nothing is chosen that nobody needs. `skipped` are optional demands that could not be met.
    """

    chosen: Mapping[Instance, int] = field(default_factory=dict)
    met: Mapping[Fact, Way] = field(default_factory=dict)
    skipped: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """Facts that cannot hold together; without any one of them they could, if `minimal`."""

    facts: tuple[Fact, ...]
    minimal: bool = True


@dataclass(frozen=True, slots=True)
class OutOfSteps:
    """Nothing is known: the budget of `steps` conflicts was used up."""

    steps: int


Outcome = Answer | Unsatisfiable | OutOfSteps

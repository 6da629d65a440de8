"""One cluster, resolved: pose, split, solve, decode, verify, explain."""

from reconciler.dependencies.answer import Answer, OutOfSteps, Unsatisfiable
from reconciler.dependencies.explain import explain
from reconciler.dependencies.pose import pose
from reconciler.dependencies.question import Question, split
from reconciler.dependencies.solution import Explanation, Resolved, Skipped, Solution, decode, with_requesters
from reconciler.dependencies.solve import solve
from reconciler.dependencies.verify import verify
from reconciler.dependencies.world import Instance, World
from reconciler.errors import Exit, Problem, ReconcilerError
from reconciler.reasons import Reason


class UnverifiedSolutionError(ReconcilerError):
    """The solver's answer broke a rule: a defect of ours, so nothing of it is used."""

    exit_code = Exit.BUG
    hint = "Please report this with the manifests and the index."

    def __init__(self, cluster: str, violations: tuple[str, ...]) -> None:
        super().__init__(f"the resolution of {cluster or 'the cluster'} is wrong: {'; '.join(violations)}")
        self.violations = violations


def resolve(world: World) -> Solution:
    """Resolve the dependencies of one cluster, part by part; one part's failure leaves the others alone.

    Deterministic and order-free; the answer is the canonical one that `solve` describes.

    Raises:
        UnverifiedSolutionError: An answer does not survive the independent check.
    """
    posed = pose(world)
    resolved: list[Resolved] = []
    skipped: list[Skipped] = []
    explanations: list[Explanation] = []
    problems = list(posed.problems)
    failed: set[Instance] = set()
    for part in split(posed.question):
        outcome = solve(part)
        match outcome:
            case Answer():
                pins, left = decode(part, outcome)
                resolved += pins
                skipped += left
            case Unsatisfiable():
                explanation = explain(world, part, outcome)
                explanations.append(explanation)
                problems += _stalled(world, part, explanation)
                failed.update(part.nodes)
            case OutOfSteps():
                problems += _exhausted(world, part, outcome)
                failed.update(part.nodes)
    solution = Solution(
        with_requesters(resolved),
        tuple(skipped),
        tuple(explanations),
        frozenset(failed),
        tuple(sorted(problems)),
    )
    violations = verify(world, solution)
    if violations:
        raise UnverifiedSolutionError(world.cluster, violations)
    return solution


def _stalled(world: World, part: Question, explanation: Explanation) -> list[Problem]:
    message = "Dependencies cannot be met: " + "; ".join(explanation.sentences)
    return _problems(world, part, Reason.DEPENDENCY_CONFLICT, message, "; ".join(explanation.hints))


def _exhausted(world: World, part: Question, outcome: OutOfSteps) -> list[Problem]:
    message = f"Dependencies could not be decided in {outcome.steps} steps"
    return _problems(
        world, part, Reason.STEP_BUDGET_EXCEEDED, message, "Narrow the ranges, or raise the limit"
    )


def _problems(world: World, part: Question, reason: Reason, message: str, hint: str) -> list[Problem]:
    wishes = {demand.fact.subject for demand in part.roots}
    return [
        Problem(install.location, reason, message, hint=hint, subject=str(install))
        for install in world.installs
        if str(install) in wishes
    ]

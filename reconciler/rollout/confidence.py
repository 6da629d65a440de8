"""Judge the confidence in an upstream revision, and put it into words. Pure."""

from datetime import UTC, datetime

from reconciler.confidence import Confidence
from reconciler.policy.confidence import RequiredConfidence
from reconciler.policy.settings import amount
from reconciler.rollout.model import GateResult, Verdict
from reconciler.wording import plural, verb


def judge_revision(
    label: str, confidence: Confidence | None, required: RequiredConfidence, now: int
) -> GateResult:
    """Return whether the confidence in a revision is enough. What could not be counted is waited for."""
    if confidence is None:
        return GateResult(Verdict.WAITING, f"confidence in {label}: a repository could not be read")
    result, why = judge_confidence(confidence, required, now)
    return GateResult(result, f"confidence in {label}: {why}" if why else "")


def judge_confidence(confidence: Confidence, required: RequiredConfidence, now: int) -> GateResult:
    """Return whether the confidence in a revision is enough at a time, in seconds. Total.

    What is short of packages or of time is waited for. Packages that went back, or met a conflict, fail it.
    """
    for what, count, most in (
        ("went back from it", confidence.reverted, required.max_reverted),
        ("met a conflict with it", confidence.conflicts, required.max_conflicts),
    ):
        allowed = amount(most, confidence.total, up=False)
        if count > allowed:
            of = plural(confidence.total, "package")
            return GateResult(Verdict.FAILED, f"{count} of {of} {what}, and at most {allowed} may")
    if confidence.running < required.packages:
        runs = f"{plural(confidence.running, 'package')} {verb(confidence.running, 'runs', 'run')} it"
        return GateResult(Verdict.WAITING, f"{runs}, and {required.packages} must")
    due = confidence.since[required.packages - 1] + required.age
    if due > now:
        must, when = plural(required.packages, "package"), datetime.fromtimestamp(due, UTC)
        return GateResult(
            Verdict.WAITING, f"{must} will have run it for long enough on {when:%Y-%m-%d %H:%M} UTC"
        )
    return GateResult(Verdict.PASSED)


def confidence_text(confidence: Confidence) -> str:
    """Return how the packages fared, in words that stay true whenever they are read."""
    if not confidence.total:
        return "new to this fleet"
    runs = f"runs in {plural(confidence.running, 'package')}"
    if confidence.since:
        first = ", the first since" if confidence.running > 1 else " since"
        runs += f"{first} {datetime.fromtimestamp(confidence.since[0], UTC):%Y-%m-%d}"
    counts = [f"{confidence.total} had it"] if confidence.total > confidence.running else []
    counts += [
        f"{confidence.reverted or 'none'} went back",
        f"{confidence.conflicts or 'none'} met a conflict",
    ]
    return f"{runs}; {', '.join(counts)}"

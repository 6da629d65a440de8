"""Reasons: CamelCase, stable, listed once with what each means; `docs/reference/reasons.md` explains them."""

from enum import StrEnum
from typing import NamedTuple, Self


class Phase(StrEnum):
    """Phase of a package in reports; docs/reference/reasons.md has the table."""

    PUBLISHED = "published"
    IN_REVIEW = "in review"
    NOT_READY = "not ready"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    PAUSED = "paused"
    HELD_BACK = "held back"
    PENDING = "pending"
    STALLED = "stalled"


class WaitsFor(StrEnum):
    """Source of the next step of a package, once the effects of its change are done."""

    NOBODY = "nobody"
    REVIEW = "review"
    ANSWER = "answer"
    """Of people, to the conflicts of its draft."""
    CORRECTION = "correction"
    """Of its functions, its gates or the checkout."""
    DECISION = "decision"
    MANIFEST = "manifest"
    """Its manifest or repository is wrong, which is a problem of its own."""
    CHECKS = "checks"
    WAVE = "wave"
    SCHEDULE = "schedule"
    """Of pull requests, or a limit of them."""
    DEPENDENTS = "dependents"
    UNPAUSE = "unpause"
    NEXT_RUN = "next run"


class Facts(NamedTuple):
    """Meaning of a reason for the package of a change."""

    phase: Phase | None = None
    """Phase of a package that is kept for this reason; None where its effects decide."""
    decided: bool = True
    """Whether something new was decided; if not, the record of the last run stays."""
    ensured: bool = True
    """Whether main or a draft holds what the variant asks for."""
    described: bool = False
    """Whether the proposal of a draft is known; if not, the text of its pull request stays."""
    quiet: bool = False
    """Whether the reason gives way to the repair of a pull request."""
    waits_for: str = ""
    """The event that ends the wait of a held or pending package, if no person or next run does."""
    step_of: WaitsFor | None = None
    """Source of that event; None for a person who decides, or the next run."""


_PLAIN = Facts()


class Reason(StrEnum):
    """Why a change is planned, an owner is stalled, or a package is kept: a row for each, with its facts."""

    facts: Facts

    def __new__(cls, name: str, facts: Facts = _PLAIN) -> Self:
        """Make a reason, which is its name, with facts about it."""
        reason = str.__new__(cls, name)
        reason._value_, reason.facts = name, facts
        return reason

    ADOPTED = "Adopted", Facts(described=True)
    ALREADY_ABSENT = "AlreadyAbsent"
    AMBIGUOUS_DOWNSTREAM = "AmbiguousDownstream"
    AMBIGUOUS_IDENTIFIER = "AmbiguousIdentifier"
    APPROVED_BY_POLICY = "ApprovedByPolicy"
    AWAITING_CHECKS = "AwaitingChecks", Facts(described=True, quiet=True)
    AWAITING_SCHEDULE = "AwaitingSchedule", Facts(waits_for="its schedule", step_of=WaitsFor.SCHEDULE)
    AWAITING_WAVE = (
        "AwaitingWave",
        Facts(phase=Phase.HELD_BACK, ensured=False, waits_for="its rollout", step_of=WaitsFor.WAVE),
    )
    BASE_NOT_FOUND = "BaseNotFound"
    BRANCH_NOT_FOUND = "BranchNotFound"
    CHECKOUT_OUTDATED = (
        "CheckoutOutdated",
        Facts(
            phase=Phase.HELD_BACK,
            decided=False,
            waits_for="a run from the tip",
            step_of=WaitsFor.NEXT_RUN,
        ),
    )
    CONTENT_CHANGED = "ContentChanged", Facts(described=True)
    CONTEXT_NOT_INJECTED = "ContextNotInjected"
    DEFECT = "Defect", Facts(phase=Phase.STALLED, decided=False)
    DELETED_BY_PERSON = (
        "DeletedByPerson",
        Facts(
            phase=Phase.HELD_BACK,
            decided=False,
            ensured=False,
            described=True,
            waits_for="its deletion by a person",
        ),
    )
    DELETION_GUARD = "DeletionGuard", Facts(phase=Phase.HELD_BACK, waits_for="consent to its deletion")
    DELETION_PROPOSED = "DeletionProposed", Facts(described=True, quiet=True)
    DELETION_WITHDRAWN = "DeletionWithdrawn", Facts(described=True)
    DEPENDENCY_CONFLICT = "DependencyConflict"
    DEPENDENCY_CYCLE = "DependencyCycle"
    DEPENDENTS_UNKNOWN = (
        "DependentsUnknown",
        Facts(phase=Phase.HELD_BACK, waits_for="proof that nothing needs it"),
    )
    DEPRECATED_MANIFEST = "DeprecatedManifest"
    DRAFT_EDITED = "DraftEdited", Facts(described=True, quiet=True, waits_for="a decision about its draft")
    DRAFT_SUPERSEDED = "DraftSuperseded", Facts(described=True)
    DUPLICATE_DOWNSTREAM = "DuplicateDownstream", Facts(phase=Phase.STALLED, decided=False, ensured=False)
    DUPLICATE_KEY = "DuplicateKey"
    DUPLICATE_OBJECT = "DuplicateObject"
    DUPLICATE_PACKAGE = "DuplicatePackage"
    FOREIGN_DRAFT = "ForeignDraft", Facts(ensured=False)
    FUNCTIONS_POSTPONED = "FunctionsPostponed", Facts(phase=Phase.PENDING, decided=False, ensured=False)
    HELD_BACK = "HeldBack", Facts(phase=Phase.HELD_BACK, decided=False, ensured=False)
    IN_REVIEW = "InReview"
    INHERITED_DIFFERENTLY = "InheritedDifferently"
    INVALID_ANNOTATION = "InvalidAnnotation"
    INVALID_CONSTRAINT = "InvalidConstraint"
    INVALID_EXPRESSION = "InvalidExpression"
    INVALID_MANIFEST = "InvalidManifest"
    INVALID_NAME = "InvalidName"
    INVALID_PACKAGE = "InvalidPackage", Facts(waits_for="a fix of its package or its values")
    INVALID_SNAPSHOT = "InvalidSnapshot"
    INVALID_STATE = "InvalidState"
    INVALID_VERSION = "InvalidVersion"
    INVALID_YAML = "InvalidYAML"
    LOCK_PENDING = ("LockPending", Facts(phase=Phase.PENDING, ensured=False, waits_for="review of its lock"))
    MANIFEST_UNREADABLE = (
        "ManifestUnreadable",
        Facts(phase=Phase.HELD_BACK, waits_for="a fix of its manifest", step_of=WaitsFor.MANIFEST),
    )
    MERGE_CONFLICT = "MergeConflict", Facts(phase=Phase.CONFLICT, described=True)
    LOSS_NEEDS_CONSENT = "LossNeedsConsent", Facts(described=True)
    MERGE_DROPPED = "MergeDropped", Facts(described=True)
    MERGE_REFUSED = "MergeRefused", Facts(described=True)
    MISSING_FIELD = "MissingField"
    MOVED = "Moved", Facts(described=True, waits_for="what becomes of its former place")
    NAME_TAKEN = "NameTaken"
    NESTED_PACKAGE = "NestedPackage", Facts(ensured=False)
    NEW = "New", Facts(described=True)
    NOT_DESIRED = "NotDesired", Facts(described=True)
    NOT_FOUND = "NotFound"
    NOT_IN_THIS_RUN = "NotInThisRun", Facts(phase=Phase.PENDING, decided=False, ensured=False)
    NOT_OURS = "NotOurs", Facts(phase=Phase.STALLED, ensured=False)
    NOT_READY = "NotReady"
    NO_MATCHING_TARGETS = "NoMatchingTargets"
    ORPHANED = "Orphaned", Facts(described=True)
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    OWNER_CHANGED = "OwnerChanged", Facts(described=True)
    OWNER_STALLED = "OwnerStalled", Facts(phase=Phase.STALLED, decided=False)
    OWNER_UNKNOWN = "OwnerUnknown", Facts(phase=Phase.HELD_BACK, waits_for="proof that its owner is gone")
    PACKAGE_EXISTS = (
        "PackageExists",
        Facts(phase=Phase.STALLED, decided=False, ensured=False, waits_for="its adoption, or another name"),
    )
    PATH_TAKEN = "PathTaken", Facts(ensured=False)
    PAUSED = "Paused", Facts(phase=Phase.PAUSED, decided=False)
    PIPELINE_FAILED = "PipelineFailed", Facts(phase=Phase.NOT_READY, decided=False, ensured=False)
    PLACE_GONE = "PlaceGone", Facts(described=True, waits_for="what becomes of its former place")
    PROTECTED_FIELD = "ProtectedField"
    PUBLISHED_BY_MERGE = "PublishedByMerge", Facts(described=True)
    PULL_REQUEST_DUPLICATE = "PullRequestDuplicate"
    PULL_REQUEST_MISSING = "PullRequestMissing", Facts(described=True)
    PULL_REQUEST_OUTDATED = "PullRequestOutdated"
    PULL_REQUEST_UNREADABLE = (
        "PullRequestUnreadable",
        Facts(phase=Phase.STALLED, decided=False, ensured=False),
    )
    RATE_LIMITED = "RateLimited", Facts(waits_for="a limit of pull requests", step_of=WaitsFor.SCHEDULE)
    READ_DIFFERENTLY = "ReadDifferently"
    REJECTED = "Rejected", Facts(phase=Phase.REJECTED, ensured=False)
    REMOVAL_UNPROVEN = (
        "RemovalUnproven",
        Facts(phase=Phase.HELD_BACK, waits_for="the commit that removes it", step_of=WaitsFor.CORRECTION),
    )
    REPOSITORY_NOT_FOUND = "RepositoryNotFound"
    REPOSITORY_REFUSED = "RepositoryRefused"
    REPOSITORY_UNAVAILABLE = "RepositoryUnavailable"
    REVISION_CONFLICT = "RevisionConflict"
    ROLLED_BACK = (
        "RolledBack",
        Facts(
            phase=Phase.HELD_BACK,
            ensured=False,
            waits_for="the end of its rollback",
            step_of=WaitsFor.WAVE,
        ),
    )
    SNAPSHOT_INCOMPLETE = "SnapshotIncomplete", Facts(phase=Phase.HELD_BACK, waits_for="a complete snapshot")
    SNAPSHOT_STALE = "SnapshotStale", Facts(phase=Phase.HELD_BACK, waits_for="a newer snapshot")
    STEP_BUDGET_EXCEEDED = "StepBudgetExceeded"
    STILL_NEEDED = (
        "StillNeeded",
        Facts(phase=Phase.HELD_BACK, waits_for="the packages that need it", step_of=WaitsFor.DEPENDENTS),
    )
    UNBOUND_INPUT = "UnboundInput"
    UNKNOWN_ANNOTATION = "UnknownAnnotation"
    UNKNOWN_FIELD = "UnknownField"
    UNKNOWN_GROUP = "UnknownGroup"
    UNKNOWN_KIND = "UnknownKind"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    UPSTREAM_CHANGED = "UpstreamChanged", Facts(described=True)
    UPSTREAM_CIRCLE = "UpstreamCircle"
    UPSTREAM_NOT_FOUND = "UpstreamNotFound"
    UPSTREAM_NOT_VERIFIED = "UpstreamNotVerified"
    UPSTREAM_TAG_MOVED = (
        "UpstreamTagMoved",
        Facts(phase=Phase.HELD_BACK, decided=False, ensured=False, waits_for="consent to the moved tag"),
    )
    UP_TO_DATE = "UpToDate", Facts(described=True, quiet=True)
    VALIDATION_ERROR = "ValidationError"
    WOULD_BE_REFUSED = "WouldBeRefused", Facts(waits_for="a change that its cluster takes")


UNWANTED = frozenset((Reason.NOT_DESIRED, Reason.MOVED, Reason.PLACE_GONE, Reason.DELETION_PROPOSED))
"""Reasons of packages that no variant wants where they are, and of the proposals to delete them."""
LEFT_BY_RUN = frozenset((Reason.FUNCTIONS_POSTPONED, Reason.NOT_IN_THIS_RUN))
"""Reasons of packages that a limit of the whole run left to the next one, without a fault of their own."""
_BY_NAME = {str(reason): reason.facts for reason in Reason}


def find_facts(name: str) -> Facts:
    """Return the facts of a reason by its name, the plain ones for a name that is no reason."""
    return _BY_NAME.get(name, _PLAIN)

"""Revisions of one package: which one runs, how they are numbered and named, which ones stay."""

from reconciler.dependencies.lock.revisions import (
    RevisionInput,
    apply_proposal,
    propose_activation,
    revision_name,
)
from reconciler.dependencies.model.instances import DesiredState, LockedRevision
from reconciler.dependencies.model.packages import ActivationRequest
from tests.support.values import replace

DIGESTS = {number: f"sha256:{number}" + "0" * 63 for number in range(1, 10)}
AUTOMATIC = RevisionInput("Provider/aws", "x.io/aws:v1", DIGESTS[1])
MANUAL = replace(AUTOMATIC, automatic=False)


def asks(version: int, base: RevisionInput = AUTOMATIC, **more: object) -> RevisionInput:
    return replace(base, image=f"x.io/aws:v{version}", digest=DIGESTS[version], **more)


def run(*steps: RevisionInput, start: tuple[LockedRevision, ...] = ()) -> tuple[LockedRevision, ...]:
    """Play several runs, each from what the last one left."""
    revisions = start
    for asked in steps:
        revisions = apply_proposal(propose_activation(replace(asked, history=revisions)))
    return revisions


def told(revisions: tuple[LockedRevision, ...]) -> list[str]:
    """Return revisions as `number version`, `*` for the active and `?` for a current one that waits."""
    return [
        f"{one.revision} {one.image.rpartition(':')[2]}{'*' if one.is_active else '?' if one.current else ''}"
        for one in revisions
    ]


def activation(version: int, *, active: bool = True) -> ActivationRequest:
    return ActivationRequest("ProviderRevision", revision_name("Provider/aws", DIGESTS[version]), active)


def test_an_automatic_package_runs_its_first_revision_at_once() -> None:
    (one,) = run(AUTOMATIC)

    assert (one.package, one.revision, one.desired_state, one.current) == (
        "Provider/aws",
        1,
        DesiredState.ACTIVE,
        True,
    )
    assert (one.image, one.digest) == ("x.io/aws:v1", DIGESTS[1])


def test_a_manual_package_waits_for_the_user() -> None:
    assert told(run(MANUAL)) == ["1 v1?"]
    assert told(run(MANUAL, replace(MANUAL, activations=(activation(1),)))) == ["1 v1*"]


def test_an_automatic_update_switches_in_one_step() -> None:
    assert told(run(asks(1), asks(2))) == ["1 v1", "2 v2*"]


def test_a_person_may_hold_an_automatic_package_at_an_older_revision() -> None:
    before = run(asks(1), asks(2))
    held = asks(2, activations=(activation(1),))

    assert told(run(held, start=before)) == ["2 v2?", "3 v1*"]
    assert told(run(held, held, start=before)) == ["2 v2?", "3 v1*"]
    assert told(run(held, asks(2), start=before)) == ["3 v1", "4 v2*"]


def test_the_active_revision_is_never_collected_nor_the_one_that_waits() -> None:
    steps = [asks(1), *(asks(version, MANUAL) for version in range(2, 6))]

    assert told(run(*steps)) == ["1 v1*", "4 v4", "5 v5?"]


def test_a_name_is_that_of_its_package_and_its_content() -> None:
    assert revision_name("Provider/aws", DIGESTS[1]) == "aws-100000000000"
    assert revision_name(f"Provider/{'a' * 63}", DIGESTS[1]) == f"{'a' * 50}-100000000000"
    assert revision_name("Provider/aws", "", "x.io/aws:v1") != revision_name(
        "Provider/aws", "", "x.io/aws:v2"
    )

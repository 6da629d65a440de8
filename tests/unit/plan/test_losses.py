"""Losses as texts, and the checksum that consents to them."""

import pytest

from reconciler.names.ids import NamedObject, PackageKey
from reconciler.plan.impact import Loss, all_losses, loss_consent
from tests.support.values import replace

WEB = PackageKey("host/edge", "web")
LOSS = Loss("dev", NamedObject("Provider", "", "aws"), "Bucket.s3.io", 2, is_complete=True, names=("a", "b"))

PVC = "PersistentVolumeClaim"
CLAIM = Loss("dev", NamedObject(PVC, "web", "db"), PVC, 1, is_complete=True)


@pytest.mark.parametrize(
    ("loss", "cause", "objects"),
    [
        (LOSS, "Provider aws", "Bucket.s3.io and its 2 objects with it: a, b"),
        (replace(LOSS, listed=9, names=tuple("abcde")), "Provider aws",
            "Bucket.s3.io and its 9 objects with it: a, b, c and 6 more"),
        (replace(LOSS, listed=0, names=()), "Provider aws", "Bucket.s3.io without any object with it"),
        (replace(LOSS, is_complete=False), "Provider aws",
            "Bucket.s3.io and its objects (at least 2) with it: a, b"),
        (replace(LOSS, is_complete=False, listed=0, names=()), "Provider aws",
            "Bucket.s3.io and its objects (an unknown number) with it"),
        (Loss("dev", NamedObject("Provider", "", "aws"), ""), "Provider aws",
            "what it brought (an unknown number of objects) with it"),
        (Loss("dev", NamedObject("Namespace", "", "web"), ""), "Namespace web",
            "everything else in it (an unknown number of objects) with it"),
        (CLAIM, "PersistentVolumeClaim web/db", "its data with it"),
    ],
)  # fmt: skip
def test_text_names_what_goes_and_never_calls_an_unknown_number_none(loss, cause, objects) -> None:
    assert loss.text == f"dev: {cause} takes {objects}"


@pytest.mark.parametrize(
    ("package", "losses", "is_same"),
    [
        pytest.param(WEB, [LOSS, replace(LOSS, listed=9, is_complete=False)], True, id="another number"),
        pytest.param(WEB, [LOSS, replace(LOSS, kind="Queue.s3.io")], True, id="another kind"),
        pytest.param(WEB, [LOSS, replace(LOSS, cause="Provider gcp")], False, id="another removed object"),
        pytest.param(WEB, [replace(LOSS, cluster="prod")], False, id="another cluster"),
        pytest.param(WEB._replace(path="db"), [LOSS], False, id="another package"),
    ],
)
def test_consent_is_to_removed_objects_of_one_package(package, losses, is_same) -> None:
    assert (loss_consent(package, losses) == loss_consent(WEB, [LOSS])) is is_same


def test_losses_of_objects_come_first_and_each_once() -> None:
    harmless = replace(LOSS, listed=0, names=(), cluster="a")
    assert not harmless.needs_consent

    told = replace(LOSS, heir="Provider gcp")
    assert all_losses([harmless, LOSS, told]) == (told, harmless)

"""The title of the pull request that proposes new versions of a source."""

import pytest

from reconciler.inventory.inventory import Commit
from reconciler.names.ids import ObjectName
from reconciler.plan.changes import PinChange
from reconciler.plan.proposals import IndexProposal, ProposalPlace
from tests.support.plan_values import oid

DB, WEB = (PinChange(name, "1.0.0", "2.0.0", "") for name in ("db.io", "web.io"))


@pytest.mark.parametrize(
    ("versions", "subject", "title"),
    [
        ((DB,), "", "Add db.io 2.0.0 to the index"),
        ((DB, WEB), "", "Add 2 versions of carvel:io to the index"),
        ((WEB,), "Update the chart web.io to 2.0.0", "Update the chart web.io to 2.0.0"),
    ],
    ids=["one version", "several", "of a chart"],
)
def test_title_names_what_is_new(versions: tuple[PinChange, ...], subject: str, title: str) -> None:
    place = ProposalPlace(
        ObjectName("default", "control"), "host/control", "index", Commit(oid("c1"), 5), "main"
    )

    assert IndexProposal("carvel:io", "refs/heads/x", {}, versions, place, subject=subject).title == title

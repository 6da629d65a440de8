"""Checks beyond Porch's: downstream package paths, and the fields that a hint names."""

import pytest

from reconciler.base.reasons import Reason
from reconciler.expand.own_checks import check_downstream
from tests.support.sets import repository


@pytest.mark.parametrize("directory", ["", "site"])
def test_hint_about_a_package_path_names_the_directory_only_where_there_is_one(directory: str) -> None:
    (finding,) = check_downstream(repository("edge", directory=directory), "a..b", "fleet")

    assert finding.reason is Reason.INVALID_NAME
    assert f'package path "{directory and "site/"}a..b" is not valid' in finding.message
    assert ("spec.git.directory of Repository edge" in finding.hint) is bool(directory)


def test_legal_package_path_has_no_finding() -> None:
    assert list(check_downstream(repository("edge"), "a/b", "fleet")) == []


@pytest.mark.parametrize(("field", "is_told"), [("packageExpr", True), ("package", False)])
def test_name_of_a_package_revision_in_an_expression_leads_to_that_of_the_package(
    field: str, is_told: bool
) -> None:
    (finding,) = check_downstream(repository("edge"), "bp.web.v1-edge", "fleet", ("spec", field))

    assert ("packageDefault is the package" in finding.hint) is is_told

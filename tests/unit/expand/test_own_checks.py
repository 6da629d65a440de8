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

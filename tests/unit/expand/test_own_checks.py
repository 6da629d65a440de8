"""Checks beyond Porch's: downstream package paths, and the fields that a hint names."""

import pytest

from reconciler.api.porch import PackageVariantSpec
from reconciler.expand.checks import check_downstream, check_labels
from tests.support.sets import repository

LONG = "x" * 64
AT_BOTH_ENDS = "letters, digits, '-', '_' and '.', and a letter or digit at both ends"


@pytest.mark.parametrize(
    ("field", "key", "value", "why"),
    [
        ("labels", "team", LONG, f"the value '{LONG}' is not at most 63 {AT_BOTH_ENDS}"),
        ("labels", "contact", "a@b", f"the value 'a@b' is not at most 63 {AT_BOTH_ENDS}"),
        ("labels", "-team", "a", f"the name '-team' is not 1 to 63 {AT_BOTH_ENDS}"),
        ("labels", LONG, "a", f"the name '{LONG}' is not 1 to 63 {AT_BOTH_ENDS}"),
        ("labels", "A.io/team", "a",
            "the prefix 'A.io' is not a DNS name of at most 253 lower-case characters"),
        ("annotations", "a b", "any text", f"the name 'a b' is not 1 to 63 {AT_BOTH_ENDS}"),
        ("annotations", "acme.example/a", LONG, ""),
        ("labels", "acme.example/a", "", ""),
    ],
)  # fmt: skip
def test_labels_that_kubernetes_refuses_are_refused(field: str, key: str, value: str, why: str) -> None:
    found = list(check_labels(("spec",), PackageVariantSpec.model_validate({field: {key: value}})))

    hint = "Correct it, or write it" if "value" in why else "Correct the key."
    assert [(each.path, each.message.partition(": ")[2], each.hint[: len(hint)]) for each in found] == (
        [(("spec", field, key), why, hint)] if why else []
    )


@pytest.mark.parametrize(("field", "is_told"), [("packageExpr", True), ("package", False)])
def test_name_of_a_package_revision_in_an_expression_leads_to_that_of_the_package(
    field: str, is_told: bool
) -> None:
    (finding,) = check_downstream(repository("edge"), "bp.web.v1-edge", "fleet", ("spec", field))

    assert ("packageDefault is the package" in finding.hint) is is_told

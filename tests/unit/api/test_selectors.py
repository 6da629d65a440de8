"""Label selectors: every operator, and every way to write one wrongly."""

from typing import Any, NamedTuple

import pytest

from reconciler.api.meta import LabelSelector, SelectorError, compile_selector


def selector(*terms: dict[str, Any], **labels: str) -> LabelSelector:
    return LabelSelector.model_validate({"matchLabels": labels, "matchExpressions": list(terms)})


class Case(NamedTuple):
    reason: str
    selector: LabelSelector
    labels: dict[str, str]
    want: bool


def term(operator: str, *values: str, key: str = "tier") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


CASES = [
    Case("empty selector selects everything", LabelSelector(), {"tier": "edge"}, True),
    Case("empty selector selects what has no labels", LabelSelector(), {}, True),
    Case("equal label is selected", selector(tier="edge"), {"tier": "edge"}, True),
    Case("other value is not selected", selector(tier="edge"), {"tier": "core"}, False),
    Case("an empty value is a value", selector(tier=""), {}, False),
    Case("In finds one of its values", selector(term("In", "a", "b")), {"tier": "b"}, True),
    Case("In needs the key", selector(term("In", "a")), {}, False),
    Case("NotIn refuses its values", selector(term("NotIn", "a")), {"tier": "a"}, False),
    Case("NotIn holds where the key is absent", selector(term("NotIn", "a")), {}, True),
    Case("Exists needs the key only", selector(term("Exists")), {"tier": ""}, True),
    Case("DoesNotExist refuses the key", selector(term("DoesNotExist")), {"tier": ""}, False),
    Case("all terms must hold", selector(term("Exists"), region="eu"), {"tier": "a"}, False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_matches(case: Case) -> None:
    assert compile_selector(case.selector)(case.labels) is case.want


KEY = 'key: Invalid value: "a b": must be a label key'


@pytest.mark.parametrize(
    ("wrong", "message", "field"),
    [
        (LabelSelector(match_labels={"a b": "x"}), KEY, ("matchLabels", "a b")),
        (selector(term("Near", "a")), '"Near" is not a valid label selector operator',
            ("matchExpressions", 0, "operator")),
        (selector(term("In")),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ("matchExpressions", 0, "values")),
        (selector(term("Exists", "a")),
            'values: Invalid value: ["a"]: values set must be empty for exists and does not exist',
            ("matchExpressions", 0, "values")),
        (selector(term("Exists", key="a b")), KEY, ("matchExpressions", 0, "key")),
        (selector(tier="a b"), 'values: Invalid value: "a b": must be a label value',
            ("matchLabels", "tier")),
    ],
)  # fmt: skip
def test_invalid_selector_is_refused_as_in_kubernetes(
    wrong: LabelSelector, message: str, field: tuple[str | int, ...]
) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(wrong)

    assert str(caught.value) == message
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("key", "is_valid"),
    [
        (f"{'a' * 253}/{'b' * 63}", True), (f"{'a' * 254}/b", False), (f"a/{'b' * 64}", False),
        ("b" * 63, True), ("b" * 64, False), ("/b", False), ("a/", False), ("a.example/b_c.d-e", True),
        ("A.example/b", False),
    ],
)  # fmt: skip
def test_label_key_has_a_domain_of_253_and_a_name_of_63_characters(key: str, *, is_valid: bool) -> None:
    chosen = selector(term("Exists", key=key))
    if is_valid:
        assert compile_selector(chosen)({key: ""})
    else:
        with pytest.raises(SelectorError):
            compile_selector(chosen)

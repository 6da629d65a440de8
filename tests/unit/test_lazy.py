import re

import pytest

from reconciler.base.lazy import regex
from reconciler.base.values import LazyMapping


def test_expression_is_that_of_re_at_its_first_use() -> None:
    letters, broken = regex(r"[a-z]+", re.IGNORECASE), regex("(")

    assert (letters.findall("aB1c"), letters.pattern, letters.sub("-", "aB1c")) == (
        ["aB", "c"],
        "[a-z]+",
        "-1-",
    )
    assert not letters.fullmatch("a1")
    with pytest.raises(re.error):
        broken.match("")


def test_mapping_is_made_at_its_first_use_and_once() -> None:
    made = []

    def make() -> dict[str, int]:
        made.append("made")
        return {"a": 1}

    lazy = LazyMapping(make)
    assert made == []

    assert lazy == {"a": 1}
    assert (lazy["a"], len(lazy), list(lazy), "a" in lazy, "b" in lazy) == (1, 1, ["a"], True, False)
    assert {**lazy} == {"a": 1}
    assert repr(lazy) == "{'a': 1}"
    assert made == ["made"]

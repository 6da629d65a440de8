"""The type of every kind of scalar, as Kubernetes types it; where kubectl is installed, it is asked too."""

import json
import subprocess
from typing import Any, NamedTuple

import pytest

from reconciler.krm.yaml import YamlError, load_documents


class Case(NamedTuple):
    text: str
    want: Any


BOOLS = [
    Case(text, value)
    for value, words in ((True, "y yes true on"), (False, "n no false off"))
    for word in words.split()
    for text in (word, word.capitalize(), word.upper())
]
NULLS = [Case(text, None) for text in ("", "~", "null", "Null", "NULL", '!!null ""')]
INTEGERS = [
    Case("0", 0), Case("-0", 0), Case("+1", 1), Case("12", 12), Case("0777", 511), Case("0o777", 511),
    Case("0O17", 15), Case("-0o17", -15), Case("0x1F", 31), Case("+0x1f", 31), Case("-0b11", -3),
    Case("0B11", 3), Case("1_000", 1000), Case("1__0", 10), Case("1_", 1), Case("0_7", 7), Case("0o_7", 7),
    Case("9223372036854775807", 2**63 - 1),
    Case("-9223372036854775808", -(2**63)),
    Case('!!int "12"', 12), Case('!!int "1_000"', 1000), Case("!!int 0x1_F", 31),
]  # fmt: skip
FLOATS_THAT_JSON_MAKES_INTEGERS = [
    Case("1e3", 1000), Case("1E3", 1000), Case("1e+3", 1000), Case("1.", 1), Case("1.0", 1), Case("-0.0", 0),
    Case("08", 8), Case("1e-400", 0), Case("!!float 1", 1),
]  # fmt: skip
FLOATS = [
    Case("1.5", 1.5), Case(".5", 0.5), Case("+.5", 0.5), Case(".5_0", 0.5), Case("1_0.5_0", 10.5),
    Case("1e-7", 1e-7), Case("1e21", 1e21),
    Case("12345678901234567890", 12345678901234567890.0),
    Case("99999999999999999999999", 1e23),
    Case("0777777777777777777777777", 777777777777777777777777.0),
]  # fmt: skip
TEXTS = (
    "1:30 2001-01-01 2001-01-01T00:00:00Z 1e 1e400 0x 0b 0x1p4 0xFFFFFFFFFFFFFFFFF 1,000 _1 + . .. = << yEs"
    " nuLL 1.2.3 10.0.0.1 -a"
)
STRINGS = [Case(text, text) for text in (*TEXTS.split(), "9" * 5000)]
QUOTED_AND_TAGGED = [
    Case('"on"', "on"), Case("'12'", "12"), Case('""', ""), Case('"\\u0041"', "A"), Case("!!str 12", "12"),
    Case("!!str", ""), Case("!foo 12", "12"), Case("! 12", "12"), Case("!!bool yes", True),
    Case('!!bool "yes"', True), Case("!!binary aGk=", "hi"),
    Case("!!timestamp 2001-01-01", "2001-01-01"),
    Case("!!set {a: b}", {"a": "b"}), Case("!!map x", "x"), Case("!!float 1.5", 1.5),
]  # fmt: skip
CASES = [
    *BOOLS, *NULLS, *INTEGERS, *FLOATS_THAT_JSON_MAKES_INTEGERS, *FLOATS, *STRINGS, *QUOTED_AND_TAGGED,
]  # fmt: skip
REFUSED = [
    ".inf", "-.Inf", ".nan", "!!float .inf", "!!int 1.5", "!!int", "!!bool x", "!!null x", "!!timestamp x",
]  # fmt: skip


def _exactly(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text[:30] or "nothing")
def test_scalar_has_the_type_of_kubernetes(case: Case) -> None:
    (document,) = load_documents(f"v: {case.text}\n".encode())

    assert _exactly(document.value["v"]) == _exactly(case.want)


@pytest.mark.parametrize("text", REFUSED)
def test_scalar_that_kubernetes_refuses_is_an_error_with_a_position(text: str) -> None:
    with pytest.raises(YamlError) as caught:
        load_documents(f"a: 1\nv: {text}\n".encode())

    assert (caught.value.line, caught.value.column) == (2, 4)


KEYS = [
    Case("on", "true"), Case("n", "false"), Case("1", "1"), Case("0777", "511"), Case("1e3", "1000"),
    Case("1.5", "1.5"), Case("2001-01-01", "2001-01-01"), Case('"on"', "on"), Case("!!str 012", "012"),
]  # fmt: skip


@pytest.mark.parametrize("case", KEYS, ids=lambda case: case.text)
def test_key_becomes_the_json_key_of_kubernetes(case: Case) -> None:
    (document,) = load_documents(f"{case.text}: x\n".encode())

    assert document.value == {case.want: "x"}


@pytest.mark.parametrize("key", ["null", "~", "[a]", "{a: b}", ".inf"])
def test_key_without_json_form_is_refused(key: str) -> None:
    with pytest.raises(YamlError):
        load_documents(f"? {key}\n: x\n".encode())


MERGES = [
    Case("<<: {a: 2, b: 3}\n  a: 1", {"a": 1, "b": 3}),
    Case("a: 1\n  <<: {a: 2, b: 3}", {"a": 2, "b": 3}),
    Case("<<: [{a: 1}, {a: 2}]", {"a": 1}),
    Case("'<<': {a: 1}", {"<<": {"a": 1}}),
]


@pytest.mark.parametrize("case", MERGES, ids=lambda case: case.text)
def test_yaml_merge_key_applies_in_the_order_of_the_text(case: Case) -> None:
    (document,) = load_documents(f"v:\n  {case.text}\n".encode())

    assert document.value["v"] == case.want


@pytest.mark.needs("kubectl")
def test_kubectl_agrees_with_these_tables() -> None:
    head = "apiVersion: v1\nkind: X\nmetadata: {name: a}\n"
    cases = [case for case in CASES if case.text != '!!null ""']
    lines = [f"v{number}: {case.text}\n" for number, case in enumerate(cases)]
    merges = [f"m{number}:\n  {case.text}\n" for number, case in enumerate(MERGES)]
    keys = [f"k{number}:\n  {case.text}: x\n" for number, case in enumerate(KEYS)]
    command = ["kubectl", "annotate", "--local", "-f", "-", "a=b", "-o", "json"]
    text = head + "".join([*lines, *merges, *keys])

    answer = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout

    got = json.loads(answer)
    wrong = {
        case.text[:40]: (got[f"v{number}"], case.want)
        for number, case in enumerate(cases)
        if got[f"v{number}"] != pytest.approx(case.want)
        or isinstance(got[f"v{number}"], bool) != isinstance(case.want, bool)
    }
    assert wrong == {}
    assert [got[f"m{number}"] for number in range(len(MERGES))] == [case.want for case in MERGES]
    assert [got[f"k{number}"] for number in range(len(KEYS))] == [{case.want: "x"} for case in KEYS]

"""Schemas of definitions: what the API server completes, and what it refuses."""

from typing import Any

import pytest

from reconciler.admission.structural import Structural, complete, schemas_of
from reconciler.cel.kubernetes import parse_duration
from reconciler.krm.yaml import load_documents


def read(text: str) -> Any:
    (document,) = load_documents(text.encode())
    return document.value


BY_N = "x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]"
ANY_OF = "anyOf: [{required: [a]}, {required: [b]}], x-kubernetes-preserve-unknown-fields: true"
AB = "type: object, properties: {a-b: {type: string}}"


def faults(schema: str, new: str, old: str | None = None) -> list[tuple[str, str, bool]]:
    """Return the faults of a field `f` of this schema."""
    whole = Structural(read(f"type: object\nproperties: {{f: {schema}}}"))
    sides = (None if text is None else read(f"f: {text}") for text in (old, new))
    return [(fault.path, fault.reason, fault.is_sure) for fault in whole.find_faults(*sides)]


@pytest.mark.parametrize(
    ("schema", "value", "is_refused"),
    [
        ("{type: string, pattern: '^(?i)(abort|warn)?$'}", "WARN", False),
        ("{type: string, pattern: '^(?i)(abort|warn)?$'}", "fail", True),
        ("{type: integer}", "1", False),
        ("{type: integer}", "1.0", False),
        ("{type: integer}", "true", True),
        ("{type: integer, format: int32}", "4294967296", True),
        ("{type: number, multipleOf: 0.1}", "0.3", False),
        ("{type: integer, minimum: 1, exclusiveMinimum: true}", "1", True),
        ("{x-kubernetes-int-or-string: true}", "50%", False),
        ("{x-kubernetes-int-or-string: true}", "1.5", True),
        ("{type: string, nullable: true}", "null", False),
        ("{type: string}", "null", False),
        ("{type: array, items: {type: string}}", "[null]", True),
        ("{type: object, required: [a], properties: {a: {type: string, default: b}}}", "{}", False),
        ("{type: object, required: [a], properties: {a: {type: string}}}", "{}", True),
        ("{type: object, required: [a], properties: {a: {type: string}}}", "{a: null}", True),
        ("{type: string, enum: [a, b]}", "c", True),
        ("{type: string, maxLength: 2}", "äöü", True),
        ("{type: string, format: ipv4}", "1.2.3", True),
        ("{type: string, format: date-time}", "2026-01-01T00:00:00Z", False),
        ("{type: string, format: nobody-knows}", "a", False),
        ("{type: string, oneOf: [{format: ipv4}, {format: ipv6}]}", "1.2.3.4", False),
        ("{type: array, x-kubernetes-list-type: set, items: {type: string}}", "[a, a]", True),
        (f"{{type: array, {BY_N}, items: {{properties: {{k: {{type: string, default: a}}}}}}}}",
            "[{}, {k: a}]", True),
        ("{type: object, additionalProperties: {type: string}}", "{a: 1}", True),
        ("{type: object, properties: {a: {type: string}}}", "{b: {c: 1}}", False),
        (f"{{type: object, {ANY_OF}}}", "{c: 1}", True),
        ("{type: object, not: {required: [a]}, properties: {a: {type: string}}}", "{a: b}", True),
    ],
)  # fmt: skip
def test_value_is_refused_as_by_the_api_server(schema: str, value: str, *, is_refused: bool) -> None:
    assert bool(faults(schema, value)) is is_refused


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("{type: integer, minimum: 2}", "1", "should be greater than or equal to 2"),
        ("{type: integer, maximum: 2, exclusiveMaximum: true}", "2", "should be less than 2"),
        ("{type: integer, maximum: 2}", "3", "should be less than or equal to 2"),
        ("{type: integer, multipleOf: 2}", "3", "should be a multiple of 2"),
        ("{type: integer, format: int32}", "-2147483649", "must be of format int32"),
        ("{type: array, items: {type: string}, maxItems: 1}", "[a, b]", "should have at most 1 items"),
        ("{type: array, items: {type: string}, uniqueItems: true}", "[a, a]", 'Duplicate value: "a"'),
        ("{type: string, enum: [a, b]}", "c", 'supported values: "a", "b"'),
    ],
)  # fmt: skip
def test_reason_is_as_of_the_api_server(schema: str, value: str, reason: str) -> None:
    assert faults(schema, value) == [("f", reason, True)]


def rule(text: str, schema: str = "type: string", **more: str) -> str:
    further = "".join(f", {key}: {value}" for key, value in more.items())
    return f'{{{schema}, x-kubernetes-validations: [{{rule: "{text}", message: bad{further}}}]}}'


TWO, SWAPPED = "{ports: [{k: a, p: 1}, {k: b, p: 2}]}", "{ports: [{k: b, p: 2}, {k: a, p: 1}]}"
FIXED = 'x-kubernetes-validations: [{rule: "self == oldSelf", message: bad}]'
TIMES = (
    "type: object, properties: {d: {type: string, format: duration}, n: {type: integer},"
    " t: {type: array, items: {type: string, format: date}}}"
)
SET = "type: array, x-kubernetes-list-type: set, items: {type: string}"
NULLABLE = "type: object, properties: {n: {type: integer, nullable: true}}"
NAMED = f"type: array, {BY_N}, items: {{type: object}}"
NUMBERS = "type: array, items: {type: integer}"
ODD = (
    "{type: object, properties: {n: {type: integer}, l: {type: array, items: {type: integer,"
    " x-kubernetes-validations: [{rule: self % 2 == 1, message: bad}]}}}}"
)
NESTED = (
    "{type: object, properties: {l: {type: array, items: {type: object, properties: {a: {type: string}}}}},"
    " allOf: [{properties: {l: {items: {allOf: [{properties:"
    " {a: {x-kubernetes-validations: [{rule: self == 'b', message: bad}]}}}]}}}}]}"
)
PORT = f"{{type: object, properties: {{k: {{type: string}}, p: {{type: integer, {FIXED}}}}}}}"
PORTS = f"{{type: object, properties: {{ports: {{type: array, {BY_N}, items: {PORT}}}}}}}"


@pytest.mark.parametrize(
    ("schema", "old", "new", "is_refused"),
    [
        (rule("self == oldSelf"), "a", "b", True),
        (rule("self == oldSelf"), "a", "a", False),
        (rule("self == oldSelf"), None, "b", False),
        (rule("!oldSelf.hasValue() || self == oldSelf.value()", optionalOldSelf="true"), None, "b", False),
        (rule("!oldSelf.hasValue() || self == oldSelf.value()", optionalOldSelf="true"), "a", "b", True),
        (rule("self.size() < 3"), None, "long", True),
        (rule("self.size() < 3"), "long", "long", False),
        (rule("isQuantity(self) && quantity(self).isLessThan(quantity('1Gi'))"), None, "2Gi", True),
        (rule("has(self.a__dash__b)", AB), None, "{a-b: c}", False),
        (rule("self > 0.5", "type: number"), None, "1", False),
        (rule("self > duration('1m')", "type: string, format: duration"), None, "1h", False),
        (rule("!format.dns1123Label().validate(self).hasValue()"), None, "a-b", False),
        (rule("!format.dns1123Label().validate(self).hasValue()"), None, "A", True),
        (rule("!format.dns1123SubdomainPrefix().validate(self).hasValue()"), None, "a.b-", False),
        (rule("!format.named('qualifiedName').value().validate(self).hasValue()"), None, "x.io/a_b", False),
        (rule("format.named('nope').hasValue()"), None, "a", True),
        (rule("!format.date().validate(self).hasValue()"), None, "'2026-13-01'", True),
        (rule("self.d > duration('1m')", TIMES), None, "{d: 1h, t: [2026-01-01], n: 1}", False),
        (rule("self.t[0] < timestamp('2025-01-01T00:00:00Z')", TIMES), None, "{t: [2026-01-01]}", True),
        (rule("self == timestamp('2026-01-01T00:00:00Z')", "type: string, format: date-time"), None,
            "'2026-01-01T02:00:00+02:00'", False),
        (rule("self[1] < duration('1m')", "type: array, items: {format: duration}"), None, "[1, 2h]", True),
        (rule("self.d == oldSelf.d", TIMES), "{d: 1h}", "{d: 60m, n: 1}", False),
        (rule("!has(self.n)", NULLABLE), None, "{n: null}", False),
        (rule("self == oldSelf", SET), "[a, b]", "[b, a]", False),
        (rule("self == oldSelf", SET), "[a, b]", "[b, c]", True),
        (rule("self[0] == 'b'", SET), "[a, b]", "[b, a]", False),
        (rule("self == oldSelf", NAMED), "[{k: a}, {k: b}]", "[{k: b}, {k: a}]", False),
        (ODD, "{l: [2], n: 1}", "{l: [2], n: 2}", False),
        (ODD, "{l: [2], n: 1}", "{l: [2, 3], n: 1}", True),
        (rule("string(ip(self)) == self && string(cidr(self + '/8').ip()) == self"), None, "10.0.0.1", False),
        (rule("semver(self, true).isLessThan(semver('1.3.0'))"), None, "v1.02", False),
        (rule("isSemver(self, true) && !isSemver(self)"), None, "v1.02", False),
        (rule("quantity(self).add(1).isGreaterThan(quantity(self))"), None, f"'{10**40}'", False),
        (rule("[self].flatten() == self.reverse() || [1, 0].sort() != self", NUMBERS), None, "[0, 1]", True),
        (NESTED, None, "{l: [{a: x}]}", True),
        (NESTED, None, "{l: [{a: b}]}", False),
        (PORTS, TWO, SWAPPED, False),
        (PORTS, "{ports: [{k: a, p: 1}]}", "{ports: [{k: a, p: 2}]}", True),
    ],
)  # fmt: skip
def test_rule_decides(schema: str, old: str | None, new: str, *, is_refused: bool) -> None:
    assert [reason for _, reason, is_sure in faults(schema, new, old) if is_sure] == ["bad"] * is_refused


@pytest.mark.parametrize(
    "text",
    [
        "authorizer.group('').check('get').allowed()",
        "self.nope == 1",
        "self.size()",
        "[1].slice(0, 2) == [1]",
    ],
)
def test_rule_that_cannot_be_evaluated_refuses_nothing(text: str) -> None:
    ((path, reason, is_sure),) = faults(rule(text), "a")

    assert (path, is_sure) == ("f", False)
    assert "cannot be judged" in reason


def test_message_of_a_rule_is_computed() -> None:
    schema = rule("self == 'b'", messageExpression="\"'not ' + self\"")

    assert faults(schema, "a") == [("f", "not a", True)]


@pytest.mark.parametrize(
    ("schema", "value", "stored"),
    [
        ("{type: object, additionalProperties: true}", "{a: 1, b: {c: 1}}", {"a": 1, "b": {}}),
        ("{type: array}", "[{a: 1}, 2]", [{}, 2]),
        ("{x-kubernetes-preserve-unknown-fields: true}", "[{a: 1}]", [{"a": 1}]),
    ],
)
def test_what_a_schema_does_not_describe_goes(schema: str, value: str, stored: object) -> None:
    assert complete(read(schema), read(value)) == stored


@pytest.mark.parametrize(("subresources", "count"), [("{}", 1), ("{status: {}}", 0), ("{scale: {}}", 1)])
def test_status_with_an_endpoint_of_its_own_is_no_part_of_a_request(subresources: str, count: int) -> None:
    schema = "{type: object, properties: {status: {type: object, required: [ready]}}}"
    text = f"versions: [{{name: v1, subresources: {subresources}, schema: {{openAPIV3Schema: {schema}}}}}]"
    ((_, of_requests),) = schemas_of(read(text))
    value = {"kind": "K", "status": {}}

    assert len(list(of_requests.find_faults(None, value))) == count
    assert of_requests.complete(value) == (value if count else {"kind": "K"})
    assert len(list(of_requests.of_files.find_faults(None, value))) == 1


def test_unknown_fields_go_and_defaults_come() -> None:
    schema = read("properties: {a: {type: object, default: {}, properties: {b: {type: string, default: c}}}}")

    assert complete(schema, {"kind": "K", "x": 1}, is_root=True) == {"kind": "K", "a": {"b": "c"}}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("0", 0),
        ("1 day 0 hours", 86_400),
        ("-1.5s", -1.5),
        ("100ms", 0.1),
        ("3d", 259_200),
        ("2 weeks 1 day", 1_296_000),
    ],
)
def test_duration_is_read_as_go_writes_it(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "1y", "h", "P3D", "1h, 2m", "0 days"])
def test_text_that_go_does_not_write_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)

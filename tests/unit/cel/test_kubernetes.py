"""Functions that Kubernetes adds to CEL: each does what its documentation tells."""

import pytest

from reconciler.cel.kubernetes import Expressions, Failure

EXPRESSIONS = Expressions(("self",))


def value_of(text: str) -> object:
    """Return the value of an expression about nothing."""
    return EXPRESSIONS.evaluate(EXPRESSIONS.compile(text), EXPRESSIONS.bind({}))


@pytest.mark.parametrize(
    "text",
    [
        "isQuantity('1.3Gi') && !isQuantity('1.3 Gi') && !isQuantity('1Qi')",
        "quantity('50k').asInteger() == 50000 && quantity('1.5').asApproximateFloat() == 1.5",
        "quantity('50k').isInteger() && !quantity('1.5').isInteger()",
        "quantity('1k').compareTo(quantity('1000')) == 0 && quantity('1Ki').compareTo(quantity('1k')) == 1",
        "quantity('1m').compareTo(quantity('1')) == -1 && quantity('2').isGreaterThan(quantity('1'))",
        "quantity('1').add(quantity('500m')) == quantity('1.5') && quantity('1').sub(2) == quantity('-1')",
        "quantity('-1').sign() == -1 && quantity('0').sign() == 0 && quantity('1e3').sign() == 1",
        "semver('1.2.3-rc.1').isLessThan(semver('1.2.3')) && semver('1.2.3').major() == 1",
        "semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3 && !isSemver('v1.2.3')",
        "semver('1.0.0-2').isLessThan(semver('1.0.0-11')) && semver('1.0.0-9').isLessThan(semver('1.0.0-a'))",
        "isSemver('v1.0-rc.1+meta', true) && semver('v01.1-rc.1', true) == semver('1.1.0-rc.1')",
        "isIP('::1') && !isIP('1.2.3') && !isIP('fe80::1%eth0') && ip('::1').family() == 6",
        "ip('127.0.0.1').isLoopback() && ip('224.0.0.1').isLinkLocalMulticast() && ip('::').isUnspecified()",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()",
        "!ip('255.255.255.255').isGlobalUnicast() && !ip('ff01::1').isGlobalUnicast()",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && cidr('10.0.0.0/8').prefixLength() == 8",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.0'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16')) && !cidr('::/0').containsCIDR('10.0.0.0/8')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
        "'abc 123 def 456'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']",
        "'1 2 3'.findAll('[0-9]', 0) == [] && '1 2'.findAll('[0-9]', -1) == ['1', '2']",
        "isURL('https://x.io:80/a?b=c') && !isURL('x.io') && !isURL('https://x.io:port/')",
        "url('https://x.io:80/a%20b?c=d').getHost() == 'x.io:80' && url('/a').getScheme() == ''",
        "url('https://x.io:80/').getPort() == '80' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://x.io/a b').getEscapedPath() == '/a%20b'",
        "url('/?a=1&a=2').getQuery()['a'] == ['1', '2']",
        "[1, 2, 2].sum() == 5 && [1.5, 0.5].sum() == 2.0 && [].sum() == 0",
        "type([1, 2].sum()) == int && type([1.5, 0.5].sum()) == double",
        "[3, 1].min() == 1 && [3, 1].max() == 3 && lists.range(3) == [0, 1, 2]",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
        "[1].lastIndexOf(2) == -1 && 'abc'.indexOf('c') == 2",
        "ip.isCanonical('::1') && !ip.isCanonical('0::1')",
        "[1, 2].isSorted() && !['b', 'a'].isSorted() && [2, 1].sort() == [1, 2]",
        "[[1], [2, [3]]].flatten() == [1, 2, [3]] && [[1, [2]]].flatten(2) == [1, 2]",
        "[1, 2, 3].slice(1, 3) == [2, 3] && [1, 1, 2].distinct() == [1, 2] && [1, 2].reverse() == [2, 1]",
        "sets.contains([1, 2], [2]) && !sets.contains([1], [2]) && sets.equivalent([1, 1], [1])",
        "sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])",
    ],
)
def test_function_gives_its_documented_result(text: str) -> None:
    assert value_of(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("quantity('a')", "'a' is no quantity"),
        ("semver('1.2')", "'1.2' is no semantic version"),
        ("ip('1.2.3')", "'1.2.3' does not appear to be an IPv4 or IPv6 address"),
        ("cidr('10.0.0.0')", "'10.0.0.0' is no CIDR"),
        ("url('x.io')", "'x.io' is no URL"),
        ("[1].slice(1, 2)", "cannot slice(1, 2), list is length 1"),
        ("[[1]].flatten(-1)", "level must be non-negative"),
        (
            "format.named('labelValue').value().validate(1)",
            "found no matching overload for 'validate' applied to '(bytes, int)'",
        ),
        ("quantity('1').isLessThan(semver('1.0.0'))", "no such overload"),
        ("[quantity('1')].sum()", "no such overload"),
        ("'a'.find('(')", "'(' is no regular expression: b'missing ): ('"),
        ("no expression (", "Syntax error: mismatched input 'expression' expecting <EOF>"),
    ],
)
def test_argument_that_a_function_does_not_take_is_an_error(
    text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    failure = value_of(text)

    assert failure == Failure(message)
    assert capfd.readouterr().err == ""


def test_failure_tells_what_is_undeclared_or_missing() -> None:
    name, key = "nobody.x", 'Key not found in map : "b"'

    assert value_of(f"{name} + others") == Failure(name, undeclared=name)
    assert value_of("{'a': 1}['b']") == Failure(key, missing=key)
    assert isinstance(value_of("[].min()"), Failure)

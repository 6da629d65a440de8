"""Expressions that mean harm: each must be refused or stopped soon, in words, by both engines."""

from typing import Any

_LABELS = {f"label-{number}": "x" * 60 for number in range(64)}
_TARGET = {
    "repoDefault": "r",
    "packageDefault": "p",
    "target": {"name": "t", "namespace": "n", "labels": _LABELS, "annotations": {"big": "a" * 200_000}},
}
_LIST = "[" + ",".join("1" for _ in range(60)) + "]"
_MANY_LABELS = {**_TARGET, "target": {**_TARGET["target"], "labels": {str(n): "" for n in range(20_000)}}}  # type: ignore[dict-item]

HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("nested macros over literals", f"{_LIST}.exists(a,{_LIST}.exists(b,{_LIST}.exists(c,a+b+c<0)))?'a':'b'",
        {}),
    ("nested macros over labels",
        "target.labels.exists(a,target.labels.exists(b,target.labels.exists(c,a+b+c=='')))?'a':'b'", _TARGET),
    ("two macros over 20,000 labels", "target.labels.exists(a,target.labels.exists(b,a+b==''))?'a':'b'",
        _MANY_LABELS),
    ("31 nested macros", "[1].map(x," * 31 + "1" + ")" * 31, {}),
    ("chain of 2,000 terms", "+".join(["'a'"] * 2000), {}),
    ("chain of 499 terms", "+".join(["1"] * 499), {}),
    ("chain of conditions", "true?'a':" * 400 + "'b'", {}),
    ("chain of &&", "&&".join(["true"] * 400) + "?'a':'b'", {}),
    ("parentheses, 4,000", "(" * 4000, {}),
    ("parentheses, 2,000 closed", "(" * 2000 + "'a'" + ")" * 2000, {}),
    ("parentheses, 32 closed", "(" * 32 + "'a'" + ")" * 32, {}),
    ("lists, 500 deep", "[" * 500 + "]" * 500, {}),
    ("negations", "!" * 4000 + "true", {}),
    ("minus signs", "-" * 900 + "(1)", {}),
    ("catastrophic regular expression", "target.annotations.big.matches('(a+)+$b')?'a':'b'", _TARGET),
    ("catastrophic alternation", "target.annotations.big.matches('(a|a)*$b')?'a':'b'", _TARGET),
    ("enormous regular expression", "'a'.matches('((x{100}){100}){100}')?'a':'b'", {}),
    ("regular expression that is none", "'a'.matches('(')?'a':'b'", {}),
    ("unterminated string of backslashes", "'" + "\\" * 4000, {}),
    ("unterminated string of escapes", "'" + "\\x" * 2000, {}),
    ("string of 4,000 quotes", "'" * 4000, {}),
    ("string of a megabyte", "'" + "a" * 1_000_000 + "'", {}),
    ("doubling, 30 times", "['aaaa']" + ".map(x,x+x)" * 29 + "[0]", {}),
    ("multiplying, five times", "['aaaa']" + ".map(x,x+x+x+x+x+x+x+x+x+x+x+x+x+x+x+x)" * 5 + "[0]", {}),
    ("big annotation, thirty times", "+".join(["target.annotations.big"] * 31), _TARGET),
    ("list of 480 numbers", "[" + ",".join(["1"] * 480) + "].exists(x,x>1)?'a':'b'", {}),
    ("list of 495 numbers", "[" + ",".join(["1"] * 495) + "].exists(x,x>1)?'a':'b'", {}),
    ("integer overflow", "string(9223372036854775807+1)", {}),
    ("division by zero", "string(1/0)", {}),
    ("number that is none", "string(99999999999999999999999999)", {}),
    ("bidirectional text", "'\u202e' + \u202e", {}),
    ("null byte", "'a\x00b' + \x00", {}),
    ("lone surrogate", "'\ud800'", {}),
    ("empty", "", {}),
]  # fmt: skip

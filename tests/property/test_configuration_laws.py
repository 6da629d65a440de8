"""The short way to read a configuration finds what the whole schema finds, or leaves it to that."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.validation import parse_model
from reconciler.read.configuration import Configuration, parse_given_settings

JUNK = st.sampled_from(("", "x", 3, -1, 2.5, True, None, [], ["a", 1], {}, {"x": 1}))
GROUP = {"mode": "reviewed", "share": "0.5", "steps": 7, "path": "./a/", "maxAge": "7d", "tags": "no", "x": 1}
SETTINGS: dict[str, Any] = {
    "instance": "edge",
    "manifests": ["b", "./a", "b"],
    "defaultNamespace": "fleet",
    "snapshot": {"path": "clusters/./here", "maxAge": "12h"},
    "pullRequests": {"groupBy": "set", "labels": ["z", "a"], "schedule": ["0 6 * * 1"], "maxWait": "1m"},
    "approval": {"auto": [{"selector": {"matchLabels": {"a": "b"}}}]},
    "publish": {"tags": "no"},
    "lock": {"mode": "reviewed", "reviewed": {"strict": True}},
    "deletions": {"share": "0.5", "minimum": 3},
    "consents": {"ab": "why"},
    "commits": {"sign": "ssh", "signingKeyEnv": "KEY"},
    "dependencies": {"steps": "7", "select": {"kpt": "lowest"}, "path": "./needed/"},
    "limits": {"readSeconds": 5, "expressionDepth": 31},
    "rollouts": [{"selector": {}, "waves": [{"name": "one", "soak": "1h"}]}],
    "onConflict": "fail",
    "unavailable": "warn",
    "exit": {"waiting": "0"},
    "suspend": "true",
    "functions": {"timeout": 5, "images": {"a": "sha256:" + "0" * 64}, "exec": {"a": "/bin/a"}},
    "forges": [{"prefix": "https://forge.example", "type": "github"}],
    "credentials": [{"prefix": "https://forge.example", "tokenEnv": "TOKEN"}],
    "addresses": ["https://forge.example"],
    "configPath": "other.yaml",
    "default_namespace": "by-its-name-in-python",
}


def sometimes(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw some keys of a mapping with their values, and rarely with another value."""
    drawn = {
        key: st.one_of(st.just(value), st.just(value), st.just(value), JUNK) for key, value in values.items()
    }
    return st.fixed_dictionaries({}, optional=drawn)


SPECS = st.one_of(
    sometimes(SETTINGS),
    st.dictionaries(st.sampled_from(sorted(SETTINGS)), sometimes(GROUP), max_size=2),
    JUNK,
)
HEADER = {
    "apiVersion": "reconciler.dev/v1alpha1",
    "kind": "Reconciler",
    "metadata": {"name": "demo", "labels": {"a": "b"}},
    "status": {},
}


@given(header=sometimes(HEADER), specs=st.lists(SPECS, max_size=1), required=st.booleans())
def test_given_settings_are_read_as_the_whole_schema_reads_them(
    header: dict[str, Any], specs: list[Any], required: bool
) -> None:
    value = {**header, **({"spec": specs[0]} if specs else {})}
    if required:
        value |= {key: HEADER[key] for key in ("apiVersion", "kind")}

    short, whole = parse_given_settings(value), parse_model(Configuration, value)

    assert short == (None if isinstance(whole, tuple) else whole)


def test_each_setting_is_read_both_ways() -> None:
    read = []
    for name, setting in SETTINGS.items():
        value = {"apiVersion": HEADER["apiVersion"], "kind": HEADER["kind"], "spec": {name: setting}}
        whole = parse_model(Configuration, value)
        assert parse_given_settings(value) == (None if isinstance(whole, tuple) else whole)
        read += [] if isinstance(whole, tuple) else [name]

    assert set(SETTINGS) - set(read) == {"configPath", "default_namespace"}

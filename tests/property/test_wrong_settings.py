"""Any wrong value of a setting or an annotation is one problem, at its line, in words for people."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.annotations import KEYS
from reconciler.api.validation import disk_fields
from reconciler.base.errors import ConfigurationError
from reconciler.policy import Limits, Policy
from reconciler.read.configuration import parse_configuration
from reconciler.read.files import parse_file, yaml_limits
from reconciler.read.manifests import classify_object

Place = tuple[str | int, ...]
ITEMS: Mapping[Place, dict[str, Any]] = {
    ("forges",): {"prefix": "https://x.example", "type": "github"},
    ("credentials",): {"prefix": "https://x.example", "tokenEnv": "TOKEN"},
    ("verify",): {"prefix": "https://x.example", "sshKeys": ["ssh-ed25519 AAAA"]},
    ("rollouts",): {"waves": [{"name": "first"}]},
    ("rollouts", 0, "waves"): {"name": "first"},
    ("rollouts", 0, "waves", 0, "gates", "objects"): {"apiVersion": "apps/v1", "kind": "Deployment"},
}
"""What an item needs beside the field that is wrong."""
RAW = re.compile(r"[Ii]nput should|[Ss]tring should|pattern|Tuple|Unable to|\^|NoneType")
"""Words of a library instead of ours."""


def places(model: Any, above: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the place of every setting, and of the first item of every list."""
    for name, annotation in disk_fields(model):
        place = (*above, name)
        yield place, annotation
        if get_origin(annotation) is tuple:
            yield (*place, 0), get_args(annotation)[0]
            yield from places(get_args(annotation)[0], (*place, 0))
        yield from places(annotation, place)


PLACES = sorted(places(Policy), key=lambda item: [str(step) for step in item[0]])


def document(place: Place, value: object) -> dict[str, Any]:
    """Return a configuration that is valid but for one value."""
    spec: dict[str, Any] = {}
    here: Any = spec
    for index, step in enumerate(place[:-1]):
        if isinstance(place[index + 1], int):
            here[step] = [dict(ITEMS.get(place[: index + 1], {}))]
        elif isinstance(here, dict):
            here.setdefault(step, {})
        here = here[step]
    here[place[-1]] = value
    head = {"apiVersion": "reconciler.dev/v1alpha1", "kind": "Reconciler", "metadata": {"name": "fleet"}}
    return {**head, "spec": spec}


WRONG = st.sampled_from(
    [None, [], {}, [1], ["x", ["y"]], {"k": 1}, -1, 1.5, True, "", "a: b", 10**30, [None]]
)


def fits(annotation: Any, value: object) -> bool:
    """Tell whether a value has the shape of a setting; what it says may be wrong all the same."""
    if value is None or isinstance(value, bool):
        return value is not None and annotation is bool
    if isinstance(value, list):
        return get_origin(annotation) is tuple
    if isinstance(value, dict):
        return get_origin(annotation) is dict or any(disk_fields(annotation))
    return not (get_origin(annotation) in (tuple, dict) or any(disk_fields(annotation)))


@given(st.sampled_from(PLACES), WRONG)
@settings(max_examples=300)
def test_wrong_setting_is_one_problem_at_its_line(item: tuple[Place, Any], value: object) -> None:
    place, annotation = item
    text = yaml.safe_dump(document(place, value), sort_keys=False)
    rows = text.splitlines()
    first = next(number for number, row in enumerate(rows, 1) if row.startswith(f"  {place[0]}:"))

    faults = refused(text)

    found = [fault.location for fault in faults if "Missing" not in str(fault)]
    assert bool(faults) or fits(annotation, value), text  # a value of the right shape may be wrong, too
    assert all(where is not None and first <= where.line <= len(rows) for where in found), faults
    assert len(set(found)) == len(found), faults
    assert not any(RAW.search(str(fault)) for fault in faults), faults


def refused(text: str) -> tuple[ConfigurationError, ...]:
    """Return the errors of a configuration, none if it is valid."""
    try:
        parse_configuration(text.encode(), "reconciler.yaml", {})
    except ConfigurationError as error:
        return error.parts
    return ()


KINDS = {"PackageVariant": "v1alpha1", "PackageVariantSet": "v1alpha2", "Repository": "v1alpha1"}
ANNOTATIONS = [(kind, key.name) for key in KEYS.values() for kind in KINDS if kind in key.kinds]


@pytest.mark.parametrize(("kind", "name"), ANNOTATIONS)
def test_annotation_of_another_type_is_one_problem_at_its_line(kind: str, name: str) -> None:
    for value in (None, [], {}, [1], {"k": "v"}, -1, 1.5, True):
        metadata = {"name": "web", "annotations": {name: value}}
        manifest = {"apiVersion": f"config.porch.kpt.dev/{KINDS[kind]}", "kind": kind, "metadata": metadata}
        text = yaml.safe_dump({**manifest, "spec": {}}, sort_keys=False)
        (parsed,) = parse_file("f.yaml", text.encode(), yaml_limits(Limits())).objects

        (problem,) = (p for p in classify_object(parsed, Policy()).problems if name in p.message)

        assert problem.location.line in (6, 7), value
        assert "must be" in problem.message, value

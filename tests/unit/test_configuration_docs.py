"""docs/configuration.md and docs/manifests.md say what the code does."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from reconciler.api.porch import PackageVariant, PackageVariantSpec, Repository
from reconciler.api.validation import disk_fields, parse_model
from reconciler.krm.yaml import load_documents
from reconciler.policy import Limits
from reconciler.read.configuration import parse_configuration
from reconciler.read.manifests import MANIFEST_KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()
MANIFESTS = (DOCS / "manifests.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_limits_are_those_of_the_table() -> None:
    shown = re.findall(r"`RECONCILER_LIMITS_(\w+)` \| `(\d+)`", CONFIGURATION)

    assert {name.lower(): int(value) for name, value in shown} == {
        name: getattr(Limits(), name) for name in (item.name for item in fields(Limits))
    }


def test_the_examples_of_the_configuration_are_valid() -> None:
    first, consent, second, third = blocks(CONFIGURATION)
    whole = f"apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {{name: a}}\n{second}"

    signed = f"apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {{name: a}}\n{third}"

    consented = f"apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata: {{name: a}}\n{consent}"

    assert parse_configuration(consented.encode(), "a", {}).consents
    assert parse_configuration(signed.encode(), "a", {}).verify[0].signed == "tag"
    assert parse_configuration(first.encode(), "a", {}).snapshot.max_age_s == 2 * 24 * 3600
    assert parse_configuration(whole.encode(), "a", {}).credentials[0].username == "reconciler"


def test_the_examples_of_the_manifests_are_valid_and_complete() -> None:
    documents = [each.value for block in blocks(MANIFESTS) for each in load_documents(block.encode())]
    models = {"PackageVariant": PackageVariant, "Repository": Repository}

    for document in documents:
        model = models[document["kind"]]
        assert isinstance(parse_model(model, document), model)
    known = {name for name, _ in disk_fields(PackageVariantSpec)} - {"mutators"}
    assert known in [each["spec"].keys() for each in documents]


@pytest.mark.parametrize("kind", MANIFEST_KINDS.values(), ids=lambda r: r.kind)
def test_every_kind_is_in_the_table(kind: object) -> None:
    assert f"| `{kind.kind}` | `{kind.api_version}` |" in MANIFESTS

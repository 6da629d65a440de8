"""`schema` prints what an editor needs."""

import json

import jsonschema_rs
import pytest
from click.testing import CliRunner

from reconciler.api.porch import Upstream
from reconciler.cli.schema import NAMES, schema
from tools.docs.manifest_schemas import manifest_schemas
from tools.docs.output_schemas import output_schemas


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_refuses_unknown_fields(name: str) -> None:
    result = CliRunner().invoke(schema, [name.lower()], standalone_mode=False)

    document = json.loads(result.output)
    assert document["title"] == name
    assert document["additionalProperties"] is False
    assert {"apiVersion", "kind", "spec"} <= document["properties"].keys()


def test_the_configuration_is_the_first() -> None:
    result = CliRunner().invoke(schema, [], standalone_mode=False)

    spec = json.loads(result.output)["$defs"]["Policy"]
    assert "defaultNamespace" in spec["properties"]
    assert spec["properties"]["instance"]["description"].startswith("Name of the instance")


def test_a_field_is_described_by_the_name_that_it_has_on_disk() -> None:
    result = CliRunner().invoke(schema, [], standalone_mode=False)

    fields = json.loads(result.output)["$defs"]["SnapshotPolicy"]["properties"]
    assert "maxAge" in fields
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_files_of_schemas_have_what_the_types_have() -> None:
    every = manifest_schemas() | output_schemas()

    assert [path.name for path, text in every.items() if path.read_text("utf-8") != text] == [], (
        "run `make docs`"
    )


@pytest.mark.parametrize("name", ["packagevariant", "packagevariantset"])
@pytest.mark.parametrize("revision", [3, "3", "v3", -1, "-1", "main", "v1.2.0"])
def test_editors_accept_every_revision_that_is_read(name: str, revision: object) -> None:
    document = json.loads(CliRunner().invoke(schema, [name], standalone_mode=False).output)
    upstream = {"$defs": document["$defs"], "$ref": "#/$defs/Upstream"}

    assert Upstream.model_validate({"revision": revision})
    assert jsonschema_rs.Draft202012Validator(upstream).is_valid({"revision": revision})

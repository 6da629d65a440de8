"""Validation of requests and replies by an API's description (OpenAPI 3.0, Swagger 2.0, GraphQL schema)."""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

DOCUMENTED = {
    # Gitea: https://docs.gitea.com/api/1.22/#tag/organization/operation/orgListLabels
    ("GET", "/orgs/{org}/labels"): re.compile(r"/orgs/[^/]+/labels"),
    # The same page, repoGetBranch: the name may have slashes.
    ("GET", "/repos/{owner}/{repo}/branches/{branch}"): re.compile(r"/repos/[^/]+/[^/]+/branches/.+"),
    # The same page, issueDeleteLabel.
    ("DELETE", "/repos/{owner}/{repo}/labels/{id}"): re.compile(r"/repos/[^/]+/[^/]+/labels/\d+"),
    # The same page, what administrators do.
    ("POST", "/admin/users"): re.compile(r"/admin/users"),
    ("DELETE", "/admin/users/{username}"): re.compile(r"/admin/users/[^/]+"),
    ("POST", "/users/{username}/tokens"): re.compile(r"/users/[^/]+/tokens"),
    ("POST", "/orgs"): re.compile(r"/orgs"),
    ("DELETE", "/orgs/{org}"): re.compile(r"/orgs/[^/]+"),
    ("POST", "/orgs/{org}/repos"): re.compile(r"/orgs/[^/]+/repos"),
    ("POST", "/orgs/{org}/labels"): re.compile(r"/orgs/[^/]+/labels"),
    ("PUT", "/repos/{owner}/{repo}/collaborators/{collaborator}"): re.compile(
        r"/repos/[^/]+/[^/]+/collaborators/[^/]+"
    ),
}
"""Operations that a forge documents and its description, as it is kept here, leaves out."""


API = "urn:api"
"""What the parts that operations share are read by."""


@dataclass
class Operation:
    """One operation: its path as a pattern, its parameters by place, the schemas of its bodies."""

    method: str
    path: str
    pattern: re.Pattern[str]
    query: dict[str, Any]
    required: set[str]
    body: Any
    replies: dict[str, Any]


@dataclass(eq=False)
class Description:
    """An API's description; `check_request` and `check_reply` return the errors."""

    document: Any
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        shared = {k: self.document[k] for k in ("components", "definitions") if k in self.document}
        self.shared = jsonschema_rs.Registry([(API, _nullable(shared))])
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                if isinstance(operation, dict) and "responses" in operation:
                    self.operations.append(self._operation(method.upper(), path, operation, methods))
        self.operations.sort(key=lambda o: o.path.count("{"))

    def find(self, method: str, path: str) -> Operation | None:
        """Return the operation of a request, the most literal path first."""
        return next((o for o in self.operations if o.method == method and o.pattern.fullmatch(path)), None)

    def check_request(self, method: str, path: str, query: dict[str, str], body: Any) -> list[str]:
        operation = self.find(method, unquote(path))
        if operation is None:
            documented = any(m == method and p.fullmatch(unquote(path)) for (m, _), p in DOCUMENTED.items())
            return [] if documented else [f"{method} {path} is not described"]
        wrong = [f"unknown query parameter {name}" for name in query if name not in operation.query]
        for name, text in query.items():
            wrong += self._check(
                operation.query.get(name, {}), _typed(operation.query.get(name, {}), text), f"?{name}"
            )
        wrong += [f"missing query parameter {name}" for name in operation.required - set(query)]
        if body is not None and operation.body is None:
            wrong.append("no body is described")
        elif operation.body is not None and body is not None:
            wrong += self._check(operation.body, body, "body")
            wrong += self._unknown(operation.body, body, "body")
        return [f"{method} {path}: {error}" for error in wrong]

    def check_reply(self, method: str, path: str, status: int, body: Any) -> list[str]:
        operation = self.find(method, unquote(path))
        if operation is None:
            return []
        if str(status) not in operation.replies:
            return [f"{method} {path}: status {status} is not described"]
        schema = operation.replies[str(status)]
        return (
            [f"{method} {path} {status}: {w}" for w in self._check(schema, body, "reply")] if schema else []
        )

    def _operation(self, method: str, path: str, operation: Any, around: Any) -> Operation:
        given = [*around.get("parameters", []), *operation.get("parameters", [])]
        parameters = [self._resolve(p) for p in given]
        body = next((p.get("schema") for p in parameters if p.get("in") == "body"), None)
        content = self._resolve(operation.get("requestBody", {})).get("content", {})
        slashy = {p["name"] for p in parameters if p.get("x-multi-segment")} | {"head"}
        pattern = re.sub(
            r"\{(\w+)\}",
            lambda m: "(.+)" if m[1] in slashy else "([^/]+)",
            re.escape(path).replace(r"\{", "{").replace(r"\}", "}"),
        )
        return Operation(
            method,
            path,
            re.compile(pattern),
            {p["name"]: p.get("schema", p) for p in parameters if p.get("in") == "query"},
            {p["name"] for p in parameters if p.get("in") == "query" and p.get("required")},
            body or content.get("application/json", {}).get("schema"),
            {status: self._reply(reply) for status, reply in operation["responses"].items()},
        )

    def _reply(self, reply: Any) -> Any:
        resolved = self._resolve(reply)
        return resolved.get("schema") or resolved.get("content", {}).get("application/json", {}).get("schema")

    def _resolve(self, node: Any) -> Any:
        while isinstance(node, dict) and "$ref" in node:
            target: Any = self.document
            for step in node["$ref"].removeprefix("#/").split("/"):
                target = target[step.replace("~1", "/").replace("~0", "~")]
            node = target
        return node

    def _check(self, schema: Any, value: Any, where: str) -> list[str]:
        if not schema:
            return []
        return [
            f"{where}: {e.message} at {list(e.instance_path)}"
            for e in self._validator(json.dumps(schema)).iter_errors(value)
        ]

    @lru_cache(maxsize=500)  # noqa: B019 - one description per test run
    def _validator(self, schema: str) -> Any:
        parsed = _nullable(json.loads(schema.replace('"$ref": "#/', f'"$ref": "{API}#/')))
        return jsonschema_rs.Draft202012Validator(parsed, validate_formats=False, registry=self.shared)

    def _unknown(self, schema: Any, value: Any, where: str) -> Iterator[str]:
        if isinstance(value, list):
            items = self._resolve(schema).get("items", {})
            for index, item in enumerate(value):
                yield from self._unknown(items, item, f"{where}[{index}]")
        if isinstance(value, dict):
            properties = self._properties(schema)
            for name, inner in value.items():
                if properties is not None and name not in properties:
                    yield f"{where}: unknown field {name}"
                elif properties:
                    yield from self._unknown(properties[name], inner, f"{where}.{name}")

    def _properties(self, schema: Any) -> dict[str, Any] | None:
        """Return the declared fields of an object, None if any are allowed."""
        resolved = self._resolve(schema)
        if not isinstance(resolved, dict) or resolved.get("additionalProperties"):
            return None
        properties = dict(resolved.get("properties", {}))
        for part in (*resolved.get("oneOf", ()), *resolved.get("anyOf", ()), *resolved.get("allOf", ())):
            properties |= self._properties(part) or {}
        return properties


@cache
def load(path: Path) -> Description:
    """Read a description."""
    return Description(json.loads(path.read_text()))


def _typed(schema: Any, text: str) -> Any:
    if schema.get("type") in {"integer", "number"} and text.isdecimal():
        return int(text)
    return {"true": True, "false": False}.get(text, text) if schema.get("type") == "boolean" else text


def _nullable(node: Any) -> Any:
    """Say in JSON Schema's words what OpenAPI 3.0 calls nullable; Swagger's Go types may all be null."""
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    made = {
        key: _nullable(value)
        for key, value in node.items()
        if key not in {"example", "examples", "nullable"}
        or (key in {"example", "examples"} and isinstance(value, dict) and "type" in value)
    }
    if node.get("nullable") is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made


VARIABLE = "RECONCILER_GRAPHQL_SCHEMA"


@cache
def validator() -> Callable[[str], list[str]] | None:
    """Return a function that returns the errors of a GraphQL document, None without the public schema."""
    path = Path(os.environ.get(VARIABLE, ""))
    if not path.is_file():
        return None
    import graphql

    public = graphql.build_schema(path.read_text(encoding="utf-8"), assume_valid=True)

    @cache
    def check(document: str) -> list[str]:
        return [error.message for error in graphql.validate(public, graphql.parse(document))]

    return check

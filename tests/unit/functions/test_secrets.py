"""Which files may hold a Secret, in every spelling, and which values functions may not say."""

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from reconciler.functions import secrets
from reconciler.functions.protocol import FunctionResult
from reconciler.functions.resources import Resource
from reconciler.functions.secrets import (
    MASK,
    hide_secrets,
    hides_field,
    holds_secret,
    secret_values,
    values_in_secrets,
)
from reconciler.functions.step import Stage, Step, StepRun
from reconciler.names.objects import File, Files
from reconciler.names.substitution import OwnValues

PLAIN = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  token: hunter2value\n"
FLOW = "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {token: hunter2value}}\n"
JSON = '{"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "hunter2value"}}'
ESCAPED = '{"apiVersion": "v1", "kind": "\\u0053ecret", "stringData": {"token": "hunter2value"}}'
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n"


def inside(text: str, by: str = "  ") -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


SPELLINGS = {
    "plain": PLAIN,
    "single quotes": PLAIN.replace("Secret", "'Secret'"),
    "double quotes": PLAIN.replace("Secret", '"Secret"'),
    "quoted key": PLAIN.replace("kind", "'kind'"),
    "comment behind": PLAIN.replace("Secret", "Secret # of the shop"),
    "blanks and a tab": PLAIN.replace("kind: Secret", "kind \t:\t Secret  "),
    "explicit key": PLAIN.replace("kind: Secret", "? kind\n: Secret"),
    "value on the next line": PLAIN.replace("kind: Secret", "kind:\n  Secret"),
    "tag": PLAIN.replace("Secret", "!!str Secret"),
    "tag of a stranger": PLAIN.replace("Secret", "!x Secret"),
    "verbatim tag": PLAIN.replace("Secret", "!<tag:yaml.org,2002:str> Secret"),
    "!!binary": PLAIN.replace("Secret", "!!binary U2VjcmV0"),
    "!!binary, percent-encoded": PLAIN.replace("Secret", "!!bin%61ry U2VjcmV0"),
    "!!binary by a directive": "%TAG !b! tag:yaml.org,2002:bin\n---\n"
    + PLAIN.replace("Secret", "!b!ary U2VjcmV0"),
    "anchor": PLAIN.replace("Secret", "&k Secret"),
    "alias": PLAIN.replace("kind: Secret", "x: &k Secret\nkind: *k"),
    "merge key": OTHER.replace("kind: ConfigMap", "x: &x {kind: Secret}\n<<: *x"),
    "escape of YAML": PLAIN.replace("Secret", '"\\x53ecret"'),
    "long escape of YAML": PLAIN.replace("Secret", '"\\U00000053ecret"'),
    "escape of every letter": PLAIN.replace("Secret", '"\\x53\\x65\\x63\\x72\\x65\\x74"'),
    "escaped line break": PLAIN.replace("Secret", '"Sec\\\n  ret"'),
    "escaped line break, CRLF": PLAIN.replace("Secret", '"Sec\\\r\n  ret"'),
    "escaped key": PLAIN.replace("kind", '"k\\x69nd"'),
    "folded": PLAIN.replace("Secret", ">-\n  Secret"),
    "literal": PLAIN.replace("Secret", "|-\n  Secret"),
    "byte order mark": f"\ufeff{PLAIN}",
    "CR": PLAIN.replace("\n", "\r"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "indented document": inside(PLAIN),
    "flow": FLOW,
    "flow after a marker": f"--- {FLOW}",
    "second document": f"{OTHER}---\n{PLAIN}",
    "after an end of document": f"{OTHER}...\n{PLAIN}",
    "after a directive": f"%YAML 1.1\n---\n{PLAIN}",
    "JSON": JSON,
    "JSON with an escape": ESCAPED,
    "JSON, indented": JSON.replace("{", "{\n\t"),
    "lines of JSON": f'{{"kind": "ConfigMap"}}\n{JSON}\n',
    "array of JSON": f"[{JSON}]",
    "List": f"apiVersion: v1\nkind: List\nitems:\n- {FLOW}",
    "alias in a List": "x: &k Secret\nkind: List\nitems:\n- kind: *k\n  data: {a: aHVudGVyMg==}\n",
    "List in a List": f"kind: List\nitems:\n- kind: List\n  items:\n  - {FLOW}",
    "list of another kind": f"kind: SecretItemList\nitems:\n- {FLOW}",
    "SecretList without kinds": "apiVersion: v1\nkind: SecretList\nitems:\n- stringData: {a: hunter2value}\n",
    "ResourceList of a function": f"kind: ResourceList\nitems:\n- {FLOW}",
    "Object of Crossplane": f"kind: Object\nspec:\n  forProvider:\n    manifest:\n{inside(PLAIN, '      ')}",
    "template of OpenShift": f"kind: Template\nobjects:\n- {FLOW}",
    "another group": PLAIN.replace("v1", "vault.example.com/v1"),
    "text of a ConfigMap": f"{OTHER}data:\n  s.yaml: |\n{inside(PLAIN, '    ')}",
    "JSON text of a ConfigMap": f"{OTHER}data:\n  s.json: '{JSON}'\n",
    "escaped JSON text of a ConfigMap": f"{OTHER}data:\n  s.json: '{ESCAPED}'\n",
    "text in a text": f"{OTHER}data:\n  c: |\n"
    + inside(f"{OTHER}data:\n  s: |\n{inside(PLAIN, '    ')}", "    "),
    "template in a ConfigMap": f"{OTHER}data:\n  s: |\n    {{{{ if .x }}}}\n{inside(PLAIN, '    ')}",
    "script of a ConfigMap": f"{OTHER}data:\n  run: |\n    kubectl apply -f - <<EOF\n{inside(PLAIN, '    ')}",
    "last applied object": f"{OTHER}  annotations:\n    last: '{JSON}'\n",
    "comment": f"{OTHER}{inside(PLAIN, '# ')}",
    "text as a document": '"{\\"kind\\": \\"Secret\\", \\"stringData\\": {\\"token\\": \\"hunter2value\\"}}"',
    "template of Helm": "{{ if .x }}\n" + PLAIN,
    "template with an escape": '{{ if .x }}\nkind: "\\u0053ecret"\n',
    "duplicate key": PLAIN.replace("kind: Secret", "kind: ConfigMap\nkind: Secret"),
    "duplicate key, first": PLAIN.replace("kind: Secret", "kind: Secret\nkind: ConfigMap"),
    "after a broken document": f"a: [\n---\n{PLAIN}",
    "escape after a broken document": 'a: [\n---\nkind: "\\x53ecret"\n',
    "!!binary after a broken document": "a: [\n---\nkind: !!binary U2VjcmV0\n",
    "tabs for indentation": f"a:\n\tb: 1\n{PLAIN}",
    "control character": f"a: \x01\n{PLAIN}",
    "too deep": "[" * 200 + FLOW + "]" * 200,
    "undefined alias": f"a: *nothing\n{PLAIN}",
    "key of a mapping": f"? {FLOW}: x\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_secret_is_found_in_every_spelling(spelling: str) -> None:
    for encoding in ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        secret, other = File.of(spelling.encode(encoding)), File.of(b"a: 1\n")

        assert holds_secret(secret), encoding
        assert holds_secret(other, secret), encoding
        assert holds_secret(None, secret), encoding


def test_values_of_secrets_are_in_no_part_of_a_run_and_none_leaves_a_rest_of_another() -> None:
    def run(text: str) -> StepRun:
        parts = {"field": {"a": [text]}, "tags": {"a": text}, "resource_ref": {"name": text}}
        result = FunctionResult(text, file={"path": text, "index": 1}, **parts)
        return StepRun(Step("", Stage.MUTATORS, 0), "builtin", (result,), stderr=text)

    values = frozenset({"hunter2value", "hunter2value-long"})

    assert hide_secrets(run("a hunter2value-long, hunter2value"), values) == run(f"a {MASK}, {MASK}")


def test_secret_in_text_that_is_not_utf_8_is_found() -> None:
    assert holds_secret(File.of(b"a: \xff\n" + PLAIN.encode()))


def test_secret_below_more_texts_than_are_parsed_is_found() -> None:
    text = PLAIN.replace("Secret", '"\\x53ecret"')
    for _ in range(12):
        text = f"a: |\n{inside(text)}"

    assert holds_secret(File.of(text.encode()))


NO_SECRETS = {
    "ExternalSecret": "apiVersion: external-secrets.io/v1\nkind: ExternalSecret\nspec: {target: {name: s}}\n",
    "SealedSecret": "kind: SealedSecret\nspec:\n  encryptedData: {a: AgB}\n  template:\n    type: Opaque\n",
    "SecretStore": "kind: SecretStore\n",
    "kind of another key": "objectKind: Secret\n",
    "name": "kind: Deployment\nmetadata:\n  name: Secret\n",
    "use of a Secret": "kind: Pod\nspec:\n  volumes:\n  - secret: {secretName: s}\n",
    "prose in YAML": "description: |\n  Name of the Secret: it must be in\n  the same namespace: always.\n",
    "template without the word": "{{ if .x }}\nimagePullSecrets: [a]\nkind: ExternalSecret\n",
    "script without the word": 'if [ "$a" != "b" ]; then\n  echo "\\x1b[1m100%"\n',
    "nothing": "",
    "every byte": bytes(range(256)).decode("latin-1"),
}


@pytest.mark.parametrize("text", NO_SECRETS.values(), ids=NO_SECRETS)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert not holds_secret(File.of(text.encode("latin-1")), None)


def test_aliases_of_one_long_text_are_looked_at_once() -> None:
    line = "a kind of Secret: x\n"
    text = "a: &a |\n" + inside(line * 10_000) + "b: [" + "*a," * 100_000 + "]\n"

    assert not holds_secret(File.of(text.encode()))


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "Secret", "stringData": {"token": "hunter2value"}},
        {"kind": "List", "items": [{"kind": "Secret", "stringData": {"token": "hunter2value"}}]},
        {"kind": "SecretList", "items": [{"stringData": {"token": "hunter2value"}}]},
        {"kind": "Object", "spec": {"manifest": {"kind": "Secret", "stringData": {"token": "hunter2value"}}}},
        {"kind": "ConfigMap", "data": {"s": PLAIN, "t": "no: text"}},
        {"kind": "ConfigMap", "data": {"s": ESCAPED}},
    ],
)
def test_values_of_nested_secrets_are_masked(value: dict[str, Any]) -> None:
    encoded = base64.b64encode(b"hunter2value").decode()

    assert {"hunter2value", encoded} <= secret_values([Resource(value)])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("stringData", 'say "hunter"\\2', 'say \\"hunter\\"\\\\2'),
        ("stringData", "hünter2value", "h\\u00fcnter2value"),
        ("stringData", "first line\nsecond line", "second line"),
        ("stringData", 12345678, "12345678"),
        ("data", "aHVudGVy\nMnZhbHVl\n", "hunter2value"),
        ("data", "aHVudGVy\nMnZhbHVl\n", "aHVudGVyMnZhbHVl"),
    ],
)
def test_values_are_masked_as_messages_quote_them(field: str, value: Any, said: str) -> None:
    assert said in secret_values([Resource({"kind": "Secret", field: {"a": value}})])


VALUE = "v4lue-of-a-secret"
CHART = "apiVersion: fn.kpt.dev/v1alpha1\nkind: RenderHelmChart\nvalues:\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-pod\nspec: {a: %s}\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def package(secret: str, chart: str, **others: str) -> Files:
    kind = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n{secret}\n"
    texts = {"secret.yaml": kind, "chart.yaml": f"{CHART}  {chart}\n", **others}
    return {path: File.of(text.encode()) for path, text in texts.items()}


@pytest.mark.parametrize(
    ("secret", "chart", "text", "shown"),
    [
        (f"data: {{a: {encoded(VALUE)}}}", f"a: {VALUE}", f"a: {VALUE}", "a: ***"),
        (f"data: {{a: {encoded('s3cret!').rstrip('=')}}}", "a: s3cret!", "a: s3cret!", "a: ***"),
        (f"stringData: {{a: {VALUE}}}", f"a: {VALUE}", f"x{VALUE}y", "x***y"),
        (f"stringData: {{a: {VALUE}}}", "a: b", f"- {VALUE}", "- ***"),
        (f"data: {{a: {encoded(VALUE)}}}", f"a: {encoded(VALUE)}", encoded(VALUE), "***"),
        (f'stringData: {{a: "[db]\\npw = {VALUE}!"}}', f"a: {VALUE}!", f"- a: {VALUE}!", "- a: ***"),
        (f"stringData: {{a: 'https://kim:{quote('p/w+1&x')}@h'}}", "a: p/w+1&x", "a: p/w+1&x", "a: ***"),
        (f'stringData: {{a: \'{{"auth": "{encoded("kim:" + VALUE)}"}}\'}}', f"a: {VALUE}", VALUE, "***"),
        (f"stringData: {{a: 'pw={VALUE}'}}", f"a: 'https://{VALUE}@h/x'", f"https://{VALUE}@h/x",
            "https://***@h/x"),
        ("stringData: {a: 'say \"s3cret\"'}", "a: 'say \"s3cret\"'", '"say \\"s3cret\\""', '"***"'),
        ("stringData: {a: '123456'}", "a: 123456", "a: 123456", "a: ***"),
        ("stringData: {a: swordfish}", "a: swordfish", "swordfish: a swordfish, a swordfishing",
            "swordfish: a ***, a swordfishing"),
        ("stringData: {a: pw1}", "a: pw1", "a: pw1\n+  - 'pw1'\nb: pw12", "a: ***\n+  - '***'\nb: pw12"),
        ("stringData: {a: pw1}", "a: b", "a: pw1", "a: pw1"),
        ("stringData: {a: x}", "dbPassword: other-than-the-secret", "a: other-than-the-secret", "a: ***"),
        ("stringData: {a: x}", "existingSecret: web-pod", "existingSecret: web-pod",
            "existingSecret: web-pod"),
        ("stringData: {a: web-pod}", "a: web-pod", "name: web-pod", "name: web-pod"),
        ("stringData: {a: 'true', b: '5432'}", "a: true", "a: true\nb: 5432", "a: true\nb: 5432"),
        ("stringData: {a: x}", f"a: {VALUE}", f"a: {VALUE}", f"a: {VALUE}"),
        ("stringData: {a: x}", "a: b", f"+ checksum/config: {'ab12' * 16}", "+ checksum/config: ***"),
        ("stringData: {a: x}", "a: b", f"+ digest: {'ab12' * 16}", f"+ digest: {'ab12' * 16}"),
    ],
)  # fmt: skip
def test_value_that_stands_in_a_secret_is_hidden_in_texts(
    secret: str, chart: str, text: str, shown: str
) -> None:
    other = package("stringData: {other: unrelated-value}", "a: b", **{"pod.yaml": POD % "x"})

    for sides in (
        (package(secret, chart), other),
        (other, package(secret, chart)),
        ({}, package(secret, chart, **{"pod.yaml": POD % "x"})),
    ):
        assert values_in_secrets(*sides).text(text) == shown
    assert values_in_secrets({"pod.yaml": File.of((POD % VALUE).encode())}).text(text) == text


MARKED = "stringData:\n  a: old-placeholder # kpt-set: ${a}\n"


@pytest.mark.parametrize(
    ("secret", "inputs", "text", "shown"),
    [
        (f"stringData: {{a: {VALUE}}}", (f"a: {VALUE}", "a: what-it-gets"), "a: what-it-gets", "a: ***"),
        (f"stringData: {{a: 'x={VALUE}'}}", (f"a: {VALUE}", "a: pw2"), "a: pw2", "a: ***"),
        (f"stringData: {{a: {VALUE}}}", (f"b: [x, {VALUE}]", "b: [one-value, another-one]"),
            "- one-value\n- another-one", "- one-value\n- ***"),
        (f"stringData: {{a: {VALUE}}}", (f"b: {VALUE}", "a: another-value"), "a: another-value",
            "a: another-value"),
        (MARKED, ("b: x", "a: what-it-becomes"), "a: what-it-becomes", "a: ***"),
        (MARKED.replace("old-placeholder", '""'), ("b: x", "a: what-it-becomes"), "what-it-becomes", "***"),
        (f"{MARKED}  b: x\nimmutable: false # kpt-set: ${{b}}", ("b: y", "b: other-value"), "b: other-value",
            "b: other-value"),
        ("stringData: {a: web-pod}", ("a: web-pod", "a: another-pod"), "a: another-pod", "a: another-pod"),
    ],
)  # fmt: skip
def test_input_that_functions_write_into_a_secret_is_hidden_before_they_run(
    secret: str, inputs: tuple[str, str], text: str, shown: str
) -> None:
    old, new = (package(secret, chart, **{"pod.yaml": POD % "x"}) for chart in inputs)

    assert values_in_secrets(old, new).text(text) == shown


def test_value_of_yaml_is_hidden_with_what_is_in_it() -> None:
    values = values_in_secrets(package(f"stringData: {{a: {VALUE}, b: pw1}}", f"a: [{VALUE}, pw1]"))

    value = {"a": [VALUE, "pw1", "pw12"], "b": {"c": f"x-{VALUE}", "d": True, "e": 3}, "f": None}
    assert values.value(value) == {
        "a": ["***", "***", "pw12"],
        "b": {"c": "x-***", "d": True, "e": 3},
        "f": None,
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Kptfile",
            f"pipeline:\n  mutators:\n  - image: apply-setters:v0.2\n    configMap: {{a: {VALUE}}}\n"),
        ("values/prod.yaml", f"a: {{b: {VALUE}}}\n"),
        ("values.json", f'{{"a": "{VALUE}"}}\n'),
        ("local.yaml", OTHER
            + f"  annotations: {{config.kubernetes.io/local-config: 'true'}}\ndata: {{a: {VALUE}}}\n"),
        ("fn/setters.yaml", OTHER + f"data: {{a: {VALUE}}}\n"),
    ],
)  # fmt: skip
def test_inputs_of_functions_are_where_functions_and_charts_read_them(path: str, text: str) -> None:
    kptfile = {"Kptfile": "pipeline: {mutators: [{image: a, configPath: ./fn/setters.yaml}]}\n"}
    files = package(f"stringData: {{a: 'https://kim:{VALUE}@h'}}", "a: b", **{**kptfile, path: text})

    copies = dict.fromkeys(("0.txt", "zz.txt"), files[path])  # which no function reads

    for sides in ([{**files, **copies}], [files], [{**copies, **files}], [files, copies]):
        assert values_in_secrets(*sides).text(f"a: {VALUE}") == "a: ***"
    assert hides_field([files], "other.yaml", "spec.a", None, f"x {VALUE}")
    assert not hides_field([files], "other.yaml", "spec.a", None, "x")
    assert hides_field([files], "other.yaml", "metadata.annotations.checksum/secret", "x")
    assert hides_field([files], "secret.yaml", "spec.a", "x")


@pytest.mark.parametrize(
    "spelled", ['"v4lue-of\\x2da-secret"', "!!binary " + encoded(VALUE), ">-\n    v4lue-of-a\n    secret"]
)
def test_file_that_spells_a_value_in_another_way_is_hidden_as_a_whole(spelled: str) -> None:
    value = "v4lue-of-a secret" if spelled.startswith(">") else VALUE
    files = package(f"stringData: {{a: {value}}}", f"a: {spelled}")
    values = values_in_secrets(files)

    assert values.hides_file(files["chart.yaml"])
    assert hides_field([files], "chart.yaml", "values.a", "x")
    assert not values.hides_file(files["secret.yaml"], None)


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_files_that_differ_in_own_values_alone_are_searched_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"kind: {kind}\nmetadata: {{name: CLUSTER}}\ndata: {{a: of a Secret}}\n"
    packages = [{"a.yaml": File.of(text.replace("CLUSTER", name).encode())} for name in ("own-1", "own-2")]
    search, searched = secrets._secrets_of_text, list[bytes]()

    def count(data: bytes, *arguments: Any) -> Iterator[Any]:
        searched.append(data)
        return search(data, *arguments)

    monkeypatch.setattr(secrets, "_DECIDED", {})
    monkeypatch.setattr(secrets, "_secrets_of_text", count)
    monkeypatch.setattr(secrets, "_find_values", lambda *_: secrets.NO_SECRET_VALUES)

    for number, files in enumerate(packages, 1):
        values_in_secrets(files, own_values=OwnValues.of([f"own-{number}"]))

    assert len(searched) == 1
    assert [holds_secret(files["a.yaml"]) for files in packages] == [kind == "Secret"] * 2

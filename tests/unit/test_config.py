"""reconciler.yaml and the environment become a policy, or one clear error."""

import re
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from reconciler.base.errors import ConfigurationError, Exit, Location
from reconciler.policy import (
    DependencyPolicy,
    Discovery,
    ForgeKind,
    ForgeRule,
    GroupBy,
    LockMode,
    LockPolicy,
    OnConflict,
    OnUnavailable,
    OpenOn,
    Policy,
    ReviewedLockPolicy,
    Selection,
    SelectPolicy,
    find_rule,
)
from reconciler.read.configuration import Configuration, parse_configuration, variable_name

HEAD = "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\nmetadata:\n  name: fleet\n"
EVERYTHING = """\
spec:
  manifests: [./sets/, variants]
  defaultNamespace: platform
  snapshot:
    path: cluster
    maxAge: 1d12h
  pullRequests:
    openOn: propose
    groupBy: set
    dashboard: true
  risks: {registries: [registry.example.com]}
  admission: {refused: problem, snapshots: true}
  registries: {atOnce: 2}
  rollouts:
  - waves: [{name: canary, size: 2, soak: 1h}]
  approval:
    auto: [{checks: [ci]}]
  publish:
    tags: false
  dependencies:
    path: ./needs
    sharedNamespace: shared
    discovery: index
    allowDowngrade: true
    reconsider: true
    steps: 1000
    select: {crossplane: nearest, porter: max-minor}
  deletions:
    share: 0.5
    minimum: 2
    count: 7
  commits:
    name: Bot
    email: bot@example.com
  limits:
    yamlDepth: 20
  lock: {mode: reviewed, reviewed: {strict: true}}
  onConflict: upstream
  unavailable: warn
  exit:
    waiting: 0
  suspend: true
  functions:
    runtime: podman
    images:
      example.com/fn:v1: sha256:0000000000000000000000000000000000000000000000000000000000000000
  forges:
  - prefix: https://github.com/acme
    type: github
  credentials:
  - prefix: https://github.com/acme
    tokenEnv: ACME_TOKEN
  verify:
  - prefix: https://github.com/acme
    sshKeys: [ssh-ed25519 AAAA release@example.com]
  addresses: ['https://github.com/acme']
"""


def parse(text: str, **environment: str) -> Policy:
    return parse_configuration(text.encode(), "reconciler.yaml", environment)


def test_a_name_is_enough_and_the_rest_is_the_default() -> None:
    assert parse(HEAD) == Policy(instance="fleet")


def test_every_setting_reaches_the_policy() -> None:
    policy = parse(HEAD + EVERYTHING)

    assert policy.manifests == ("sets", "variants")
    assert policy.default_namespace == "platform"
    assert (policy.snapshot.path, policy.snapshot.max_age_s) == ("cluster", 36 * 3600)
    assert (policy.pull_requests.open_on, policy.pull_requests.group_by) == (OpenOn.PROPOSE, GroupBy.SET)
    assert policy.publish.tags is False
    assert policy.dependencies == DependencyPolicy(
        discovery=Discovery.INDEX,
        allow_downgrade=True,
        reconsider=True,
        select=SelectPolicy(crossplane=Selection.NEAREST, porter=Selection.MAX_MINOR),
        steps=1000,
        path="needs",
        shared_namespace="shared",
    )
    assert (policy.deletions.share, policy.deletions.minimum, policy.deletions.count) == (0.5, 2, 7)
    assert (policy.commits.name, policy.commits.email) == ("Bot", "bot@example.com")
    assert policy.limits.yaml_depth == 20
    assert policy.lock == LockPolicy(LockMode.REVIEWED, ReviewedLockPolicy(strict=True))
    assert policy.on_conflict is OnConflict.UPSTREAM
    assert (policy.unavailable, policy.suspend) == (OnUnavailable.WARN, True)
    assert policy.forges == (ForgeRule("https://github.com/acme", ForgeKind.GITHUB),)
    assert policy.credentials[0].token_env == "ACME_TOKEN"
    assert policy.addresses == ("https://github.com/acme",)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{prefix: a}", "set sshKeys, gpgKeys or both"),
        ("{prefix: a, sshKeys: ['AAAA']}", "sshKeys"),
        ('{prefix: a, sshKeys: ["ssh-ed25519 AAAA a\\nb"]}', "sshKeys"),
        ("{prefix: a, gpgKeys: ['AAAA']}", "no public key as `gpg --armor --export` writes it"),
        ("{prefix: a, signed: both, sshKeys: ['ssh-ed25519 AAAA']}", "signed"),
    ],
)
def test_rule_of_signatures_without_a_usable_key_is_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        parse(f"{HEAD}spec:\n  verify:\n  - {rule}\n")


@pytest.mark.parametrize(
    ("manifests", "path", "is_refused"),
    [
        ("[fleet]", "fleet", True),
        ("[fleet/web]", "fleet", True),
        ("[.]", ".", True),
        ("[.]", "snapshot", False),
        ("[fleet]", "fleet/snapshot", False),
        ("[fleet]", "flee", False),
    ],
)
def test_manifests_inside_of_the_snapshot_are_refused(manifests: str, path: str, *, is_refused: bool) -> None:
    text = f"{HEAD}spec:\n  manifests: {manifests}\n  snapshot: {{path: {path}}}\n"

    if not is_refused:
        assert parse(text).snapshot.path == path
    else:
        with pytest.raises(ConfigurationError, match="nothing in it is read as a manifest"):
            parse(text)


def test_no_choice_of_the_policy_is_out_of_reach() -> None:
    chosen, default = parse(HEAD + EVERYTHING), Policy()

    same = {f.name for f in fields(Policy) if getattr(chosen, f.name) == getattr(default, f.name)}

    assert same == {"config_path", "consents"}


@pytest.mark.parametrize(
    ("wave", "message"),
    [
        ("{name: a, size: 101%}", "'101%' is neither a number nor a share; write 3 or 25%"),
        ("{name: a, maxOpen: some}", "'some' is neither a number nor a share"),
        ("{name: a, selector: {matchLabels: {tier: '?'}}}", "must be a label value"),
        ("{name: A}", "waves[0].name"),
        ("{name: rest}, {name: main}", "rest is the name of the last wave"),
        ("{name: a}, {name: a}", "two waves have one name"),
        ("{name: a, gates: {objects: [{apiVersion: v1, kind: Pod}]}}", "the health of v1 Pod is not known"),
        ("{name: a, gates: {objects: [{apiVersion: apps/v1, kind: Deployment, name: '{cluser}'}]}}",
            "{cluser} is not known here"),
    ],
)  # fmt: skip
def test_wave_without_a_meaning_is_refused(wave: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        parse(f"{HEAD}spec:\n  rollouts:\n  - waves: [{wave}]\n")


def test_gate_reads_a_kind_in_every_version_that_a_snapshot_is_read_in() -> None:
    gate = "{apiVersion: helm.toolkit.fluxcd.io/v2beta2, kind: HelmRelease}"

    policy = parse(f"{HEAD}spec:\n  rollouts:\n  - waves: [{{name: a, gates: {{objects: [{gate}]}}}}]\n")

    assert policy.rollouts[0].waves[0].gates.objects[0].api_version == "helm.toolkit.fluxcd.io/v2beta2"


def test_address_of_a_report_is_any_page_and_no_more_than_a_link() -> None:
    for page in ("https://acme.example/fleet/?a=b#c",):
        assert (
            parse(f"{HEAD}spec:\n  pullRequests: {{reportUrl: '{page}'}}\n").pull_requests.report_url == page
        )
    for odd in ("javascript:alert(1)", "https://a b", "https://a)](x", "https://<a>", "https://a\\n#", "a"):
        with pytest.raises(ConfigurationError, match=r"pullRequests\.reportUrl"):
            parse(f'{HEAD}spec:\n  pullRequests: {{reportUrl: "{odd}"}}\n')


class Override(NamedTuple):
    reason: str
    variable: str
    text: str
    field: str
    want: object


OVERRIDES = [
    Override("a boolean", "RECONCILER_SUSPEND", "true", "suspend", True),
    Override("a boolean in capitals", "RECONCILER_SUSPEND", "TRUE", "suspend", True),
    Override("a duration", "RECONCILER_PULL_REQUESTS_MAX_WAIT", "2h", "pull_requests.max_wait_s", 7200),
    Override("a list of paths", "RECONCILER_MANIFESTS", "a:b", "manifests", ("a", "b")),
    Override("a list of expressions", "RECONCILER_PULL_REQUESTS_SCHEDULE", "* 6 * * *;* 7 1,2 * *",
        "pull_requests.schedule", ("* 6 * * *", "* 7 1,2 * *")),
    Override("a list of words", "RECONCILER_PULL_REQUESTS_LABELS", "b,a", "pull_requests.labels", ("a", "b")),
    Override("a word", "RECONCILER_PULL_REQUESTS_OPEN_ON", "draft", "pull_requests.open_on", OpenOn.DRAFT),
]  # fmt: skip


def test_time_zone_is_told_with_what_else_is_wrong() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(HEAD + "spec:\n  pullRequests: {maxOpen: -1, timezone: Mars/X}\n")

    shown = [str(part) for part in caught.value.parts]
    assert len(shown) == 2
    assert "maxOpen" in shown[0]
    assert "knows no time zone Mars/X" in shown[1]


@pytest.mark.parametrize("case", OVERRIDES, ids=lambda c: c.reason)
@pytest.mark.parametrize("text", [HEAD, HEAD + EVERYTHING], ids=["absent", "given"])
def test_the_environment_wins(case: Override, text: str) -> None:
    policy = parse(text, **{case.variable: case.text})

    assert attrgetter(case.field)(policy) == case.want


SCHEDULE = "RECONCILER_PULL_REQUESTS_SCHEDULE"


@pytest.mark.parametrize(
    ("variable", "text", "message", "hint"),
    [
        ("RECONCILER_LIMITS_PATH_DEPTH", "most", "", ""),
        ("RECONCILER_SUSPEND", "ture", "must be true or false", "Did you mean true?"),
        ("RECONCILER_SUSPEND", "on", "must be true or false", "Write true or false."),
        ("RECONCILER_SUSPEND", "1", "must be true or false", "Write true or false."),
        ("RECONCILER_SUSPEND", "", "must be true or false", "Write true or false."),
        ("RECONCILER_PULL_REQUESTS_DASHBOARD", "yes", "must be true or false", "Write true or false."),
        (SCHEDULE, "* 6-17 * * 1-5;at noon", "five fields", ""),
    ],
)
def test_a_wrong_variable_is_blamed_itself(variable: str, text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(HEAD, **{variable: text})

    assert caught.value.location == Location(f"${variable}")
    assert message in str(caught.value)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("RECONCILER_DELETIONS_SHARE", "spec.deletions.share"),
        ("RECONCILER_DELETIONS_MINIMUM", "spec.deletions.minimum"),
        ("RECONCILER_DELETIONS_COUNT", "spec.deletions.count"),
        ("RECONCILER_SNAPSHOT_MAX_AGE", "spec.snapshot.maxAge"),
    ],
)
def test_no_variable_allows_deletions(variable: str, setting: str) -> None:
    with pytest.raises(ConfigurationError, match="decided in Git only") as caught:
        parse(HEAD, **{variable: "1"})

    assert caught.value.location == Location(f"${variable}")
    assert setting in caught.value.hint


def test_other_variables_are_none_of_our_business() -> None:
    assert parse(HEAD, RECONCILER_CONFORMANCE="/x", RECONCILER_SUSPENDED="true") == Policy(instance="fleet")


class Wrong(NamedTuple):
    reason: str
    text: str
    line: int
    message: str
    hint: str = ""


WRONG = [
    Wrong("not YAML", "a: b: c\n", 1, "not allowed"),
    Wrong("empty", "# nothing\n", 0, "0 documents", "reconciler init"),
    Wrong("two documents", HEAD + "---\n" + HEAD, 6, "2 documents"),
    Wrong("unknown field", HEAD + "spec:\n  snapshots: {}\n", 6, "Unknown field spec.snapshots", "snapshot?"),
    Wrong("unknown nested field", HEAD + "spec:\n  snapshot:\n    age: 7d\n", 7, "spec.snapshot.age",
        "maxAge"),
    Wrong("wrong kind", HEAD.replace("Reconciler", "Reconcile"), 2, "kind must be 'Reconciler'"),
    Wrong("another version", HEAD.replace("v1alpha1", "v1"), 1, "apiVersion must be"),
    Wrong("no name", "apiVersion: reconciler.dev/v1alpha1\nkind: Reconciler\n", 1, "instance's name", "once"),
    Wrong("a name that no ref can hold", HEAD.replace("fleet", "a/b"), 4, "'a/b' cannot name", "lower-case"),
    Wrong("two names", HEAD + "spec:\n  instance: other\n", 6, "fleet and other", "once"),
    Wrong("a path outside", HEAD + "spec:\n  manifests: [../x]\n", 6, "not a path inside"),
    Wrong("an absolute path", HEAD + "spec:\n  snapshot: {path: /etc}\n", 6, "not a path inside"),
    Wrong("not a duration", HEAD + "spec:\n  snapshot: {maxAge: 7x}\n", 6, "not a duration"),
    Wrong("a share above one", HEAD + "spec:\n  deletions: {share: 30}\n", 6, "must be at most 1.0, but is"),
    Wrong("a boolean for a number", HEAD + "spec:\n  deletions: {count: true}\n", 6, "must be an integer"),
    Wrong("no such consent", HEAD + "spec:\n  consents:\n    abc: why\n", 7,
        "spec.consents.abc: 'abc' is not the"),
    Wrong("a time zone", HEAD + "spec:\n  pullRequests: {timezone: Europe/Berln}\n", 6,
        "knows no time zone Europe/Berln", "Did you mean Europe/Berlin?"),
    Wrong("a word that is empty or another", HEAD + "spec:\n  commits: {sign: pgp}\n", 6,
        "spec.commits.sign must be", "Known here: ssh."),
    Wrong("a key of a selector", HEAD + "spec:\n  pullRequests:\n    reviews:\n    - selector: {k: 1}\n", 8,
        "Unknown field spec.pullRequests.reviews[0].selector.k",
        "Known here: matchExpressions, matchLabels."),
    *(
        Wrong(f"no boolean: {text}", HEAD + f"spec:\n  suspend: {text}\n", 6, "must be true or false", hint)
        for text, hint in [
            ("ture", "Did you mean true?"),
            ("'on'", "Write true or false."),
            ("'yes'", "Write true or false."),
            ("1", ""),
            ("''", "Write true or false."),
        ]
    ),
    Wrong("an unknown word", HEAD + "spec:\n  unavailable: ignore\n", 6, "'fail' or 'warn'"),
    Wrong("a secret in the file", HEAD + "spec:\n  credentials:\n  - {prefix: 'https://h', token: abc}\n", 7,
        "Unknown field spec.credentials[0].token", "tokenEnv"),
    Wrong("a secret in place of a variable's name",
        HEAD + "spec:\n  credentials:\n  - {prefix: 'https://h', tokenEnv: ghp-abc}\n", 7,
        "name of an environment variable"),
    Wrong("two places for one secret",
        HEAD + "spec:\n  credentials:\n  - {prefix: 'https://h', tokenEnv: A, tokenFile: /b}\n", 7,
        "exactly one of tokenEnv"),
    Wrong("a credential for any scheme",
        HEAD + "spec:\n  credentials:\n  - {prefix: github.com, tokenEnv: A}\n", 7,
        "spec.credentials[0].prefix"),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.reason)
def test_what_is_wrong_is_named_with_its_place(case: Wrong) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(case.text)

    assert caught.value.exit_code is Exit.INVALID_INPUT
    assert caught.value.location is not None
    assert (caught.value.location.path, caught.value.location.line) == ("reconciler.yaml", case.line)
    assert case.message in str(caught.value)
    assert case.hint in caught.value.hint


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(HEAD + "spec:\n  suspended: true\n  snapshot: {maxage: 7d}\n")

    assert [(str(part), part.hint) for part in caught.value.parts] == [
        ("reconciler.yaml:6:3: Unknown field spec.suspended", "Did you mean suspend?"),
        ("reconciler.yaml:7:14: Unknown field spec.snapshot.maxage", "Did you mean maxAge?"),
    ]
    assert str(caught.value) == "\n".join(str(part) for part in caught.value.parts)
    assert caught.value.hint == "Did you mean suspend? Did you mean maxAge?"


def test_the_instance_cannot_be_changed_from_outside() -> None:
    assert parse(HEAD, RECONCILER_INSTANCE="fleet").instance == "fleet"
    with pytest.raises(ConfigurationError):
        parse(HEAD, RECONCILER_INSTANCE="other")


def test_the_longest_prefix_wins_and_ends_at_a_slash() -> None:
    wide = ForgeRule("https://host.example", ForgeKind.GITEA)
    narrow = ForgeRule("https://host.example/acme", ForgeKind.GITLAB)
    rules = (narrow, wide)

    assert find_rule(rules, "https://host.example/acme/a.git") == narrow
    assert find_rule(rules, "https://host.example/acme-evil/a") == wide
    assert find_rule(rules, "https://host.example.evil/acme/a") is None
    assert find_rule(rules, "http://host.example/acme/a") is None


def test_the_schema_knows_every_setting() -> None:
    schema: dict[str, Any] = Configuration.model_json_schema(by_alias=True)

    assert schema["required"] == ["apiVersion", "kind"]
    assert "maxAge" in schema["$defs"]["SnapshotPolicy"]["properties"]
    assert schema["additionalProperties"] is False


def test_a_variable_is_the_setting_in_capitals() -> None:
    assert variable_name(("commits", "signOff")) == "RECONCILER_COMMITS_SIGN_OFF"

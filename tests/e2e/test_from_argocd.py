"""`init --from-argocd`: the examples of Argo CD, what is left of an ApplicationSet, and a plan of it."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.base.errors import ConfigurationError
from reconciler.cli.main import invoke
from reconciler.names.ids import normalise_url
from reconciler.policy import Policy
from reconciler.run.validate import validate_files
from reconciler.workdir.argocd import Addresses, convert_application_sets
from reconciler.workdir.porch_export import Conversion
from tests.ecosystem.inputs import ABSENT, ROOT
from tests.support.git import make_repository
from tests.support.world import git

EXAMPLE_FILES = ROOT / "applicationsets"
ARGO_CD = "https://github.com/argoproj/argo-cd.git"
CLUSTERS = "role=cluster"
SELECTED = {f"{CLUSTERS} repository.name + '-guestbook'"}
TWO = {f"engineering-{each} engineering-{each}-guestbook" for each in ("dev", "prod")}
ADDONS = ("argo-workflows", "prometheus-operator")
EXAMPLES: dict[str, set[str] | str] = {
    "applications-sync-policies/create-only": TWO,
    "applications-sync-policies/create-update": TWO,
    "cluster/cluster-example": SELECTED,
    "clusterDecisionResource/ducktype-example": "generator clusterDecisionResource: ",
    "design-doc/applicationset": SELECTED,
    "design-doc/git-directory-discovery": "give --checkout https://github.com/infra-team/",
    "design-doc/list": TWO | {"finance-preprod finance-preprod-guestbook"},
    "design-doc/template-override": TWO,
    "git-generator-directory/git-directories-example": {f"in-cluster {each}" for each in ADDONS},
    "git-generator-files-discovery/git-generator-files": {
        "in-cluster eu-guestbook",
        "in-cluster us-guestbook",
    },
    "git-generator-files-discovery/excludes/git-files-exclude-example": {"in-cluster us-guestbook"},
    "list-generator/list-example": TWO,
    "matrix/cluster-and-git": {f"{CLUSTERS} '{each}-' + repository.name" for each in ADDONS},
    "matrix/list-and-git": {
        f"engineering-{e} {each}-engineering-{e}" for e in ("dev", "prod") for each in ADDONS
    },
    "matrix/list-and-list": "is given by no generator",
    "matrix/matrix-and-union-in-matrix": {
        f"engineering-{e} {prefix}-engineering-{e}-{number}"
        for e in ("dev", "prod")
        for prefix in ("first", "second")
        for number in (1, 2)
    },
    "merge/merge-clusters-and-list": {f"{CLUSTERS} repository.name"},
    "merge/merge-two-matrixes": {
        f"{CLUSTERS} repository.name + '-guestbook-{each}'" for each in ("staging", "prod")
    },
    "pull-request-generator/pull-request-example": "generator pullRequest: ",
    "scm-provider-generator/scm-provider-example": "generator scmProvider: ",
    "template-override/template-overrides-example": {"engineering-dev engineering-dev-guestbook"},
}
"""What each example installs where, or why it is left out; the form of fasttemplate is the same."""


def init(folder: Path, *arguments: object) -> int:
    address = ("--downstream-url", f"{folder}/{{cluster}}.git")
    return invoke(["init", str(folder / "fleet"), "--from-argocd", *map(str, (*arguments, *address))])


def convert(text: str, checkout: Path | None = None) -> Conversion:
    known = {normalise_url(ARGO_CD): checkout} if checkout else {}
    return convert_application_sets({"apps.yaml": text.encode()}, Addresses(checkouts=known))


def sets(conversion: Conversion) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(conversion.manifests["PackageVariantSet"]))


def installed(conversion: Conversion) -> set[str]:
    """Return target and package of everything that the sets install."""
    found: set[str] = set()
    for target in (target for each in sets(conversion) for target in each["spec"]["targets"]):
        for each in target.get("repositories", ()):
            found |= {f"{each['name']} {package}" for package in each["packageNames"]}
        labels = target.get("repositorySelector", {}).get("matchLabels", {})
        for key, value in labels.items():
            found.add(f"{key}={value} {target['template']['downstream']['packageExpr']}")
    return found


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a clone of the repository that the examples read, with the clusters that it has there."""
    examples = tmp_path / "argo-cd/applicationset/examples"
    shutil.copytree(EXAMPLE_FILES, examples)
    configs = {"us/prod": "us", "eu/dev": "eu"}
    for path, name in configs.items():
        for start in ("cluster-config", "excludes/cluster-config"):
            file = examples / f"git-generator-files-discovery/{start}/{path}/config.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'{{"cluster": {{"name": "{name}"}}}}')
    return tmp_path / "argo-cd"


@pytest.mark.skipif(not EXAMPLE_FILES.is_dir(), reason=ABSENT)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_argo_cd(name: str, checkout: Path) -> None:
    want = EXAMPLES[name]
    forms = [EXAMPLE_FILES / f"{name}{form}.yaml" for form in ("", "-fasttemplate")]
    assert forms[0].exists()
    for text in [form.read_text() for form in forms if form.exists()]:
        if isinstance(want, str):
            with pytest.raises(ConfigurationError, match=re.escape(want)):
                convert(text, checkout)
            continue
        conversion = convert(text, checkout)

        assert installed(conversion) == want
        files = {f"{kind}.yaml": manifest.encode() for kind, manifest in conversion.manifests.items()}
        assert not validate_files(files, Policy()).problems


HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: shop}\nspec:\n"
LIST = "  generators: [{list: {elements: [{cluster: east, size: 3}]}}]\n"
TEMPLATE = """\
  template:
    metadata: {name: shop}
    spec:
      source: {repoURL: https://git.example.com/apps.git, path: shop}
      destination: {name: '{{cluster}}'}
"""


REVISIONS = [
    ("HEAD", {"branch": "main"}),
    ("release", {"branch": "release"}),
    ("v1.2.0", {"tag": "v1.2.0"}),
    ("refs/tags/x", {"tag": "x"}),
    ("shop/v2", {"tag": "v2"}),
    ("abcdef0", {"branch": "abcdef0"}),
    ("1.2.*", {"version": "1.2.*"}),
]


@pytest.mark.parametrize(("revision", "want"), REVISIONS)
def test_revision_that_an_application_follows(revision: str, want: dict[str, str]) -> None:
    given = TEMPLATE.replace("path: shop", f"path: shop, targetRevision: '{revision}'")

    (made,) = sets(convert(f"{HEAD}{LIST}{given}"))

    assert made["spec"]["upstream"] == {"repo": "apps", "package": "shop", **want}


SECRET = """\
---
apiVersion: v1
kind: Secret
metadata:
  name: cluster-1
  labels: {argocd.argoproj.io/secret-type: cluster, env: prod, size: large}
data: {name: ZWFzdA==, config: c2VjcmV0LXRva2Vu}
"""
SELECTOR = """\
  goTemplate: true
  generators:
  - clusters: {selector: {matchLabels: {env: prod}}, values: {tier: 'gold'}}
  template:
    metadata: {name: shop, labels: {tier: '{{.values.tier}}'}}
    spec:
      source:
        repoURL: ADDRESS/apps.git
        path: shop
        kustomize:
          namespace: 'shop-{{.name}}'
          commonLabels: {size: '{{ index .metadata.labels "size" }}'}
          images: ['nginx=registry.example.com/nginx:1.29']
      destination: {server: '{{.server}}'}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  template:
    spec:
      containers: [{name: shop, image: nginx}]
"""


def test_clusters_become_repositories_and_what_comes_out_is_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_repository(tmp_path / "apps.git", {"shop/deployment.yaml": DEPLOYMENT})
    make_repository(tmp_path / "east.git", {"README.md": "east\n"})
    text = f"{HEAD}{SELECTOR}{SECRET}".replace("ADDRESS", f"file://{tmp_path}")
    (tmp_path / "apps.yaml").write_text(text)

    assert init(tmp_path, tmp_path / "apps.yaml") == 0

    fleet = tmp_path / "fleet"
    labels = {
        each["metadata"]["name"]: each["metadata"].get("labels")
        for each in yaml.safe_load_all((fleet / "manifests/repositories.yaml").read_text())
    }
    assert labels == {"apps": None, "east": {"role": "cluster", "env": "prod", "size": "large"}}
    assert not any("c2VjcmV0" in path.read_text() for path in fleet.rglob("*.yaml"))
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Describe the fleet"]):
        git(fleet, *command)
    options = ["--control", str(fleet), "--cache-dir", str(tmp_path / "cache")]
    assert invoke(["apply", *options]) == 0, capsys.readouterr()
    draft = git(tmp_path / "east.git", "show", "drafts/shop/packagevariant-1:shop/deployment.yaml")
    assert "namespace: shop-east" in draft
    assert "size: large" in draft
    assert "image: registry.example.com/nginx:1.29" in draft


def test_options_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "apps.yaml").write_text(f"{HEAD}{LIST}{TEMPLATE}")
    (tmp_path / "none.yaml").write_text(SECRET)
    file = str(tmp_path / "apps.yaml")

    for arguments, want in (
        ((file, "--from-porch", file), "make different fleets"),
        ((file, "--checkout", "https://x.org"), "Write URL=DIRECTORY"),
        ((tmp_path / "none.yaml",), "has no ApplicationSet that can be converted"),
    ):
        assert init(tmp_path, *arguments) in (2, 3)
        assert want in capsys.readouterr().err
    assert invoke(["init", str(tmp_path / "fleet"), "--checkout", "x=y"]) == 2

"""The first files of a control repository: configuration, manifests, schemas of editors, workflow."""

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from itertools import chain, count
from string import Template
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.base.errors import UsageError

FILES: Mapping[str, str] = {
    "Repository": "repositories.yaml",
    "PackageVariantSet": "package-variant-sets.yaml",
    "PackageVariant": "package-variants.yaml",
}
"""The file of the manifests of each kind."""
FORGES = ("none", "github", "gitlab", "gitea")
SCHEMAS = ".schemas"
_MODELINE = "# yaml-language-server: $schema={}{}.json\n"
CONFIGURATION = Template(
    """\
# What the reconciler may do in this repository; `reconciler schema` has every setting.
apiVersion: reconciler.dev/v1alpha1
kind: Reconciler
metadata:
  # Packages are owned under this name. Choose it once: it must never change.
  name: $instance
spec:
  # Files and directories with PackageVariants, PackageVariantSets and Repositories.
  manifests:
  - manifests
  # Namespace of manifests that name none.
  # defaultNamespace: default

  # What the cluster holds; `reconciler snapshot import` writes it.
  snapshot:
    path: snapshot
    # A snapshot that is older than this deletes nothing.
    # maxAge: 7d

  # A draft gets its pull request at once (draft), or when somebody proposes it (propose).
  # pullRequests:
  #   openOn: draft

  # A plan that deletes more than this is refused until a person consents.
  # deletions:
  #   share: 0.3
  #   minimum: 10
  #   count: 100

  # Who makes the commits; `sign` and `signingKeyEnv` sign them with a key of SSH or GPG.
  # commits:
  #   name: Package Reconciler
  #   email: package-reconciler@reconciler.dev

  # What one unreachable repository means: fail (exit code 5) or warn.
  # unavailable: fail

$connections"""
)
_LOCAL = """\
  # Where credentials are found: names of variables and files, never secrets.
  # credentials:
  # - prefix: https://git.example.com/
  #   tokenEnv: GIT_TOKEN
"""
_FORGE = Template(
    """\
  # Where pull requests are.
  forges:
  - prefix: $prefix
    type: $forge

"""
)
_TOKEN = Template(
    """\
  # Where credentials are found: names of variables and files, never secrets.
  credentials:
  - prefix: $prefix
    tokenEnv: $variable
"""
)
_APP = Template(
    """\
  # A GitHub App that is installed on the repositories of the fleet; the workflow hands on its private key.
  # credentials:
  # - prefix: $prefix
  #   appId: "1"
  #   installationId: "2"
  #   appKeyEnv: RECONCILER_APP_KEY
"""
)
_HOSTS = {
    "github": "https://github.com/",
    "gitlab": "https://gitlab.com/",
    "gitea": "https://codeberg.org/",
}
_WORKFLOWS: Mapping[str, Mapping[str, str]] = {
    "github": {
        ".github/workflows/reconciler-check.yml": "github/check.yml",
        ".github/workflows/reconciler-apply.yml": "github/apply.yml",
    },
    "gitlab": {".gitlab-ci.yml": "gitlab/gitlab-ci.yml"},
}
_REPOSITORIES = Template(
    """\
# Where packages come from.
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: $upstream
spec:
  type: git
  git:
    repo: $upstream_url
    branch: $branch
---
# Where they go: one Repository for each cluster, with a label that sets select it by.
$clusters"""
)
_CLUSTER = Template(
    """\
apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata:
  name: $name
  labels:
    role: cluster
spec:
  type: git
  deployment: true
  git:
    repo: $url
    branch: main
    # Makes the branch where the repository is still empty.
    createBranch: true
"""
)
_SET = Template(
    """\
# One package in every repository that a target selects: a PackageVariant for each of them.
apiVersion: config.porch.kpt.dev/v1alpha2
kind: PackageVariantSet
metadata:
  name: $package
spec:
  upstream:
    repo: $upstream
    package: $package
    revision: $revision
  targets:
  - repositorySelector:
      matchLabels:
        role: cluster
"""
)
_SNAPSHOT = """\
# Snapshot

What the cluster holds, for sets that select objects; `reconciler snapshot import` writes it.
"""
_EXAMPLE = ("https://git.example.com/platform/blueprints.git", "https://git.example.com/platform/edge.git")


class Starter(NamedTuple):
    """The values of the first files; an address that is not known yet is empty.

    `branch` is the branch of the upstream repository.
    """

    instance: str
    forge: str = FORGES[0]
    upstream: str = ""
    downstreams: tuple[str, ...] = ()
    package: str = "web"
    revision: int = 1
    branch: str = "main"

    @property
    def is_complete(self) -> bool:
        """Whether the manifests can be read as they are."""
        return bool(self.upstream and self.downstreams)

    def files(self, manifests: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the files by their path; `manifests`, by their kind, are written in place of the first ones.

        Raises:
            UsageError: The addresses cannot be those of the forge.
        """
        configuration = CONFIGURATION.substitute(instance=self.instance, connections=self.connections())
        files = {"reconciler.yaml": modeline("Reconciler") + configuration}
        for kind, text in (self._first_manifests() if manifests is None else manifests).items():
            files[f"manifests/{FILES[kind]}"] = modeline(kind, "../") + text
        files["snapshot/README.md"] = _SNAPSHOT
        for path, source in _WORKFLOWS.get(self.forge, {}).items():
            files[path] = shipped(source)
        return files

    def connections(self) -> str:
        """Return the part of the configuration about forge and credentials.

        Raises:
            UsageError: The addresses cannot be those of the forge.
        """
        if self.forge == FORGES[0]:
            return _LOCAL
        prefix = self._prefix()
        credentials = _APP if self.forge == "github" else _TOKEN
        variable = "RECONCILER_CONTROL_TOKEN" if self.forge == "gitlab" else "GIT_TOKEN"
        head = _FORGE.substitute(prefix=prefix, forge=self.forge)
        return head + credentials.substitute(prefix=prefix, variable=variable)

    def _prefix(self) -> str:
        """Return the address that the forge's repositories start with: host and owner."""
        if not self.downstreams:
            return _HOSTS[self.forge]
        parts = urlsplit(self.downstreams[0])
        owner = parts.path.strip("/").partition("/")[0]
        if parts.scheme not in {"http", "https"} or not parts.netloc or not owner:
            hint = f"Give it as https://HOST/OWNER/NAME.git, or leave out --forge {self.forge}."
            raise UsageError(f"{self.downstreams[0]} names no repository of a forge", hint=hint)
        return f"{parts.scheme}://{parts.netloc}/{owner}/"

    def _first_manifests(self) -> dict[str, str]:
        upstream_url, downstream_urls = self.upstream or _EXAMPLE[0], self.downstreams or _EXAMPLE[1:]
        upstream = repository_name(upstream_url)
        clusters = _cluster_names(downstream_urls, upstream)
        names = {
            "upstream": upstream,
            "upstream_url": upstream_url,
            "branch": self.branch,
            "clusters": "---\n".join(
                _CLUSTER.substitute(name=name, url=url) for name, url in clusters.items()
            ),
            "package": self.package,
            "revision": str(self.revision),
        }
        files = {
            "Repository": _REPOSITORIES.substitute(names),
            "PackageVariantSet": _SET.substitute(names),
        }
        return files if self.is_complete else {kind: _commented(text) for kind, text in files.items()}


def modeline(kind: str, up: str = "") -> str:
    """Return the line by which editors know the schema of a file."""
    return _MODELINE.format(f"{up}{SCHEMAS}/", kind.lower())


def shipped(name: str) -> str:
    """Return an example, from the installed package or from the checkout around it."""
    package = resources.files("reconciler")
    checkout = {"github": ".github/examples", "gitlab": "deploy/gitlab"}
    folder, _, file = name.partition("/")
    places = (package / "_examples" / folder, package / ".." / checkout[folder])
    return next(place / file for place in places if (place / file).is_file()).read_text(encoding="utf-8")


def repository_name(address: str) -> str:
    """Return a name for the Repository at an address: the last part, as Kubernetes allows it."""
    last = re.split(r"[/:]", address.rstrip("/").removesuffix(".git"))[-1]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-") or "repository"


def _cluster_names(addresses: Iterable[str], upstream: str) -> dict[str, str]:
    """Return the address of each cluster's repository by a name that no other repository has."""
    named: dict[str, str] = {}
    for address in dict.fromkeys(addresses):
        name = repository_name(address)
        if name == upstream:
            name = f"{name}-packages"
        candidates = chain([name], (f"{name}-{number}" for number in count(2)))
        named[next(candidate for candidate in candidates if candidate not in named)] = address
    return named


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" if not line.startswith("#") else f"{line}\n" for line in text.splitlines())

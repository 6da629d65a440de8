"""The first files of a control repository: configuration, manifests, schemas of editors, workflow."""

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
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
FORGES = ("none", "github", "gitlab", "gitea", "azure", "bitbucket")
SCHEMAS = ".schemas"
_HOSTS = {
    "github": "https://github.com/",
    "gitlab": "https://gitlab.com/",
    "gitea": "https://codeberg.org/",
    "azure": "https://dev.azure.com/",
    "bitbucket": "https://bitbucket.org/",
}
_WORKFLOWS: Mapping[str, Mapping[str, str]] = {
    "github": {
        ".github/workflows/reconciler-check.yml": ".github/examples/check.yml",
        ".github/workflows/reconciler-apply.yml": ".github/examples/apply.yml",
    },
    "gitlab": {".gitlab-ci.yml": "deploy/gitlab/gitlab-ci.yml"},
}
_SHIPPED = {
    "templates": "_templates",
    ".github/examples": "_examples/github",
    "deploy/gitlab": "_examples/gitlab",
}
"""The folder in the installed package of a folder of the checkout."""
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
        configuration = _filled("reconciler.yaml", instance=self.instance, connections=self._connections())
        files = {"reconciler.yaml": _modeline("Reconciler") + configuration}
        for kind, text in (self._first_manifests() if manifests is None else manifests).items():
            files[f"manifests/{FILES[kind]}"] = _modeline(kind, "../") + text
        files["snapshot/README.md"] = _filled("snapshot.md")
        for path, source in _WORKFLOWS.get(self.forge, {}).items():
            folder, _, name = source.rpartition("/")
            files[path] = (shipped(folder) / name).read_text(encoding="utf-8")
        return files

    def _connections(self) -> str:
        """Return the part of the configuration about forge and credentials."""
        if self.forge == FORGES[0]:
            return _filled("none.yaml")
        variable = "RECONCILER_CONTROL_TOKEN" if self.forge == "gitlab" else "GIT_TOKEN"
        template = "github.yaml" if self.forge == "github" else "token.yaml"
        user = "\n    username: x-token-auth" if self.forge == "bitbucket" else ""
        return _filled(template, prefix=self._prefix(), forge=self.forge, user=user, variable=variable)

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
        upstream = _repository_name(upstream_url)
        names = _cluster_names(downstream_urls, upstream)
        clusters = [_filled("cluster.yaml", name=name, url=url) for name, url in names.items()]
        files = {
            "Repository": _filled(
                "repositories.yaml",
                upstream=upstream,
                upstream_url=upstream_url,
                branch=self.branch,
                clusters="---\n".join(clusters),
            ),
            "PackageVariantSet": _filled(
                "package-variant-sets.yaml",
                package=self.package,
                upstream=upstream,
                revision=str(self.revision),
            ),
        }
        if self.is_complete:
            return files
        return {kind: re.sub(r"(?m)^(?!#|\Z)", "# ", text) for kind, text in files.items()}


def shipped(folder: str) -> Traversable:
    """Return a folder that comes with the program: in the installed package, or in the checkout around it."""
    package = resources.files("reconciler")
    places = (package / _SHIPPED[folder], package / ".." / folder)
    return next(place for place in places if place.is_dir())


def _filled(name: str, /, **values: str) -> str:
    """Return a file of templates/init with values in it."""
    return Template((shipped("templates") / "init" / name).read_text(encoding="utf-8")).substitute(values)


def _modeline(kind: str, up: str = "") -> str:
    """Return the line by which editors know the schema of a file."""
    return f"# yaml-language-server: $schema={up}{SCHEMAS}/{kind.lower()}.json\n"


def _repository_name(address: str) -> str:
    """Return a name for the Repository at an address: the last part, as Kubernetes allows it."""
    last = re.split(r"[/:]", address.rstrip("/").removesuffix(".git"))[-1]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-") or "repository"


def _cluster_names(addresses: Iterable[str], upstream: str) -> dict[str, str]:
    """Return the address of each cluster's repository by a name that no other repository has."""
    named: dict[str, str] = {}
    for address in dict.fromkeys(addresses):
        name = _repository_name(address)
        if name == upstream:
            name = f"{name}-packages"
        candidates = chain([name], (f"{name}-{number}" for number in count(2)))
        named[next(candidate for candidate in candidates if candidate not in named)] = address
    return named

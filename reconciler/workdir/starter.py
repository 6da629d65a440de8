"""The first files of a control repository, and the demo and the tutorial as real Git repositories."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import chain, count
from pathlib import Path
from string import Template
from typing import NamedTuple
from urllib.parse import urlsplit

from reconciler.base.errors import UsageError
from reconciler.git.working_copy import NewCommit, clone, create_bare, create_with_files

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
    "gitea": {".gitea/workflows/reconciler.yml": "deploy/gitea/reconciler.yml"},
    "azure": {"azure-pipelines.yml": "deploy/azure/azure-pipelines.yml"},
    "bitbucket": {"bitbucket-pipelines.yml": "deploy/bitbucket/bitbucket-pipelines.yml"},
}
_SHIPPED = {
    "templates": "_templates",
    ".github/examples": "_examples/github",
    **{f"deploy/{forge}": f"_examples/{forge}" for forge in ("gitlab", "gitea", "azure", "bitbucket")},
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
        for path, source in _WORKFLOWS.get(self.forge, {}).items():
            folder, _, name = source.rpartition("/")
            files[path] = (shipped(folder) / name).read_text(encoding="utf-8")
        return files

    def _connections(self) -> str:
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
    return Template((shipped("templates") / "init" / name).read_text(encoding="utf-8")).substitute(values)


def _modeline(kind: str, up: str = "") -> str:
    return f"# yaml-language-server: $schema={up}{SCHEMAS}/{kind.lower()}.json\n"


def _repository_name(address: str) -> str:
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


SEPARATE = "separate"
MONOREPO = "monorepo"
TUTORIAL = "tutorial"
"""Layouts: a repository for each role, one for all of them (D19), or the fleet that the guides begin with."""
WALKTHROUGH = "walkthrough.sh"
TUTORIAL_STEPS = (
    ("Go to the control repository", ("cd fleet",)),
    ("Install the first revision of web in both clusters",
     ("reconciler apply", "reconciler approve --all", "reconciler apply")),
)  # fmt: skip
"""The title and the shell commands of each step of the tutorial that `demo` prints."""
_EPOCH = 1_767_225_600  # 2026-01-01T00:00:00Z: commits of the demo must not depend on the clock
_STEP_S = 3600
_REGIONS = ("europe", "america")
_ENVIRONMENTS = ("production", "staging")
_TUTORIAL_CLUSTERS = ("east", "west")
_NGINX = {"Add web": "1.27", "Use nginx 1.29": "1.29"}


def write_demo(directory: Path, layout: str, clusters: int) -> None:
    """Write the repositories, a working copy of the control repository and a script of all steps.

    `layout` is SEPARATE or MONOREPO; the snapshot holds at least 2 clusters.

    Raises:
        UsageError: The directory is not empty; nothing was written.
    """
    _check_is_new(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, commits in _repositories(layout, _demo_clusters(clusters)).items():
        create_bare(directory / f"{name}.git", commits)
    control = _control(layout)
    clone(directory / f"{control}.git", directory / control)
    (directory / WALKTHROUGH).write_text(_script(walkthrough(layout, clusters)), encoding="utf-8")


def write_tutorial(directory: Path, schemas: Mapping[str, str]) -> None:
    """Write the fleet of the tutorial: blueprints, a repository for each cluster, the control repository.

    `schemas` are further files of the control repository, for editors.

    Raises:
        UsageError: The directory is not empty; nothing was written.
        UnavailableError: Git is missing or refused.
    """
    _check_is_new(directory)
    blueprints, *repositories = (
        directory / name for name in ("blueprints", *(f"{name}.git" for name in _TUTORIAL_CLUSTERS))
    )
    revisions = [
        _commit(number, message, _files("tutorial", nginx=version), f"web/v{number + 1}")
        for number, (message, version) in enumerate(_NGINX.items())
    ]
    create_with_files(blueprints, revisions)
    for repository in repositories:
        create_bare(repository, ())
    upstream, *downstreams = (str(path.resolve()) for path in (blueprints, *repositories))
    files = Starter("fleet", upstream=upstream, downstreams=tuple(downstreams)).files()
    create_with_files(directory / "fleet", [_commit(2, "Describe the fleet", {**files, **schemas})])


def walkthrough(layout: str, clusters: int) -> list[tuple[str, list[str]]]:
    """Return the steps to try: what each one shows, and its shell commands, run one after the other."""
    first, *_, last = _demo_clusters(clusters)
    is_monorepo = layout == MONOREPO
    text = Template((shipped("templates") / "demo/walkthrough.txt").read_text(encoding="utf-8")).substitute(
        control=_control(layout),
        first=first,
        last=last,
        repository=_control(layout) if is_monorepo else f"cluster-{first}",
        package=f"clusters/{first}/web" if is_monorepo else "web",
        pull="git pull -q" if is_monorepo else "",
        sed="sed -i ''" if sys.platform == "darwin" else "sed -i",  # BSD's option takes an argument
    )
    steps = (step.splitlines() for step in text.removeprefix("# ").split("\n\n# "))
    return [(title, [command for command in commands if command]) for title, *commands in steps]


def _check_is_new(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty", hint="Name a directory that does not exist yet.")


def _control(layout: str) -> str:
    return "platform" if layout == MONOREPO else "control"


def _demo_clusters(count: int) -> list[str]:
    return [f"{_REGIONS[i % 2]}-{i // 2 + 1:02}" for i in range(count)]


def _repositories(layout: str, clusters: Sequence[str]) -> dict[str, list[NewCommit]]:
    control = _files("fleet", clusters) | _files(layout, clusters)
    prefix = "blueprints/" if layout == MONOREPO else ""
    revisions = [{f"{prefix}{path}": text for path, text in _files(f"v{n}").items()} for n in (1, 2)]
    tags = [[f"{prefix}{package}/v{n}" for package in ("monitoring", "web")] for n in (1, 2)]
    if layout == MONOREPO:
        messages = ("Describe the fleet and its blueprints", "Release the second revision of the blueprints")
        commits = [
            _commit(n, message, control | revisions[n], *tags[n]) for n, message in enumerate(messages)
        ]
        return {"platform": commits}
    return {
        "control": [_commit(0, "Describe the fleet", control)],
        "blueprints": [_commit(n, f"Release revision {n + 1}", revisions[n], *tags[n]) for n in (0, 1)],
        **{f"cluster-{name}": [_commit(0, "Start", _files("cluster", [name]))] for name in clusters},
    }


def _commit(hour: int, message: str, files: Mapping[str, str], *tags: str) -> NewCommit:
    content = {path: text.encode() for path, text in files.items()}
    return NewCommit(message, content, _EPOCH + _STEP_S * hour, tags)


def _files(folder: str, clusters: Sequence[str] = (), **names: str) -> dict[str, str]:
    """Return the files below a folder by their paths; a document that names $cluster is made for each one."""
    values = [_cluster_values(name) for name in clusters]
    common = {"count": str(len(clusters)), **names}
    return {
        path: "---\n".join(
            Template(document).substitute(common | fields)
            for document in text.split("---\n")
            for fields in (values if "$cluster" in document else ({},))
        )
        for path, text in _texts(shipped("templates") / "demo" / folder)
    }


def _cluster_values(name: str) -> dict[str, str]:
    region, _, number = name.partition("-")
    return {"cluster": name, "region": region, "environment": _ENVIRONMENTS[int(number) % 2]}


def _texts(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for child in folder.iterdir():
        if child.is_dir():
            yield from _texts(child, f"{prefix}{child.name}/")
        else:
            yield f"{prefix}{child.name}", child.read_text(encoding="utf-8")


def _script(steps: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [
        "#!/bin/sh",
        "# The walk through the demo, as `reconciler demo` prints it. Run it from its own directory.",
        "set -e",
        'cd "$(dirname "$0")"',
    ]
    for number, (title, commands) in enumerate(steps, start=1):
        lines += ["", f"printf '\\n== {number}. %s\\n' '{_quoted(title)}'"]
        for command in commands:
            lines += [f"printf '$ %s\\n' '{_quoted(command)}'", command]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")

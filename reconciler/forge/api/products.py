"""The products with an API, by their kind: dialect, address, token, headers, and their own tools."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from reconciler.forge.api import azure, bitbucket, gitea, github, gitlab
from reconciler.git.urls import Credential
from reconciler.http.client import StaticToken
from reconciler.policy import ForgeKind

ApiDialect = azure.Azure | bitbucket.Bitbucket | gitea.Gitea | github.GitHub | gitlab.GitLab


class Product(NamedTuple):
    """How to reach the API of a product, the dialect of a repository there, and its own tools.

    `pages` is the page of pull requests below that of a repository, `command` the command line for them, ""
    where there is none. What is closed stays closed where it does not `reopen`.
    """

    dialect: type[ApiDialect]
    default_api: Callable[[str], str]
    pages: str
    command: str
    token: Callable[[Credential], StaticToken] = lambda credential: StaticToken(credential.password)
    headers: Mapping[str, str] | None = None
    reopens: bool = True


PRODUCTS: Mapping[ForgeKind, Product] = {
    ForgeKind.GITHUB: Product(github.GitHub, github.default_api, "pulls", "gh pr", headers=github.HEADERS),
    ForgeKind.GITLAB: Product(gitlab.GitLab, gitlab.default_api, "-/merge_requests", "glab mr"),
    ForgeKind.GITEA: Product(gitea.Gitea, gitea.default_api, "pulls", "tea pulls"),
    ForgeKind.AZURE: Product(
        azure.Azure, azure.default_api, "pullrequests", "az repos pr", azure.basic_token, azure.HEADERS
    ),
    ForgeKind.BITBUCKET: Product(
        bitbucket.Bitbucket, bitbucket.default_api, "pull-requests", "", bitbucket.token_of, reopens=False
    ),
}

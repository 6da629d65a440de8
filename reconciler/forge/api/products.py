"""The products with an API, by their kind: dialect, usual address, form of the token, headers."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from reconciler.forge.api import azure, bitbucket, gitea, github, gitlab
from reconciler.git.urls import Credential
from reconciler.http.client import StaticToken
from reconciler.policy import ForgeKind

ApiDialect = azure.Azure | bitbucket.Bitbucket | gitea.Gitea | github.GitHub | gitlab.GitLab


class Product(NamedTuple):
    """How to reach the API of a product, and the dialect of a repository there."""

    dialect: type[ApiDialect]
    default_api: Callable[[str], str]
    token: Callable[[Credential], StaticToken] = lambda credential: StaticToken(credential.password)
    headers: Mapping[str, str] | None = None


PRODUCTS: Mapping[ForgeKind, Product] = {
    ForgeKind.GITHUB: Product(github.GitHub, github.default_api, headers=github.HEADERS),
    ForgeKind.GITLAB: Product(gitlab.GitLab, gitlab.default_api),
    ForgeKind.GITEA: Product(gitea.Gitea, gitea.default_api),
    ForgeKind.AZURE: Product(azure.Azure, azure.default_api, azure.basic_token, azure.HEADERS),
    ForgeKind.BITBUCKET: Product(bitbucket.Bitbucket, bitbucket.default_api, bitbucket.token_of),
}

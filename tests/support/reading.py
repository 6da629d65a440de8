"""Read the views of repositories that are registered, without a control repository."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from reconciler.git.repository import Mirrors
from reconciler.inventory.inventory import RepositoryView
from reconciler.names.ids import ObjectName
from reconciler.policy import Policy
from reconciler.read.repositories import Registration, describe_repositories, read_repositories


def read_registered(
    registrations: Sequence[Registration],
    mirrors: Mirrors,
    policy: Policy,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[ObjectName, RepositoryView]:
    described = describe_repositories(registrations, mirrors, policy)
    return read_repositories(described, mirrors, policy, texts)

"""A repository to write to."""

from dataclasses import dataclass

from reconciler.forge.registry import Forge
from reconciler.git.repository import Mirror
from reconciler.policy import CommitPolicy
from reconciler.report.summary import Names


@dataclass(frozen=True, slots=True)
class Target:
    """A repository to write to: its mirror, its forge, how commits are made, what packages are called."""

    mirror: Mirror
    forge: Forge
    policy: CommitPolicy
    names: Names

"""Which forge keeps the pull requests of a repository."""

from reconciler.errors import ConfigurationError
from reconciler.forge.base import Forge
from reconciler.forge.local import LocalForge
from reconciler.git.repository import Mirror
from reconciler.policy import ForgeKind, Policy, find_rule


def choose_forge(mirror: Mirror, policy: Policy) -> Forge:
    """Return the forge of a repository: what the longest matching rule says, else the repository itself.

    Raises:
        ConfigurationError: The rule names a forge that this version does not speak to.
    """
    rule = find_rule(policy.forges, mirror.remote)
    if rule is None or rule.kind is ForgeKind.LOCAL:
        return LocalForge(mirror, policy.commits)
    raise ConfigurationError(
        f"Forge {rule.kind} of {rule.prefix} is not supported by this version",
        hint="Leave the rule out: pull requests are then kept in the repository itself.",
    )

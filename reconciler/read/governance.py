"""The merged configuration: it alone decides which credentials, hosts and programs a run uses (D25)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reconciler.config import FILE, parse_configuration
from reconciler.errors import ConfigurationError, Location, Problem
from reconciler.git.repository import Mirror
from reconciler.git.trees import PackageRefusedError
from reconciler.git.urls import is_loopback, local_path
from reconciler.inventory import Inventory, RepositoryView
from reconciler.policy import Policy, find_rule, govern, is_prefix
from reconciler.read.control import OpenControl, find_default_tip, is_merged, open_commit
from reconciler.read.locks import read_image_digests, with_image_digests
from reconciler.reasons import Reason

CONFIG_VARIABLE = "RECONCILER_CONFIG"

RepositoryCheck = Callable[[RepositoryView], Problem | None]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How one commit of the control repository is read.

    `govern` returns the policy that counts, given the one that the commit holds; `judge` says why a
    repository must not be read; without `deep` no repository is read, only what manifests say. One that
    `is_proposed` is not merged.
    """

    at: OpenControl
    govern: Callable[[Policy], Policy] = lambda policy: policy
    judge: RepositoryCheck = lambda _: None
    deep: bool = True
    is_proposed: bool = False
    notes: tuple[str, ...] = ()


def read_options(opened: OpenControl, environment: Mapping[str, str]) -> ReadOptions:
    """Return how a command reads the commit that it was started on.

    The tip of the default branch governs itself, and so does what a working copy without a remote has
    checked out. Another commit, merged or not, is governed by the tip; repositories of an unmerged one
    are read only on hosts that the merged configuration names.
    """
    alone = opened.mirror is opened.objects  # a bare repository, a URL, a working copy without a remote
    if alone or opened.commit.oid == find_default_tip(opened.mirror):
        return ReadOptions(opened)
    merged = read_merged_policy(opened.mirror, environment)
    govern_by = policy_governor(merged)
    if is_merged(opened.mirror, opened.commit.oid):
        return ReadOptions(opened, govern_by)
    branch = opened.mirror.head_branch or "the default branch"
    note = f"Commit {opened.commit.oid} is not merged: credentials, hosts, functions and limits are "
    note += f"those of {branch}" if merged else f"the defaults, as {branch} has no readable configuration"
    return ReadOptions(
        opened, govern_by, repository_check(merged, opened.mirror), is_proposed=True, notes=(note,)
    )


def read_merged_policy(control: Mirror, environment: Mapping[str, str]) -> Policy | None:
    """Return the policy of the default branch, None if it has none that can be read: nothing is trusted."""
    tip = find_default_tip(control)
    if tip is None:
        return None
    try:
        return read_policy(open_commit(control, tip), environment)
    except ConfigurationError:
        return None


def policy_governor(merged: Policy | None) -> Callable[[Policy], Policy]:
    """Return what makes of a proposed policy the one that counts; without a merged one nothing is trusted."""
    return lambda policy: govern(merged or Policy(instance=policy.instance), policy)


def registered_in(inventory: Inventory) -> frozenset[str]:
    """Return the repositories that a commit registers and may be read, by normalised URL."""
    views = inventory.repositories.values()
    refused = Reason.REPOSITORY_REFUSED
    return frozenset(view.url for view in views if not view.problem or view.problem.reason != refused)


def repository_check(
    merged: Policy | None, control: Mirror, registered: Iterable[str] = ()
) -> RepositoryCheck:
    """Refuse to go where what is merged does not go: a change must not choose the host.

    Args:
        merged: The configuration that governs, None for none.
        control: The control repository; its own host is not refused.
        registered: Repositories that a merged commit registers, by normalised URL.
    """
    merged_urls = frozenset(registered)
    home = control.url.partition("/")[0]
    policy = merged or Policy()

    def judge(view: RepositoryView) -> Problem | None:
        same_host = view.url.partition("/")[0] == home and (control.is_local or home)
        named = find_rule(policy.credentials, view.remote) or find_rule(policy.forges, view.remote)
        if view.url in merged_urls or same_host or named:
            return None
        where = view.source.at("spec", "git", "repo")
        message = f"{view.remote} is on a host that the merged configuration does not name; it was not read"
        hint = "Name its prefix in spec.credentials or spec.forges first, or merge without this comparison."
        return Problem(where, Reason.REPOSITORY_REFUSED, message, hint, f"Repository {view.key}")

    return judge


def allow_addresses(policy: Policy, control: Mirror) -> RepositoryCheck:
    """Refuse addresses that the configuration does not allow, whoever registers them.

    Without a list: https and ssh go anywhere; what is on this machine, a path or http to a loopback
    address, is read only where the control repository is on it too. The control repository is allowed.
    """
    here = control.is_local or is_loopback(control.remote)

    def judge(view: RepositoryView) -> Problem | None:
        listed = any(is_prefix(prefix, view.remote) for prefix in policy.addresses)
        on_this_machine = local_path(view.remote) is not None or is_loopback(view.remote)
        usual = here if on_this_machine else not view.remote.lower().startswith("http://")
        if view.url == control.url or listed or (usual and not policy.addresses):
            return None
        where = view.source.at("spec", "git", "repo")
        message = f"{view.remote} is not an address that the configuration allows; it was not read"
        hint = f"Add its prefix to spec.addresses of {policy.config_path}, if that is meant."
        return Problem(where, Reason.REPOSITORY_REFUSED, message, hint, f"Repository {view.key}")

    return judge


def read_policy(opened: OpenControl, environment: Mapping[str, str]) -> Policy:
    """Return the policy of the control repository at the commit that was opened.

    Raises:
        ConfigurationError: There is no configuration, or it cannot be trusted.
    """
    path = environment.get(CONFIG_VARIABLE) or FILE
    blob = opened.objects.blob_at(opened.commit.oid, path)
    data = None
    if blob is not None:
        opened.objects.ensure([blob])
        try:
            data = opened.objects.blob(blob, Policy().limits.manifest_bytes)
        except PackageRefusedError as error:
            message = f"The configuration was not read: {error.why}"
            raise ConfigurationError(message, location=Location(path)) from error
    policy = parse_configuration(data, path, environment)
    return _with_reviewed_images(opened, policy) if policy.lock.is_reviewed else policy


def _with_reviewed_images(opened: OpenControl, policy: Policy) -> Policy:
    """Return the policy with the digests that main locks: like the policy, they say which code may run."""
    images = read_image_digests(opened.objects, opened.commit.oid, policy.limits.manifest_bytes)
    if images.problem is not None:
        raise ConfigurationError(
            images.problem.message, location=images.problem.location, hint=images.problem.hint
        )
    return with_image_digests(policy, images.lock)

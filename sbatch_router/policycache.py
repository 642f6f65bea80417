"""The policy in force: found, compiled from YAML once a change, and kept as `marshal` data."""

from __future__ import annotations

import posix

from .core.policy import Policy
from .state import Lock, load, store
from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence, Tuple


class PolicyTrouble(Exception):
    """The policy cannot be used; the text is one line that names the file and the error."""


def find_policy(paths: Sequence[str], environ: Mapping[bytes, bytes]) -> Policy:
    """The policy in `paths` (the user's own, then the site's), compiled once a change.

    Raises `PolicyTrouble` with the first error and how to see the rest.
    """
    try:
        place = directory(environ)
        key = tuple(_identity(path) for path in paths)
    except (StateError, OSError):
        return compile_policy(paths)
    name = f"{place}/policy{paths[0].replace('/', '!')[-200:]}"
    found = load(name, key)
    if isinstance(found, Policy):
        return found
    policy = compile_policy(paths)
    # Not waited for: whoever has the lock may be doing the same. Trouble with the directory
    # is told where it costs the ledger.
    with Lock(place, wait=0) as lock:
        if lock.held:
            try:
                store(name, key, policy)
            except OSError:
                return policy
    return policy


def _identity(path: str) -> Tuple[str, int, int, int]:
    found = posix.stat(path)
    return (path, found.st_mtime_ns, found.st_size, found.st_ino)


def compile_policy(paths: Sequence[str]) -> Policy:
    """Read the YAML. Raises `PolicyTrouble`. Slow: it imports a YAML parser."""
    from . import policyfile

    policies = []
    for path in paths:
        try:
            policies.append(policyfile.load(path))
        except policyfile.PolicyErrors as errors:
            first, count = errors.errors[0], len(errors.errors)
            more = f" (and {count - 1} more: `sbatch-router check`)" if count > 1 else ""
            raise PolicyTrouble(f"policy error: {first}{more}") from None
    policy = policies[0]
    for site in policies[1:]:
        policy = policyfile.merge(policy, site)
    return policy

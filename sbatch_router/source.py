"""pyslurm as the source of snapshots: tried once in hours, and never in a submission's way.

A policy's ``source: pyslurm`` is the only thing that gets here; docs/decisions/0004-sources.md
says why ``auto`` means scontrol.
"""

from __future__ import annotations

import time

from .core.snapshot import Site, Snapshot
from .core.tres import UNKNOWN
from .slurm.pyslurm_source import Choice, Probe, choose_source, collect_pyslurm, probe_pyslurm
from .state import load, store
from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping, Optional, Tuple

#: Seconds for which a probe of pyslurm is kept; less when it cannot be used.
PROBE_SECONDS = 4 * 3600
RETRY_SECONDS = 600


def by_pyslurm(
    environ: Mapping[bytes, bytes],
    site: Site,
    accounts: Iterable[str],
    qos: Iterable[str],
    uid: int,
    timeout: float,
    *,
    everyone: bool = False,
) -> Tuple[Optional[Snapshot], str, bool]:
    """A snapshot; else None, one clause that says why, and whether this is news.

    `timeout` is in seconds, for each of at most two children. What fails is not tried again
    for `RETRY_SECONDS`.
    """
    choice, probe, new = choose(environ, "pyslurm", timeout)
    if choice.source != "pyslurm":
        return None, choice.why, new
    found = collect_pyslurm(
        site, accounts, qos, site.user, uid, timeout, time.time(), everyone=everyone
    )
    if found.qos is not UNKNOWN:
        return found, "", False
    trouble = found.troubles[-1] if found.troubles else "pyslurm shows no QOS"
    _remember(environ, probe._replace(trouble=trouble))
    return None, trouble, True


def choose(
    environ: Mapping[bytes, bytes], wanted: str, timeout: float
) -> Tuple[Choice, Probe, bool]:
    """The source for a policy's ``source:``, what pyslurm is like, and whether it was asked now.

    For `by_pyslurm` and doctor: pyslurm is asked when no answer is remembered.
    """
    probe = _remembered(environ)
    new = probe is None
    if probe is None:
        probe = probe_pyslurm(timeout)
        _remember(environ, probe)
    return choose_source(wanted, probe), probe, new


def _key(environ: Mapping[bytes, bytes]) -> Tuple[bytes, ...]:
    """Another cluster, or another installation of ours, is another question."""
    return (environ.get(b"SLURM_CONF", b""), __file__.encode("utf-8", "surrogateescape"))


def _remembered(environ: Mapping[bytes, bytes]) -> Optional[Probe]:
    try:
        found = load(f"{directory(environ)}/pyslurm", _key(environ))
    except StateError:
        return None
    if not (isinstance(found, tuple) and len(found) == 5):
        return None
    at, trouble, pyslurm, slurm, hidden = found
    age = time.time() - at
    if 0 <= age < (RETRY_SECONDS if trouble else PROBE_SECONDS):
        return Probe(trouble, pyslurm, slurm, hidden)
    return None


def _remember(environ: Mapping[bytes, bytes], probe: Probe) -> None:
    """Without a place to write, the next submission tries again."""
    try:
        store(f"{directory(environ)}/pyslurm", _key(environ), (time.time(), *probe))
    except (StateError, OSError):
        return

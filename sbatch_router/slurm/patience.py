"""How long a command for people waits for Slurm: one bound, however many questions it asks.

slurmctld that is down or hangs keeps scontrol for ten seconds and more, and a SLURM_CONF that
names no file keeps every command of Slurm's for a minute. The shim has a bound of its own
(host.TIMEOUT); moving jobs and Snakemake's commands have theirs.
"""

from __future__ import annotations

import os
import time
from typing import Mapping, Optional, Sequence

from .run import NO_ANSWER

#: Seconds in all, and what is left at least for a question after another one took them.
SECONDS, LEAST = 5.0, 1.0
#: Overrules SECONDS, for a cluster that is slow and not stuck.
VARIABLE = "SBATCH_ROUTER_TIMEOUT"
MOST = 600.0

#: What each command asks.
_DAEMONS = {"scontrol": "slurmctld", "squeue": "slurmctld", "sacctmgr": "slurmdbd",
            "sacct": "slurmdbd"}  # fmt: skip
#: How Slurm's own commands say that nobody listens.
_NOBODY = ("Unable to contact slurm controller", "Connection refused", "connect failure")


class _Clock:
    """Until when this process waits; None: each question has all the time."""

    seconds = SECONDS
    until: Optional[float] = None


def begin(environ: Mapping[str, str] = os.environ) -> None:
    """Start the clock for a command. Raises ValueError for a bound that is none."""
    text = environ.get(VARIABLE) or f"{SECONDS}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST:
        raise ValueError(f"{VARIABLE}={text!r}: expected seconds, at most {MOST:g}")
    _Clock.seconds = seconds
    _Clock.until = time.monotonic() + seconds


def left() -> float:
    """Seconds that the next question may take."""
    if _Clock.until is None:
        return _Clock.seconds
    rest = round(_Clock.until - time.monotonic(), 1)
    return max(min(LEAST, _Clock.seconds), rest)


def conf_trouble(environ: Mapping[str, str] = os.environ) -> str:
    """Why SLURM_CONF can be no configuration file; empty where it may be, or is not set.

    Slurm's commands try again for a minute to open a file that is not there.
    """
    path = environ.get("SLURM_CONF")
    if not path:
        return ""
    try:
        with open(path, "rb"):
            return ""
    except OSError as error:
        return f"SLURM_CONF={path}: {error.strerror}"


def explain(troubles: Sequence[str]) -> str:
    """Where Slurm is stuck, in one clause."""
    text = "; ".join(dict.fromkeys(troubles)) or "Slurm did not tell"
    conf = conf_trouble()
    if conf:
        return f"{conf} (load the Slurm module, or unset it)"
    silent = dict.fromkeys(
        _DAEMONS[trouble.partition(" ")[0]]
        for trouble in troubles
        if trouble.partition(" ")[0] in _DAEMONS
        and any(words in trouble for words in (NO_ANSWER, *_NOBODY))
    )
    return f"{' and '.join(silent)} cannot be reached: {text}" if silent else text

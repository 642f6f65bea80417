"""The `sbatch-router` command: one small module a command, imported only when it is run.

Nothing is imported here: the Snakemake commands live in this package too, and start often.
"""

from __future__ import annotations

#: Command name -> module in this package, which exports `command`.
COMMANDS = {
    "check": "check",
    "completion": "completion",
    "diagnose": "diagnose",
    "doctor": "doctor",
    "explain": "explain",
    "init": "init",
    "history": "history",
    "install-shim": "install_shim",
    "live-accounts": "live_accounts",
    "reroute": "reroute",
    "run": "run",
    "snakemake-profile": "snakemake_profile",
    "status": "status",
    "strip-blocked": "strip_blocked",
}


def ensure_streams() -> None:
    """Where standard output or error was closed (a cron job's), write to nowhere instead."""
    import os
    import sys

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def main(prog_name: str = "sbatch-router") -> None:
    """Run ``sbatch-router``."""
    from ._group import group

    ensure_streams()
    group(prog_name=prog_name)

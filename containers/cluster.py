#!/usr/bin/env python3
"""Boot, run and end a real Slurm cluster in a private directory; see `cluster.py --help`."""

from __future__ import annotations

import sys

from slurmbed import BedError, Cluster, CommandFailed
from slurmbed.cli import main

__all__ = ["BedError", "Cluster", "CommandFailed"]

if __name__ == "__main__":
    sys.exit(main())

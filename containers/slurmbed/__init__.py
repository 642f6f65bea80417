"""A complete Slurm cluster in a private directory, for tests and demonstrations."""

from __future__ import annotations

from .cluster import Cluster
from .errors import BedError, CommandFailed

__all__ = ["BedError", "Cluster", "CommandFailed"]

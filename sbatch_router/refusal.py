"""Who holds a pool: asked only when a job is about to be refused."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from .route import Considered


def holders(considered: Considered) -> Dict[str, str]:
    """QOS name -> its heaviest users, in words. Empty where Slurm does not tell."""
    return {}

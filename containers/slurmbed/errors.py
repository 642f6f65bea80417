"""The errors a caller may see."""

from __future__ import annotations

import subprocess
from typing import Any


class BedError(RuntimeError):
    """The cluster could not be built, changed or reached; the text says why and what to do."""


class CommandFailed(subprocess.CalledProcessError):
    """A command ended with a status other than 0; unlike its base its text shows the output."""

    def __init__(self, returncode: int, argv: Any, stdout: str, stderr: str) -> None:
        super().__init__(returncode, argv, stdout, stderr)

    def __str__(self) -> str:
        shown = "\n".join(part.rstrip() for part in (self.stdout, self.stderr) if part)
        return f"{super().__str__()}\n{shown}" if shown else super().__str__()

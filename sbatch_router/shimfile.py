"""The text of the installed ``sbatch``: a few lines that need nothing but Python itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import shim

#: Longest ``#!`` line that Linux reads (BINPRM_BUF_SIZE before 5.1 was 128).
MAX_SHEBANG = 127

TEMPLATE = """\
#!{python} -IS
# {mark}: routes this job to an account with room, then becomes the real sbatch.
# Written by `sbatch-router install-shim`; run that again after moving Python or the package.
import sys
REAL = {real!r}
try:
    sys.path[:0] = {paths!r}
    from sbatch_router.shim import main
except Exception:
    # The package is gone or broken: the job must not be.
    import posix
    search = posix.environ.get(b"PATH", b"/bin:/usr/bin").decode("utf-8", "surrogateescape")
    for real in [(d or ".") + "/sbatch" for d in search.split(":")] + [REAL]:
        try:
            with open(real, "rb") as f:
                ours = b"{mark}" in f.read(512)
            if not ours and posix.access(real, posix.X_OK):
                posix.write(2, b"sbatch-router: its package is gone; reinstall it or remove "
                            + __file__.encode("utf-8", "surrogateescape") + b"\\n")
                posix.execv(real, ["sbatch"] + sys.argv[1:])
        except OSError:
            pass
    sys.exit(127)
main(sys.argv[1:], REAL)
"""


class ShimError(Exception):
    """The shim cannot be written; the text says where, why and what to do."""


def python_for_shim() -> str:
    """The interpreter the shim names: the base one, which outlives a virtual environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(base)


def import_paths() -> list[str]:
    """Where the shim finds our package and PyYAML, which it needs when a policy changed."""
    import yaml

    package = Path(__file__).resolve().parent.parent
    library = Path(yaml.__file__).resolve().parent.parent
    return [str(p) for p in dict.fromkeys((package, library))]


def text(python: str, paths: list[str], real: str) -> str:
    """The script's text. Raises `ShimError` where Linux could not run it."""
    if any(c.isspace() for c in python) or len(f"#!{python} -IS") > MAX_SHEBANG:
        raise ShimError(
            f"{python}: a path with blanks or of more than {MAX_SHEBANG} bytes cannot start a "
            "script; install sbatch-router with a Python at a shorter path"
        )
    mark = shim.MARK.decode()
    return TEMPLATE.format(python=python, mark=mark, real=real, paths=paths)


def install(directory: Path) -> Path:
    """Write ``DIRECTORY/sbatch`` (made if missing) and return its path.

    Never replaces a file that is not a shim of ours. Raises `ShimError`.
    """
    target = directory / "sbatch"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target) and shim.is_real(str(target)):
            raise ShimError(f"{target} is not a shim of ours: choose another directory")
        real = shim.find_sbatch(os.environ.get("PATH")) or ""
        body = text(python_for_shim(), import_paths(), os.path.abspath(real) if real else "")
        temporary = directory / f".sbatch.{os.getpid()}"
        temporary.write_text(body)
        temporary.chmod(0o755)
        temporary.replace(target)
    except OSError as error:
        raise ShimError(f"{error.filename or directory}: {error.strerror}") from None
    return target


def uninstall(directory: Path) -> Path:
    """Remove ``DIRECTORY/sbatch`` if it is a shim of ours. Raises `ShimError`."""
    target = directory / "sbatch"
    if not target.exists():
        raise ShimError(f"{target} does not exist")
    if shim.is_real(str(target)):
        raise ShimError(f"{target} is not a shim of ours; left alone")
    target.unlink()
    return target

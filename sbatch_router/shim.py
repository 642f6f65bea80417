"""The installed ``sbatch``: hand the call to the router, then become the real sbatch.

The first thing this does is make sure that the call cannot be lost: whatever happens in the
router, the last step is execv of the real sbatch with the original arguments. Nothing is
imported beyond builtin modules until there is a policy to obey. (Not even `__future__`, a file
of the standard library like any other: annotations are quoted instead.)
"""

import _signal  # type: ignore[import-not-found]
import gc
import posix
import sys

from .environ import PASSED, policy_paths, say, switched_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, NoReturn, Optional, Sequence, Tuple

#: Any file with this near its start is a shim of ours, never the real sbatch.
MARK = b"sbatch-router shim"

#: Where execvp looks when PATH is not set (confstr _CS_PATH).
DEFAULT_PATH = "/bin:/usr/bin"


def main(argv: "Sequence[str]", fallback: str = "", hot: str = "") -> "NoReturn":
    """Run as ``sbatch ARGV...`` and never return. `hot`: the file that `hotbuild` made.

    `fallback` is the real sbatch as it was when the shim was installed, for a PATH without
    one (``env -i``).
    """
    _signal.signal(_signal.SIGINT, _default_unless_ignored())
    arguments = list(argv)
    sbatch, again = _next_sbatch(fallback)
    try:
        environ = posix.environ
        paths = () if again else policy_paths(environ)
        if paths and not switched_off(environ):
            # So short a life makes too little garbage to look for.
            gc.disable()
            from .hot import activate, bring

            activate(hot)
            bring("route")
            from .route import route

            arguments = route(arguments, environ, paths)
    except BaseException as error:
        # Our own bug must not cost a job: say so in one line, and submit as asked.
        what = " ".join(f"{type(error).__name__}: {error}".split())
        say(f"internal error, submitted as you wrote it: {what}")
        arguments = list(argv)
    become_sbatch(arguments, sbatch)


def _next_sbatch(fallback: str) -> "Tuple[str, bool]":
    """The sbatch to become, and whether this call has been here before (see `wrappers`)."""
    sbatch = real_sbatch(fallback)
    try:
        if is_wrapper(sbatch) or _has_notes():
            return _beyond_wrappers(sbatch, fallback)
    except Exception:
        # A bug of ours there is no reason to lose a job.
        pass
    return sbatch, False


def _has_notes() -> bool:
    """Whether this user is coming through a wrapper just now, which may have left PATH since."""
    if PASSED in posix.environ:
        return True
    try:
        noted = posix.stat(f"/tmp/sbatch-router-{posix.geteuid()}/wrappers").st_mtime
    except OSError:
        return False
    import time

    return -60 < time.time() - noted < 600


def _beyond_wrappers(sbatch: str, fallback: str) -> "Tuple[str, bool]":
    from .wrappers import been_through, remember

    been = been_through(posix.environ)
    if sbatch in been:
        sbatch = real_sbatch(fallback, been)
    if is_wrapper(sbatch):
        remember(posix.environ, (*been, sbatch))
    return sbatch, bool(been)


def is_wrapper(sbatch: str) -> bool:
    """Whether it may be a site's own program, and lead back to us.

    Slurm's sbatch names its library near its start. Another compiled program may be Slurm's all
    the same (linked in another way): it is one once this call has gone round.
    """
    try:
        fd = posix.open(sbatch, posix.O_RDONLY | posix.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        start = posix.read(fd, 65536)
    except OSError:
        return False
    finally:
        posix.close(fd)
    if start[:4] != b"\x7fELF":
        return True
    return b"libslurm" not in start and _has_gone_round()


def _has_gone_round() -> bool:
    """Whether this process is no new one, or one of the two above it is an sbatch itself."""
    try:
        up = float(_first_bytes("/proc/uptime").split()[0])
        _, own = _stat("self")
        if up - int(own[19]) / 100 > 0.5:
            return True
        parent, above = _stat(own[1].decode())
        return b"sbatch" in (parent, _stat(above[1].decode())[0])
    except (OSError, ValueError, IndexError):
        return False


def _stat(pid: str) -> "Tuple[bytes, List[bytes]]":
    """A process's name, and the fields after it (proc(5); times in hundredths of a second)."""
    head, _, tail = _first_bytes(f"/proc/{pid}/stat").rpartition(b")")
    return head.partition(b"(")[2], tail.split()


def _first_bytes(path: str) -> bytes:
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        return posix.read(fd, 4096)
    finally:
        posix.close(fd)


def _default_unless_ignored() -> object:
    """Ctrl-C ends the shim as it would end sbatch; where it is ignored it stays so."""
    ignored = _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN
    return _signal.SIG_IGN if ignored else _signal.SIG_DFL


def find_sbatch(
    path: "Optional[str]", fallback: str = "", been: "Tuple[str, ...]" = ()
) -> "Optional[str]":
    """The first ``sbatch`` in `path` (colon-separated) that is executable and not a shim.

    `been`: those that are passed over.
    """
    for directory in (DEFAULT_PATH if path is None else path).split(":"):
        candidate = (directory or ".") + "/sbatch"
        if candidate not in been and is_real(candidate):
            return candidate
    return fallback if fallback and fallback not in been and is_real(fallback) else None


def is_real(path: str) -> bool:
    """Whether `path` is an executable file that is not one of our shims."""
    try:
        if posix.stat(path).st_mode & 0o170000 != 0o100000 or not posix.access(path, posix.X_OK):
            return False
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except (OSError, ValueError):
        # Executable but unreadable is not ours: our shims can be read.
        return _executable(path)
    try:
        return MARK not in posix.read(fd, 512)
    except OSError:
        return True
    finally:
        posix.close(fd)


def _executable(path: str) -> bool:
    try:
        return posix.access(path, posix.X_OK)
    except (OSError, ValueError):
        return False


def real_sbatch(fallback: str = "", been: "Tuple[str, ...]" = ()) -> str:
    """The sbatch to become, but for `been`; ends the process with 127 when there is none.

    Looked for before anything is decided: without it nothing is to be said or promised.
    """
    searched = posix.environ.get(b"PATH")
    # As posix will encode it again.
    encoding = sys.getfilesystemencoding()
    path = None if searched is None else searched.decode(encoding, "surrogateescape")
    sbatch = find_sbatch(path, fallback, been)
    if sbatch is None:
        say(f"no sbatch in PATH ({path}) besides this shim; is the Slurm module loaded?")
        posix._exit(127)
    return sbatch


def become_sbatch(argv: "Sequence[str]", sbatch: str = "") -> "NoReturn":
    """execv the real sbatch as ``sbatch``, in the environment and signals we were given."""
    sbatch = sbatch or real_sbatch()
    forget_coerced_locale()
    # Python ignores these, and an ignored signal would stay ignored in sbatch. What they were
    # before Python started cannot be known; the default is what a shell's child has.
    for name in ("SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    try:
        try:
            posix.execv(sbatch, ["sbatch", *argv])
        except OSError as error:
            if error.errno != 8:
                raise
            # ENOEXEC: a site's wrapper without #!, which shells and execvp run so.
            posix.execv("/bin/sh", ["sh", sbatch, *argv])
    except OSError as error:
        say(f"cannot run {sbatch}: {error.strerror}")
        posix._exit(126)


def forget_coerced_locale() -> None:
    """Take back the LC_CTYPE that Python itself puts into the environment (PEP 538).

    It would travel through sbatch into the job. /proc still has what we were given.
    """
    if posix.environ.get(b"LC_CTYPE") not in (b"C.UTF-8", b"C.utf8", b"UTF-8"):
        return
    try:
        fd = posix.open("/proc/self/environ", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return
    given = b"\0"
    while True:
        part = posix.read(fd, 65536)
        if not part:
            break
        given += part
    posix.close(fd)
    _, found, value = given.partition(b"\0LC_CTYPE=")
    if found:
        posix.putenv(b"LC_CTYPE", value.partition(b"\0")[0])
    else:
        posix.unsetenv(b"LC_CTYPE")


__all__ = [
    "DEFAULT_PATH",
    "MARK",
    "become_sbatch",
    "find_sbatch",
    "is_real",
    "main",
    "real_sbatch",
]

"""Sites' own `sbatch` scripts, which may lead back to us.

A script that starts "the next sbatch in PATH that is not me" finds our shim, which would start
the script again, for ever. So the shim notes which process became which script, in a file of the
state directory: environment and descriptors belong to the user. Only calls that meet such a
script come here.
"""

from __future__ import annotations

import posix

from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Mapping, Optional, Tuple

#: Bytes after which the file begins anew: some hundred calls.
_MOST = 65536
#: How far up a wrapper is looked for: it may start shells that start us.
_GENERATIONS = 8


def been_through(environ: Mapping[bytes, bytes]) -> Tuple[str, ...]:
    """The wrappers that this call has come through, the latest last."""
    noted = _read(environ)
    if not noted:
        return ()
    for process in _lineage():
        for line in reversed(noted):
            words = line.split("\0")
            if words[0] == process:
                return tuple(words[1:])
    return ()


def remember(environ: Mapping[bytes, bytes], wrappers: Tuple[str, ...]) -> None:
    """Note that this process becomes the last of `wrappers`. Where it cannot, it does not."""
    process = next(_lineage(), "")
    try:
        fd = posix.open(_path(environ), _FLAGS | posix.O_WRONLY | posix.O_APPEND, 0o600)
    except (OSError, StateError):
        return
    try:
        if posix.fstat(fd).st_size > _MOST:
            posix.ftruncate(fd, 0)
        line = "\0".join((process, *wrappers)).replace("\n", "")
        posix.write(fd, (line + "\n").encode("utf-8", "surrogateescape"))
    except OSError:
        return
    finally:
        posix.close(fd)


_FLAGS = posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK


def _path(environ: Mapping[bytes, bytes]) -> str:
    return directory(environ) + "/wrappers"


def _read(environ: Mapping[bytes, bytes]) -> List[str]:
    try:
        fd = posix.open(_path(environ), _FLAGS | posix.O_RDONLY, 0o600)
    except (OSError, StateError):
        return []
    try:
        return posix.read(fd, 2 * _MOST).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return []
    finally:
        posix.close(fd)


def _lineage() -> Iterator[str]:
    """This process and those above it, each as ``PID:START`` (an id alone is used again)."""
    pid: Optional[str] = str(posix.getpid())
    for _ in range(_GENERATIONS):
        try:
            fd = posix.open(f"/proc/{pid}/stat", posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            return
        try:
            # The name, in parentheses, may hold anything (proc(5)).
            fields = posix.read(fd, 4096).rpartition(b")")[2].split()
        except OSError:
            return
        finally:
            posix.close(fd)
        if len(fields) < 20:
            return
        yield f"{pid}:{fields[19].decode()}"
        pid = fields[1].decode()

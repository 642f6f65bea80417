"""Sites' own `sbatch` programs, which may lead back to us.

A program that starts "the next sbatch in PATH that is not me" finds our shim, which would start
it again, for ever. So the shim notes which process became which program, in a file of the
user's: environment and descriptors belong to the user. The file's place does not depend on the
environment, which such a program may empty; where no file can be written the note has to travel
there all the same. Only calls that meet such a program come here.
"""

import posix

from .environ import PASSED
from .statedir import StateError, directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Mapping, Optional, Tuple

#: Bytes after which a new file is begun: some hundred calls. One older file is kept, since
#: others may be under way.
_MOST = 65536
#: How far up a wrapper is looked for: it may start shells that start us.
_GENERATIONS = 32
_FLAGS = posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK


def been_through(environ: "Mapping[bytes, bytes]") -> "Tuple[str, ...]":
    """The wrappers that this call has come through, the latest last."""
    notes = _notes(environ)
    for process in _lineage() if notes else ():
        found: Tuple[str, ...] = ()
        for text in notes:
            # The last that a process has noted holds all that it noted before.
            _, known, note = text.rpartition(f"\0\0{process}\0")
            wrappers = tuple(note.partition("\0\0")[0].split("\0")) if known else ()
            found = max(found, wrappers, key=len)
        if found:
            return found
    return ()


def remember(environ: "Mapping[bytes, bytes]", wrappers: "Tuple[str, ...]") -> None:
    """Note that this process becomes the last of `wrappers`."""
    note = (next(_lineage(), ""), *wrappers)
    line = _bytes("\0".join(note) + "\0\0")
    if not any(_append(place, line) for place in _places(environ)):
        posix.putenv(PASSED, _bytes(":".join(note)))


def _places(environ: "Mapping[bytes, bytes]") -> "Iterator[str]":
    """Where notes are, the best place first."""
    for variables in ({}, environ):
        try:
            yield directory(variables) + "/wrappers"
        except StateError:
            continue


def _append(path: str, line: bytes) -> bool:
    """Whether the line is in the file."""
    flags = _FLAGS | posix.O_CREAT | posix.O_WRONLY | posix.O_APPEND
    try:
        fd = posix.open(path, flags, 0o600)
        try:
            if posix.fstat(fd).st_size > _MOST:
                posix.rename(path, path + ".old")
            return posix.write(fd, line) == len(line)
        finally:
            posix.close(fd)
    except OSError:
        return False


def _notes(environ: "Mapping[bytes, bytes]") -> "List[str]":
    """What is noted in each place: PROCESS, WRAPPER... with one zero byte between, two around."""
    found = [_read(place + ".old") + _read(place) for place in _places(environ)]
    travelling = environ.get(PASSED, b"")
    if travelling:
        found.append(travelling.replace(b":", b"\0"))
    return ["\0\0" + text.decode("utf-8", "surrogateescape") for text in found if text]


def _read(path: str) -> bytes:
    try:
        fd = posix.open(path, _FLAGS | posix.O_RDONLY)
        try:
            return posix.read(fd, 2 * _MOST)
        finally:
            posix.close(fd)
    except OSError:
        return b""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _lineage() -> "Iterator[str]":
    """This process and those above it, each as ``PID.START`` (an id alone is used again)."""
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
        yield f"{pid}.{fields[19].decode()}"
        pid = fields[1].decode()

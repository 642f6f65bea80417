"""The user's private state on this host: how it is read and written (statedir.py: where it lives).

State is a cache and a promise book, never a record: any file may vanish, be cut short or be
garbage at any time, and reading it then gives nothing rather than an error. Files are
`marshal` data (the only decoder that costs nothing to import), read only when they are
ours. Caches are replaced by rename; the promise book grows by one entry a submission.
"""

from __future__ import annotations

import marshal
import posix
import time

from .core.ledger import Promise
from .core.policy import Account, Blocked, Policy, Rule, Test, WhenFull
from .core.snapshot import Assoc, Config, Job, Partition, Qos, Scope, Site, Snapshot
from .core.tres import UNKNOWN, Limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Tuple

    from typing_extensions import Self

#: Changes whenever what is stored changes its shape: older files are then ignored.
FORMAT = 2

#: Stored by position, so append only (or raise FORMAT).
_RECORDS: Tuple[type, ...] = (
    Limit,
    Scope,
    Qos,
    Assoc,
    Partition,
    Config,
    Job,
    Snapshot,
    Promise,
    Account,
    Blocked,
    Rule,
    Test,
    WhenFull,
    Policy,
    Site,
)
_CODES = {record: code for code, record in enumerate(_RECORDS)}
_TUPLE, _UNKNOWN, _FROZENSET = -1, -2, -3
_NESTED = frozenset((tuple, dict))

#: The largest prime of 30 bits, one digit of Python's integers: dividing by it is fast.
_PRIME = 1073741789

#: Bytes: what is larger than any file of ours is garbage.
_LARGEST = 1 << 28

_S_IFMT, _S_IFREG = 0o170000, 0o100000
#: What marshal and `_decode` may raise over data that is whole and not ours.
_GARBAGE = (ValueError, EOFError, TypeError, IndexError, KeyError)


class Lock:
    """An exclusive lock on the state directory.

    `held` tells whether we got it: on a file system without working locks, or behind a
    stopped process, the caller goes on without the ledger. The wait ends `wait` seconds after
    the last sign that others get on with their work (the lock file's time, set by whoever
    takes the lock), in a burst of submissions as late as `MAX_WAIT`. Whoever asks Slurm
    meanwhile is waited for as long as that may take, since the answer serves all (`note_busy`).
    """

    MAX_WAIT = 15.0

    def __init__(self, path: str, wait: float = 1.0) -> None:
        self._path = path
        self._wait = wait
        self._fd = -1
        self.held = False
        #: Why not, in one clause.
        self.trouble = ""

    def __enter__(self) -> Self:
        try:
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
            self._fd = posix.open(self._path + "/lock", flags, 0o600)
            self._acquire()
        except OSError as error:
            self.trouble = f"cannot lock {self._path}/lock: {error.strerror}"
        return self

    def _acquire(self) -> None:
        # fcntl is a shared library in some builds of Python: only a lock pays for it.
        import fcntl

        now = time.monotonic()
        deadline, latest = now + self._wait, now + self.MAX_WAIT
        sign = answered = 0.0
        pause = 0.001
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                changed = posix.fstat(self._fd).st_mtime
                if changed != sign:
                    now = time.monotonic()
                    if sign:
                        deadline = min(now + self._wait, latest)
                    left = changed - time.time()
                    if 0 < left < self.MAX_WAIT and now < latest:
                        answered = now + left + 0.2
                    sign = changed
                if time.monotonic() >= max(deadline, answered):
                    self.trouble = f"{self._path}/lock stayed locked for {self._wait:g} s"
                    return
            else:
                self.held = True
                posix.utime(self._fd)
                return
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            posix.close(self._fd)
        self.held = False


def note_busy(place: str, seconds: float) -> None:
    """Tell those who wait for the lock of `place` that we may need `seconds` more.

    The lock file's time is when that will be over.
    """
    until = time.time() + seconds
    try:
        posix.utime(place + "/lock", (until, until))
    except OSError:
        return


def load(path: str, key: object) -> object:
    """What `store` wrote with this `key`; None when there is nothing (whole) of ours there."""
    data = _own_bytes(path)
    if data[:4] != _sum(data[4:]):
        # marshal may take gigabytes, or crash, over garbage.
        return None
    try:
        stored = marshal.loads(data[4:])
        if stored[0] != (FORMAT, _layout(), key):
            return None
        return _decode(stored[1])
    except _GARBAGE:
        return None


def load_list(path: str, kind: type) -> Tuple[Tuple[Any, ...], int]:
    """What `store_list` and `append` wrote of a `kind`, and how many bytes of the file that is.

    An entry that is not whole ends the list: a crash or a full disk took the rest of it.
    """
    data = _own_bytes(path)
    found: list[Any] = []
    end = 0
    try:
        while data[end : end + 4]:
            begin = end + 8
            after = begin + int.from_bytes(data[end + 4 : begin], "little")
            if after > len(data) or data[end : end + 4] != _sum(data[end + 4 : after]):
                break
            entry = _decode(marshal.loads(data[begin:after]))
            if not isinstance(entry, kind) if end else entry != _list_head():
                break
            found.append(entry)
            end = after
    except _GARBAGE:
        pass
    return tuple(found[1:]), end


def _own_bytes(path: str) -> bytes:
    """The content of a regular file of ours; empty where there is none."""
    try:
        # O_NONBLOCK: a FIFO of that name must not be waited for.
        flags = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK
        fd = posix.open(path, flags)
    except OSError:
        return b""
    try:
        found = posix.fstat(fd)
        if found.st_mode & _S_IFMT != _S_IFREG or found.st_uid != posix.geteuid():
            return b""
        if found.st_size > _LARGEST:
            return b""
        return _read(fd, found.st_size)
    except OSError:
        return b""
    finally:
        posix.close(fd)


def _sum(data: bytes) -> bytes:
    """Four bytes that tell whole data from garbage; a checksum module would cost an import."""
    return (int.from_bytes(data, "little") % _PRIME).to_bytes(4, "little")


def _layout() -> int:
    """Changes when any stored record gains or loses a field."""
    return hash(tuple(len(r._fields) for r in _RECORDS))  # type: ignore[attr-defined]


def _read(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = posix.read(fd, max(size, 65536))
        if not part:
            return b"".join(parts)
        parts.append(part)
        if len(part) >= size:
            return b"".join(parts)


def store(path: str, key: object, value: object) -> None:
    """Replace `path` with `value` (records, tuples, dicts, plain values). Call with the lock.

    Raises OSError when the file system does not take it; what was there then stays.
    """
    data = marshal.dumps(((FORMAT, _layout(), key), _encode(value)))  # type: ignore[arg-type]
    # A cache: whoever finds nothing at this moment asks again.
    _replace(path, _sum(data) + data, atomic=False)


def store_list(path: str, entries: Tuple[Any, ...], end: int) -> int:
    """Replace the list of which `end` bytes were loaded; returns its new size.

    As `store`, but at no moment is there no list.
    """
    head = _entry(_list_head())
    if entries or not end:
        data = head + b"".join([_entry(e) for e in entries])
        _replace(path, data, atomic=True)
        return len(data)
    # Never to nothing: ext4 would write the file to disk when it is closed.
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW)
    try:
        posix.ftruncate(fd, len(head))
    finally:
        posix.close(fd)
    return len(head)


def append(path: str, entry: Any, end: int) -> int:
    """Add an entry to the list of which `end` bytes were loaded; returns its new size.

    Call with the lock. Raises OSError, and the list is then as it was.
    """
    if not end:
        data = _entry(_list_head()) + _entry(entry)
        _replace(path, data, atomic=True)
        return len(data)
    data = _entry(entry)
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW)
    try:
        if posix.fstat(fd).st_size != end:
            posix.ftruncate(fd, end)
        if posix.pwrite(fd, data, end) != len(data):
            posix.ftruncate(fd, end)
            raise OSError(28, "No space left on device")
    finally:
        posix.close(fd)
    return end + len(data)


def _list_head() -> Tuple[int, int]:
    return (FORMAT, _layout())


def _entry(value: object) -> bytes:
    """Sum, length and data of one entry of a list."""
    data = marshal.dumps(_encode(value))  # type: ignore[arg-type]
    data = len(data).to_bytes(4, "little") + data
    return _sum(data) + data


def _replace(path: str, data: bytes, atomic: bool) -> None:
    """Write a whole file beside `path`, then let it take its place.

    Renaming over a file makes ext4 write the new one to disk first, which takes longer than all
    the rest; so where nobody is hurt by a moment without the file, the old one goes first.
    """
    temporary = path + ".new"
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
    try:
        fd = posix.open(temporary, flags, 0o600)
    except FileExistsError:
        # Half a file of a shim that was killed; or a pipe, which must not be waited for.
        posix.unlink(temporary)
        fd = posix.open(temporary, flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[posix.write(fd, view) :]
        if not atomic:
            _remove(path)
        posix.rename(temporary, path)
    except OSError:
        # On a full disk the half of it is in the way of others.
        posix.unlink(temporary)
        raise
    finally:
        posix.close(fd)


def _remove(path: str) -> None:
    try:
        posix.unlink(path)
    except FileNotFoundError:
        return


def _encode(value: object) -> object:
    """Records become tuples that begin with their code; plain values stay."""
    if isinstance(value, tuple):
        code = _CODES.get(type(value), _TUPLE)
        return (code, *[_encode(v) for v in value])
    if isinstance(value, dict):
        return {_encode(k): _encode(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return (_FROZENSET, *value)
    return (_UNKNOWN,) if value is UNKNOWN else value


def _decode(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        code = value[0]
        if code == _UNKNOWN:
            return UNKNOWN
        if code == _FROZENSET:
            return frozenset(value[1:])
        items = [_decode(v) if type(v) in _NESTED else v for v in value[1:]]
        return tuple(items) if code == _TUPLE else tuple.__new__(_RECORDS[code], items)
    if kind is dict:
        return {
            _decode(k) if type(k) is tuple else k: _decode(v) if type(v) in _NESTED else v
            for k, v in value.items()
        }
    return value

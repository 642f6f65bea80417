"""Run Slurm's query commands: several at once, under deadlines, leaving nothing behind.

`import subprocess` costs more than starting Python does, so this is posix_spawn, pipes and
poll (docs/decisions/0001-hot-path-imports.md). Nothing here knows what Slurm's answers mean.
"""

from __future__ import annotations

import posix
import select
import time

from ..core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Callable, Dict, List, Optional, Sequence, Tuple

    Env = Dict[bytes, bytes]
else:
    # What `signal` wraps; `signal` itself imports enum, which costs milliseconds.
    import _signal

#: An answer larger than this is no answer: 64 MiB.
MAX_OUT = 64 * 2**20
#: Of standard error, this much is kept and the rest is read and dropped.
MAX_ERR = 64 * 2**10

#: What `Outcome.trouble` says of a command that was killed when its time was up.
NO_ANSWER = "did not answer within"

#: Milliseconds between two looks at whether a silent child is still alive.
_LOOK = 50
#: Seconds given to a killed process to be reaped; one that hangs in the kernel is left.
_REAP = 0.1

#: Variables that change what the queries print: ENVIRONMENT VARIABLES in scontrol(1), squeue(1)
#: and sacctmgr(1), and every getenv() of src/{scontrol,squeue,sacctmgr,api,common}.
_DROPPED_PREFIXES = (b"SQUEUE_", b"SCONTROL_", b"SACCTMGR_", b"LC_")
_DROPPED = frozenset(
    (b"SLURM_CLUSTERS", b"SLURM_TIME_FORMAT", b"SLURM_DEBUG_FLAGS", b"SLURM_TOPO_LEN", b"LANGUAGE")
)


class Outcome(Record):
    """What became of one command.

    `rc` is its exit status (negative: the signal that ended it), None if it did not end by
    itself. `trouble` is empty when it ran to its end with status 0, else one clause that names
    the command and says what happened. `out` and `err` are whatever it printed until then.
    """

    rc: Optional[int]
    out: bytes
    err: bytes
    trouble: str = ""


class _Child:
    """One running command: its process, and the pipes that are still open."""

    __slots__ = (
        "deadline",
        "err",
        "name",
        "out",
        "pid",
        "pipes",
        "rc",
        "seconds",
        "size",
        "trouble",
    )

    def __init__(self, name: str, deadline: float, seconds: float) -> None:
        self.name = name
        self.deadline = deadline
        self.seconds = seconds
        self.pid = 0
        self.pipes: Dict[int, List[bytes]] = {}
        self.out: List[bytes] = []
        self.err: List[bytes] = []
        self.size = 0
        self.rc: Optional[int] = None
        self.trouble = ""


def run_all(
    commands: Sequence[Sequence[str]],
    timeout: float,
    *,
    timeouts: Optional[Sequence[float]] = None,
    path: Optional[str] = None,
    env: Optional[Env] = None,
    meanwhile: Optional[Callable[[], None]] = None,
) -> List[Outcome]:
    """Run all `commands` at the same time and wait until each has ended or its time is up.

    `timeout` is in seconds, counted from now, for all of them; `timeouts` gives each its own.
    A command name without a slash is looked up in `path` (default: PATH). `env` is the
    children's environment (default: `query_environment` of our own). Standard input is
    /dev/null; each child leads a process group of its own, which is killed when the time is up
    or the answer too large. `meanwhile` is called once all of them run, and counts against their
    time. Never raises for anything a command does; one Outcome a command.
    """
    start = time.monotonic()
    search = posix.environ.get(b"PATH", b"/usr/bin:/bin") if path is None else _encode(path)
    environment = query_environment(posix.environ) if env is None else env
    children: List[_Child] = []
    placeholders = _fill_standard_fds()
    ignored = _stop_ignoring_children()
    try:
        for index, command in enumerate(commands):
            seconds = timeouts[index] if timeouts else timeout
            child = _Child(command[0].rpartition("/")[2], start + seconds, seconds)
            children.append(child)
            _start(child, command, search, environment)
        if meanwhile is not None:
            meanwhile()
        _attend(children)
    finally:
        for child in children:
            if child.pid:
                _kill(child, child.trouble or "was interrupted")
        for fd in placeholders:
            posix.close(fd)
        if ignored:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    return [_outcome(child) for child in children]


def query_environment(environ: Env) -> Env:
    """`environ` without what would change the form of an answer.

    ``SLURM_BITSTR_LEN=0`` makes squeue print the task lists of arrays in full (squeue(1)).
    """
    env = {
        name: value
        for name, value in environ.items()
        if name not in _DROPPED and not name.startswith(_DROPPED_PREFIXES)
    }
    env[b"SLURM_BITSTR_LEN"] = b"0"
    env[b"LC_ALL"] = b"C"
    return env


def find_command(name: str, search: bytes) -> Optional[bytes]:
    """The file that `name` runs: itself if it has a slash, else the first in `search`."""
    wanted = _encode(name)
    if b"/" in wanted:
        return wanted
    for directory in search.split(b":"):
        candidate = (directory or b".") + b"/" + wanted
        try:
            # S_IFREG, and executable for somebody: access() would deny root's own rules.
            mode = posix.stat(candidate).st_mode
        except OSError:
            continue
        if mode & 0o170000 == 0o100000 and posix.access(candidate, posix.X_OK):
            return candidate
    return None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fill_standard_fds() -> List[int]:
    """Occupy closed descriptors 0 to 2, so that no pipe of ours gets one of them.

    A child's redirections would overwrite such a pipe before it is used.
    """
    filled: List[int] = []
    while True:
        fd = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
        if fd > 2:
            posix.close(fd)
            return filled
        filled.append(fd)


def _stop_ignoring_children() -> bool:
    """Whether SIGCHLD was ignored (then children cannot be waited for) and now is not."""
    try:
        if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            return True
    except ValueError:  # not the main thread
        pass
    return False


def _start(child: _Child, command: Sequence[str], search: bytes, env: Env) -> None:
    file = find_command(command[0], search)
    if file is None:
        child.trouble = "was not found in PATH"
        return
    fds: List[int] = []
    try:
        out_read, out_write = _pipe(fds)
        err_read, err_write = _pipe(fds)
        child.pid = posix.posix_spawn(
            file,
            [_encode(word) for word in command],
            env,
            file_actions=[
                (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
                (posix.POSIX_SPAWN_DUP2, out_write, 1),
                (posix.POSIX_SPAWN_DUP2, err_write, 2),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=(
                _signal.SIGPIPE,
                _signal.SIGINT,
                _signal.SIGQUIT,
                _signal.SIGTERM,
                _signal.SIGHUP,
                _signal.SIGCHLD,
            ),
        )
    except (OSError, ValueError) as error:
        child.trouble = f"could not be run: {getattr(error, 'strerror', None) or error}"
        for fd in fds:
            posix.close(fd)
        return
    posix.close(out_write)
    posix.close(err_write)
    child.pipes = {out_read: child.out, err_read: child.err}


def _pipe(fds: List[int]) -> Tuple[int, int]:
    pair = posix.pipe2(posix.O_CLOEXEC)
    fds.extend(pair)
    return pair


def _attend(children: List[_Child]) -> None:
    """Read from every child until all have ended or been killed."""
    poll = select.poll()
    owner: Dict[int, _Child] = {}
    for child in children:
        for fd in child.pipes:
            owner[fd] = child
            poll.register(fd, select.POLLIN)
    while owner:
        wait = min(child.deadline for child in owner.values()) - time.monotonic()
        ready = poll.poll(min(_LOOK, max(0, int(wait * 1000) + 1)))
        for fd, _event in ready:
            if fd in owner and not _read(owner[fd], fd):
                poll.unregister(fd)
                _close(owner.pop(fd), fd)
        _settle(children, quiet=not ready)
        for fd in [fd for fd, child in owner.items() if fd not in child.pipes]:
            poll.unregister(fd)
            del owner[fd]
    # All pipes are closed: the processes are ending, or have closed them and gone on.
    _settle(children, quiet=True)
    while any(child.pid for child in children):
        time.sleep(0.0002)
        _settle(children, quiet=True)


def _read(child: _Child, fd: int) -> bool:
    """Take what a pipe holds; False at its end."""
    try:
        data = posix.read(fd, 2**18)
    except OSError:
        return False
    chunks = child.pipes[fd]
    if chunks is child.out:
        child.size += len(data)
        if child.size <= MAX_OUT:
            chunks.append(data)
    elif sum(map(len, chunks)) < MAX_ERR:
        chunks.append(data)
    return bool(data)


def _settle(children: List[_Child], quiet: bool) -> None:
    """End what is over: too large, too late, or dead with its pipes held by somebody else."""
    now = time.monotonic()
    for child in children:
        if not child.pid:
            continue
        if child.size > MAX_OUT:
            _kill(child, f"printed more than {MAX_OUT >> 20} MiB")
        elif quiet or not child.pipes:
            _reap(child)
            if child.pid and now >= child.deadline:
                _kill(child, f"{NO_ANSWER} {child.seconds:g} s")
        elif now >= child.deadline:
            _kill(child, f"{NO_ANSWER} {child.seconds:g} s")


def _reap(child: _Child) -> None:
    """Note the status of a child that has ended; its pipes are read empty, then closed."""
    try:
        pid, status = posix.waitpid(child.pid, posix.WNOHANG)
    except OSError:
        child.trouble = "ended unseen"
        pid, status = child.pid, -1
    if not pid:
        return
    child.pid = 0
    if status >= 0:
        child.rc = posix.waitstatus_to_exitcode(status)
    for fd in list(child.pipes):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while child.size <= MAX_OUT and poll.poll(0) and _read(child, fd):
            pass
        _close(child, fd)


def _close(child: _Child, fd: int) -> None:
    del child.pipes[fd]
    posix.close(fd)


def _kill(child: _Child, trouble: str) -> None:
    """Kill a child's whole process group, and reap the child."""
    pid = child.pid
    child.trouble = trouble
    try:  # noqa: SIM105 (contextlib costs 3 ms)
        posix.killpg(pid, _signal.SIGKILL)
    except OSError:
        pass
    for fd in list(child.pipes):
        _close(child, fd)
    until = time.monotonic() + _REAP
    while child.pid and time.monotonic() < until:
        _reap(child)
        if child.pid:
            time.sleep(0.0005)
    child.pid = 0
    child.rc = None
    child.trouble = trouble


def _outcome(child: _Child) -> Outcome:
    err = b"".join(child.err)[:MAX_ERR]
    trouble = child.trouble
    if not trouble and child.rc:
        trouble = f"ended with status {child.rc}"
        if child.rc < 0:
            trouble = f"was killed by signal {-child.rc}"
        said = first_line(err)
        if said:
            trouble += f" ({said})"
    out = b"".join(child.out)
    return Outcome(child.rc, out, err, f"{child.name} {trouble}" if trouble else "")


def first_line(err: bytes) -> str:
    """The first line that says something, printable and at most 200 characters long."""
    for line in err.split(b"\n"):
        text = line.decode("utf-8", "replace").strip()
        if text:
            return "".join(c if c.isprintable() else "?" for c in text)[:200]
    return ""

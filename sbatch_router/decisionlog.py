"""The log of decisions: JSON lines with structlog's fields, in the user's state directory."""

from __future__ import annotations

import posix
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from .route import Considered


def append(considered: Considered, environ: Mapping[bytes, bytes]) -> None:
    """Append the decision to the user's log."""
    from .core.report import log_fields

    fields = log_fields(considered.decision, considered.request, considered.snapshot)
    write("decision", fields, environ)


def write(event: str, fields: Mapping[str, object], environ: Mapping[bytes, bytes]) -> None:
    """Append one line, as structlog's JSON renderer would write it; never raises OSError."""
    from .core.report import to_json_line

    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    record = {"event": event, "level": "info", "timestamp": stamp, "pid": posix.getpid()}
    line = to_json_line({**record, **fields}) + "\n"
    try:
        append_line(log_path(environ), line)
    except OSError:
        # A full disk or a home without write access is no reason to bother anyone.
        return


def append_line(path: str, line: str) -> None:
    """Append to a file of the user's own, which is made if it is not there. Raises OSError."""
    try:
        fd = _open_log(path)
    except FileNotFoundError:
        _make_parents(path)
        fd = _open_log(path)
    try:
        if _is_torn(fd):
            line = "\n" + line
        posix.write(fd, line.encode("utf-8", "surrogateescape"))
    finally:
        posix.close(fd)


def log_path(environ: Mapping[bytes, bytes]) -> str:
    """``decisions.jsonl`` in the user's state directory (XDG); empty without a home."""
    base = environ.get(b"XDG_STATE_HOME", b"")
    if base[:1] != b"/":
        # Relative paths are to be ignored, says the XDG specification.
        base = environ.get(b"HOME", b"") and environ[b"HOME"] + b"/.local/state"
    return (
        base.decode("utf-8", "surrogateescape") + "/sbatch-router/decisions.jsonl" if base else ""
    )


def _open_log(path: str) -> int:
    flags = posix.O_RDWR | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOFOLLOW
    return posix.open(path, flags | posix.O_NONBLOCK, 0o600)


def _is_torn(fd: int) -> bool:
    """Whether the last line has no end: a full disk took the rest of it."""
    end = posix.lseek(fd, 0, 2)
    return end > 0 and posix.pread(fd, 1, end - 1) != b"\n"


def _make_parents(path: str) -> None:
    parts = path.split("/")[:-1]
    for end in range(2, len(parts) + 1):
        try:
            posix.mkdir("/".join(parts[:end]), 0o700)
        except FileExistsError:
            continue

"""Where the user's private state on this host lives."""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping


class StateError(Exception):
    """The state directory cannot be used; the text says where, why and what to do."""


def directory(environ: "Mapping[bytes, bytes]") -> str:
    """The state directory, made if it is not there: private to this user, on this host.

    ``$XDG_RUNTIME_DIR/sbatch-router``, else ``sbatch-router-UID`` in the temporary directory.
    Raises `StateError` when it is not ours alone (owner, mode, links) or cannot be made.
    """
    uid = posix.geteuid()
    base = _text(environ.get(b"XDG_RUNTIME_DIR", b""))
    if base[:1] == "/" and _is_mine(base, uid):
        path = base + "/sbatch-router"
    else:
        path = f"{_text(environ.get(b'TMPDIR', b'')) or '/tmp'}/sbatch-router-{uid}"
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}; set XDG_RUNTIME_DIR") from None
    if not _is_mine(path, uid):
        raise StateError(f"{path} is not a directory of yours alone (0700); remove it")
    return path


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _is_mine(path: str, uid: int) -> bool:
    try:
        found = posix.lstat(path)
    except OSError:
        return False
    mode = found.st_mode
    return mode & 0o170000 == 0o040000 and found.st_uid == uid and not mode & 0o077

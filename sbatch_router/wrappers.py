"""Sites' own `sbatch` scripts, which may lead back to us.

A script that starts "the next sbatch in PATH that is not me" finds our shim, which would start
the script again, for ever. So the shim leaves an open descriptor to such a script, with the
names of those it has been through: whatever the script starts inherits it, the environment stays
as it was, and no job ever sees it.
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

#: Where the descriptor may be: where nobody else's is.
_SLOTS = range(211, 219)
_NAME = "sbatch-router-wrappers"


def been_through() -> "Tuple[str, ...]":
    """The wrappers that this call has come through."""
    for slot in _SLOTS:
        if _is_ours(slot):
            names = posix.pread(slot, 65536, 0).decode("utf-8", "surrogateescape")
            return tuple(names.split("\0"))
    return ()


def remember(wrappers: "Tuple[str, ...]") -> None:
    """Let whatever we become, and what it starts, know of these. Without memfd there is no way."""
    create = getattr(posix, "memfd_create", None)
    if create is None:
        return
    try:
        fd = create(_NAME, 0)
        posix.write(fd, "\0".join(wrappers).encode("utf-8", "surrogateescape"))
        for slot in _SLOTS:
            if _is_ours(slot) or not _is_open(slot):
                posix.dup2(fd, slot)
                break
        posix.close(fd)
    except OSError:
        return


def _is_ours(fd: int) -> bool:
    try:
        return posix.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{_NAME}")
    except OSError:
        return False


def _is_open(fd: int) -> bool:
    try:
        posix.fstat(fd)
    except OSError:
        return False
    return True

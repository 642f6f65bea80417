"""The batch script: its bytes, its directives, and how to get at it without taking it away."""

from __future__ import annotations

import posix

from ..core.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

#: slurmctld refuses longer scripts unless `max_script_size` says otherwise.
MAX_SCRIPT = 4 * 1024 * 1024
#: One byte more than the limit is enough to be refused; a little more costs nothing.
READ_LIMIT = MAX_SCRIPT + 4096

_SPACE = b" \t\n\v\f\r"
_S_IFMT, _S_IFREG, _S_IFIFO, _S_IFSOCK, _S_IFDIR, _S_IFCHR = (
    0o170000, 0o100000, 0o010000, 0o140000, 0o040000, 0o020000,
)  # fmt: skip


class Directives(Record):
    """The words of a script's ``#SBATCH`` lines, as one argument vector."""

    words: Tuple[str, ...]
    doubts: Tuple[str, ...] = ()


class Peek(Record):
    """What could be learnt of a script without taking it from sbatch."""

    #: The script's first bytes (at most `READ_LIMIT`); None: it cannot be read harmlessly.
    script: Optional[bytes]
    #: Standard input was read up, so sbatch must be given `script` in its place: the bytes
    #: taken, to be put back with `respool_stdin`. None: nothing was taken.
    taken: Optional[bytes] = None
    #: Why it was not read.
    why: str = ""


def directives(script: bytes) -> Directives:
    """The arguments in a script's ``#SBATCH`` (and ``#SLURM``) lines.

    As `_opt_batch_script` in src/sbatch/opt.c does: lines are read up to the first one that
    is neither blank nor a comment; a heterogeneous component ends the first job's options.
    """
    words: List[str] = []
    doubts: List[str] = []
    start, size = 0, len(script)
    while start < size:
        end = script.find(b"\n", start)
        end = size if end < 0 else end
        line = script[start:end]
        start = end + 1
        if line.startswith(b"#SBATCH"):
            line = line[7:].lstrip(_SPACE)
        elif line.startswith(b"#SLURM"):
            line = line[6:].lstrip(_SPACE)
        else:
            if line.lstrip(_SPACE)[:1] not in (b"", b"#"):
                break
            continue
        if line.split(None, 1)[:1] and line.split(None, 1)[0].lower() in (b"hetjob", b"packjob"):
            doubts.append("the script describes a heterogeneous job")
            break
        words_of_line(line, words, doubts)
    return Directives(tuple(words), tuple(doubts))


def words_of_line(line: bytes, words: List[str], doubts: List[str]) -> None:
    """Append the words of one directive line (`get_argument` in src/sbatch/opt.c).

    Blanks end a word outside quotes, a backslash keeps the next character, ``#`` starts a
    comment even inside a word, and an empty word (``""``) ends the line.
    """
    position, size = 0, len(line)
    while True:
        while position < size and line[position] in _SPACE:
            position += 1
        if line[position : position + 1] == b":":
            doubts.append("a directive has an unexpected ':'")
            return
        word = bytearray()
        quote = 0
        escaped = False
        while position < size and (quote or line[position] not in _SPACE):
            char = line[position]
            if escaped:
                escaped = False
            elif char == 0x5C:  # backslash
                escaped = True
                position += 1
                if not quote and line[position : position + 1].isspace():
                    doubts.append("a directive escapes a blank, which releases read differently")
                continue
            elif quote:
                if char == quote:
                    quote = 0
                    position += 1
                    continue
            elif char in b"\"'":
                quote = char
                position += 1
                continue
            elif char == 0x23:  # '#'
                break
            word.append(char)
            position += 1
        if quote:
            doubts.append("a directive has an unmatched quote")
            return
        if not word:
            return
        words.append(word.decode("utf-8", "surrogateescape"))


def objections(script: bytes) -> Tuple[str, ...]:
    """Why sbatch itself would refuse these bytes as a script (`_get_script_buffer`)."""
    if not script.strip(_SPACE):
        return ("the script is empty or blank",)
    if not script.startswith(b"#!"):
        return ("the script does not start with #!",)
    if b"\0" in script:
        return ("the script has a NUL byte",)
    if b"\r\n" in script:
        return ("the script has DOS line breaks",)
    return ()


def read_properties(script: bytes) -> Mapping[str, object]:
    """Snakemake's ``# properties = {json}`` line, parsed; empty if there is none or it is bad.

    Snakemake writes it as the jobscript's second line. Only the head of a script is searched.
    """
    start = script.find(b"# properties = {", 0, 65536)
    if start < 0 or (start > 0 and script[start - 1] != 0x0A):
        return {}
    end = script.find(b"\n", start)
    text = script[start + 15 : end if end >= 0 else len(script)]
    # json costs 7 ms to import; only a Snakemake jobscript pays for it.
    import json

    try:
        found = json.loads(text.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {**_from_command(script[end:] if end >= 0 else b""), **found}


def _from_command(command: bytes) -> Dict[str, object]:
    """What only the jobscript's own snakemake call tells: ``attempt`` and all its ``rules``.

    Snakemake 9 leaves both out of the properties line, where older releases had `attempt`.
    """
    found: Dict[str, object] = {}
    attempt = _words_after(command, b" --attempt ")[:1]
    if attempt and attempt[0].isdigit():
        found["attempt"] = int(attempt[0])
    rules = _words_after(command, b" --allowed-rules ")
    if rules:
        found["rules"] = [rule.decode("utf-8", "surrogateescape") for rule in rules]
    return found


def _words_after(command: bytes, option: bytes) -> List[bytes]:
    """The words between an option and the next one."""
    at = command.find(option, 0, 65536)
    if at < 0:
        return []
    words = command[at + len(option) : at + 65536].split(b" --", 1)[0].split()
    return [word.strip(b"'") for word in words]


def script_path(name: str, environ: Mapping[str, str]) -> str:
    """The file sbatch opens for a script called `name` (`search_path` in proc_args.c).

    A name without a leading ``.`` or ``/`` is looked for in the working directory and then
    in PATH; the first that exists and is no directory is taken, readable or not.
    """
    if name[:1] in (".", "/"):
        return name
    for directory in ["", *environ.get("PATH", "").split(":")]:
        path = f"{directory}/{name}" if directory else name
        try:
            mode = posix.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if mode & _S_IFMT != _S_IFDIR:
            return path
    return name


def peek_script(
    name: Optional[str], environ: Mapping[str, str], stdin: int = 0, may_take: bool = True
) -> Peek:
    """Read the script sbatch will read, where that leaves it there for sbatch.

    `name` is the script argument, None when the script comes on standard input (no argument
    and no ``--wrap``). A pipe on `stdin` can only be read by taking it (`may_take`); then the
    caller must put the bytes back with `respool_stdin`. Never raises OSError.
    """
    if name is not None:
        return _peek_file(script_path(name, environ))
    try:
        mode = posix.fstat(stdin).st_mode & _S_IFMT
    except OSError:
        return Peek(None, None, "standard input is closed")
    if mode == _S_IFREG:
        return _peek_at_offset(stdin)
    if mode not in (_S_IFIFO, _S_IFSOCK):
        return Peek(None, None, "the script comes from a terminal or a device")
    if not may_take:
        return Peek(None, None, "the script comes through a pipe")
    taken = _read_up(stdin)
    return Peek(taken, taken, "")


def _peek_file(path: str) -> Peek:
    try:
        # Not by name first: a FIFO opened for reading takes its writer's bytes.
        if posix.stat(path).st_mode & _S_IFMT != _S_IFREG:
            return Peek(None, None, "the script is not a regular file")
        # /dev/stdin and /dev/fd/N share their offset with sbatch: O_NONBLOCK for a race
        # with a FIFO, pread so that no offset moves.
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except (OSError, ValueError):
        return Peek(None, None, "the script cannot be opened")
    try:
        if posix.fstat(fd).st_mode & _S_IFMT != _S_IFREG:
            return Peek(None, None, "the script is not a regular file")
        return Peek(_pread(fd, 0))
    except OSError:
        return Peek(None, None, "the script cannot be read")
    finally:
        posix.close(fd)


def _peek_at_offset(fd: int) -> Peek:
    try:
        return Peek(_pread(fd, posix.lseek(fd, 0, 1)))
    except OSError:
        return Peek(None, None, "standard input cannot be read")


def _pread(fd: int, offset: int) -> bytes:
    parts: List[bytes] = []
    left = READ_LIMIT
    while left > 0:
        part = posix.pread(fd, min(left, 1 << 16 if not parts else 1 << 20), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        left -= len(part)
    return b"".join(parts)


def _read_up(fd: int) -> bytes:
    """Read a pipe to its end, as sbatch would: as slowly as its writer, and all of it."""
    parts: List[bytes] = []
    while True:
        try:
            part = posix.read(fd, 1 << 16)
        except BlockingIOError:
            import select

            select.select([fd], [], [])
            continue
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def respool_stdin(data: bytes) -> int:
    """A descriptor, open for reading at its start, that holds `data`; for sbatch's stdin.

    An anonymous memory file, or an unlinked temporary file where there is none. Raises
    OSError when neither can be had.
    """
    try:
        fd = posix.memfd_create("sbatch-script", 0)
    except (AttributeError, OSError):
        fd = _unlinked_file()
    try:
        view = memoryview(data)
        while view:
            view = view[posix.write(fd, view) :]
        posix.lseek(fd, 0, 0)
    except OSError:
        # sbatch would inherit it.
        posix.close(fd)
        raise
    return fd


def _unlinked_file() -> int:
    name = f"/tmp/.sbatch-router-{posix.getpid()}-{posix.urandom(8).hex()}"
    fd = posix.open(name, posix.O_RDWR | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW, 0o600)
    posix.unlink(name)
    return fd

"""The text of the installed ``sbatch``: a few lines that need nothing but Python itself."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from . import environ, hotbuild, shim

#: Longest ``#!`` line that Linux reads (BINPRM_BUF_SIZE before 5.1 was 128).
MAX_SHEBANG = 127

TEMPLATE = """\
{shebang}
# {mark}: routes this job to an account with room, then becomes the real sbatch.
# Written by `sbatch-router install-shim`; run that again after moving Python or the package.
import _signal
import sys
REAL = {real!a}
WITHOUT = {without}
try:
    if callable(_signal.getsignal(_signal.SIGINT)):
        # Not ignored: Ctrl-C ends this as it ends sbatch, and not with a traceback.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    sys.path[:0] = {paths!a}
    from sbatch_router.shim import main
    main(sys.argv[1:], REAL, {hot!a})
except Exception as error:
    exec(WITHOUT)
"""

#: Run when the package is gone or broken: the job must not be. A text, since Python compiles
#: the whole script for every job, which would take as long as importing a module. A site's own
#: program may lead back here (`wrappers`), and no package is there to write a note into a file.
WITHOUT = """\
import posix

def say(text):
    try:
        posix.write(2, ("sbatch-router: " + text + "\\n").encode("utf-8", "surrogateescape"))
    except OSError:
        pass

def start(path):
    # What an executable begins with; nothing where it is no file of that kind.
    try:
        if posix.stat(path).st_mode & 0o170000 != 0o100000 or not posix.access(path, posix.X_OK):
            return b""
    except (OSError, ValueError):
        return b""
    try:
        with open(path, "rb") as f:
            return f.read(65536)
    except OSError:
        # Our shims can be read.
        return b"\\x7fELF libslurm"

def process(pid):
    with open("/proc/" + pid + "/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return pid + "." + fields[19].decode(), fields[1].decode()

def passed():
    note, *found = posix.environ.get({passed}, b"").decode("utf-8", "surrogateescape").split(":")
    above = str(posix.getpid())
    try:
        for _ in range(32 if found else 0):
            one, above = process(above)
            if one == note:
                return found
    except (OSError, IndexError):
        pass
    return []

for name in ("SIGPIPE", "SIGXFSZ"):
    _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
search = posix.environ.get(b"PATH", b"/bin:/usr/bin").decode("utf-8", "surrogateescape")
been = passed()
for real in [(d or ".") + "/sbatch" for d in search.split(":")] + [REAL]:
    head = start(real)
    if not head or {mark} in head[:512] or real in been:
        continue
    if not been:
        say("its package is missing or broken (" + " ".join(str(error).split())
            + "); submitted as you wrote it; reinstall it or remove " + __file__)
    try:
        # Python puts its own LC_CTYPE into the environment; take that back.
        with open("/proc/self/environ", "rb") as f:
            _, given, value = (b"\\0" + f.read()).partition(b"\\0LC_CTYPE=")
        if given:
            posix.putenv(b"LC_CTYPE", value.partition(b"\\0")[0])
        else:
            posix.unsetenv(b"LC_CTYPE")
        if head[:4] == b"\\x7fELF" and b"libslurm" in head:
            posix.unsetenv({passed})
        else:
            note = ":".join([process(str(posix.getpid()))[0], *been, real])
            posix.putenv({passed}, note.encode("utf-8", "surrogateescape"))
        try:
            posix.execv(real, ["sbatch"] + sys.argv[1:])
        except OSError as problem:
            if problem.errno != 8:
                raise
            # A program without #!, which shells run so.
            posix.execv("/bin/sh", ["sh", real] + sys.argv[1:])
    except OSError as problem:
        say("cannot run " + real + ": " + str(problem.strerror))
        sys.exit(126)
say("no sbatch in PATH besides this shim, whose package is missing or broken")
sys.exit(127)
"""

#: Beside the shim: our modules as lean bytecode (`hot`).
HOT = ".sbatch-router-hot"


class ShimError(Exception):
    """The shim cannot be written; the text says where, why and what to do."""


def python_for_shim() -> str:
    """The interpreter the shim names: the base one, which outlives a virtual environment.

    Where ``python3`` beside it is the same program, that name: it outlives an upgrade.
    """
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    stable = os.path.join(os.path.dirname(base), "python3")
    return stable if os.path.realpath(stable) == base else base


def import_paths() -> list[str]:
    """Where the shim finds our package and PyYAML, which it needs when a policy changed."""
    import yaml

    package = Path(__file__).resolve().parent.parent
    library = Path(yaml.__file__).resolve().parent.parent
    return [str(p) for p in dict.fromkeys((package, library))]


def shebang(python: str) -> str:
    """The first line of a script that takes nothing from its caller's environment.

    UTF-8 mode: in the locale's own encoding (EUC-JP, GB18030) not all bytes of an argument come
    back as they went in. One word, since Linux hands on what follows the program as one.
    Raises `ShimError` where Linux could not run it.
    """
    line = f"#!{python} -ISXutf8"
    if any(c.isspace() for c in python) or len(line) > MAX_SHEBANG:
        raise ShimError(
            f"{python}: a path with blanks or of more than {MAX_SHEBANG} bytes cannot start a "
            "script; install sbatch-router with a Python at a shorter path"
        )
    return line


def text(python: str, paths: list[str], real: str, hot: str = "") -> str:
    """The script's text. Raises `ShimError` where Linux could not run it."""
    without = WITHOUT.replace("{mark}", repr(shim.MARK)).replace("{passed}", repr(environ.PASSED))
    # In triple quotes: people read the file.
    return TEMPLATE.format(
        shebang=shebang(python),
        mark=shim.MARK.decode(),
        real=real,
        without=f'r"""{without}"""',
        paths=paths,
        hot=hot,
    )


def install(directory: Path) -> Path:
    """Write ``DIRECTORY/sbatch`` (made if missing) and return its path.

    Never replaces a file that is not a shim of ours. Raises `ShimError`.
    """
    target = directory / "sbatch"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target) and not has_mark(target):
            raise ShimError(f"{target} is not a shim of ours: choose another directory")
        real = shim.find_sbatch(os.environ.get("PATH")) or ""
        hot = directory.absolute() / HOT
        found = os.path.abspath(real) if real else ""
        body = text(python_for_shim(), import_paths(), found, str(hot))
        _replace(hot, hotbuild.build(), 0o644)
        _replace(target, body.encode("utf-8"), 0o755)
    except OSError as error:
        raise ShimError(f"{error.filename or directory}: {error.strerror}") from None
    return target


def has_mark(path: Path, mark: bytes = shim.MARK) -> bool:
    """Whether a file can be read, and has `mark` near its start: only such are replaced."""
    try:
        # Without waiting for somebody to write into a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and mark in os.read(fd, 512)
    finally:
        os.close(fd)


def closed_to_others(paths: list[str]) -> str:
    """The first file or directory on the way to one of `paths` that not everybody may read."""
    for path in paths:
        real = Path(os.path.realpath(path))
        for place in (*reversed(real.parents), real):
            with contextlib.suppress(OSError):
                if place.stat().st_mode & 0o005 != 0o005:
                    return str(place)
    return ""


def is_fresh(target: Path) -> bool:
    """Whether the shim and the modules beside it are as this package would write them now."""
    try:
        with target.open("rb") as opened:
            first = opened.readline()
    except OSError:
        return False
    wanted = shebang(python_for_shim()).encode("utf-8", "surrogateescape")
    return first.rstrip(b"\n") == wanted and hotbuild.is_fresh(target.parent / HOT)


def _replace(target: Path, data: bytes, mode: int) -> None:
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def uninstall(directory: Path) -> Path:
    """Remove ``DIRECTORY/sbatch`` if it is a shim of ours. Raises `ShimError`."""
    target = directory / "sbatch"
    if not os.path.lexists(target):
        raise ShimError(f"{target} does not exist")
    if not has_mark(target):
        raise ShimError(f"{target} is not a shim of ours; left alone")
    target.unlink()
    (directory / HOT).unlink(missing_ok=True)
    return target

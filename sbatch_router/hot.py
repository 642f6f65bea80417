"""Import our own modules from one file of lean bytecode: a quarter of the shim's time.

`install-shim` writes the file (`hotbuild`). Here it is only used, and only for modules whose
source has the very time and size it was built from; everything else, a missing or a foreign
file included, is left to Python's own import. Measured in docs/decisions/0005.
"""

import _imp
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Dict, Optional, Sequence, Tuple

    #: Module name -> is it a package, its source, the source's mtime in ns and size, and where
    #: its marshalled code begins, how long it is, and its `checksum`.
    Modules = Dict[str, Tuple[bool, str, int, int, int, int, bytes]]
    #: What is loaded at once (`bring`), by name -> its modules, each after all that it imports;
    #: where their code begins, as one marshalled tuple, how long it is, and its `checksum`.
    Packs = Dict[str, Tuple[Tuple[str, ...], int, int, bytes]]

#: Changes whenever the file's form does.
FORMAT = 4
#: Bytes before the index, and the most that an index may have.
HEAD, INDEX = 24, 32768


class HotFinder:
    """A meta path finder and loader for the modules in one file."""

    def __init__(self, fd: int, modules: "Modules", packs: "Packs") -> None:
        self._fd = fd
        self._modules = modules
        self._packs = packs
        self._spec = sys.modules["_frozen_importlib"].ModuleSpec

    def bring(self, pack: str) -> None:
        """Import the modules of a pack without the import system.

        Specs, locks and searches would take as long as the modules themselves. Ends at the first
        whose source has changed: that and the others are left to import statements.
        """
        names, begin, length, check = self._packs[pack]
        if names[-1] in sys.modules:
            return
        data = posix.pread(self._fd, length, begin)
        if checksum(data) != check:
            return
        for name, code in zip(names, marshal.loads(data)):
            if name in sys.modules:
                continue
            if not self._is_current(name):
                return
            package, source = self._modules[name][:2]
            module = type(sys)(name)
            parent, _, leaf = name.rpartition(".")
            module.__file__ = source
            module.__package__ = name if package else parent
            if package:
                module.__path__ = [source.rpartition("/")[0]]
            sys.modules[name] = module
            exec(code, module.__dict__)
            setattr(sys.modules[parent], leaf, module)

    def find_spec(
        self, name: str, path: "Optional[Sequence[str]]" = None, target: object = None
    ) -> "Optional[ModuleSpec]":
        """The spec of one of our modules; None leaves it to the next finder."""
        code = self._code(name) if name in self._modules else None
        if code is None:
            return None
        package, source = self._modules[name][:2]
        spec: ModuleSpec = self._spec(
            name, self, origin=source, loader_state=code, is_package=package
        )
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [source.rpartition("/")[0]]
        return spec

    def _is_current(self, name: str) -> bool:
        """Whether the module's source is the one it was built from."""
        _, source, mtime, size = self._modules[name][:4]
        try:
            now = posix.stat(source)
        except OSError:
            return False
        return now.st_mtime_ns == mtime and now.st_size == size

    def _code(self, name: str) -> "Optional[bytes]":
        """One module's marshalled code, if its source is the one it was built from."""
        begin, length, check = self._modules[name][4:]
        code = posix.pread(self._fd, length, begin) if self._is_current(name) else b""
        return code if checksum(code) == check else None

    def create_module(self, spec: "ModuleSpec") -> None:
        """Let the import system make the module."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the module's bytecode, as `find_spec` read and checked it."""
        assert module.__spec__ is not None
        exec(marshal.loads(module.__spec__.loader_state), module.__dict__)


def checksum(data: bytes) -> bytes:
    """8 bytes: marshal may crash over what a disk has damaged, and take the job with it."""
    found: bytes = _imp.source_hash(0, data)
    return found


def key() -> "Tuple[int, str, int]":
    """What a file must have been built for: its form, and the interpreter's bytecode."""
    return (FORMAT, sys.implementation.cache_tag or "", sys.hexversion)


def activate(path: str) -> None:
    """Put the file first for our own modules.

    Nothing happens if it cannot be used. It lies beside the shim, which Python runs anyway:
    whoever can write the one can write the other.
    """
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except (OSError, ValueError):
        return
    found = index(fd)
    if found is None:
        posix.close(fd)
        return
    sys.meta_path.insert(0, HotFinder(fd, found[1], found[2]))


def bring(*packs: str) -> None:
    """Load packs of our modules before they are imported.

    Only where there is a file: then this is faster than the import statement, which is needed all
    the same.
    """
    finder = sys.meta_path[0]
    if isinstance(finder, HotFinder):
        for pack in packs:
            finder.bring(pack)


def index(fd: int) -> "Optional[Tuple[object, Modules, Packs]]":
    """Key, modules and packs; None when it is not for this interpreter.

    The file begins with its whole length, the length of its index, and the index's `checksum`,
    in 8 bytes each, so a file that was cut off is known.
    """
    try:
        head = posix.pread(fd, HEAD, 0)
        whole = int.from_bytes(head[:8], "little")
        length = int.from_bytes(head[8:16], "little")
        if length > INDEX or posix.fstat(fd).st_size != whole:
            return None
        data = posix.pread(fd, length, HEAD)
        if checksum(data) != head[16:]:
            return None
        found = marshal.loads(data)
        return found if found[0] == key() and len(found) == 3 else None
    except (OSError, ValueError, EOFError, TypeError, IndexError):
        return None

"""Import our own modules without the general machinery: a fifth of the shim's time.

The standard finder asks the directories, builds paths in Python and makes a dozen system
calls a module; the shim loads twenty. This one opens ``__pycache__/NAME.TAG.pyc`` beside the
source, checks what importlib checks (magic number, flags, the source's mtime and size), and
leaves everything unusual to the standard finder. Measured in docs/decisions/0001.
"""

from __future__ import annotations

import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Optional, Sequence

_PACKAGE = __name__.rpartition(".")[0]
#: A larger file is left to the standard finder. Small enough for malloc's heap: a buffer of
#: its own would cost three system calls a module.
_MAX = 1 << 16


class NearFinder:
    """A meta path finder and loader for modules of this package whose bytecode is at hand."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._suffix = f".{sys.implementation.cache_tag}.pyc"
        self._magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
        self._spec = sys.modules["_frozen_importlib"].ModuleSpec

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: object = None
    ) -> Optional[ModuleSpec]:
        """The spec of one of our modules; None leaves it to the next finder."""
        package, _, leaf = name.partition(".")
        if package != _PACKAGE or not leaf:
            return None
        parent, _, last = f"{self._directory}/{leaf.replace('.', '/')}".rpartition("/")
        return self._module(name, parent, last) or self._module(
            name, f"{parent}/{last}", "__init__"
        )

    def _module(self, name: str, directory: str, file: str) -> Optional[ModuleSpec]:
        source = f"{directory}/{file}.py"
        data = self._bytecode(source, f"{directory}/__pycache__/{file}{self._suffix}")
        if data is None:
            return None
        spec: ModuleSpec = self._spec(name, self, origin=source, is_package=file == "__init__")
        spec.loader_state = data
        spec.has_location = True
        if file == "__init__":
            spec.submodule_search_locations = [directory]
        return spec

    def _bytecode(self, source: str, compiled: str) -> Optional[bytes]:
        """The bytecode file's bytes if they are of this very source, as PEP 552 says."""
        try:
            found = posix.stat(source)
            fd = posix.open(compiled, posix.O_RDONLY | posix.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = posix.read(fd, _MAX)
        finally:
            posix.close(fd)
        stamp = (int(found.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        size = (found.st_size & 0xFFFFFFFF).to_bytes(4, "little")
        whole = len(data) < _MAX
        return data if whole and data[:16] == self._magic + bytes(4) + stamp + size else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the bytecode that `find_spec` read."""
        spec = module.__spec__
        assert spec is not None
        exec(marshal.loads(memoryview(spec.loader_state)[16:]), module.__dict__)


def activate() -> None:
    """Put the finder first; for the shim's process only."""
    directory = __file__.rpartition("/")[0]
    sys.meta_path.insert(0, NearFinder(directory))

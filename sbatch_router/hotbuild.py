"""Build the file that `hot` imports from: our modules without what only people and checkers read.

Docstrings, assertions, annotations and line numbers make up half of the bytecode, and the shim
reads it for every job. What it says of a bug of its own has no line number in any case; explain
runs the same code with everything in it.
"""

from __future__ import annotations

import ast
import marshal
import sys
from pathlib import Path
from types import CodeType

from . import hot

#: Large and never imported by the shim.
LEFT_OUT = frozenset(
    (
        "core.assign",
        "core.jobstate",
        "slurm.patience",
        "slurm.pyslurm_child",
        "slurm.pyslurm_source",
        "slurm.queue",
    )
)
#: What a submission runs, in the packs in which it is loaded: name -> the modules that are asked
#: for, and with them all that they import. `route` is always the first.
PACKS = {
    "route": ("route",),
    "judges": ("core.decide", "core.report", "decisionlog"),
    "collect": ("slurm.collect",),
    "readers": ("slurm.text_assoc", "core.settle"),
}
#: Of the package's own modules, those that a submission may import.
_TOP = frozenset(
    ("decisionlog", "host", "policycache", "refusal", "route", "source", "state", "statedir")
)


def build() -> bytes:
    """The file's bytes, for the running interpreter and the installed sources."""
    modules: hot.Modules = {}
    packs: hot.Packs = {}
    blobs: list[bytes] = []

    def add(code: bytes) -> tuple[int, int, bytes]:
        begin = hot.HEAD + hot.INDEX + sum(map(len, blobs))
        blobs.append(code)
        return begin, len(code), hot.checksum(code)

    entries = _entries()
    codes = {
        name: lean(Path(source).read_text(encoding="utf-8"), source)
        for name, (_, source, _, _) in entries.items()
    }
    for name, entry in entries.items():
        modules[name] = (*entry, *add(marshal.dumps(codes[name])))
    for pack, roots in PACKS.items():
        before = packs["route"][0] if packs else ()
        names = [name for name in _order(roots, modules) if name not in before]
        # In one, since modules have most of their names in common.
        packs[pack] = (tuple(names), *add(marshal.dumps(tuple(codes[name] for name in names))))
    return _file(modules, packs, b"".join(blobs))


def _entries() -> dict[str, tuple[bool, str, int, int]]:
    """Module name -> is it a package, its source, the source's mtime in ns and size."""
    package = Path(__file__).resolve().parent
    found = {}
    for path in sorted(package.rglob("*.py")):
        inner = path.relative_to(package).with_suffix("")
        parts = [part for part in inner.parts if part != "__init__"]
        name = ".".join(parts)
        if not parts or name in LEFT_OUT or not (parts[0] in ("core", "slurm") or name in _TOP):
            continue
        now = path.stat()
        entry = (inner.name == "__init__", str(path), now.st_mtime_ns, now.st_size)
        found[f"{package.name}.{name}"] = entry
    return found


def is_fresh(file: Path) -> bool:
    """Whether a file has all of this package's modules as they are now, for this Python."""
    try:
        with file.open("rb") as opened:
            found = hot.index(opened.fileno())
            data = opened.read()
    except OSError:
        return False
    if found is None:
        return False
    parts = [*(e[4:] for e in found[1].values()), *(p[1:] for p in found[2].values())]
    whole = all(hot.checksum(data[begin : begin + n]) == check for begin, n, check in parts)
    now = {name: entry[:4] for name, entry in _entries().items()}
    return whole and {name: e[:4] for name, e in found[1].items()} == now


def _file(modules: hot.Modules, packs: hot.Packs, code: bytes) -> bytes:
    """Head, index and code. The index is padded, so that the code begins where it says."""
    index = marshal.dumps((hot.key(), modules, packs))
    if len(index) > hot.INDEX:
        raise ValueError(f"an index of {len(index)} bytes")
    whole = hot.HEAD + hot.INDEX + len(code)
    head = whole.to_bytes(8, "little") + len(index).to_bytes(8, "little") + hot.checksum(index)
    return head + index.ljust(hot.INDEX, b"\0") + code


def _order(roots: tuple[str, ...], modules: hot.Modules) -> list[str]:
    """What `roots` import as they load, each module after all that it imports itself."""
    found: list[str] = []

    def add(name: str) -> None:
        if name in found or name not in modules:
            return
        for needed in _imports(name, modules[name]):
            add(needed)
        found.append(name)

    for root in roots:
        add(f"{__package__}.{root}")
    return found


def _imports(name: str, module: tuple[bool, str, int, int, int, int, bytes]) -> list[str]:
    """The package's modules that this one imports at its top, its own packages included."""
    here = name.split(".") if module[0] else name.split(".")[:-1]
    found = [".".join(here[:end]) for end in range(2, len(here) + 1)] if not module[0] else []
    tree = ast.parse(Path(module[1]).read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            base = here[: len(here) - statement.level + 1]
            base += statement.module.split(".") if statement.module else []
            found.append(".".join(base))
            found += [".".join([*base, alias.name]) for alias in statement.names]
    return found


def lean(source: str, filename: str) -> CodeType:
    """The code of a module without docstrings, assertions and annotations."""
    tree = _Lean().visit(ast.parse(source, filename))
    ast.fix_missing_locations(tree)
    code = compile(tree, filename, "exec", dont_inherit=True, optimize=2)
    return _without_lines(code)


def _without_lines(code: CodeType) -> CodeType:
    """The same code, and the code inside it, without the table of line numbers."""
    inner = tuple(_without_lines(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    if sys.version_info >= (3, 10):
        return code.replace(co_consts=inner, co_linetable=b"")
    return code.replace(co_consts=inner, co_lnotab=b"")


class _Lean(ast.NodeTransformer):
    """Takes annotations away, but for the names of class fields: a Record is made of them."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        arguments = node.args
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            *filter(None, (arguments.vararg, arguments.kwarg)),
        ):
            argument.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        body: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                statement.annotation = ast.Constant("")
                body.append(statement)
            else:
                body += _as_list(self.visit(statement))
        node.body = body or [ast.Pass()]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module == "__future__" else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return node


def _as_list(found: ast.AST | list[ast.stmt] | None) -> list[ast.stmt]:
    if found is None:
        return []
    if isinstance(found, list):
        return found
    assert isinstance(found, ast.stmt)
    return [found]

"""Taking accounts out of a workflow's YAML config, and nothing else.

ruamel.yaml reads the file; the change is made in its text, between the marks of the nodes
that go: a dump, ruamel's as well, changes quotes, indents, line breaks or comments of what it
was not asked to touch. The new text is read again and compared, node by node, with what it
should say, so a file is either changed as meant, or refused as it is.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from typing import Collection, Dict, Iterator

    #: A node as plain data, to compare.
    Plain = Tuple[object, ...]

#: The totals beside the accounts -> the slots they are the sums of.
TOTALS = {
    "total_gpu_slots": ("gpu_slots",),
    "total_cpu_slots": ("cpu_slots",),
    "total_slots": ("gpu_slots", "cpu_slots"),
}

#: Larger files are no configs.
MAX_BYTES = 8 * 2**20


class Refused(Exception):
    """The file is left as it is; the text says where and why (without the file's name)."""


class NoAccounts(Refused):
    """There is no list of accounts at the path: nothing to do."""


class Edit(NamedTuple):
    """A part of a text and what comes instead."""

    start: int
    end: int
    text: str


class Stripped(NamedTuple):
    """One file's outcome."""

    before: str
    after: str
    removed: Tuple[str, ...]
    #: (line, name): where the accounts are still named, in the new text.
    references: Tuple[Tuple[int, str], ...]


def strip(text: str, accounts: Collection[str], path: str) -> Stripped:
    """`text` without the entries for `accounts` (any case) at the dotted `path`.

    Raises `NoAccounts`, or `Refused` for what cannot be done without harm.
    """
    unwanted = {name.lower() for name in accounts}
    root = _compose(text)
    parent, listed = _find(root, path)
    entries = _entries(listed, path)
    going = [i for i, entry in enumerate(entries) if entry.name.lower() in unwanted]
    if not going:
        return Stripped(text, text, (), _references(root, unwanted))
    if len(going) == len(entries):
        names = ", ".join(entry.name for entry in entries)
        raise Refused(f"{path} would be left without an account (it has only {names})")
    kept = [entry for i, entry in enumerate(entries) if i not in going]
    totals = _totals(parent, kept, path)
    edits = [_removal(text, listed, entries, going, i) for i in going]
    edits += [Edit(node.start_mark.index, node.end_mark.index, new) for node, new in totals]
    after = _apply(text, edits)
    expected = _plain(root, _Change(listed, {id(entries[i].node) for i in going}, totals))
    try:
        found = _compose(after)
        same = _plain(found, None) == expected
    except Refused as error:
        raise Refused(f"cannot be changed safely, edit it by hand ({error})") from None
    if not same:
        raise Refused("cannot be changed safely, edit it by hand (anchors, or an odd layout)")
    removed = tuple(entries[i].name for i in going)
    return Stripped(text, after, removed, _references(found, unwanted))


# -- reading ------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """One account in the list: the node that stands for it, and its mapping if it has one."""

    name: str
    node: Node
    values: Optional[MappingNode]
    #: For a mapping of accounts: the node of the value.
    value: Optional[Node] = None


def _compose(text: str) -> Node:
    """The one document of a text. Raises `Refused`."""
    loader = YAML(typ="rt")
    try:
        # Marks count characters of the text that the reader has: without its BOM.
        documents = list(loader.compose_all(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise Refused(f"{where}no YAML: {error.problem or error.context}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"no YAML: {str(error).splitlines()[0]}") from None
    if not documents or documents[0] is None:
        raise NoAccounts("empty")
    if len(documents) > 1:
        raise Refused("several documents (---) in one file")
    root = documents[0]
    assert isinstance(root, Node)
    return root


def _find(root: Node, path: str) -> Tuple[MappingNode, Node]:
    """The mapping that has the accounts, and their node. Raises `Refused`."""
    node = root
    parent: Optional[MappingNode] = None
    for part in path.split("."):
        if not isinstance(node, MappingNode):
            raise NoAccounts(f"no accounts at {path}")
        parent = node
        values = [v for k, v in node.value if isinstance(k, ScalarNode) and k.value == part]
        if not values:
            raise NoAccounts(f"no accounts at {path}")
        if len(values) > 1:
            raise Refused(f"line {values[1].start_mark.line + 1}: {part} is there twice")
        node = values[0]
    assert parent is not None
    return parent, node


def _entries(listed: Node, path: str) -> List[_Entry]:
    where = f"line {listed.start_mark.line + 1}"
    if isinstance(listed, SequenceNode):
        entries = [_entry(item, path) for item in listed.value]
    elif isinstance(listed, MappingNode):
        entries = []
        for key, value in listed.value:
            if not isinstance(key, ScalarNode):
                raise Refused(f"{where}: {path} has a key that is no name")
            values = value if isinstance(value, MappingNode) else None
            entries.append(_Entry(key.value, key, values, value))
    else:
        raise NoAccounts(f"{where}: {path} is no list of accounts")
    low, high = listed.start_mark.index, listed.end_mark.index
    for entry in entries:
        last = entry.value if entry.value is not None else entry.node
        if entry.node.start_mark.index < low or last.end_mark.index > high:
            raise Refused(f"{where}: {path} has an alias (*) among its accounts")
    if not entries:
        raise NoAccounts(f"{where}: {path} is empty")
    return entries


def _entry(item: Node, path: str) -> _Entry:
    if isinstance(item, ScalarNode):
        return _Entry(item.value, item, None)
    if isinstance(item, MappingNode):
        for wanted in ("name", "account"):
            for key, value in item.value:
                named = isinstance(key, ScalarNode) and key.value == wanted
                if named and isinstance(value, ScalarNode):
                    return _Entry(value.value, item, item)
    raise Refused(f"line {item.start_mark.line + 1}: an entry of {path} without a name")


def _totals(parent: MappingNode, kept: Sequence[_Entry], path: str) -> List[Tuple[ScalarNode, str]]:
    """The totals beside the accounts that change, with their new text."""
    found = []
    for key, value in parent.value:
        if not isinstance(key, ScalarNode) or key.value not in TOTALS:
            continue
        if not isinstance(value, ScalarNode) or value.style in ("|", ">"):
            raise Refused(f"line {key.start_mark.line + 1}: {key.value} is no number")
        total = sum(_slots(entry, name, path) for entry in kept for name in TOTALS[key.value])
        if value.value != str(total):
            quote = value.style or ""
            found.append((value, f"{quote}{total}{quote}"))
    return found


def _slots(entry: _Entry, name: str, path: str) -> int:
    for key, value in entry.values.value if entry.values is not None else ():
        if isinstance(key, ScalarNode) and key.value == name:
            try:
                return int(value.value)
            except (TypeError, ValueError):
                line = value.start_mark.line + 1
                raise Refused(f"line {line}: {name} of {entry.name} is no number") from None
    return 0


def _references(root: Node, unwanted: Collection[str]) -> Tuple[Tuple[int, str], ...]:
    """Every value or key that is the name of an account, with its line."""
    found = []
    for node in _scalars(root, set()):
        if str(node.value).lower() in unwanted:
            found.append((node.start_mark.line + 1, str(node.value)))
    return tuple(sorted(found))


def _scalars(node: Node, seen: set[int]) -> Iterator[ScalarNode]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _scalars(item, seen)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key, seen)
            yield from _scalars(value, seen)


# -- changing -----------------------------------------------------------------------------------


def _removal(
    text: str, listed: Node, entries: Sequence[_Entry], going: Sequence[int], index: int
) -> Edit:
    """The part of the text that an entry takes.

    Whole lines where it stands alone on them, from the dash (or key) to the last line of its
    own content, comments inside and behind included. Comment lines around it stay.
    """
    entry = entries[index]
    start = entry.node.start_mark.index
    end = _content_end(text, entry.value if entry.value is not None else entry.node)
    flow = _is_flow(listed)
    if not flow and isinstance(listed, SequenceNode):
        start = text.rindex("-", 0, start)
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end + 1
    behind = text[end:line_end].strip()
    if flow and behind.startswith(","):
        behind = behind[1:].strip()
    alone = not text[line_start:start].strip() and (not behind or behind.startswith("#"))
    if alone:
        return Edit(line_start, line_end, "")
    if not flow:
        raise Refused(f"line {entry.node.start_mark.line + 1}: an entry shares its line")
    if any(later not in going for later in range(index + 1, len(entries))):
        return Edit(start, entries[index + 1].node.start_mark.index, "")
    before = entries[max(i for i in range(index) if i not in going)]
    last = before.value if before.value is not None else before.node
    return Edit(_content_end(text, last), end, "")


def _is_flow(node: Node) -> bool:
    """Whether a list or mapping is written in brackets."""
    return bool(getattr(node, "flow_style", False))


def _content_end(text: str, node: Node) -> int:
    """Where a node's own text ends: a block's end mark is behind the comments that follow it."""
    if isinstance(node, ScalarNode) or _is_flow(node):
        end: int = node.end_mark.index
        if isinstance(node, ScalarNode) and node.style in ("|", ">"):
            return len(text[:end].rstrip())
        return end
    parts = node.value
    if not parts:
        return int(node.end_mark.index)
    last = parts[-1]
    return _content_end(text, last[1] if isinstance(last, tuple) else last)


def _apply(text: str, edits: Sequence[Edit]) -> str:
    """All edits at once. Removals of neighbours may meet, not overlap otherwise."""
    parts = []
    at = 0
    for edit in sorted(edits):
        parts.append(text[at : max(at, edit.start)])
        parts.append(edit.text)
        at = max(at, edit.end)
    return "".join(parts) + text[at:]


class _Change(NamedTuple):
    """What is to be different in a plain copy."""

    listed: Node
    gone: Collection[int]
    totals: Sequence[Tuple[ScalarNode, str]]


def _plain(node: Node, change: Optional[_Change], above: Tuple[int, ...] = ()) -> Plain:
    """A node as nested tuples of tags and values, with `change` made to it."""
    if id(node) in above:
        return ("recursive",)
    above = (*above, id(node))
    if isinstance(node, ScalarNode):
        value = str(node.value)
        tag = str(node.tag)
        for total, new in change.totals if change is not None else ():
            if total is node:
                value = new.strip("\"'")
                tag = tag if new[:1] in "\"'" else "tag:yaml.org,2002:int"
        return ("scalar", tag, value, node.style)
    children: List[object] = []
    if isinstance(node, SequenceNode):
        for item in node.value:
            if change is None or node is not change.listed or id(item) not in change.gone:
                children.append(_plain(item, change, above))
    else:
        for key, value in node.value:
            if change is None or node is not change.listed or id(key) not in change.gone:
                children.append((_plain(key, change, above), _plain(value, change, above)))
    return (type(node).__name__, str(node.tag), tuple(children))


# -- files --------------------------------------------------------------------------------------


def read(path: Path) -> str:
    """A config's text, byte for byte. Raises `Refused`."""
    try:
        if not path.is_file():
            raise Refused("no such file" if not path.exists() else "no regular file")
        if path.stat().st_size > MAX_BYTES:
            raise Refused(f"larger than {MAX_BYTES >> 20} MiB")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from None


def write(path: Path, before: str, after: str) -> Path:
    """Replace a config's text by rename, keeping its mode and, where we may, its owner.

    A symbolic link stays one: what it names is replaced. Returns the backup, which never
    overwrites an earlier one. Raises `Refused`; the file is then what it was.
    """
    target = path.resolve()
    try:
        found = os.stat(target)
        if target.read_bytes() != before.encode():
            raise Refused("it has changed meanwhile: try again")
        backup = _backup(target, before.encode(), found)
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(fd, "wb") as file:
                file.write(after.encode())
                file.flush()
                os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise Refused(f"cannot be written: {error.strerror}") from None
    return backup


def _backup(target: Path, data: bytes, found: os.stat_result) -> Path:
    """A copy beside it: ``config.yaml.bak``, ``config.yaml.bak2``..."""
    for number in range(1, 1000):
        path = target.with_name(f"{target.name}.bak{number if number > 1 else ''}")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with open(fd, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), found.st_uid, found.st_gid)
        return path
    raise Refused(f"{target}.bak999 exists: remove old backups")


def find_files(names: Sequence[str]) -> Tuple[List[Path], List[str]]:
    """The files that arguments name, once each; and the arguments that name nothing.

    A directory stands for every ``config.yaml`` and ``config.yml`` below it (not in hidden
    directories), a pattern for what it matches.
    """
    import glob

    found: Dict[Path, None] = {}
    nothing = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            matched = sorted(_configs(path))
        elif not os.path.lexists(path) and glob.has_magic(name):
            wanted = os.path.expanduser(name)
            matched = [Path(match) for match in sorted(glob.glob(wanted, recursive=True))]
        else:
            matched = [path]
        if not matched:
            nothing.append(name)
        found.update(dict.fromkeys(matched))
    return list(found), nothing


def _configs(top: Path) -> Iterator[Path]:
    for directory, below, names in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            if name in ("config.yaml", "config.yml"):
                yield Path(directory) / name

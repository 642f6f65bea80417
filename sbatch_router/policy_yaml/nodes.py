"""YAML text to a tree of nodes that know their line and keep every value as it was written.

PyYAML's events are used, not its constructors: YAML 1.1 would read an account named ``no``
as false, ``0123`` as 83 and ``1:30`` as 90. Events also show anchors and aliases before
anything is copied, so an alias bomb is one error, not a full memory.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import yaml

from .findings import Report, quote

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
#: Characters of a line that is no YAML which are searched for what is wrong with it.
_LOOKED_AT = 1000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NEEDS_QUOTES = re.compile(r"(?:^|[:,\[{-])\s*([>*!?&@`|][^\s,}\]]*|\[[^\]]*\][^\s,}\]#][^\s,}]*)")


class Scalar(NamedTuple):
    """A value. `text` is what the user wrote; `null` if that was nothing, ``~`` or ``null``."""

    line: int
    text: str
    null: bool = False
    #: Written as a block (``|`` or ``>``).
    block: bool = False


class Items(NamedTuple):
    """A list."""

    line: int
    items: Tuple[Node, ...]


class Pairs(NamedTuple):
    """A mapping; of a key given twice, the first."""

    line: int
    pairs: Dict[str, Tuple[Scalar, Node]]
    #: A key was left out, after an error about it.
    partial: bool = False


class Broken(NamedTuple):
    """Something an error has been reported about already; nothing more is said of it."""

    line: int


Node = Union[Scalar, Items, Pairs, Broken]


class Unreadable(Exception):
    """The text is no YAML document that a policy can be; the error has been reported."""


def decode(raw: bytes, report: Report) -> str:
    """The text of a policy file, or one error and `Unreadable`. A UTF-8 BOM is ignored."""
    if len(raw) > MAX_BYTES:
        raise _unreadable(report, 1, "is larger than 1 MiB; a policy is a few kilobytes")
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise _unreadable(report, 1, "is UTF-16; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise _unreadable(report, line, f"{found}; save the file as UTF-8") from None


def parse(text: str, report: Report) -> Node:
    """The one document of `text` as nodes. Reports what YAML it may not contain.

    Raises `Unreadable` after reporting if there is no document to look at.
    """
    text = text[1:] if text[:1] == "\ufeff" else text
    strange = _NOT_YAML.search(text)
    if strange:
        line = text.count("\n", 0, strange.start()) + 1
        found = f"U+{ord(strange.group()):04X} is not a character YAML allows"
        raise _unreadable(report, line, f"{found}; remove it")
    reader = _Reader(text, report)
    try:
        return reader.document()
    except yaml.YAMLError as error:
        raise _bad_yaml(error, text, report) from None


def _unreadable(report: Report, line: int, message: str) -> Unreadable:
    report.error(line, "file", message)
    return Unreadable(message)


def _bad_yaml(error: yaml.YAMLError, text: str, report: Report) -> Unreadable:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    lines = text.splitlines() or [""]
    at = min(mark.line if mark else 0, len(lines) - 1)
    problem = getattr(error, "problem", None) or "it cannot be read"
    tabbed = [n for n in range(at + 1) if "\t" in re.match(r"\s*", lines[n]).group()]  # type: ignore[union-attr]
    if tabbed:
        return _unreadable(report, tabbed[-1] + 1, "a tab in the indentation; use spaces")
    return _unreadable(report, at + 1, f"not valid YAML: {problem}{_advice(lines, at)}")


def _advice(lines: List[str], at: int) -> str:
    """What most often goes wrong on such a line, or the one above, in a policy."""
    for line in (lines[at], lines[at - 1] if at else ""):
        if re.search(r"when_full:\s*wait:", line):
            return '; write `when_full: {wait: 10m}` or `when_full: "wait 10m"`'
        # The pattern's time grows with the square of the line.
        special = _NEEDS_QUOTES.search(line[:_LOOKED_AT])
        if special:
            value = special.group(1)
            return f'; a value that begins with {value[0]} needs quotes, as in "{value}"'
    return ""


def _line(event: Any) -> int:
    line: int = event.start_mark.line + 1
    return line


class _Reader:
    """Composes nodes from events."""

    def __init__(self, text: str, report: Report) -> None:
        self.report = report
        self.lines = text.splitlines()
        self.events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def document(self) -> Node:
        next(self.events)
        event = next(self.events)
        if not isinstance(event, yaml.DocumentStartEvent):
            raise _unreadable(self.report, 1, "is empty; a policy starts with `version: 1`")
        root = self.node(next(self.events), "policy", 0)
        next(self.events)
        event = next(self.events)
        if isinstance(event, yaml.DocumentStartEvent):
            line = _line(event)
            self.report.error(line, "file", "a second document (---) begins; a policy has one")
        return root

    def node(self, event: Any, path: str, depth: int) -> Node:
        line = _line(event)
        self.report.at.setdefault(path, line)
        if depth > MAX_DEPTH:
            raise _unreadable(self.report, line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            self.report.error(line, path, self._alias(event.anchor or ""))
            return Broken(line)
        allowed = self._plain_node(event, path, line)
        node: Node
        if isinstance(event, yaml.SequenceStartEvent):
            node = self._items(path, line, depth)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._pairs(path, line, depth)
        else:
            node = self._scalar(event, line)
        return node if allowed else Broken(line)

    def _plain_node(self, event: Any, path: str, line: int) -> bool:
        """False, and an error, for a node with an anchor or a tag."""
        if event.anchor:
            shown = quote("&" + event.anchor)
            message = f"{shown} is an anchor; a policy has none: write the value out"
        elif event.tag and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"{quote(tag)} is read as a YAML tag; quote a value that begins with !"
        else:
            return True
        self.report.error(line, path, message)
        return False

    @staticmethod
    def _alias(name: str) -> str:
        shown = quote("*" + name)
        return f"{shown} is read as an alias; quote a value that begins with *"

    def _scalar(self, event: Any, line: int) -> Scalar:
        null = event.style in (None, "") and event.value in _NULLS
        return Scalar(line, event.value, null, event.style in ("|", ">"))

    def _items(self, path: str, line: int, depth: int) -> Items:
        found: List[Node] = []
        event = next(self.events)
        while not isinstance(event, yaml.SequenceEndEvent):
            found.append(self.node(event, f"{path}[{len(found) + 1}]", depth + 1))
            event = next(self.events)
        return Items(line, tuple(found))

    def _pairs(self, path: str, line: int, depth: int) -> Pairs:
        found: Dict[str, Tuple[Scalar, Node]] = {}
        partial = False
        event = next(self.events)
        while not isinstance(event, yaml.MappingEndEvent):
            key = self._key(event, path, depth)
            inside = join(path, key.text) if key else path
            partial = partial or key is None
            if key is not None:
                self.report.at.setdefault(inside, key.line)
            value = self.node(next(self.events), inside, depth + 1)
            if key is not None and key.text in found:
                first = found[key.text][0].line
                message = f"is given twice (first on line {first}); keep one"
                self.report.error(key.line, inside, message)
            elif key is not None:
                found[key.text] = (key, value)
            event = next(self.events)
        return Pairs(line, found, partial)

    def _key(self, event: Any, path: str, depth: int) -> Optional[Scalar]:
        before = len(self.report.errors)
        node = self.node(event, path, depth + 1)
        if isinstance(node, Scalar) and node.text == "<<":
            self.report.error(
                node.line, path, "`<<` is a merge key; a policy has none: write it out"
            )
        elif isinstance(node, Scalar):
            return node
        elif len(self.report.errors) == before:
            self.report.error(node.line, path, "a key must be a word, not a list or a mapping")
        return None


def kind(node: Node) -> str:
    """What a node is, for a message: ``a list``, ``empty``, the text itself."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Pairs):
        return "a mapping"
    if isinstance(node, Broken):
        return "broken"
    if node.null or not node.text.strip():
        return f"empty ({node.text})" if node.text.strip() else "empty"
    return quote(node.text)


def join(path: str, key: str) -> str:
    """The path of `key` inside `path`; the policy itself is not named."""
    shown = quote(key)[1:-1]
    return shown if path in ("", "policy") else f"{path}.{shown}"

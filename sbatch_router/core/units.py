"""Amounts as people type them to sbatch: whole numbers, memory, times, node counts, arrays.

Slurm reads numbers with C's ``strtol``, which skips blanks and stops at the first character
that is no digit; what may follow differs from option to option. Every parser raises
ValueError, with a message for people, where sbatch would refuse the text.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

_BLANKS = " \t\n\v\f\r"
#: Larger numbers wrap around in Slurm's 32-bit fields; none is a size that can be meant.
MAX_COUNT = 2**31 - 1
#: Slurm's 16-bit counts end below its marks for "infinite" and "not set".
MAX_SMALL = 0xFFFD
#: The largest MaxArraySize that Slurm takes.
MAX_ARRAY = 4000001


def strtol(text: str) -> Tuple[Optional[int], str]:
    """The number at the start of `text` and what follows it, as C's strtol base 10.

    None when there is no number (then all of `text` follows).
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    end = start + 1 if text[start : start + 1] in ("+", "-") else start
    first = end
    while text[end : end + 1] in _DIGITS:
        end += 1
    return (int(text[start:end]), text[end:]) if end > first else (None, text)


_DIGITS = frozenset("0123456789")


def parse_count(text: str, name: str, least: int = 1, most: int = MAX_COUNT) -> int:
    """A whole number, as `parse_int` in Slurm's proc_args.c: nothing may follow it."""
    number, rest = strtol(text)
    if number is None and text == "":
        number = 0
    if number is None or rest or not least <= number <= most:
        raise ValueError(f"--{name} has no valid number: {text!r}")
    return number


def parse_memory(text: str, name: str = "mem") -> int:
    """MiB of ``512K``, ``2gb``, ``1T``, ``4000``: `str_to_mbytes` in proc_args.c.

    MiB by default; K is rounded up; a B or b may follow the unit, nothing else may.
    """
    number, rest = strtol(text)
    unit = rest[:1].upper()
    if number is None or not 0 <= number < 2**63 or rest[1:] not in ("", "B", "b"):
        raise ValueError(f"--{name} is no amount of memory: {text!r}")
    if unit == "" or (unit == "M"):
        return number
    if unit == "K":
        return -(-number // 1024)
    if unit == "G":
        return number << 10
    if unit == "T":
        return number << 20
    raise ValueError(f"--{name} is no amount of memory: {text!r}")


def parse_time(text: str, name: str = "time") -> Optional[int]:
    """Minutes, rounded up, of ``90``, ``1:30``, ``1:30:00``, ``2-``, ``2-12:30:00``.

    None is no limit: ``0``, ``-1``, ``UNLIMITED``, ``INFINITE``. As `time_str2mins` and
    `arg_set_time_limit` in Slurm's parse_time.c and slurm_opt.c.
    """
    if text.upper() in ("-1", "INFINITE", "UNLIMITED"):
        return None
    _check_timespec(text, name)
    days, dash, clock = text.partition("-")
    if dash and not days:  # sscanf reads a negative number, which Slurm takes for a huge one
        raise ValueError(f"--{name} is negative: {text!r}")
    fields = clock.split(":") if dash else text.split(":")
    numbers = _leading_numbers(([days, *fields]) if dash else fields)
    if dash:
        numbers += [0] * (4 - len(numbers))
        seconds = numbers[0] * 86400 + numbers[1] * 3600 + numbers[2] * 60 + numbers[3]
    elif len(numbers) == 3:
        seconds = numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    else:
        numbers += [0] * (2 - len(numbers))
        seconds = numbers[0] * 60 + numbers[1]
    minutes = -(-seconds // 60)
    if minutes >= MAX_COUNT // 60:
        raise ValueError(f"--{name} is too long: {text!r}")
    return minutes or None


def _leading_numbers(fields: List[str]) -> List[int]:
    """The numbers up to the first empty field, where sscanf stops."""
    numbers: List[int] = []
    for field in fields:
        if not field:
            break
        numbers.append(int(field))
    return numbers


def _check_timespec(text: str, name: str) -> None:
    """`_is_valid_timespec` in Slurm's parse_time.c: counts digit groups, dashes and colons."""
    groups = dashes = colons = 0
    in_digits = False
    valid = True
    for char in text:
        if char in _DIGITS:
            groups += not in_digits
            in_digits = True
            continue
        in_digits = False
        if char == "-":
            dashes += 1
            valid = valid and not colons
        elif char == ":":
            colons += 1
        else:
            valid = False
    least = 1 + colons + (dashes if colons else 0)
    if not valid or dashes > 1 or colons > 2 or groups < least:
        raise ValueError(f"--{name} is no time: {text!r}")


def parse_nodes(text: str) -> Tuple[int, int]:
    """(least, most) of ``4``, ``2-4``, ``1k``: `verify_node_count` in proc_args.c."""
    first, dash, last = text.partition("-")
    low = _node_count(first, text)
    if not dash:
        if low is None or low < 0:
            raise ValueError(f"--nodes is no node count: {text!r}")
        return low, low
    high = _node_count(last, text)
    low = 1 if low is None or low < 0 else low
    high = -1 if high is None else high
    if high != 0 and high < low:
        raise ValueError(f"--nodes has its largest count below its least: {text!r}")
    return low, high


def _node_count(part: str, text: str) -> Optional[int]:
    number, rest = strtol(part)
    if number is not None:
        if rest[:1] in ("k", "K"):
            number, rest = number * 1024, rest[1:]
        if rest[:1] in ("m", "M"):
            number, rest = number * 1024 * 1024, rest[1:]
        if not -MAX_COUNT <= number <= MAX_COUNT:
            raise ValueError(f"--nodes is too large: {text!r}")
    if rest.strip(_BLANKS):
        raise ValueError(f"--nodes is no node count: {text!r}")
    return number


def count_array(text: str) -> Tuple[int, Optional[int], int]:
    """(tasks, tasks at once or None, largest index) of ``0-15:4,20%2``.

    As `_valid_array_inx` and `_parse_array_tok` in slurmctld's job_mgr.c: an index given
    twice counts once, and ``%`` limits how many run, not how many there are.
    """
    ranges = [_array_range(token, text) for token in text.split(",") if token]
    if not ranges:
        raise ValueError(f"--array has no index: {text!r}")
    tasks = _count_union(ranges)
    at_once = None
    if "%" in text:
        number, _ = strtol(text[text.index("%") + 1 :])
        at_once = number if number is not None and number > 0 else None
    return tasks, at_once, max(found[-1] for found in ranges)


def _array_range(token: str, text: str) -> range:
    def number(part: str) -> Tuple[int, str]:
        found, rest = strtol(part)
        return found or 0, rest[1:] if rest[:1] == "]" else rest

    first, rest = number(token[1:] if token[:1] == "[" else token)
    last, step = first, 1
    if rest[:1] == "-":
        last, rest = number(rest[1:])
        if rest[:1] == ":":
            step, rest = number(rest[1:])
    if rest[:1] not in ("", "%") or first < 0 or last < first or last >= MAX_ARRAY or step <= 0:
        raise ValueError(f"--array is no list of indexes: {text!r}")
    return range(first, last + 1, step)


def _count_union(ranges: List[range]) -> int:
    ordered = sorted(ranges, key=lambda one: one[0])
    if all(one[-1] < two[0] for one, two in zip(ordered, ordered[1:])):
        return sum(len(one) for one in ordered)
    return len(set().union(*ordered))


def parse_licenses(text: str) -> Dict[str, int]:
    """License name -> count of ``lic:2,other`` (`_build_license_list` in licenses.c)."""
    found: Dict[str, int] = {}
    for token in text.replace(";", ",").split(","):
        if not token:
            continue
        name, colon, count_text = token.partition(":")
        if any(char in _BLANKS or char in "|=()" for char in name):
            raise ValueError(f"--licenses is not supported: {token!r}")
        count = 1
        if colon:
            number, rest = strtol(count_text)
            if rest or (number or 0) < 0:
                raise ValueError(f"--licenses has no valid count: {token!r}")
            count = number or 0
        found[name] = found.get(name, 0) + count
    return found


def count_hosts(text: str) -> int:
    """How many different nodes ``n[1-3],m5`` names. Raises ValueError for what is not simple."""
    names = set()
    for part in _split_hosts(text):
        prefix, bracket, rest = part.partition("[")
        if not bracket:
            names.add(part)
            continue
        inside, closing, suffix = rest.partition("]")
        if not closing or "[" in suffix:
            raise ValueError(f"--nodelist is no simple list of nodes: {text!r}")
        for piece in inside.split(","):
            low, dash, high = piece.partition("-")
            high = high if dash else low
            if not (low.isdigit() and high.isdigit()) or not 0 <= int(high) - int(low) < 65536:
                raise ValueError(f"--nodelist is no simple list of nodes: {text!r}")
            width = len(low)
            for number in range(int(low), int(high) + 1):
                names.add(f"{prefix}{number:0{width}d}{suffix}")
    return len(names)


def _split_hosts(text: str) -> List[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char in "/{}*@" or char in _BLANKS:
            raise ValueError(f"--nodelist is no simple list of nodes: {text!r}")
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part for part in parts if part]

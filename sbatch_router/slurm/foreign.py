"""``#PBS`` and ``#BSUB`` directives, as sbatch translates them (src/sbatch/xlate.c).

Loaded only for a script that has some. They are read after ``#SBATCH`` lines and so win over
them; a script with ``#BSUB`` lines has its ``#PBS`` lines ignored.
"""

from __future__ import annotations

from ..core.units import count_hosts, strtol
from .script import words_of_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .request import Merge

#: Lines that are no comment, after which sbatch stops looking for directives.
_MAX_COMMANDS = 100

#: Letter -> (takes an argument, sbatch's option or "" where sbatch ignores it).
_BSUB: Dict[str, Tuple[bool, str]] = {
    "c": (True, "chdir"), "e": (True, "error"), "J": (True, "job-name"),
    "m": (True, "nodelist"), "M": (True, "mem-per-cpu"), "n": (True, "ntasks"),
    "o": (True, "output"), "q": (True, "partition"), "W": (True, "time"),
    "x": (False, "exclusive"),
}  # fmt: skip
_BSUB_LONG: Dict[str, str] = {
    "cwd": "c", "error_file": "e", "job_name": "J", "hostname": "m", "memory_limit": "M",
    "output_file": "o", "queue_name": "q", "time": "W", "exclusive": "x",
}  # fmt: skip
_PBS: Dict[str, Tuple[bool, str]] = {
    "a": (True, "begin"), "A": (True, "account"), "c": (True, ""), "C": (True, ""),
    "e": (True, "error"), "h": (False, "hold"), "I": (False, ""), "j": (True, ""),
    "J": (True, "array"), "k": (True, ""), "l": (True, "l"), "m": (True, ""),
    "M": (True, "mail-user"), "N": (True, "job-name"), "o": (True, "output"),
    "p": (True, "nice"), "q": (True, "partition"), "r": (True, ""), "S": (True, ""),
    "t": (True, "array"), "u": (True, ""), "v": (True, "export"), "V": (False, ""),
    "W": (True, ""), "z": (False, ""),
}  # fmt: skip
_PBS_LONG: Dict[str, str] = {
    "start_time": "a", "account": "A", "checkpoint": "c", "working_dir": "C", "error": "e",
    "hold": "h", "interactive": "I", "join": "j", "job_array": "J", "keep": "k",
    "resource_list": "l", "mail_options": "m", "mail_user_list": "M", "job_name": "N",
    "out": "o", "priority": "p", "destination": "q", "rerunable": "r", "script_path": "S",
    "array": "t", "running_user": "u", "variable_list": "v", "all_env": "V", "attributes": "W",
    "no_std": "z",
}  # fmt: skip


def translate(merge: Merge, script: bytes) -> None:
    """Set in `merge` what the script's #BSUB lines say, or else its #PBS lines."""
    words, found = _collect(script, b"#BSUB", merge.doubts)
    if found:
        # sbatch looks for -cwd at every other word only, where an option "must" be.
        words = ["-c" if w == "-cwd" and i % 2 == 0 else w for i, w in enumerate(words)]
        _obey(merge, words, _BSUB, _BSUB_LONG)
        return
    words, found = _collect(script, b"#PBS", merge.doubts)
    if found:
        _obey(merge, words, _PBS, _PBS_LONG)


def _collect(script: bytes, magic: bytes, doubts: List[str]) -> Tuple[List[str], bool]:
    """All directive words with this prefix, and whether there was such a line at all."""
    words: List[str] = []
    found, commands = False, 0
    lines = script.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        if line.startswith(magic):
            found = True
            words_of_line(line[len(magic) :], words, doubts)
            continue
        if line[:1] != b"#":
            commands += 1
        if commands > _MAX_COMMANDS:
            break
    return words, found


def _obey(
    merge: Merge, words: List[str], short: Dict[str, Tuple[bool, str]], long: Dict[str, str]
) -> None:
    """getopt_long over the words, each option handed on as sbatch's own."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word[:1] != "-" or word == "-":
            merge.doubts.append(f"invalid directive in the script: {word}")
            return
        if word == "--":
            if index < len(words):
                merge.doubts.append(f"invalid directive in the script: {words[index]}")
            return
        pairs, needs = _split(word, short, long)
        if pairs is None or (needs and index >= len(words)):
            merge.doubts.append(f"directive of another system is not understood: {word}")
            return
        if needs:
            letter = pairs.pop()[0]
            pairs.append((letter, words[index]))
            index += 1
        for letter, value in pairs:
            _set(merge, short is _BSUB, letter, short[letter][1], value)


def _split(
    word: str, short: Dict[str, Tuple[bool, str]], long: Dict[str, str]
) -> Tuple[Optional[List[Tuple[str, str]]], bool]:
    """(letter, value) pairs of one word, and whether the last wants the next word as value."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        letters = [long[k] for k in long if k.startswith(name)]
        letters = [long[name]] if name in long else letters
        if len(letters) != 1:
            return None, False
        takes = short[letters[0]][0] and name != "join"
        if equals and not short[letters[0]][0]:
            return None, False
        return [(letters[0], value)], takes and not equals
    pairs: List[Tuple[str, str]] = []
    for position, letter in enumerate(word[1:], 2):
        if letter not in short:
            return None, False
        if short[letter][0]:
            pairs.append((letter, word[position:]))
            return pairs, not word[position:]
        pairs.append((letter, ""))
    return pairs, False


def _set(merge: Merge, bsub: bool, letter: str, option: str, value: str) -> None:
    """One directive as sbatch's option, its value rewritten where the systems differ."""
    if option == "l":
        _resource_list(merge, value)
        return
    if bsub and letter == "m":
        value = value.replace(" ", ",")
    elif bsub and letter == "M" and value[-1:].isdigit():
        value += "K"
    elif bsub and letter == "n" and "," in value:
        value = value.partition(",")[2]
    elif letter == "v" and not bsub:
        earlier = merge.options.get("export")
        value = f"{earlier.value},{value}" if earlier else value
    if option:
        merge.set(option, value, "script")


#: ``-l`` keys that stand for an option of sbatch; the text up to the separator is its value.
_RESOURCES: Tuple[Tuple[str, str, str], ...] = (
    ("cput=", "time", ","), ("file=", "tmp", ","), ("mem=", "mem", ","),
    ("mpiprocs=", "ntasks-per-node", ":"), ("ncpus=", "mincpus", ":"), ("nice=", "nice", ","),
    ("nodes=", "", ","), ("pcput=", "time", ","), ("proc=", "constraint", ","),
    ("select=", "nodes", ":"), ("walltime=", "time", ","),
    ("naccelerators=", "", ","), ("accelerator=", "", ""),
    ("arch=", "", ""), ("host=", "", ""), ("opsys=", "", ""), ("other=", "", ""),
    ("pmem=", "", ""), ("pvmem=", "", ""), ("software=", "", ""), ("vmem=", "", ""),
)  # fmt: skip
_ANY_CASE = ("mpiprocs=", "ncpus=", "select=", "naccelerators=", "accelerator=")


def _resource_list(merge: Merge, text: str) -> None:
    """``-l nodes=2:ppn=4,walltime=1:00:00,mem=4gb`` (`_parse_pbs_resource_list`)."""
    position, gpus = 0, 0
    seen = set()
    while position < len(text):
        match = _resource_at(text, position)
        if match is None:
            position += 1
            continue
        key, option, separator = match
        position += len(key)
        if key == "accelerator=":
            if text[position : position + 4].lower() == "true":
                gpus = max(gpus, 1)
            continue
        value, position = _until(text, position, separator or ",")
        if key == "nodes=":
            _nodes(merge, value)
        elif key == "naccelerators=":
            number, rest = strtol(value)
            if not number or number < 0 or rest:
                merge.doubts.append(f"naccelerators has no valid number: {value!r}")
            gpus = number or 0
        elif option:
            seen.add(option)
            _resource(merge, option, value)
            if key == "proc=":
                position = _until(text, position, ",")[1]
    _whole_tasks(merge, seen)
    if gpus > 0:
        earlier = merge.options.get("gres")
        merge.set("gres", f"{earlier.value},gpu:{gpus}" if earlier else f"gpu:{gpus}", "script")


def _resource_at(text: str, position: int) -> Optional[Tuple[str, str, str]]:
    for resource in _RESOURCES:
        key = resource[0]
        part = text[position : position + len(key)]
        if part == key or (key in _ANY_CASE and part.lower() == key):
            return resource
    return None


def _until(text: str, position: int, separator: str) -> Tuple[str, int]:
    end = text.find(separator, position)
    return (text[position:], len(text)) if end < 0 else (text[position:end], end + 1)


def _resource(merge: Merge, option: str, value: str) -> None:
    if option in ("tmp", "mem") and value[-1:] in ("b", "B"):
        value = value[:-1]
    if option == "constraint" and "constraint" in merge.options:
        value = f"{value},{merge.options['constraint'].value}"
    merge.set(option, value, "script")


def _whole_tasks(merge: Merge, seen: set[str]) -> None:
    """select, ncpus and mpiprocs together also say how many CPUs each task gets."""
    if not seen.issuperset(("nodes", "mincpus", "ntasks-per-node")):
        return
    cpus = strtol(merge.options["mincpus"].value)[0] or 0
    tasks = strtol(merge.options["ntasks-per-node"].value)[0] or 0
    if tasks > 0 and cpus > tasks:
        merge.set("cpus-per-task", str(cpus // tasks), "script")


def _nodes(merge: Merge, text: str) -> None:
    """``nodes=2:ppn=4+host1:gpus=1`` (`_parse_pbs_nodes_opts`)."""
    per_node = count = 0
    hosts: List[str] = []
    for part in text.replace("+", ":").split(":"):
        if part.startswith("gpus="):
            merge.set("gpus-per-node", part[5:], "script")
        elif part.startswith("ppn="):
            per_node += strtol(part[4:])[0] or 0
        elif part[:1].isdigit():
            count += strtol(part)[0] or 0
        elif part[:1].isalpha():
            hosts.append(part)
        elif part:
            merge.doubts.append(f"#PBS -l nodes is not understood: {part!r}")
    if count:
        merge.set("nodes", str(count), "script")
    if per_node:
        merge.set("ntasks", str(per_node * (count or 1)), "script")
    if hosts:
        names = ",".join(hosts)
        try:
            count_hosts(names)
        except ValueError as error:
            merge.doubts.append(str(error))
        merge.set("nodelist", names, "script")

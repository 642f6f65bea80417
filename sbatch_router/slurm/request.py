"""An sbatch call as a `Request`: command line over environment over script, as sbatch merges."""

from __future__ import annotations

from ..core.jobdesc import check_value
from ..core.request import Given, Request
from ..core.units import count_array
from .options import EARLY, environment, parse
from .script import directives, objections, read_properties

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Sequence

    from .options import Parsed

#: Options that make this another user's job, or no job of the usual kind.
_FOREIGN = ("uid", "gid", "external", "resources")


def read_request(
    argv: Sequence[str],
    environ: Mapping[str, str],
    script: Optional[bytes],
    parsed: Optional[Parsed] = None,
) -> Request:
    """The request that ``sbatch ARGV...`` (argv without the command) would make.

    `script` is the script's bytes, or None when there are none to be had: with ``--wrap``
    that is as it should be, otherwise it makes a doubt. `parsed` spares a second parse of
    `argv`. Never raises on what the user wrote.
    """
    line = parse(argv) if parsed is None else parsed
    merge = Merge(list(line.doubts))
    wrap = any(name == "wrap" for name, _ in line.options)
    if is_heterogeneous(argv, line):
        merge.doubts.append("the command line describes a heterogeneous job")
    if wrap and line.operands < len(argv):
        merge.doubts.append("--wrap and a script exclude each other")
    variables = environment(environ)
    ignore_pbs = ("ignore-pbs", "") in line.options or ("ignore-pbs", "") in variables
    properties: Mapping[str, object] = {}
    if wrap:
        pass
    elif script is None:
        merge.doubts.append("the script's directives could not be read")
    else:
        merge.doubts.extend(objections(script))
        merge.script(script, ignore_pbs)
        properties = read_properties(script)
    for name, value in variables:
        if value is None:
            merge.options.pop(name, None)
        else:
            merge.set(name, value, "env")
    for name, value in line.options:
        merge.set(name, value, "cli")
    merge.check(environ)
    name = argv[line.operands].rpartition("/")[2] if line.operands < len(argv) else "sbatch"
    return merge.request(properties, "wrap" if wrap else name)


def is_heterogeneous(argv: Sequence[str], line: Parsed) -> bool:
    """Whether a ``:`` among the words begins the next component; no script is called that."""
    return ":" in argv[: line.operands + 1]


class Merge:
    """Options as they accumulate. The dict's order is the order in which they were last set,
    which decides between options that write the same field (``-B``, ``--threads-per-core``).
    """

    def __init__(self, doubts: List[str]) -> None:
        self.options: Dict[str, Given] = {}
        self.doubts = doubts

    def set(self, name: str, value: str, origin: str) -> None:
        """Set an option; the later one wins, but sbatch has looked at every value by then."""
        earlier = self.options.pop(name, None)
        if earlier is not None and earlier.value != value:
            self.inspect(name, earlier.value)
        if name in ("nodelist", "nodefile"):
            self.options.pop("nodefile" if name == "nodelist" else "nodelist", None)
        self.options[name] = Given(value, origin)

    def inspect(self, name: str, value: str) -> None:
        """Doubt a request for a value that sbatch refuses even though another one wins."""
        try:
            check_value(name, value)
        except ValueError as error:
            self.doubts.append(str(error))

    def script(self, script: bytes, ignore_pbs: bool) -> None:
        """Set what the script's directives say."""
        found = directives(script)
        self.doubts.extend(found.doubts)
        line = parse(found.words)
        self.doubts.extend(line.doubts)
        if line.operands < len(found.words):
            self.doubts.append(f"invalid directive in the script: {found.words[line.operands]}")
        for name, value in line.options:
            if name not in EARLY:
                self.set(name, value, "script")
        if "ignore-pbs" in self.options or ignore_pbs:
            return
        if b"#PBS" in script or b"#BSUB" in script:
            from .foreign import translate

            translate(self, script)

    def check(self, environ: Mapping[str, str]) -> None:
        """sbatch's rules between options, and requests that are not ours to judge."""
        options = self.options
        for name in _FOREIGN:
            if name in options:
                self.doubts.append(f"--{name} is not supported")
        if "nodelist" not in options and "nodefile" not in options and "SLURM_HOSTFILE" in environ:
            self.doubts.append("SLURM_HOSTFILE decides the nodes")
        self.one_memory()

    def one_memory(self) -> None:
        """--mem, --mem-per-cpu and --mem-per-gpu exclude each other, across sources too.

        `_validate_memory_options` in slurm_opt.c: one given on the command line or in the
        script displaces the others' variables; two such, or two variables, are an error.
        """
        options = self.options
        given = [n for n in ("mem", "mem-per-cpu", "mem-per-gpu") if n in options]
        if len(given) < 2:
            return
        firm = [name for name in given if options[name].origin != "env"]
        if len(firm) != 1:
            self.doubts.append("--mem, --mem-per-cpu and --mem-per-gpu exclude each other")
            return
        for name in given:
            if name != firm[0]:
                self.inspect(name, options.pop(name).value)

    def request(self, properties: Mapping[str, object], name: str) -> Request:
        """The finished request."""
        tasks, at_once = 1, None
        array = self.options.get("array")
        if array is not None and array.value:
            try:
                tasks, at_once, _ = count_array(array.value)
            except ValueError as error:
                self.doubts.append(str(error))
        return Request(self.options, tuple(self.doubts), tasks, at_once, properties, name)

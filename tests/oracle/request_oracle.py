#!/usr/bin/env python3
"""Random sbatch calls, judged by a real slurmctld: what we say a job asks for is what it asks for.

Each call (command line, environment, script) is submitted held as one user; its ReqTRES, time
limit, array tasks, account, QOS and partition are compared with `read_request` and `resolve`.

A call that sbatch refuses must be a doubt of ours, and a call without doubts must be taken,
but for refusals that are about the cluster and not about the request (`CLUSTER_REFUSALS`):
the nodes are too small or too few. A doubt on a call that sbatch takes is no disagreement, as
the router passes such calls through; they are counted, by their reason.

Where sbatch refuses for a value that we do not read (a mail type, a dependency), no doubt is
asked for either: such options are not generated with bad values.

    request_oracle.py --seed 1 --count 1000 [--variant defaults]
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

ROOT = Path(__file__).resolve().parents[2]
for part in (str(ROOT), str(ROOT / "containers")):
    if part not in sys.path:
        sys.path.insert(0, part)

from cluster import Cluster  # noqa: E402

from sbatch_router.core.resolve import resolve  # noqa: E402
from sbatch_router.core.snapshot import Config, Partition  # noqa: E402
from sbatch_router.core.tres import parse_tres  # noqa: E402
from sbatch_router.slurm.options import LONG, SHORT  # noqa: E402
from sbatch_router.slurm.request import read_request  # noqa: E402

TRES = ("cpu", "mem", "node", "billing", "gres/gpu", "gres/gpu:a100", "gres/gpu:l4")

SPEC: dict[str, Any] = {
    "nodes": [
        {"prefix": "a", "count": 4, "cpus": 64, "memory": 262144},
        {"prefix": "g", "count": 2, "cpus": 64, "memory": 524288, "gpus": {"a100": 4, "l4": 4}},
        {
            "prefix": "t", "count": 2, "cpus": 64, "memory": 131072,
            "Boards": 1, "SocketsPerBoard": 2, "CoresPerSocket": 16, "ThreadsPerCore": 2,
        },
    ],
    "partitions": {
        "std": {
            "Nodes": "a[1-4]", "Default": "YES", "DefMemPerCPU": 2000, "DefaultTime": "1:00:00",
            "MaxTime": "7-0",
        },
        "node": {"Nodes": "a[1-4]", "DefMemPerNode": 30000, "MaxTime": "2-0"},
        "whole": {"Nodes": "a[1-4]"},
        "gpu": {
            "Nodes": "g[1-2]", "DefCpuPerGPU": 4, "DefMemPerGPU": 16000,
            "TRESBillingWeights": "CPU=1.0,Mem=0.25G,GRES/gpu=2.5", "DefaultTime": "30",
        },
        "smt": {
            "Nodes": "t[1-2]", "DefMemPerCPU": 1000, "MaxMemPerCPU": 3000,
            "TRESBillingWeights": "CPU=0.5,Mem=0.1G",
        },
        "pair": {"Nodes": "a[1-4]", "MinNodes": 2, "DefMemPerCPU": 500, "DefaultTime": "2-0"},
        "all": {"Nodes": "ALL", "DefMemPerCPU": 700, "TRESBillingWeights": "Node=3,CPU=0.3"},
    },
    "slurm_conf": {
        "AccountingStorageTRES": ["gres/gpu", "gres/gpu:a100", "gres/gpu:l4", "license/lic"],
        "Licenses": "lic:100,other:50",
    },
    "users": {"alice": {"default_account": "one"}},
    "qos": {"one": {}, "two": {}},
    "accounts": {
        "one": {"qos": ["one", "two"], "default_qos": "one", "users": ["alice"]},
        "two": {"qos": ["one", "two"], "default_qos": "two", "users": ["alice"]},
    },
}  # fmt: skip

_G = 1024.0
PARTITIONS = {
    "std": Partition("std", True, def_mem_per_cpu=2000, default_time=60, max_time=10080,
                     total_nodes=4, node_memory=262144, node_cpus=64),
    "node": Partition("node", def_mem_per_node=30000, max_time=2880, total_nodes=4,
                      node_memory=262144, node_cpus=64),
    "whole": Partition("whole", total_nodes=4, node_memory=262144, node_cpus=64),
    "gpu": Partition("gpu", def_cpu_per_gpu=4, def_mem_per_gpu=16000, default_time=30,
                     billing_weights={"cpu": 1.0, "mem": 0.25 / _G, "gres/gpu": 2.5},
                     total_nodes=2, node_memory=524288, node_cpus=64),
    "smt": Partition("smt", def_mem_per_cpu=1000, max_mem_per_cpu=3000,
                     billing_weights={"cpu": 0.5, "mem": 0.1 / _G}, total_nodes=2,
                     node_memory=131072, node_cpus=64),
    "pair": Partition("pair", min_nodes=2, def_mem_per_cpu=500, default_time=2880,
                      total_nodes=4, node_memory=262144, node_cpus=64),
    "all": Partition("all", def_mem_per_cpu=700, billing_weights={"node": 3.0, "cpu": 0.3},
                     total_nodes=8, node_memory=262144, node_cpus=64),
}  # fmt: skip

#: What sbatch says when the request is understood and the cluster cannot hold it.
CLUSTER_REFUSALS = (
    "Requested node configuration is not available",
    "Node count specification invalid",
    "More processors requested than permitted",
    "Requested partition configuration not available now",
    "Memory required by task is not available",
    "Requested time limit is invalid",
    "Invalid license specification",
    "Invalid node name specified",
    "Job dependency problem",
    "Requested nodes not in this partition",
)


#: slurm.conf keys on top of `SPEC`, and what they change in our `Config`.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "defaults": (
        {"PriorityFlags": "MAX_TRES", "DefMemPerNode": 5000, "DefMemPerGPU": 3000,
         "EnforcePartLimits": "ANY"},
        {"priority_flags": frozenset(("MAX_TRES",)), "def_mem_per_node": 5000,
         "def_mem_per_gpu": 3000, "enforce_part_limits": "ANY"},
    ),
}  # fmt: skip


def spec(variant: str = "plain") -> dict[str, Any]:
    """The cluster to run on."""
    return {**SPEC, "slurm_conf": {**SPEC["slurm_conf"], **VARIANTS[variant][0]}}


@dataclass(frozen=True)
class Call:
    """One sbatch call: options by where they are written, each as its words."""

    cli: tuple[tuple[str, ...], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    script: tuple[str, ...] = ()
    wrap: bool = False

    @property
    def argv(self) -> list[str]:
        """The command line, without the command and the script."""
        return [word for words in self.cli for word in words]

    @property
    def body(self) -> bytes:
        """The script."""
        return ("#!/bin/sh\n" + "".join(f"{line}\n" for line in self.script) + "sleep 1\n").encode()

    def text(self) -> str:
        """As people would type it."""
        env = "".join(f"{k}={shlex.quote(v)} " for k, v in self.env)
        return f"{env}sbatch {shlex.join(self.argv)}" + "".join(f"\n  | {s}" for s in self.script)


@dataclass
class Found:
    """What Slurm made of a call, or its refusal."""

    job: Optional[int]
    message: str
    fields: dict[str, str] = field(default_factory=dict)
    tasks: int = 1


@dataclass(frozen=True)
class Disagreement:
    """One call on which we and Slurm differ, and in what."""

    call: Call
    what: str

    def __str__(self) -> str:
        return f"{self.call.text()}\n  {self.what}"


def _numbers(rng: random.Random, high: int = 8) -> str:
    return str(rng.choice([1, 1, 2, 2, 3, 4, rng.randint(1, high)]))


def _memory(rng: random.Random) -> str:
    number = rng.choice([0, 1, 100, 500, 1000, 1024, 1500, 2000, 4096, rng.randint(1, 9000)])
    unit = rng.choice(["", "", "", "M", "m", "MB", "mb"])
    small = rng.choice([1, 2, 3, 7])
    other = [f"{small}G", f"{small}g", f"{small}GB", f"{small}gb", "512K", "1500K", "3000k"]
    odd = ["1.5G", "2GiB", "1500B", "2 G", "x", "", "-1", "+5", " 7", "10P", "0G", "0K"]
    return rng.choices([f"{number}{unit}", rng.choice(other), rng.choice(odd)], [6, 4, 1])[0]


def _time(rng: random.Random) -> str:
    good = ["1", "10", "90", "1:30", "0:30", "1:00:00", "00:00:30", "2-0", "1-12", "1-2:30",
            "1-00:00:01", "0", "-1", "UNLIMITED", "infinite", "0-0:5", "1-", "5:00"]  # fmt: skip
    odd = ["x", "", "1:2:3:4", "1-2-3", "1h", " 5", "1-:3", ":5", "-5", "5:", "1--2"]
    return rng.choices([rng.choice(good), rng.choice(odd)], [9, 1])[0]


def _gpu(rng: random.Random) -> str:
    count = rng.choice(["1", "1", "2", "2", "3", "4", "0"])
    typed = rng.choice(["a100:1", "a100:2", "l4:1", "a100", "a100:2,l4:1", "a100:1,l4:1"])
    odd = ["gpu:1", "", "1k", "x:y:1", "a100:", ":1", "2,3", "a100:1,1", "1.5", "-1"]
    return rng.choices([count, typed, rng.choice(odd)], [6, 4, 1])[0]


def _gres(rng: random.Random) -> str:
    good = ["gpu", "gpu:1", "gpu:2", "gpu:3", "gpu:a100:1", "gpu:a100:2", "gpu:a100", "gpu:l4:2",
            "gpu:a100:1,gpu:l4:1", "none", "NONE", "gpu:0"]  # fmt: skip
    odd = ["gpu:", "gpu::1", "gpu:a100:", "gpu:1,gpu:2", "gpu:1,gpu:a100:1", "foo:1", "", ",",
           "gpu:k", "gpu:2,", "gres:gpu:1", "gpu:x"]  # fmt: skip
    return rng.choices([rng.choice(good), rng.choice(odd)], [8, 1])[0]


def _array(rng: random.Random) -> str:
    good = ["0", "1-5", "0-15:4", "0-15:4%2", "1,3,5", "1-3,2-6", "1-5%2", "2,2,2", "0-10:3,7%1",
            "[1-3]", "1000", "0-3%100"]  # fmt: skip
    odd = ["", "x", "5-1", "1-", "1001", "1-3:0", "-1", "1-3%", "1 -3", "1-3:x", ",", "1-3%x"]
    return rng.choices([rng.choice(good), rng.choice(odd)], [7, 1])[0]


def _pick(*values: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(values)


NODES = ("1", "2", "3", "1-2", "2-4", "2-2", "1-", "-3", "4-2", "0", "x", "2x", " 2", "1k", "2-3 ")

#: Option -> (weight, its value at random).
OPTIONS: dict[str, tuple[int, Callable[[random.Random], str]]] = {
    "partition": (30, _pick(*PARTITIONS, "gpu", "gpu", "smt")),
    "nodes": (22, lambda r: r.choice(NODES[:6] if r.random() < 0.9 else NODES)),
    "ntasks": (22, _numbers),
    "ntasks-per-node": (14, _numbers),
    "cpus-per-task": (22, _numbers),
    "mem": (18, _memory),
    "mem-per-cpu": (12, _memory),
    "mem-per-gpu": (5, _memory),
    "gres": (14, _gres),
    "gpus": (9, _gpu),
    "gpus-per-node": (9, _gpu),
    "gpus-per-task": (6, _gpu),
    "gpus-per-socket": (4, _gpu),
    "cpus-per-gpu": (5, _numbers),
    "ntasks-per-gpu": (3, _numbers),
    "ntasks-per-tres": (1, _numbers),
    "ntasks-per-socket": (4, _numbers),
    "ntasks-per-core": (3, _numbers),
    "sockets-per-node": (5, _pick("1", "2", "2")),
    "cores-per-socket": (3, _pick("1", "2", "4", "16")),
    "threads-per-core": (5, _pick("1", "2")),
    "extra-node-info": (3, _pick("1", "2:4", "1:2:1", "2:*:2", "*", "1-2:1", "x", "")),
    "hint": (4, _pick("compute_bound", "memory_bound", "multithread", "nomultithread", "x",
                      "nomultithread,memory_bound", "Multithread")),
    "mincpus": (4, _numbers),
    "overcommit": (3, _pick("")),
    "exclusive": (5, _pick("", "", "user", "exclusive", "x")),
    "oversubscribe": (2, _pick("")),
    "contiguous": (1, _pick("")),
    "spread-job": (2, _pick("")),
    "use-min-nodes": (1, _pick("")),
    "time": (18, _time),
    "time-min": (4, _time),
    "array": (7, _array),
    "account": (8, _pick("one", "two", "TWO", "nobody", "")),
    "qos": (8, _pick("one", "two", "One", "nothing")),
    "licenses": (5, _pick("lic", "lic:2", "lic:3,other:1", "other", "lic:1,lic:2", "lic:x", "no",
                          "lic;other:2", "lic:0", "lic:200", "lic:-1", "lic :2")),
    "nodelist": (3, _pick("a1", "a[1-2]", "a1,a1", "a[1-2],a4", "g1", "zz", "a[01]")),
    "exclude": (1, _pick("a1", "g2", "a[1-3]")),
    "core-spec": (1, _pick("0", "1")),
    "thread-spec": (1, _pick("1",)),
    "distribution": (2, _pick("block", "cyclic", "block:cyclic", "plane=2", "x")),
    "job-name": (4, _pick("x", "a b", "-p", "gpu")),
    "comment": (2, _pick("x y", "#", "'", "--mem=1")),
    "nice": (2, _pick("", "10")),
    "no-kill": (1, _pick("", "off")),
    "requeue": (1, _pick("")),
    "gres-flags": (1, _pick("disable-binding", "enforce-binding", "x")),
    "tmp": (1, _pick("100", "1G")),
    "verbose": (1, _pick("")),
    "parsable": (2, _pick("")),
    "chdir": (1, _pick("/tmp")),
    "output": (1, _pick("/dev/null")),
    "propagate": (1, _pick("", "NONE")),
    "wckey": (1, _pick("w")),
    "reboot": (1, _pick("")),
    "signal": (1, _pick("USR1@60",)),
}  # fmt: skip

VARIABLES = {
    "partition": "SBATCH_PARTITION", "mem": "SBATCH_MEM_PER_NODE", "time": "SBATCH_TIMELIMIT",
    "mem-per-cpu": "SBATCH_MEM_PER_CPU", "mem-per-gpu": "SBATCH_MEM_PER_GPU",
    "gres": "SBATCH_GRES", "gpus": "SBATCH_GPUS", "gpus-per-node": "SBATCH_GPUS_PER_NODE",
    "gpus-per-task": "SBATCH_GPUS_PER_TASK", "gpus-per-socket": "SBATCH_GPUS_PER_SOCKET",
    "cpus-per-gpu": "SBATCH_CPUS_PER_GPU", "threads-per-core": "SBATCH_THREADS_PER_CORE",
    "hint": "SBATCH_HINT", "overcommit": "SBATCH_OVERCOMMIT", "exclusive": "SBATCH_EXCLUSIVE",
    "array": "SBATCH_ARRAY_INX", "account": "SBATCH_ACCOUNT", "qos": "SBATCH_QOS",
    "core-spec": "SBATCH_CORE_SPEC", "spread-job": "SBATCH_SPREAD_JOB",
    "use-min-nodes": "SBATCH_USE_MIN_NODES", "distribution": "SBATCH_DISTRIBUTION",
    "job-name": "SBATCH_JOB_NAME", "no-kill": "SBATCH_NO_KILL", "requeue": "SBATCH_REQUEUE",
    "gres-flags": "SBATCH_GRES_FLAGS", "thread-spec": "SBATCH_THREAD_SPEC",
}  # fmt: skip
#: Variables that look as if they were read, and are not.
DECOYS = ("SLURM_ACCOUNT", "SLURM_NTASKS", "SBATCH_NODES", "SBATCH_NTASKS", "SLURM_MEM_PER_CPU",
          "SLURM_CPUS_PER_TASK", "SBATCH_LICENSES", "SALLOC_PARTITION")  # fmt: skip

_LETTERS = {name: letter for letter, name in SHORT.items()}


def _abbreviated(rng: random.Random, name: str) -> str:
    """The name, sometimes shortened as far as it stays unique (or nearly so)."""
    if rng.random() < 0.85:
        return name
    length = rng.randint(2, len(name))
    while length < len(name) and sum(n.startswith(name[:length]) for n in LONG) > 1:
        length += 1
    return name[:length]


def _spell(rng: random.Random, name: str, value: str) -> tuple[str, ...]:
    """One way to write an option on a command line."""
    takes = LONG[name]
    letter = _LETTERS.get(name)
    if letter and rng.random() < 0.5:
        if takes == 0 or (takes == 2 and not value):
            return (f"-{letter}",)
        if takes == 1 and (not value or rng.random() < 0.5):
            return (f"-{letter}", value)
        return (f"-{letter}{value}",)
    long = "--" + _abbreviated(rng, name)
    if takes == 0 or (takes == 2 and not value):
        return (long,)
    if takes == 1 and rng.random() < 0.4:
        return (long, value)
    return (f"{long}={value}",)


def _quote(rng: random.Random, word: str) -> str:
    """One way to write a word in a directive."""
    if word and not re.search(r"[\s\"'\\#]", word) and rng.random() < 0.8:
        return word
    escaped = word.replace("\\", "\\\\")
    if "'" in word or rng.random() < 0.5:
        return '"' + escaped.replace('"', '\\"') + '"'
    return "'" + escaped + "'"


def _directives(rng: random.Random, options: list[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for name, value in options:
        words = " ".join(_quote(rng, word) for word in _spell(rng, name, value))
        if lines and lines[-1].startswith("#SBATCH") and rng.random() < 0.2:
            lines[-1] += " " + words
            continue
        noise = rng.random()
        if noise < 0.1:
            lines.append(rng.choice(["", "   ", "# comment", "  #SBATCH --nodes=9", "#"]))
        space = rng.choice([" ", " ", "  ", "\t", ""])
        tail = rng.choice(["", "", "", " # why", "\t", " #SBATCH -N7"])
        lines.append(f"#SBATCH{space}{words}{tail}")
    if rng.random() < 0.1:
        lines += ["true", "#SBATCH --nodes=7 --mem=9G"]
    return lines


FOREIGN = (
    "#PBS -A two", "#PBS -q node", "#PBS -l nodes=2:ppn=3", "#PBS -l nodes=a1+a2:ppn=2",
    "#PBS -l walltime=1:00:00,mem=4gb", "#PBS -lmem=100mb", "#PBS -t 1-4", "#PBS -J 0-3",
    "#PBS -l select=2:ncpus=4:mpiprocs=2", "#PBS -l ncpus=3", "#PBS -N name -j oe -V",
    "#PBS -l nodes=1:gpus=2", "#PBS -l naccelerators=2", "#PBS -l cput=10,pmem=3gb,vmem=9gb",
    "#PBS -v A=1,B=2", "#PBS -W umask=22", "#PBS -W depend=x", "#PBS -x", "#PBS --account two",
    "#PBS -l file=3gb,nice=3", "#PBS -m ae -M a@b", "#PBS", "#PBS -l accelerator=true",
    "#BSUB -n 2,4", "#BSUB -n 3", "#BSUB -M 100000 -q node", "#BSUB -W 1:30 -x", "#BSUB -J a",
    "#BSUB -m 'a1 a2'", "#BSUB -P x", "#BSUB -cwd /tmp", "#BSUB -M 7M", "#PBS -p 5 -r y",
)  # fmt: skip


def _foreign(rng: random.Random) -> list[str]:
    """Directives of other systems, which sbatch translates."""
    lines = list(rng.sample(FOREIGN, rng.choice([1, 1, 2, 3])))
    if rng.random() < 0.2:
        lines.insert(rng.randint(0, len(lines)), "true")
    return lines


def generate(rng: random.Random) -> Call:
    """One random call; most are valid."""
    names = list(OPTIONS)
    weights = [OPTIONS[name][0] for name in names]
    cli: list[tuple[str, ...]] = []
    env: dict[str, str] = {}
    script: list[tuple[str, str]] = []
    wrap = rng.random() < 0.2
    for name in rng.choices(names, weights, k=rng.choice([0, 1, 2, 3, 3, 4, 4, 5, 6, 8])):
        value = OPTIONS[name][1](rng)
        where = rng.random()
        if where < 0.25 and name in VARIABLES:
            flag = LONG[name] == 0
            env[VARIABLES[name]] = rng.choice(["", "yes", "1", "0", "no"]) if flag else value
        elif where < 0.55 and not wrap:
            script.append((name, value))
        else:
            cli.append(_spell(rng, name, value))
    if rng.random() < 0.1:
        env[rng.choice(DECOYS)] = "3"
    if wrap:
        cli.insert(rng.randint(0, len(cli)), ("--wrap", "sleep 1"))
    lines = _directives(rng, script)
    if rng.random() < 0.15 and not wrap:
        lines += _foreign(rng)
    return Call(tuple(cli), tuple(env.items()), tuple(lines), wrap)


class Bench:
    """Submits calls to a cluster and reads back what it made of them."""

    def __init__(self, cluster: Cluster, user: str = "alice") -> None:
        self.cluster = cluster
        self.user = user
        self.path = cluster.home(user) / "oracle"
        self.path.mkdir(mode=0o755, exist_ok=True)

    def submit(self, numbered: tuple[int, Call]) -> Found:
        """Submit one call, held."""
        number, call = numbered
        argv = ["sbatch", "--hold", *call.argv]
        if not call.wrap:
            script = self.path / f"{number}.sh"
            script.write_bytes(call.body)
            argv.append(str(script))
        done = self.cluster.run_as(self.user, argv, env=dict(call.env), check=False)
        if done.returncode < 0:
            raise RuntimeError(f"sbatch died of signal {-done.returncode}")
        found = re.search(r"^(?:Submitted batch job )?(\d+)$", done.stdout, re.MULTILINE)
        message = done.stderr.strip() or f"rc {done.returncode}"
        return Found(int(found[1]) if found else None, message)

    def ask(self, calls: list[Call]) -> list[Found]:
        """Submit all, read all back, cancel all."""
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(self.submit, enumerate(calls)))
        shown = self.cluster.run("scontrol", "-o", "show", "job").stdout
        jobs: dict[int, dict[str, str]] = {}
        for line in shown.splitlines():
            fields = dict(re.findall(r"(\S+?)=(.*?)(?= [A-Z][\w/:]*=|$)", line))
            if "JobId" in fields:
                jobs[int(fields["JobId"])] = fields
        rows = self.cluster.run("squeue", "-h", "-r", "-o", "%F").stdout.split()
        tasks = Counter(map(int, rows))
        for result in results:
            if result.job is not None:
                result.fields = jobs[result.job]
                result.tasks = tasks[result.job]
        self.cluster.run("scancel", "-u", self.user, check=False)
        return results


def compare(call: Call, found: Found, config: Config) -> tuple[str, str]:
    """("", "") when we agree; else ("doubt", why) or ("differs", in what)."""
    script = None if call.wrap else call.body
    request = read_request(["--hold", *call.argv, *([] if call.wrap else ["x.sh"])],
                           dict(call.env), script)  # fmt: skip
    partition_given = request.given("partition")
    name = partition_given.value if partition_given else "std"
    doubts = list(request.doubts)
    need = None
    if name in PARTITIONS:
        need = resolve(request, PARTITIONS[name], config)
        doubts += need.doubts
    else:
        doubts.append(f"no partition {name!r}")
    account = request.given("account")
    if account and account.value.lower() not in ("one", "two"):
        doubts.append(f"no account {account.value!r}")
    qos = request.given("qos")
    if qos and qos.value.lower() not in ("one", "two"):
        doubts.append(f"no QOS {qos.value!r}")
    if found.job is None:
        refusals = CLUSTER_REFUSALS + (("(gres) specification",) if "foo" in call.text() else ())
        if doubts or any(text in found.message for text in refusals):
            return "", ""
        return "differs", f"refused ({found.message!r}), and we have no doubt: {need}"
    if doubts:
        return "doubt", "; ".join(doubts)
    assert need is not None
    default = account.value.lower() if account else "one"
    ours = {
        "TRES": {k: v for k, v in need.tres.items() if v},
        "TimeLimit": need.time_limit,
        "tasks": request.array_tasks,
        "Partition": name,
        "Account": default,
        "QOS": qos.value.lower() if qos else default,
    }
    theirs = {
        "TRES": parse_tres(found.fields.get("ReqTRES") or found.fields["TRES"]),
        "TimeLimit": _minutes(found.fields["TimeLimit"]),
        "tasks": found.tasks,
        "Partition": found.fields["Partition"],
        "Account": found.fields["Account"],
        "QOS": found.fields["QOS"].lower(),  # later releases keep the spelling
    }
    differing = [f"{k}: ours {ours[k]}, Slurm's {theirs[k]}" for k in ours if ours[k] != theirs[k]]
    return ("differs", "; ".join(differing)) if differing else ("", "")


def _minutes(text: str) -> object:
    """Minutes of a time limit as scontrol prints it."""
    if text == "UNLIMITED":
        return None
    if text == "Partition_Limit":
        return "-"
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    assert seconds == 0
    return (int(days or 0) * 24 + hours) * 60 + minutes


def shrink(bench: Bench, call: Call, config: Config) -> Disagreement:
    """Drop whatever can be dropped with a disagreement left."""
    what = compare(call, bench.ask([call])[0], config)[1]
    progress = True
    while progress:
        progress = False
        smaller = [replace(call, cli=_without(call.cli, i)) for i in range(len(call.cli))]
        smaller += [replace(call, env=_without(call.env, i)) for i in range(len(call.env))]
        smaller += [replace(call, script=_without(call.script, i)) for i in range(len(call.script))]
        smaller = [one for one in smaller if not call.wrap or ("--wrap", "sleep 1") in one.cli]
        for one, found in zip(smaller, bench.ask(smaller) if smaller else []):
            kind, why = compare(one, found, config)
            if kind == "differs":
                call, what, progress = one, why, True
                break
    return Disagreement(call, what)


def _without(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return items[:index] + items[index + 1 :]


def config_of(cluster: Cluster, variant: str = "plain") -> Config:
    """What `spec(variant)` configures."""
    tracked = SPEC["slurm_conf"]["AccountingStorageTRES"]
    return Config(
        release=tuple(cluster.release),
        enforce=frozenset(("associations", "limits", "qos")),
        select=frozenset(("CR_CORE_MEMORY",)),
        tres=frozenset(("cpu", "mem", "node", "billing", *tracked)),
        cluster=cluster.spec.cluster,
    )._replace(**VARIANTS[variant][1])


def run(
    cluster: Cluster,
    seed: int,
    count: int,
    statistics: Optional[Counter[str]] = None,
    variant: str = "plain",
    shrinks: int = 12,
) -> list[Disagreement]:
    """Judge `count` random calls of `seed`; returns the disagreements, the first shrunk."""
    rng = random.Random(seed)
    bench, config = Bench(cluster), config_of(cluster, variant)
    counts: Counter[str] = Counter() if statistics is None else statistics
    wrong: list[Disagreement] = []
    for start in range(0, count, 250):
        calls = [generate(rng) for _ in range(min(250, count - start))]
        for call, found in zip(calls, bench.ask(calls)):
            kind, why = compare(call, found, config)
            counts["taken" if found.job is not None else "refused"] += 1
            if kind == "doubt":
                counts["taken, with a doubt of ours"] += 1
                counts[f"  {re.sub(r'[0-9]+', 'N', why.split(';')[0])[:70]}"] += 1
            elif kind == "differs":
                wrong.append(shrink(bench, call, config) if len(wrong) < shrinks else
                             Disagreement(call, why))  # fmt: skip
    return wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    options = parser.parse_args()
    statistics: Counter[str] = Counter()
    with Cluster.start(spec(options.variant)) as cluster:
        wrong = run(cluster, options.seed, options.count, statistics, options.variant)
    for name, number in statistics.most_common():
        print(f"{number:6} {name}")
    for one in wrong:
        print(one)
    print(f"{options.count} calls, seed {options.seed}: {len(wrong)} disagreements")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

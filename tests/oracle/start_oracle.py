#!/usr/bin/env python3
"""Random sbatch calls that run: what we say a job will hold is what it holds.

Jobs without doubts of ours are started on a cluster with room for all. A TRES that is not in
`Need.later` must be exactly `Need.at_start`; one that is in it must be at least that much.
Types of an untyped GPU request are left out (a typed limit does not see them). Known to fail:
CR_CPU_Memory with --ntasks-per-node beside --gpus and DefCpuPerGPU, by one CPU.

    start_oracle.py --seed 1 --count 200 [--select CR_Core]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from typing import Any, Optional

import request_oracle as oracle
from cluster import Cluster
from request_oracle import Bench, Call, Disagreement

from sbatch_router.core.request import Need
from sbatch_router.core.resolve import resolve
from sbatch_router.core.snapshot import Config, Partition
from sbatch_router.core.tres import parse_tres
from sbatch_router.slurm.request import read_request

NODES = [
    {"prefix": "a", "count": 4, "cpus": 512, "memory": 8000000},
    {"prefix": "g", "count": 2, "cpus": 512, "memory": 8000000, "gpus": {"a100": 60, "l4": 60}},
    {
        "prefix": "t", "count": 2, "cpus": 512, "memory": 8000000,
        "Boards": 1, "SocketsPerBoard": 2, "CoresPerSocket": 128, "ThreadsPerCore": 2,
    },
]  # fmt: skip
GPUS = {"gres/gpu": 120, "gres/gpu:a100": 60, "gres/gpu:l4": 60}
THREADS: dict[str, Optional[int]] = {"smt": 2, "all": None}
#: Options that only add time or refusals here.
LEFT_OUT = ("array", "account", "qos", "time", "time-min")


def partitions() -> dict[str, Partition]:
    """The request oracle's partitions, on these nodes."""
    return {
        name: one._replace(
            node_memory=8000000, node_cpus=512, threads_per_core=THREADS.get(name, 1),
            node_gres=GPUS if name == "gpu" else {}, tres=GPUS if name in ("gpu", "all") else {},
        )
        for name, one in oracle.PARTITIONS.items()
    }  # fmt: skip


def spec(select: str = "CR_Core_Memory") -> dict[str, Any]:
    """The cluster to run on."""
    conf = {**oracle.SPEC["slurm_conf"], "SelectTypeParameters": select}
    return {**oracle.SPEC, "nodes": NODES, "slurm_conf": conf}


def judge(need: Need, held: dict[str, int]) -> list[str]:
    """In what a running job's AllocTRES contradicts us."""
    wrong = []
    for name in sorted(set(need.at_start) | set(held)):
        ours, theirs = need.at_start.get(name, 0), held.get(name, 0)
        if ":" in name and name not in need.at_start:
            continue
        if theirs < ours or (theirs > ours and name not in need.later):
            wrong.append(f"{name}: ours {ours}, Slurm's {theirs}")
    return wrong


def _calls(rng: random.Random, config: Config, count: int) -> list[tuple[Call, Need]]:
    """Calls that we can judge."""
    found: list[tuple[Call, Need]] = []
    known = partitions()
    while len(found) < count:
        call = oracle.generate(rng)
        argv = [*call.argv, *([] if call.wrap else ["x.sh"])]
        request = read_request(argv, dict(call.env), None if call.wrap else call.body)
        given = request.given("partition")
        need = resolve(request, known[given.value if given else "std"], config)
        if not (request.doubts or need.doubts) and not set(LEFT_OUT) & set(request.options):
            found.append((call, need))
    return found


def _start(bench: Bench, call: Call, number: int) -> Optional[int]:
    argv = ["sbatch", *(word.replace("sleep 1", "sleep 500") for word in call.argv)]
    if not call.wrap:
        script = bench.path / f"{number}.sh"
        script.write_bytes(call.body.replace(b"sleep 1\n", b"sleep 500\n"))
        argv.append(str(script))
    done = bench.cluster.run_as(bench.user, argv, env=dict(call.env), check=False)
    found = re.search(r"^(?:Submitted batch job )?(\d+)$", done.stdout, re.MULTILINE)
    return int(found[1]) if found else None


def run(
    cluster: Cluster, seed: int, count: int, select: str = "CR_Core_Memory"
) -> tuple[int, list[Disagreement]]:
    """(jobs that ran, disagreements). Raises RuntimeError when hardly any job starts."""
    rng = random.Random(seed)
    bench = Bench(cluster)
    config = oracle.config_of(cluster)._replace(select=frozenset((select.upper(),)))
    wrong: list[Disagreement] = []
    ran = rounds = 0
    while ran < count:
        rounds += 1
        if rounds > 2 + count // 10:  # a round is of forty jobs
            queue = cluster.run("squeue", "-a", "-o", "%i %T %r %b").stdout
            raise RuntimeError(f"only {ran} of {count} jobs ran in {rounds - 1} rounds:\n{queue}")
        jobs = {}
        for number, (call, need) in enumerate(_calls(rng, config, 40)):
            job = _start(bench, call, number)
            if job is not None:
                jobs[job] = (call, need)
        began = moved = time.monotonic()
        waiting = dict(jobs)
        while waiting and ran < count and time.monotonic() - moved < 8:
            time.sleep(1)
            for line in cluster.run("scontrol", "-o", "show", "job").stdout.splitlines():
                fields = dict(re.findall(r"(\S+?)=(.*?)(?= [A-Z][\w/:]*=|$)", line))
                job = int(fields["JobId"])
                if job not in waiting or fields["JobState"] != "RUNNING":
                    continue
                call, need = waiting.pop(job)
                moved = time.monotonic()
                ran += 1
                held = parse_tres(fields.get("AllocTRES") or fields["TRES"])
                problems = judge(need, held)
                if problems:
                    wrong.append(Disagreement(call, "; ".join(problems)))
            if time.monotonic() - began > 4:  # make room for exclusive jobs
                done = [str(job) for job in jobs if job not in waiting]
                cluster.run("scancel", *done, check=False)
        cluster.run("scancel", "-u", bench.user, check=False)
        time.sleep(1.5)
    return ran, wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--select", default="CR_Core_Memory")
    options = parser.parse_args()
    with Cluster.start(spec(options.select)) as cluster:
        ran, wrong = run(cluster, options.seed, options.count, options.select)
    for one in wrong:
        print(one)
    print(f"{ran} jobs ran, seed {options.seed}: {len(wrong)} disagreements")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

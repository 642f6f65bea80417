"""What sbatch's options come to on a partition. Every number was seen on a real slurmctld."""

from __future__ import annotations

import pytest

from sbatch_router.core.request import Need
from sbatch_router.core.resolve import resolve
from sbatch_router.core.snapshot import Config, Partition
from sbatch_router.core.units import (
    count_array,
    count_hosts,
    parse_licenses,
    parse_memory,
    parse_nodes,
    parse_time,
)
from sbatch_router.slurm.request import read_request

STD = Partition(
    "std", def_mem_per_cpu=2000, default_time=60, max_time=10080, total_nodes=4,
    node_memory=262144, node_cpus=64, threads_per_core=1,
)  # fmt: skip
GPU = Partition(
    "gpu", def_cpu_per_gpu=4, def_mem_per_gpu=16000, total_nodes=2, node_memory=524288,
    node_cpus=64, threads_per_core=1, node_gres={"gres/gpu": 8}, tres={"gres/gpu": 16},
    billing_weights={"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 2.5},
)  # fmt: skip
SMT = Partition(
    "smt", def_mem_per_cpu=1000, max_mem_per_cpu=3000, total_nodes=2, node_memory=131072,
    node_cpus=64, threads_per_core=2,
)  # fmt: skip
SELECT = frozenset(("CR_CORE_MEMORY",))
OLD = Config((22, 5, 8), frozenset(), select=SELECT)
NEW = Config((24, 11, 5), frozenset(), select=SELECT)
NEWEST = Config((26, 5, 3), frozenset(), select=SELECT)


def need(line: str, partition: Partition = STD, config: Config = OLD) -> Need:
    return resolve(read_request(["--wrap", "x", *line.split()], {}, None), partition, config)


def tres(line: str, partition: Partition = STD, config: Config = OLD) -> dict[str, int]:
    found = need(line, partition, config)
    assert found.doubts == ()
    return {name: amount for name, amount in found.tres.items() if name != "billing"}


@pytest.mark.parametrize(
    ("line", "cpu", "mem", "node"),
    [
        ("", 1, 2000, 1),
        ("-N2", 2, 4000, 2),
        ("-N 2-4 -c2", 2, 4000, 2),
        ("-n4 -c2", 8, 16000, 1),
        ("-N2 --ntasks-per-node=3 -c2", 12, 24000, 2),
        ("--ntasks-per-node=4", 4, 8000, 1),
        ("-N3 -n2", 2, 4000, 2),  # no more nodes than tasks
        ("-N2 --threads-per-core=2", 4, 8000, 2),
        ("-B 2:4", 8, 16000, 1),
        ("--sockets-per-node=2", 1, 2000, 1),
        ("-N1 --sockets-per-node=2", 2, 4000, 1),
        ("-n8 -O", 1, 2000, 1),
        ("-n8 -N2 -O", 2, 4000, 2),
        ("--mincpus=8", 1, 2000, 1),
        ("-w a[1-3]", 3, 6000, 3),
        ("-N2 --mem=10G", 2, 20480, 2),
        ("-n4 --mem-per-cpu=512K", 4, 4, 1),
        ("--mem=0", 1, 262144, 1),
        ("-N2 --mem=0G", 2, 524288, 2),
        ("--mem-per-cpu=0", 1, 262144, 1),
        ("-N2 --hint=nomultithread", 2, 4000, 2),
        ("-N2 --hint=memory_bound --cores-per-socket=4", 2, 4000, 2),
    ],
)
def test_cpus_memory_nodes(line: str, cpu: int, mem: int, node: int) -> None:
    assert tres(line) == {"cpu": cpu, "mem": mem, "node": node}


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--gres=gpu", {"gres/gpu": 1}),
        ("--gres=gpu:2 -N3", {"gres/gpu": 6}),
        ("--gres=gpu:a100:2", {"gres/gpu": 2, "gres/gpu:a100": 2}),
        ("--gres=gpu:a100:1,gpu:l4:2", {"gres/gpu": 3, "gres/gpu:a100": 1, "gres/gpu:l4": 2}),
        ("--gres=none", {}),
        ("--gres=gpu:0", {}),
        ("-G3", {"gres/gpu": 3}),
        ("--gpus=a100", {"gres/gpu": 1, "gres/gpu:a100": 1}),
        ("--gpus-per-node=2 -N2", {"gres/gpu": 4}),
        ("--gpus-per-task=2 -n3", {"gres/gpu": 6}),
        ("--gpus-per-socket=1 --sockets-per-node=2 -N2", {"gres/gpu": 4}),
        ("--ntasks-per-gpu=2 -n4", {"gres/gpu": 2}),
        ("--gres=gpu:2 --gpus-per-node=3", {"gres/gpu": 3}),
    ],
)
def test_gpus(line: str, gpus: dict[str, int]) -> None:
    found = tres(line)
    assert {name: n for name, n in found.items() if name.startswith("gres/")} == gpus


@pytest.mark.parametrize(
    "line",
    [
        "--gres=gpu:", "--gres=gpu::1", "--gres=gpu:2,", "--gres=gpu:1,gpu:a100:1",
        "--gpus-per-task=1", "--gpus-per-socket=1", "-G1 -N2", "-G3 --gpus-per-node=2",
        "--mem-per-gpu=1G", "--cpus-per-gpu=2 -G1 -c2", "--ntasks-per-gpu=1 --ntasks-per-node=2",
        "--mem=1.5G", "-N2x", "-n0", "-c-1", "-t1h", "--time-min=2-0", "-N0", "--array=1001",
        "--exclusive=x", "--hint=x", "-Llic:x", "-m x", "--gres-flags=x", "--reboot",
        "-m plane=2 -n2 -N2", "--core-spec=1", "-w n{1,2}",
    ],
)  # fmt: skip
def test_what_slurm_refuses_or_we_cannot_judge_is_a_doubt(line: str) -> None:
    found = need(line)
    assert found.doubts
    assert found.tres == {}


def test_defaults_of_memory() -> None:
    node = STD._replace(def_mem_per_cpu=None, def_mem_per_node=30000)
    none = STD._replace(def_mem_per_cpu=None)
    assert tres("-N2 -n4", node)["mem"] == 60000
    assert tres("-n4", none, OLD._replace(def_mem_per_cpu=100))["mem"] == 400
    assert tres("-N2", none)["mem"] == 2 * 262144
    assert need("", none._replace(node_memory=None)).doubts
    single = none._replace(node_memory=None, total_nodes=1, tres={"mem": 777})
    assert tres("", single)["mem"] == 777


def test_memory_per_gpu() -> None:
    assert tres("--mem-per-gpu=2G -G3", GPU)["mem"] == 6144
    assert tres("--mem-per-gpu=1G --gpus-per-node=2 -N2", GPU)["mem"] == 4096
    assert tres("-G2", GPU)["mem"] == 524288  # DefMemPerGPU comes only when the job starts
    assert tres("-G2", GPU, NEWEST)["mem"] == 32000  # since 25.05 at once


def test_billing() -> None:
    assert need("-n4 -G2 --mem=8G", GPU).tres["billing"] == 11
    assert need("-n3").tres["billing"] == 3
    most = OLD._replace(priority_flags=frozenset(("MAX_TRES",)))
    assert need("-n4 -G2 --mem=8G", GPU, most).tres["billing"] == 5


def test_licenses_and_what_is_tracked() -> None:
    tracked = OLD._replace(tres=frozenset(("cpu", "license/lic")))
    assert tres("-Llic:1,lic:2,other", STD, tracked) == {"cpu": 1, "license/lic": 3}


def test_partition_with_min_nodes() -> None:
    pair = STD._replace(min_nodes=2)
    assert tres("", pair) == {"cpu": 1, "mem": 2000, "node": 2}
    assert tres("-N1", pair)["node"] == 1


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ("-n2 --ntasks-per-node=1", {"cpu": 2, "node": 1}, {"cpu": 2, "node": 2}),
        ("--cpus-per-gpu=4 -G2", {"cpu": 1, "node": 1}, {"cpu": 8, "node": 1}),
        ("-N 1-3 -w a[1-2]", {"cpu": 2, "node": 2}, {"cpu": 1, "node": 1}),
    ],
)
def test_releases_count_differently(line: str, old: dict[str, int], new: dict[str, int]) -> None:
    for config, expected in ((OLD, old), (NEW, new)):
        found = tres(line, STD, config)
        assert {name: found[name] for name in expected} == expected


def test_tres_per_task() -> None:
    assert need("--tres-per-task=cpu=2 -n2", STD, OLD).doubts
    assert tres("--tres-per-task=cpu=2,gres/gpu=1 -n2", GPU, NEW)["gres/gpu"] == 2


@pytest.mark.parametrize(
    ("line", "partition", "held", "later"),
    [
        ("", STD, {"cpu": 1, "mem": 2000, "node": 1}, set()),
        ("-c2 -N 2-4", STD, {"cpu": 4, "mem": 8000, "node": 2}, {"cpu", "mem", "node"}),
        ("--mincpus=8", STD, {"cpu": 8, "mem": 16000}, set()),
        ("--mincpus=5 -G2 --ntasks-per-gpu=1", STD, {"cpu": 2}, {"cpu", "mem", "node"}),
        ("--exclusive", STD, {"cpu": 64, "mem": 128000}, {"cpu", "mem"}),
        ("-n70", STD, {"cpu": 70, "node": 2}, {"node", "cpu", "mem"}),
        ("-G2", GPU, {"cpu": 8, "mem": 32000, "gres/gpu": 2}, set()),
        ("-G2 -c3", GPU, {"cpu": 3, "mem": 32000, "gres/gpu": 2}, set()),
        ("-n4 --ntasks-per-node=2 -G2", GPU, {"cpu": 4}, {"cpu", "node"}),
        ("-n4 --ntasks-per-node=4 -G2", GPU, {"cpu": 8}, {"cpu", "node"}),
        ("--exclusive -G1", GPU, {"cpu": 64, "mem": 128000, "gres/gpu": 8},
         {"cpu", "gres/gpu", "mem"}),
        ("-n1 --sockets-per-node=2 --gpus-per-socket=1", GPU, {"cpu": 4, "gres/gpu": 1},
         {"cpu", "gres/gpu", "mem"}),
        ("-n2 --gpus-per-task=1 --mincpus=4", STD, {"gres/gpu": 2},
         {"cpu", "gres/gpu", "mem", "node"}),
        ("-n2 --gpus-per-task=1", STD, {"gres/gpu": 2}, {"cpu", "mem", "node"}),
        ("", SMT, {"cpu": 2, "mem": 2000}, {"mem"}),
        ("-n1 -c3", SMT, {"cpu": 4, "mem": 4000}, {"mem"}),
        ("--mem-per-cpu=7000", SMT, {"cpu": 4, "mem": 9336}, {"mem"}),
    ],
)  # fmt: skip
def test_what_a_job_holds_once_it_runs(
    line: str, partition: Partition, held: dict[str, int], later: set[str]
) -> None:
    found = need(line, partition)
    assert {name: found.at_start[name] for name in held} == held
    assert set(found.later) - {"billing"} == later


def test_memory_that_is_no_consumable_resource_is_not_held() -> None:
    assert need("--mem=1G", STD, OLD._replace(select=frozenset(("CR_CORE",)))).at_start["mem"] == 0


def test_cpus_are_not_rounded_where_threads_are_given_out() -> None:
    single = OLD._replace(select=frozenset(("CR_CPU_MEMORY",)))
    assert need("-c3", SMT, single).at_start["cpu"] == 3


@pytest.mark.parametrize(
    ("line", "minutes", "given"),
    [("", 60, False), ("-t0", None, True), ("-t 1:30", 2, True), ("-t 1-2", 1560, True)],
)
def test_time_limit(line: str, minutes: object, given: bool) -> None:
    found = need(line)
    assert (found.time_limit, found.time_given) == (minutes, given)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512K", 1), ("1500K", 2), ("2GB", 2048), ("2gb", 2048), ("2G", 2048), ("1tb", 1048576),
        ("7", 7), ("0", 0), ("+5", 5), (" 7", 7), ("3m", 3), ("0K", 0),
    ],
)  # fmt: skip
def test_memory(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


@pytest.mark.parametrize(
    "text",
    ["1.5G", "1.0G", "2GiB", "1500B", "2 G", "", "x", "-1", "10P", "2Gx", "99999999999999999999"],
)  # fmt: skip
def test_bad_memory(text: str) -> None:
    with pytest.raises(ValueError, match="memory"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1", 1), ("90", 90), ("0:30", 1), ("1:30", 2), ("1:00:00", 60), ("00:00:01", 1),
        ("2-0", 2880), ("1-", 1440), ("1-12", 2160), ("1-2:30", 1590), ("1-00:00:01", 1441),
        ("0", None), ("-1", None), ("UNLIMITED", None), ("infinite", None), ("0-0:5", 5),
    ],
)  # fmt: skip
def test_time(text: str, minutes: object) -> None:
    assert parse_time(text) == minutes


@pytest.mark.parametrize(
    "text", ["", "x", "1h", "1:2:3:4", "1-2-3", " 5", "1-:3", ":5", "5:", "-5", "1--2", "9" * 12]
)
def test_bad_time(text: str) -> None:
    with pytest.raises(ValueError, match="--time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "tasks", "at_once", "largest"),
    [
        ("0", 1, None, 0), ("1-5", 5, None, 5), ("0-15:4", 4, None, 12), ("0-15:4%2", 4, 2, 12),
        ("1-3,2-6", 6, None, 6), ("2,2,2", 1, None, 2), ("0-10:3,7%1", 5, 1, 9),
        ("[1-3]", 3, None, 3), ("0-4000000", 4000001, None, 4000000), ("1-3%0", 3, None, 3),
    ],
)  # fmt: skip
def test_array(text: str, tasks: int, at_once: object, largest: int) -> None:
    assert count_array(text) == (tasks, at_once, largest)


@pytest.mark.parametrize("text", ["x", "5-1", "1-", "-1", "1-3:0", "1 -3", "1-3:x", ",", "4000001"])
def test_bad_array(text: str) -> None:
    with pytest.raises(ValueError, match="--array"):
        count_array(text)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("2", (2, 2)), ("2-4", (2, 4)), ("1k", (1024, 1024)), ("-3", (1, 3)), (" 2 ", (2, 2))],
)
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


def test_hosts_and_licenses() -> None:
    assert count_hosts("a[1-3],b,a2") == 4
    assert count_hosts("a[01-03,7]") == 4
    assert parse_licenses("a:2;b,a") == {"a": 3, "b": 1}
    for text in ("a/b", "a[1-2]b[1-2]", "a[x]"):
        with pytest.raises(ValueError, match="--nodelist"):
            count_hosts(text)

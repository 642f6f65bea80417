"""Reading Slurm's text: three releases' recordings, odd values, broken answers, fuzz."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from convert import oneline

from sbatch_router.core.snapshot import Assoc, Job, Scope
from sbatch_router.core.tres import UNKNOWN, Limit
from sbatch_router.slurm.text import ParseError, parse_jobs, parse_minutes, parse_table
from sbatch_router.slurm.text_assoc import parse_assoc_mgr
from sbatch_router.slurm.text_site import (
    Node,
    effective_default_qos,
    first_node,
    parse_assoc_table,
    parse_config,
    parse_default_account,
    parse_nodes,
    parse_partitions,
    parse_qos_table,
)

DATA = Path(__file__).resolve().parent.parent / "data" / "slurm-output"
RELEASES = ["22.05", "24.11", "26.05"]
UID = {"22.05": 1001, "24.11": 1000, "26.05": 1000}
HEADER = "JOBID|STATE|TIME_LIMIT|TRES_ALLOC|ACCOUNT|QOS|PARTITION|REASON\n"


def recorded(release: str) -> str:
    """The whole association manager of a release, as ``scontrol -o`` prints it."""
    return oneline((DATA / release / "assoc_mgr.alice.txt").read_text())


def read(text: str, release: str = "22.05", **options):
    return parse_assoc_mgr(text.encode(), "alice", UID[release], **options)


def limits(scope: Scope, kind: str) -> dict[str, int]:
    return {
        name: limit.limit for name, limit in scope.tres[kind].items() if limit.limit is not None
    }


# -- the association manager ------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_pools(release):
    answer = read(recorded(release), release)
    assert {name: limits(qos.limits, "GrpTRES") for name, qos in answer.qos.items()} == {
        "normal": {},
        "partq": {"gres/gpu": 24},
        "clive": {"cpu": 80, "mem": 320000, "gres/gpu": 1},
        "maigan": {"cpu": 160, "mem": 640000, "gres/gpu": 4, "gres/gpu:a100": 2},
        "maigan-b": {"cpu": 1440, "mem": 5760000},
        **({} if release == "22.05" else {"brusko": {"cpu": 80, "mem": 320000, "gres/gpu": 2}}),
    }
    maigan = answer.qos["maigan"]
    # B26: a typed GPU is in both rows, and each row is what it says.
    assert maigan.limits.tres["GrpTRES"]["gres/gpu"] == Limit(4, 2)
    assert maigan.limits.tres["GrpTRES"]["gres/gpu:a100"] == Limit(2, 2)
    assert maigan.limits.tres["GrpTRES"]["mem"] == Limit(640000, 180000)
    assert maigan.limits.counts["GrpJobs"] == Limit(None, 7)
    assert maigan.limits.counts["MaxWallPJ"] == Limit(None, None)
    assert answer.qos["maigan-b"].limits.counts["MaxWallPJ"] == Limit(5760, None)
    assert maigan.priority == 0
    assert set(maigan.users) == {"alice"}
    assert maigan.users["alice"].tres["MaxTRESPU"]["cpu"] == Limit(None, 13)
    assert maigan.users["alice"].counts["MaxSubmitJobsPU"] == Limit(None, 6)
    assert maigan.accounts["maigan"].tres["MaxTRESPA"]["mem"] == Limit(None, 180000)
    # 22.05 does not print (nor enforce) run minutes per user: absent is unknown.
    assert ("MaxTRESRunMinsPU" in maigan.users["alice"].tres) == (release != "22.05")
    assert answer.default_account == "clive"


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_associations(release):
    answer = read(recorded(release), release, accounts=["maigan"])
    assert set(answer.assocs) == {
        ("maigan", "", ""),
        ("maigan", "alice", ""),
        ("dept", "", ""),
        ("root", "", ""),
    }
    assert [answer.assocs[name, "", ""].parent for name in ("maigan", "dept", "root")] == [
        "dept",
        "root",
        "",
    ]
    mine = answer.assocs["maigan", "alice", ""]
    assert mine.parent == "maigan"
    assert mine.limits.tres["GrpTRES"]["cpu"] == Limit(None, 13)
    assert mine.limits.counts["GrpSubmitJobs"] == Limit(None, 6)
    assert answer.assocs["dept", "", ""].limits.tres["GrpTRES"]["cpu"].limit == 200
    assert answer.assocs["maigan", "", ""].limits.counts["GrpJobs"] == Limit(50, 8)
    # B31: association values do not overwrite QOS values of the same name.
    assert answer.qos["maigan"].limits.counts["GrpJobs"].limit is None
    assert set(answer.qos["maigan"].accounts) == {"maigan"}
    assert answer.qos["clive"].accounts == {}
    assert mine.qos is UNKNOWN
    assert mine.default_qos is UNKNOWN


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_limits_per_user(release):
    if release == "22.05":
        return
    answer = read(recorded(release), release)
    brusko = answer.qos["brusko"]
    assert brusko.users["alice"].tres["MaxTRESPU"]["cpu"] == Limit(40, 30)
    assert brusko.users["alice"].counts["MaxJobsPU"] == Limit(3, 1)
    assert brusko.limits.tres["MaxTRESPJ"] == {"cpu": Limit(32, None)}
    # One without a row of his own has the same limits, and has used nothing.
    other = parse_assoc_mgr(recorded(release).encode(), "dave", 4242).qos["brusko"]
    assert other.users == {}
    assert other.defaults.tres["MaxTRESPU"] == {"cpu": Limit(40, 0)}
    assert other.defaults.counts["MaxSubmitJobsPU"] == Limit(10, 0)
    assert other.defaults.counts["MaxJobsPA"] == Limit(None, 0)
    mine = answer.assocs["brusko", "alice", ""].limits
    assert (mine.counts["MaxJobs"], mine.counts["MaxSubmitJobs"]) == (Limit(2, 1), Limit(5, 2))
    assert mine.tres["GrpTRES"]["cpu"] == Limit(24, 30)


@pytest.mark.parametrize("release", RELEASES)
def test_everyone(release):
    answer = read(recorded(release), release, everyone=True)
    users = set(answer.qos["maigan"].users)
    assert users == ({"alice", "1003"} if release == "22.05" else {"alice", "carol"})
    assert ("clive", "bob", "") in answer.assocs
    assert ("root", "root", "") in answer.assocs
    assert ("clive", "alice", "") in answer.assocs


def test_releases_agree():
    assert read(recorded("24.11"), "24.11") == read(recorded("26.05"), "26.05")


QOS = (
    "QOS=Clive(3) UsageRaw=0.000000 GrpJobs=5(1) GrpJobsAccrue=N(1) GrpSubmitJobs=N(2) "
    "GrpWall=100(3.50) GrpTRES=cpu=N(12),mem=0(0),node=4(N) GrpTRESMins= "
    "GrpTRESRunMins=cpu=N(1),mem=N(2) MaxWallPJ= MaxTRESPJ=cpu=8 MaxTRESPN= MaxTRESMinsPJ= "
    "MinPrioThresh=  MinTRESPJ= PreemptMode=OFF Priority=7 Account Limits=No Accounts "
    "User Limits=No Users\n"
)
ASSOC = (
    "ClusterName=c Account=Clive UserName= Partition= Priority=0 ID=4 ParentAccount=root(1) "
    "Lft=1 DefAssoc=No GrpJobs=N(1) GrpTRES=cpu=3(4) MaxJobs= MinPrioThresh=\n"
)
MINE = ASSOC.replace("UserName=", "UserName=alice(1001)").replace("root(1)", "")
ROOT = ASSOC.replace("Clive", "root").replace("root(1)", "")


def answer_of(assocs: str, qos: str = QOS, users: str = "") -> str:
    return (
        f"Current Association Manager state\n{users}Association Records\n{assocs}QOS Records\n{qos}"
    )


def test_none_zero_and_unknown():
    """B31: ``N`` is no limit, 0 is a limit, and use that is not told is unknown."""
    qos = read(answer_of(ASSOC)).qos["clive"]
    assert qos.limits.tres == {
        "GrpTRES": {"cpu": Limit(None, 12), "mem": Limit(0, 0), "node": Limit(4, UNKNOWN)},
        "GrpTRESMins": {},
        "GrpTRESRunMins": {},
        "MaxTRESPJ": {"cpu": Limit(8, None)},
        "MaxTRESPN": {},
        "MaxTRESMinsPJ": {},
        "MinTRESPJ": {},
    }
    assert qos.limits.counts == {
        "GrpJobs": Limit(5, 1),
        "GrpSubmitJobs": Limit(None, 2),
        "GrpWall": Limit(100, 3),
        "MaxWallPJ": Limit(None, None),
        "MinPrioThresh": Limit(None, None),
    }
    assert qos.priority == 7
    assert qos.users == qos.accounts == {}
    assert qos.defaults is UNKNOWN


def test_a_field_that_is_missing_is_unknown():
    """B29: not zero, not "no limit"."""
    text = answer_of(ASSOC, QOS.replace("GrpTRESMins= ", "").replace("GrpJobs=5(1) ", ""))
    qos = read(text).qos["clive"]
    assert "GrpTRESMins" not in qos.limits.tres
    assert "GrpJobs" not in qos.limits.counts
    assert qos.limits.tres["GrpTRES"]["mem"] == Limit(0, 0)


def test_unknown_fields_and_free_text():
    """B29: a later release's fields, a comment with blanks, ``=``, line ends and any bytes."""
    comment = " NewThing=7 Comment=GrpTRES=cpu=1(1) a = b\nGrpJobs=9(9) Account=evil\n"
    assoc = MINE.replace("\n", comment)
    qos = QOS.replace("PreemptMode=OFF", "PreemptMode=OFF Shiny=cpu=1(1) Description=x")
    data = answer_of(ROOT + ASSOC + assoc, qos).encode().replace(b"NewThing=7", b"New=\xff\xfe")
    answer = parse_assoc_mgr(data, "alice", 1001)
    assert answer.assocs["clive", "alice", ""].limits.tres["GrpTRES"] == {"cpu": Limit(3, 4)}
    assert answer.assocs["clive", "alice", ""].limits.counts["GrpJobs"] == Limit(None, 1)
    assert set(answer.assocs) == {("clive", "", ""), ("clive", "alice", ""), ("root", "", "")}
    assert answer.qos == read(answer_of(ASSOC)).qos


def test_names():
    """Case does not count; a name may hold brackets and blanks; a uid may be the only proof."""
    other = MINE.replace("alice(1001)", "bob(1001)").replace("Partition=", "Partition=GPU")
    blank = ASSOC.replace("Clive", "Clive B")
    answer = read(answer_of(ROOT + ASSOC + blank + MINE + other, QOS.replace("Clive", "A(b)")))
    assert set(answer.assocs) == {
        ("root", "", ""),
        ("clive", "", ""),
        ("clive b", "", ""),
        ("clive", "alice", ""),
        ("clive", "alice", "gpu"),
    }
    assert set(answer.qos) == {"a(b)"}


def test_another_user_whose_name_or_number_looks_like_mine():
    lines = "".join(
        MINE.replace("alice(1001)", name)
        for name in ("alice2(2001)", "malice(3001)", "bob(11001)", "bob(100)")
    )
    assert set(read(answer_of(ROOT + ASSOC + lines)).assocs) == {
        ("root", "", ""),
        ("clive", "", ""),
    }
    rows = "".join(
        f" {who}={{MaxJobsPU=1(9) MaxTRESPU=cpu=1(9)}}"
        for who in ("11001", "10010", "malice(2001)", "alice2(3001)")
    )
    qos = read(answer_of(ASSOC, QOS.replace("No Users", rows))).qos["clive"]
    assert qos.users == {}
    assert qos.defaults.counts == {"MaxJobsPU": Limit(1, 0)}


@pytest.mark.parametrize("who", ["1001", "alice(1001)", "ALIAS(1001)"])
def test_my_row(who):
    rows = f" 7={{MaxJobsPU=2(9)}} {who}={{MaxJobsPU=2(1) MaxTRESPU=cpu=4(3)}} 8={{MaxJobsPU=2(9)}}"
    qos = read(answer_of(ASSOC, QOS.replace("No Users", rows))).qos["clive"]
    assert qos.users == {
        "alice": Scope({"MaxTRESPU": {"cpu": Limit(4, 3)}}, {"MaxJobsPU": Limit(2, 1)})
    }


def test_a_large_uid_is_printed_signed():
    uid = 2**32 - 10
    qos = QOS.replace("No Users", " x(-10)={MaxJobsPU=2(1)}")
    mine = MINE.replace("alice(1001)", f"x({uid})")
    answer = parse_assoc_mgr(answer_of(ASSOC + mine, qos).encode(), "alice", uid)
    assert answer.qos["clive"].users["alice"].counts == {"MaxJobsPU": Limit(2, 1)}
    assert ("clive", "alice", "") in answer.assocs


def test_an_account_called_as_a_section():
    odd = ASSOC.replace("Clive", "QOS Records")
    assert ("qos records", "", "") in read(answer_of(ROOT + odd)).assocs


def test_empty_sections():
    none = "No associations currently cached in Slurm.\nNo QOS currently cached in Slurm.\n"
    answer = read("Current Association Manager state\n" + none)
    assert (answer.assocs, answer.qos, answer.default_account) == ({}, {}, UNKNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Current Association Manager state\n",
        "Current Association Manager state\nAssociation Records\n" + ASSOC,
        answer_of(ASSOC)[:-1],
        answer_of(ASSOC).replace(" User Limits=", " "),
        answer_of(ASSOC).replace("No Users", " 1001={MaxJobsPU=1(1)"),
        answer_of(ASSOC).replace("No Accounts", " x={MaxJobsPA=1(1)"),
        answer_of(ASSOC).replace("GrpTRES=cpu=N(12),mem=0(0)", "GrpTRES=mem=4Z"),
        answer_of(ASSOC.replace(" Partition=", " ")),
        answer_of(ASSOC.replace(" ParentAccount=root(1)", "")),
        "slurm_load_assoc_mgr_info error: Socket timed out\n",
    ],
)
def test_broken_answers(text):
    with pytest.raises(ParseError):
        read(text)


@pytest.mark.parametrize("release", RELEASES)
def test_every_cut_is_seen(release):
    """B66: of an answer that was cut off nothing is used, wherever the cut is."""
    whole = recorded(release).encode()
    expected = read(recorded(release), release)
    for end in range(0, len(whole) - 1, 7):
        try:
            answer = parse_assoc_mgr(whole[:end], "alice", UID[release])
        except ParseError:
            continue
        # Only between two QOS: then the missing ones are missing, not empty.
        assert whole[:end].endswith(b"\n")
        assert answer.assocs == expected.assocs
        assert set(answer.qos) < set(expected.qos)
        assert all(expected.qos[name] == qos for name, qos in answer.qos.items())


# -- my jobs ----------------------------------------------------------------------------------


def test_jobs():
    rows = (
        "7|RUNNING|365-00:00:00|cpu=4,mem=250G,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2"
        "|Lab-A|Q|Main|None\n"
        "3_[5-9,12%2]|PENDING|1:00:00|cpu=1,mem=1000M,node=1|lab-a|q|a,B|(a | b)\n"
        "9+1|PENDING|NOT_SET|N/A|lab-a|q|main|Resources\n"
        "10_4|SUSPENDED|UNLIMITED|cpu=1|lab-a|q|main|None\n"
    )
    assert parse_jobs((HEADER + rows).encode()) == (
        Job(
            "7",
            "lab-a",
            "q",
            "main",
            "RUNNING",
            "None",
            # B26: two GPUs, however often they are listed.
            {"cpu": 4, "mem": 256000, "node": 1, "billing": 4, "gres/gpu": 2, "gres/gpu:a100": 2},
            time_limit=525600,
        ),
        Job(
            "3_[5-9,12%2]",
            "lab-a",
            "q",
            "a,b",
            "PENDING",
            "(a | b)",
            {"cpu": 1, "mem": 1000, "node": 1},
            tasks=6,
            tasks_at_once=2,
            time_limit=60,
        ),
        Job("9+1", "lab-a", "q", "main", "PENDING", "Resources", {}),
        Job("10_4", "lab-a", "q", "main", "SUSPENDED", "None", {"cpu": 1}, time_limit=None),
    )


@pytest.mark.parametrize(
    ("ident", "tasks", "at_once"),
    [
        ("5", 1, None),
        ("5_3", 1, None),
        ("5+1", 1, None),
        ("5_[3]", 1, None),
        ("5_[0-9]", 10, None),
        ("5_[0-9%2]", 10, 2),
        ("5_[1,3-5,9]", 5, None),
        ("5_[0-30:2%4]", 16, 4),
        ("5_[0-29:2]", 15, None),
        ("5_[0-4000000]", 4000001, None),
    ],
)
def test_tasks_of_a_row(ident, tasks, at_once):
    """B64."""
    [job] = parse_jobs(f"{HEADER}{ident}|PENDING|1:00|cpu=1|a|q|p|None\n".encode())
    assert (job.id, job.tasks, job.tasks_at_once) == (ident, tasks, at_once)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7|PENDING|1:00|cpu=1|a|q|p|None\n",
        HEADER[:-1],
        HEADER + "7|PENDING|1:00|cpu=1|a|q|p|None",
        HEADER + "7|PENDING|1:00|cpu=1|a|q|p\n",
        HEADER + "7|PENDING|1:00|cpu|a|q|p|None\n",
        HEADER + "slurm_load_jobs error: Unable to contact slurm controller\n",
        HEADER + "5_[0-9|PENDING|1:00|cpu=1|a|q|p|None\n",
        HEADER + "5_[1,3,5,...]|PENDING|1:00|cpu=1|a|q|p|None\n",
        HEADER + "5_[0-9%]|PENDING|1:00|cpu=1|a|q|p|None\n",
        HEADER + "5_[9-0]|PENDING|1:00|cpu=1|a|q|p|None\n",
        HEADER + "||||||||\n",
    ],
)
def test_broken_jobs(text):
    with pytest.raises(ParseError):
        parse_jobs(text.encode())


def test_no_jobs():
    assert parse_jobs(HEADER.encode()) == ()
    assert parse_jobs(b"Welcome to the cluster\n" + HEADER.encode()) == ()


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1:00:00", 60),
        ("10:00", 10),
        ("0:30", 1),
        ("1:01", 2),
        ("1-00:00:00", 1440),
        ("7-12:30:00", 10830),
        ("365-00:00:00", 525600),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("NONE", None),
        ("", None),
        ("NOT_SET", UNKNOWN),
        ("INVALID", UNKNOWN),
        ("-1:00", UNKNOWN),
        ("1:2:3:4", UNKNOWN),
        ("60", UNKNOWN),
        ("x-1:00:00", UNKNOWN),
    ],
)
def test_minutes(text, minutes):
    assert parse_minutes(text) is minutes if minutes is UNKNOWN else parse_minutes(text) == minutes


# -- configuration and partitions -------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_config(release):
    config = parse_config((DATA / release / "config.txt").read_bytes())
    assert (
        config.release
        == {
            "22.05": (22, 5, 8),
            "24.11": (24, 11, 5),
            "26.05": (26, 5, 5),
        }[release]
    )
    assert config.enforce == {"associations", "limits", "qos"}
    assert config.enforce_part_limits == "NO"
    assert config.select == {"CR_CORE_MEMORY"}
    assert config.priority_flags == frozenset()
    assert config.max_array_size == 1001
    assert config.cluster == "proto"
    assert (config.def_mem_per_cpu, config.def_mem_per_node) == (None, None)
    assert {"cpu", "mem", "gres/gpu", "gres/gpu:a100"} <= config.tres


def test_config_values():
    text = (
        "AccountingStorageEnforce = Associations,LIMITS,safe\nAccountingStorageTRES = cpu,mem\n"
        "ClusterName = Bed\nDefMemPerCPU = 4000\nEnforcePartLimits = all\n"
        "JobDefaults = DefCpuPerGPU=2,DefMemPerGPU=16000\nPriorityFlags = MAX_TRES,FAIR_TREE\n"
        "SLURM_VERSION = 24.05.0-0rc1\nA = b = c\nno equals\n"
    )
    config = parse_config(text.encode())
    assert config.release == (24, 5, 0)
    assert config.enforce == {"associations", "limits", "safe"}
    assert config.cluster == "bed"
    assert (config.def_mem_per_cpu, config.def_mem_per_node) == (4000, None)
    assert (config.def_cpu_per_gpu, config.def_mem_per_gpu) == (2, 16000)
    assert config.enforce_part_limits == "ALL"
    assert config.priority_flags == {"MAX_TRES", "FAIR_TREE"}
    assert config.tres == {"cpu", "mem"}
    for key in ("AccountingStorageEnforce", "ClusterName", "DefMemPerCPU", "SLURM_VERSION"):
        with pytest.raises(ParseError):
            parse_config(text.replace(key, "Other").encode())
    nothing = text.replace("Associations,LIMITS,safe", "none")
    assert parse_config(nothing.encode()).enforce == frozenset()


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_partitions(release):
    text = (DATA / release / "partition.txt").read_text()
    lines = [" ".join(block.split("\n   ")) + "\n" for block in text.strip().split("\n\n")]
    partitions = parse_partitions("".join(lines).encode())
    main, gpu = partitions["main"], partitions["gpu"]
    assert (main.default, gpu.default) == (True, False)
    assert (main.qos, gpu.qos) == ("", "partq")
    assert (main.allow_qos, gpu.allow_qos) == (None, ("clive", "maigan"))
    assert (main.allow_accounts, main.deny_accounts, main.deny_qos) == (None, (), ())
    assert (main.max_time, gpu.max_time) == (None, 10080)
    assert (main.def_mem_per_cpu, gpu.def_mem_per_cpu, gpu.def_mem_per_node) == (2000, None, None)
    assert (main.def_mem_per_gpu, gpu.def_mem_per_gpu) == (None, 16000)
    assert (main.total_cpus, main.total_nodes, main.exclusive, main.up) == (256, 1, False, True)
    assert main.tres["mem"] == 4000000
    assert main.tres["gres/gpu:a100"] == 16
    assert main.default_time is None
    assert main.other["State"] == "UP"


PARTITION = (
    "PartitionName=GPU AllowGroups=ALL DenyAccounts=Lab-A,lab-b AllowQos=ALL AllocNodes=ALL "
    "Default=NO QoS=PartQ DefaultTime=00:30:00 MaxNodes=4 MaxTime=1-00:00:00 MinNodes=2 "
    "Nodes=n[01-04,7],m1 OverSubscribe=EXCLUSIVE State=DRAIN TotalCPUs=8 TotalNodes=2 "
    "JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerCPU=4000 TRES=cpu=8,mem=4T,gres/gpu:A=2 "
    "TRESBillingWeights=CPU=1.5,Mem=0.25G,GRES/gpu:a=2\n"
)


def test_partition_values():
    [partition] = parse_partitions(PARTITION.encode()).values()
    assert partition.name == "gpu"
    assert partition.other["PartitionName"] == "GPU"
    assert (partition.allow_accounts, partition.deny_accounts) == (None, ("lab-a", "lab-b"))
    assert (partition.qos, partition.up, partition.exclusive) == ("partq", False, True)
    assert (partition.default_time, partition.max_time) == (30, 1440)
    assert (partition.min_nodes, partition.max_nodes) == (2, 4)
    assert (partition.max_mem_per_cpu, partition.max_mem_per_node) == (4000, None)
    assert partition.tres == {"cpu": 8, "mem": 4 * 2**20, "gres/gpu:A": 2}
    assert partition.billing_weights == {"cpu": 1.5, "mem": 0.25 / 1024, "gres/gpu:A": 2.0}
    new = PARTITION.replace("OverSubscribe=EXCLUSIVE", "OverSubscribe=NO")
    assert not parse_partitions(new.encode())["gpu"].exclusive
    for word in ("Exclusive=NODE", "Exclusive=TOPO", "ExclusiveTopo=YES"):
        assert parse_partitions(new.replace("QoS", word + " QoS").encode())["gpu"].exclusive
    closed = PARTITION.replace("DenyAccounts=Lab-A,lab-b", "AllowAccounts=Lab-C")
    assert parse_partitions(closed.encode())["gpu"].allow_accounts == ("lab-c",)


@pytest.mark.parametrize(
    "word",
    [
        "DenyAccounts=",
        "AllowQos=",
        "QoS=",
        "MaxTime=",
        "State=",
        "MinNodes=",
        "TRES=",
        "OverSubscribe=",
    ],
)
def test_a_partition_without_a_field_we_need(word):
    with pytest.raises(ParseError, match="partition GPU: no "):
        parse_partitions(PARTITION.replace(" " + word, " X=").encode())


def test_partitions_that_differ_in_case_only():
    text = PARTITION + PARTITION.replace("GPU", "gpu") + PARTITION.replace("GPU", "cpu")
    assert set(parse_partitions(text.encode())) == {"cpu"}


@pytest.mark.parametrize("text", ["", "No partitions in the system\n", PARTITION[:-1]])
def test_no_partitions(text):
    with pytest.raises(ParseError):
        parse_partitions(text.encode())


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[001-003,7],m1", "n001"),
        ("n[7,1-3]", "n7"),
        ("r[0-1]n[02-03]x", "r0n02x"),
        ("(null)", ""),
        ("", ""),
        ("n[", "n"),
    ],
)
def test_first_node(nodes, first):
    assert first_node(nodes) == first


def test_nodes():
    text = (
        "NodeName=n1 CPUTot=256 OS=Linux 6.1 #1 SMP  RealMemory=4194304 AllocMem=0 "
        "ThreadsPerCore=2 Gres=gpu:a100:4(S:0,1),gpu:l4:2(S:1),nic:1\n"
        "NodeName=n2 CPUTot=8 RealMemory=2000 MemSpecLimit=500 Gres=(null) Comment=RealMemory\n"
    )
    gres = {"gres/gpu": 6, "gres/gpu:a100": 4, "gres/gpu:l4": 2, "gres/nic": 1}
    assert parse_nodes(text.encode()) == {
        "n1": Node(4194304, 256, 2, gres),
        "n2": Node(1500, 8),
    }
    with pytest.raises(ParseError):
        parse_nodes(b"NodeName=n1 CPUTot=256\n")


# -- sacctmgr ---------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_qos_table(release):
    folder = DATA / release
    data = (folder / "sacctmgr.qos.header.txt").read_bytes()
    data += (folder / "sacctmgr.qos.txt").read_bytes()
    table = parse_qos_table(data)
    assert table["maigan-b"].flags == {"denyonlimit"}
    assert table["partq"].flags == {"overpartqos"}
    assert table["clive"].flags == frozenset()
    assert limits(table["clive"].limits, "GrpTRES") == {"cpu": 80, "gres/gpu": 1, "mem": 320000}
    assert table["clive"].limits.tres["GrpTRES"]["cpu"].used is UNKNOWN
    assert table["maigan-b"].limits.counts["MaxWallPJ"].limit == 5760
    # The default columns have no LimitFactor: unknown, not "none".
    assert table["clive"].limit_factor is UNKNOWN
    assert ("MaxTRESRunMinsPU" in table["clive"].defaults.tres) == (release != "22.05")
    if release != "22.05":
        brusko = table["brusko"].defaults
        assert brusko.tres["MaxTRESPU"] == {"cpu": Limit(40, 0)}
        assert brusko.counts["MaxJobsPU"] == Limit(3, 0)
        assert brusko.counts["MaxSubmitJobsPU"] == Limit(10, 0)
        assert brusko.counts["MaxJobsPA"] == Limit(None, 0)
        # A releases's assoc_mgr and sacctmgr agree.
        live = read(recorded(release), release).qos["brusko"]
        assert live.limits.tres["MaxTRESPJ"]["cpu"].limit == 32
        assert table["brusko"].limits.tres["MaxTRESPJ"]["cpu"].limit == 32


def test_qos_values():
    text = (
        "Name|Flags|LimitFactor|GrpTRES|MaxJobsPU|Priority\n"
        "A|DenyOnLimit,PartitionTimeLimit|2.000000|gres/gpu=0|0|10\nb||||x|\n"
    )
    table = parse_qos_table(text.encode())
    assert table["a"].flags == {"denyonlimit", "partitiontimelimit"}
    assert (table["a"].limit_factor, table["a"].priority) == (2.0, 10)
    assert table["a"].limits.tres["GrpTRES"] == {"gres/gpu": Limit(0, UNKNOWN)}
    assert table["a"].defaults.counts == {"MaxJobsPU": Limit(0, 0)}
    assert (table["b"].limit_factor, table["b"].priority) == (None, UNKNOWN)
    assert table["b"].defaults.counts == {"MaxJobsPU": Limit(UNKNOWN, 0)}


ASSOCS = (
    "Cluster|Account|User|Partition|ParentName|QOS|Def QOS|GrpTRES|MaxJobs\n"
    "Bed|Lab-A|alice|GPU||a,A-burst|a|cpu=4|\n"
    "bed|lab-a|||dept|a||cpu=8|5\n"
    "other|lab-z|alice|||z|z||\n"
)


def test_association_table():
    """B01: associations of another cluster are not ours."""
    table = parse_assoc_table(ASSOCS.encode(), "bed")
    assert table == {
        ("lab-a", "alice", "gpu"): Assoc(
            "lab-a",
            "alice",
            "gpu",
            "lab-a",
            Scope({"GrpTRES": {"cpu": Limit(4, UNKNOWN)}}, {"MaxJobs": Limit(None, UNKNOWN)}),
            ("a", "a-burst"),
            "a",
        ),
        ("lab-a", "", ""): Assoc(
            "lab-a",
            "",
            "",
            "dept",
            Scope({"GrpTRES": {"cpu": Limit(8, UNKNOWN)}}, {"MaxJobs": Limit(5, UNKNOWN)}),
            ("a",),
            None,
        ),
    }
    with pytest.raises(ParseError, match="several clusters"):
        parse_assoc_table(ASSOCS.encode(), None)
    one = ASSOCS.replace("other", "bed")
    assert len(parse_assoc_table(one.encode(), None)) == 3


def test_effective_default_qos():
    def assoc(qos, default):
        return Assoc("a", "u", "", "a", Scope({}, {}), qos, default)

    assert effective_default_qos(assoc(("x", "y"), "y"), None) == "y"
    assert effective_default_qos(assoc(("x",), None), None) == "x"
    assert effective_default_qos(assoc(("x", "y"), None), assoc((), "r")) == "r"
    assert effective_default_qos(assoc(("x", "y"), None), assoc((), None)) == "normal"
    assert effective_default_qos(assoc((), None), assoc((), None)) == "normal"
    assert effective_default_qos(assoc(("x", "y"), None), None) is UNKNOWN
    assert effective_default_qos(assoc(UNKNOWN, UNKNOWN), None) is UNKNOWN


def test_default_account():
    head = "Cluster|User|Def Acct\n"
    rows = "bed|alice|Lab-A\nbed|alice|Lab-A\nother|alice|lab-z\n"
    assert parse_default_account((head + rows).encode(), "bed") == "lab-a"
    assert parse_default_account((head + rows).encode(), None) is UNKNOWN
    assert parse_default_account(head.encode(), "bed") is UNKNOWN
    assert parse_default_account((head + "bed|a|\n").encode(), "bed") is None


@pytest.mark.parametrize("text", ["", "\n", "Problem talking to the database\n", ASSOCS[:-1]])
def test_tables_without_an_answer(text):
    """B01: nothing, or no table, is not an empty table."""
    with pytest.raises(ParseError):
        parse_assoc_table(text.encode(), "bed")


def test_a_banner_before_a_table_is_ignored_and_a_torn_row_is_not():
    table = parse_table(b"hello | there\nA|B\n1|2\n|\n", "x", ["A"])
    assert table.rows == ({"A": "1", "B": "2"}, {"A": "", "B": ""})
    with pytest.raises(ParseError):
        parse_table(b"A|B\n1|2|3\n", "x", ["A"])


# -- never anything but ParseError ------------------------------------------------------------

PARSERS = [
    lambda data: parse_assoc_mgr(data, "alice", 1001),
    lambda data: parse_assoc_mgr(data, "alice", 1001, ["clive"], everyone=True),
    parse_jobs,
    parse_config,
    parse_partitions,
    parse_nodes,
    parse_qos_table,
    lambda data: parse_assoc_table(data, "bed"),
    lambda data: parse_default_account(data, "bed"),
]
SAMPLES = [
    answer_of(ROOT + ASSOC + MINE).encode(),
    recorded("22.05").encode()[:6000] + b"QOS Records\n" + QOS.encode(),
    (HEADER + "3_[5-9,12%2]|PENDING|1:00:00|cpu=1,mem=1000M|lab-a|q|a,B|(a | b)\n").encode(),
    (DATA / "22.05" / "config.txt").read_bytes(),
    PARTITION.encode(),
    b"NodeName=n1 CPUTot=256 RealMemory=4194304\n",
    b"Name|Flags|LimitFactor|GrpTRES|MaxWall\nA|x|2.0|mem=1.5G,cpu=4|1-00:00:00\n",
    ASSOCS.encode(),
    b"Cluster|User|Def Acct\nbed|alice|Lab-A\n",
]


@st.composite
def damaged(draw):
    """A real answer with a few places overwritten, cut out or doubled."""
    data = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 30)))
        middle = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"=", b"(", b"{", b"}", b",", b" ", b"\n", b"|", b"[", b"9" * 5000]
                ),
                st.just(data[start:end] * 2),
            )
        )
        data = data[:start] + middle + data[end:]
    return data


@pytest.mark.parametrize("index", range(len(PARSERS)))
@given(data=st.one_of(st.binary(max_size=300), damaged()))
def test_only_parse_errors(index, data):
    try:
        PARSERS[index](data)
    except ParseError as caught:
        text = str(caught)
    else:
        return
    assert text
    assert "\n" not in text

"""How sbatch merges command line, environment and script."""

from __future__ import annotations

import pytest

from sbatch_router.core.request import Given, Request
from sbatch_router.slurm.request import read_request

HEAD = b"#!/bin/sh\n"


def read(argv: list[str], environ: dict[str, str], *lines: str) -> Request:
    script = HEAD + "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    return read_request([*argv, "job.sh"], environ, script)


def test_command_line_over_environment_over_script() -> None:
    lines, environ = ("#SBATCH -A s -q s -p s",), {"SBATCH_ACCOUNT": "e", "SBATCH_QOS": "e"}
    found = read(["-A", "c"], environ, *lines)
    assert found.options == {
        "partition": Given("s", "script"), "qos": Given("e", "env"), "account": Given("c", "cli")
    }  # fmt: skip
    assert found.doubts == ()


def test_the_last_one_wins() -> None:
    assert read(["-Aa", "--account=b", "-A", "c"], {}).given("account") == Given("c", "cli")
    assert read([], {}, "#SBATCH -Aa", "#SBATCH -Ab").given("account") == Given("b", "script")


@pytest.mark.parametrize(
    ("argv", "environ", "lines", "left"),
    [
        (["--mem=1G"], {"SBATCH_MEM_PER_CPU": "2G"}, (), {"mem": "1G"}),
        ([], {"SBATCH_MEM_PER_NODE": "2G"}, ("#SBATCH --mem-per-cpu=1G",), {"mem-per-cpu": "1G"}),
        ([], {"SBATCH_MEM_PER_NODE": "2G"}, ("#SBATCH --mem=1G",), {"mem": "2G"}),
        (["--mem-per-gpu=1"], {"SBATCH_MEM_PER_NODE": "2G"}, (), {"mem-per-gpu": "1"}),
    ],
)
def test_memory_options_displace_each_other(
    argv: list[str], environ: dict[str, str], lines: tuple[str, ...], left: dict[str, str]
) -> None:
    found = read(argv, environ, *lines)
    assert {k: v.value for k, v in found.options.items()} == left
    assert found.doubts == ()


@pytest.mark.parametrize(
    ("argv", "environ", "lines"),
    [
        (["--mem=1G", "--mem-per-cpu=1G"], {}, ()),
        (["--mem=1G"], {}, ("#SBATCH --mem-per-cpu=1G",)),
        ([], {"SBATCH_MEM_PER_NODE": "1", "SBATCH_MEM_PER_CPU": "1"}, ()),
        (["--mem=1.5G", "--mem=1G"], {}, ()),  # sbatch looks at every value
        (["--uid=0"], {}, ()),
        ([":", "-N2"], {}, ()),
        ([], {"SLURM_HOSTFILE": "hosts"}, ()),
        ([], {}, ("#SBATCH job.sh",)),
        (["--no-such"], {}, ()),
        (["--array=x"], {}, ()),
    ],
)
def test_doubts(argv: list[str], environ: dict[str, str], lines: tuple[str, ...]) -> None:
    assert read(argv, environ, *lines).doubts


def test_script_options_that_sbatch_skips() -> None:
    found = read([], {}, "#SBATCH --help --wrap=x --version -A a")
    assert (list(found.options), found.doubts) == (["account"], ())


def test_wrap_reads_no_script() -> None:
    assert read_request(["--wrap", "#SBATCH -N2", "-Aa"], {}, None).doubts == ()
    assert read_request(["-Aa"], {}, None).doubts
    assert read_request(["--wrap=x", "job.sh"], {}, HEAD).doubts


def test_script_arguments_are_not_options() -> None:
    found = read_request(["-Aa", "job.sh", "-Ab", ":"], {}, HEAD)
    assert (found.given("account"), found.doubts) == (Given("a", "cli"), ())


@pytest.mark.parametrize("value", ["$proj", "null", "None", "", "(null)"])
def test_placeholders_are_kept_as_they_are(value: str) -> None:
    assert read(["-A", value], {}).given("account") == Given(value, "cli")


def test_bytes_that_are_not_utf8_survive() -> None:
    assert read([], {}, "#SBATCH -J \udcff").given("job-name") == Given("\udcff", "script")


PBS = ("#SBATCH -A a -p q", "#PBS -A b -l nodes=2:ppn=4,walltime=1:00:00,mem=4gb", "#PBS -q c")


def test_pbs_lines_win_over_sbatch_lines() -> None:
    found = {k: v.value for k, v in read([], {}, *PBS).options.items()}
    assert found == {
        "account": "b", "nodes": "2", "ntasks": "8", "time": "1:00:00", "mem": "4g",
        "partition": "c",
    }  # fmt: skip


def test_pbs_lines_can_be_ignored() -> None:
    for argv, environ, more in (
        (["--ignore-pbs"], {}, ()),
        ([], {"SBATCH_IGNORE_PBS": "1"}, ()),
        ([], {}, ("#SBATCH --ignore-pbs",)),
    ):
        assert read(argv, environ, *PBS, *more).given("account") == Given("a", "script")


def test_bsub_lines() -> None:
    found = read([], {}, "#BSUB -n 2,4 -M 1000 -q long -W 1:30 -cwd /tmp", "#PBS -A b")
    assert {k: v.value for k, v in found.options.items()} == {
        "ntasks": "4", "mem-per-cpu": "1000K", "partition": "long", "time": "1:30",
        "chdir": "/tmp",
    }  # fmt: skip


def test_arrays() -> None:
    found = read(["-a", "0-15:4%2"], {})
    assert (found.array_tasks, found.array_at_once) == (4, 2)


def test_properties_are_read() -> None:
    assert read([], {}, '# properties = {"rule": "x"}').properties == {"rule": "x"}

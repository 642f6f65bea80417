"""sbatch-router-submit against an sbatch that talks: what is printed, and what is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sbatch_router.cli import submit
from sbatch_router.core.request import Given, Request

FAKES = Path(__file__).resolve().parents[1] / "fakes" / "bin"
COMMAND = (sys.executable, "-I", "-m", "sbatch_router.cli.submit")

DECON = {
    "type": "single",
    "rule": "decon",
    "wildcards": {"cycle": "01", "channel": "a/b c"},
    "threads": 8,
    "resources": {"tmpdir": "<TBD>", "mem_mb": 125000, "mem": "125 GB", "runtime": 60, "gpu": 1},
    "jobid": 3,
}
GROUP = {
    "type": "group",
    "groupid": "gg",
    "local": False,
    "input": [],
    "output": ["g2.txt"],
    "threads": 3,
    "resources": {"slurm_account": "maigan", "gpu": 1, "mem_mb": 2000, "runtime": 30},
    "jobid": "9295d96b-eb41-5dce-b615-086880f56b08",
}


def jobscript(directory: Path, properties: object, more: str = "") -> str:
    path = directory / "snakejob.sh"
    path.write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\n{more}true\n")
    return str(path)


class Site:
    """A site whose sbatch is the chatty one."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path
        self.args = tmp_path / "args"
        self.env = {
            "PATH": f"{FAKES / 'chatty'}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "CHATTY_ARGS": str(self.args),
        }

    def submit(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *argv],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            cwd=self.directory,
            check=False,
        )

    @property
    def called_with(self) -> list[str]:
        return self.args.read_text().splitlines()

    @property
    def log(self) -> list[dict[str, object]]:
        path = self.directory / ".local/state/sbatch-router/decisions.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# -- the id (B36, B38, B52) ------------------------------------------------------------------


def test_banners_go_to_stderr_and_the_bare_id_to_stdout(site: Site) -> None:
    done = site.submit("job.sh")
    assert (done.returncode, done.stdout) == (0, "123\n")
    assert done.stderr == "Quota: 81% of 2 TB used\nBalance of lab-a: 4000 hours\n"
    assert site.called_with == ["--parsable", "job.sh"]


def test_the_cluster_of_an_id_is_remembered(site: Site) -> None:
    site.submit("-M", "clustera", "job.sh")
    (record,) = site.log
    assert record["event"] == "submitted"
    assert (record["job_id"], record["cluster"]) == ("123", "clustera")


@pytest.mark.parametrize(
    ("printed", "job"),
    [
        ("7\n", "7"),
        ("7", "7"),
        ("7;c\n", "7"),
        ("  7  \r\n", "7"),
        ("hello\n7\nbye\n", "7"),
        ("Submitted batch job 7\n", "7"),
        ("Submitted batch job 7 on cluster c\nbye\n", "7"),
        # A number of the banner's beside the id that has its cluster.
        ("7;c\n4000\n", "7"),
        ("4000\n7\n", "7"),
    ],
)
def test_ids(site: Site, printed: str, job: str) -> None:
    done = site.submit("job.sh", CHATTY_OUT=printed)
    assert (done.returncode, done.stdout) == (0, f"{job}\n")


@pytest.mark.parametrize("printed", ["", "\n", "no id here\n", "0\n", "12 jobs\n", "-5\n", "7_1\n"])
def test_no_id_is_an_error_with_what_was_printed(site: Site, printed: str) -> None:
    done = site.submit("job.sh", CHATTY_OUT=printed)
    assert (done.returncode, done.stdout) == (submit.NO_ID, "")
    assert done.stderr.startswith(printed)
    assert "sbatch-router: sbatch succeeded, but there is no job id" in done.stderr


@pytest.mark.parametrize("code", ["1", "255", "42"])
def test_a_failed_sbatch_prints_no_id(site: Site, code: str) -> None:
    done = site.submit("job.sh", CHATTY_RC=code)
    assert (done.returncode, done.stdout) == (int(code), "")
    assert "123;clustera" in done.stderr


def test_no_sbatch_at_all(site: Site) -> None:
    done = site.submit("job.sh", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr.count("\n") == 1


def test_a_process_left_behind_keeps_nobody_waiting(site: Site, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nsleep 20 &\necho 5\n")
    fake.chmod(0o755)
    began = time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, "job.sh"],
        env={**site.env, "PATH": f"{fake.parent}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.communicate(timeout=15)[0] == b"5\n"
    assert time.monotonic() - began < 15
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_sbatch_and_a_submitted_job_keeps_its_id(
    tmp_path: Path, site: Site, number: signal.Signals
) -> None:
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    # As real as it gets: it has submitted when the signal comes.
    fake.write_text("#!/bin/sh\ntrap 'echo 9; exit 0' INT TERM\necho >&2\nsleep 20 & wait\n")
    fake.chmod(0o755)
    process = subprocess.Popen(
        [*COMMAND, "job.sh"],
        env={**site.env, "PATH": f"{fake.parent}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    process.stderr.readline()
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.stdout is not None
    assert process.stdout.read() == b"9\n"
    assert process.wait(15) == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def test_a_killed_sbatch(site: Site, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 5\nkill -9 $$\n")
    fake.chmod(0o755)
    done = site.submit("job.sh", PATH=f"{fake.parent}:/usr/bin:/bin")
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "5\n")


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (["--parsable", "j"], ["--parsable", "j"]),
        (["--pars", "j"], ["--pars", "j"]),
        # --quiet prints no id.
        (["-Q", "j"], ["--parsable", "j"]),
        (["--quiet", "-n1", "--parsable", "j"], ["-n1", "--parsable", "j"]),
        (["-vQW", "j"], ["--parsable", "-vW", "j"]),
        (["--qui", "-Q", "j"], ["--parsable", "j"]),
        # The Q of a name, and of a script's own arguments, is none.
        (["-JQ", "j", "-Q"], ["--parsable", "-JQ", "j", "-Q"]),
        (["-J", "-Q", "j"], ["--parsable", "-J", "-Q", "j"]),
        # An option that we do not know keeps its argument.
        (["--site-plugin", "x", "j"], ["--parsable", "--site-plugin", "x", "j"]),
    ],
)
def test_parsable_and_quiet(site: Site, given: list[str], called: list[str]) -> None:
    assert site.submit(*given).stdout == "123\n"
    assert site.called_with == called


def test_the_script_may_come_through_stdin(site: Site) -> None:
    script = f"#!/bin/sh\n# properties = {json.dumps(DECON)}\ntrue\n"
    fake = site.directory / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$CHATTY_ARGS"\ncat >script\necho 5\n')
    fake.chmod(0o755)
    done = subprocess.run(
        COMMAND,
        env={**site.env, "PATH": f"{fake.parent}:/usr/bin:/bin"},
        input=script,
        capture_output=True,
        text=True,
        cwd=site.directory,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")
    assert (site.directory / "script").read_text() == script
    assert "--mem=125000" in site.called_with


def test_help_and_version(site: Site) -> None:
    assert site.submit("--help").stdout.startswith("usage: sbatch-router-submit")
    assert site.submit("--version").stdout.startswith("sbatch-router ")
    assert not site.args.exists()


# -- what the rule asks for ------------------------------------------------------------------


def wanted(properties: object, **given: str) -> list[str]:
    options = {name.replace("_", "-"): Given(value, "cli") for name, value in given.items()}
    assert isinstance(properties, dict)
    found = submit.from_properties(Request(options, properties=properties))
    return [*found.options, *(f"pool:{name}={value}" for name, value in found.pool.items())]


def resources(**found: object) -> list[str]:
    return wanted({"resources": found})


def test_a_rule_becomes_options() -> None:
    assert wanted(DECON) == [
        "--job-name=decon.01.a_b_c",
        "--cpus-per-task=8",
        "--mem=125000",
        "--time=60",
        "--gpus=1",
    ]


def test_a_group_becomes_options() -> None:
    assert wanted(GROUP) == [
        "--job-name=gg",
        "--cpus-per-task=3",
        "--mem=2000",
        "--time=30",
        "--gpus=1",
        "pool:account=maigan",
    ]


@pytest.mark.parametrize(
    ("option", "value", "missing"),
    [
        ("job_name", "mine", "--job-name"),
        ("cpus_per_task", "2", "--cpus-per-task"),
        # `-n {threads}` is how many profiles ask for CPUs: not twice.
        ("ntasks", "8", "--cpus-per-task"),
        ("mem", "1G", "--mem"),
        ("mem_per_cpu", "1G", "--mem"),
        ("mem_per_gpu", "1G", "--mem"),
        ("time", "5", "--time"),
        ("gpus", "2", "--gpus"),
        ("gpus_per_node", "2", "--gpus"),
        ("gres", "gpu:a100:2", "--gpus"),
        ("tres_per_task", "gres/gpu:1", "--gpus"),
    ],
)
def test_what_the_user_wrote_stands(option: str, value: str, missing: str) -> None:
    names = [word.partition("=")[0] for word in wanted(DECON, **{option: value})]
    assert missing not in names
    assert len(names) == 4


def test_a_gres_without_gpu_leaves_the_gpus() -> None:
    assert "--gpus=1" in wanted(DECON, gres="lscratch:100")


@pytest.mark.parametrize(
    ("found", "options"),
    [
        ({"mem_mb_per_cpu": 4000, "mem_mb": 8000}, ["--mem-per-cpu=4000"]),
        ({"mem_mb": 1000.2}, ["--mem=1001"]),
        ({"mem_mb": "<TBD>"}, []),
        ({"mem_mb": 0, "runtime": 0, "nodes": 0, "gpu": 0}, []),
        ({"mem_mb": True, "runtime": None, "nodes": [1], "gpu": {}}, []),
        ({"mem_mb": "inf", "runtime": float("nan")}, []),
        ({"runtime": 59.5}, ["--time=60"]),
        ({"nodes": 2, "tasks": 8}, ["--nodes=2", "--ntasks=8"]),
        ({"cpus_per_task": 4}, ["--cpus-per-task=4"]),
        ({"gpu": 2, "gpu_model": "a100"}, ["--gpus=a100:2"]),
        ({"nvidia_gpu": 2, "gpu_type": "l4"}, ["--gpus=l4:2"]),
        ({"gpus": "a100:2"}, ["--gpus=a100:2"]),
        ({"gpu_model": "a100"}, []),
        ({"gres": "gpu:a100:1", "gpu": 1}, ["--gres=gpu:a100:1"]),
        ({"gres": "lscratch:10", "gpu": 1}, ["--gres=lscratch:10", "--gpus=1"]),
        ({"slurm_partition": "gpu", "constraint": "a|b"}, ["--partition=gpu", "--constraint=a|b"]),
        ({"slurm_account": "lab", "slurm_qos": "q"}, ["pool:account=lab", "pool:qos=q"]),
        ({"slurm_account": " "}, []),
        ({"slurm_extra": "'--comment=hi there'"}, ["--comment=hi there"]),
        ({"slurm_extra": "'--mail-user=a -N2'"}, ["--mail-user=a", "-N2"]),
        # Options of slurm_extra are the user's words, too.
        ({"slurm_extra": "--mem=5G -A lab", "mem_mb": 9, "slurm_account": "x"},
         ["--mem=5G", "-A", "lab"]),
    ],
)  # fmt: skip
def test_resources(found: dict[str, object], options: list[str]) -> None:
    assert resources(**found) == options


@pytest.mark.parametrize("extra", ["--comment='", "job.sh", "--mem", "--no-such-option=1"])
def test_a_bad_slurm_extra_is_left_out(extra: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert resources(slurm_extra=extra, mem_mb=5) == ["--mem=5"]
    assert capfd.readouterr().err.startswith("sbatch-router: slurm_extra left out: ")


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"resources": 5},
        {"resources": {}},
        {"rule": ["a", "b"]},
        {"wildcards": [1]},
        {"rule": 7},
    ],
)
def test_odd_properties_add_nothing(properties: dict[str, object]) -> None:
    assert wanted(properties) == []


def test_names_are_plain_and_short() -> None:
    name = submit.job_name({"rule": "r", "wildcards": {"a": "é$(x)\n" * 100}})
    assert name is not None
    assert len(name) == 128
    assert name.startswith("r.___x___")


def test_resources_come_before_everything_the_user_wrote(site: Site) -> None:
    site.submit("--site-plugin=x", "--time=5", jobscript(site.directory, DECON))
    called = site.called_with
    assert called[:3] == ["--job-name=decon.01.a_b_c", "--cpus-per-task=8", "--mem=125000"]
    assert called[-3:-1] == ["--site-plugin=x", "--time=5"]
    assert not [word for word in called if word.startswith("--time=") and word != "--time=5"]


def test_an_unknown_option_that_hides_the_script_is_told_of(site: Site) -> None:
    script = jobscript(site.directory, DECON)
    done = site.submit("--site-plugin", "x", script, CHATTY_OUT="5\n")
    assert site.called_with == ["--parsable", "--site-plugin", "x", script]
    assert done.stdout == "5\n"
    assert done.stderr == (
        "sbatch-router: a rule's resources are not read: option --site-plugin is unknown or "
        "ambiguous (--NAME=VALUE?)\n"
    )


def test_the_script_and_the_environment_stand_too(site: Site) -> None:
    script = jobscript(site.directory, DECON, "#SBATCH --mem=1G\n")
    site.submit(script, SBATCH_TIMELIMIT="7")
    assert site.called_with == [
        "--job-name=decon.01.a_b_c", "--cpus-per-task=8", "--gpus=1", "--parsable", script,
    ]  # fmt: skip


def test_an_account_of_the_rule_is_named_when_nothing_decides(site: Site) -> None:
    script = jobscript(site.directory, {"resources": {"slurm_account": "lab", "qos": "q"}})
    site.submit(script)
    assert site.called_with == ["--account=lab", "--qos=q", "--parsable", script]


@pytest.mark.parametrize(
    "policy", ["version: 1\n", "accounts: [\n", "version: 1\naccounts: [a]\n"], ids=str.strip
)
def test_trouble_of_ours_costs_no_job(site: Site, tmp_path: Path, policy: str) -> None:
    # The last policy is sound, but nothing answers: there is no scontrol here.
    path = tmp_path / "policy.yaml"
    path.write_text(policy)
    script = jobscript(site.directory, DECON)
    done = site.submit(
        script,
        SBATCH_ROUTER_POLICY=str(path),
        XDG_RUNTIME_DIR=str(tmp_path),
        PATH=str(FAKES / "chatty"),
        CHATTY_OUT="5\n",
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert done.stderr.startswith("sbatch-router: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "--mem=125000" in site.called_with


def test_an_internal_error_keeps_what_the_rule_asks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(submit, "policy_paths", broken)
    found = submit.arguments([jobscript(tmp_path, {"resources": {"mem_mb": 5}})])
    assert found[:2] == ["--mem=5", "--parsable"]
    err = capfd.readouterr().err
    assert err == (
        "sbatch-router: internal error, submitted as you wrote it: ZeroDivisionError: a bug\n"
    )

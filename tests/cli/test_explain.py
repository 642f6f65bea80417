"""`explain` on a real cluster: words, numbers, and nothing changed."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time

import pytest

from .conftest import PROGRAM, Cli

pytestmark = pytest.mark.cluster

GPU_JOB = ("--gres=gpu:1", "-c", "8", "--mem=125G")


def fill(cli: Cli, account: str, mem: str, user: str = "bob") -> None:
    cli.cluster.hold(user, "-A", account, f"--mem={mem}", "-c2")


def test_the_whole_page(cli: Cli) -> None:
    cli.policy()
    fill(cli, "clive", "250G")
    found = cli.run("explain", "--ascii", "--", *GPU_JOB)
    assert (found.rc, found.err) == (0, "")
    lines = found.out.splitlines()
    assert max(map(len, lines)) <= 80
    text = found.out.replace("  usage     from scontrol, 0 s old\n", "")
    assert text == (
        "sbatch submits this to maigan/maigan, not to clive (your default account)\n"
        "  why       fits now\n"
        "  asks for  cpu=8 mem=125G gres/gpu=1, 1h, partition main\n"
        "  rule      not 'long jobs': time is 60 min (wanted >2d)\n"
        "  rule      'gpu jobs' (gpus >0; order gpu, mem)\n"
        "\n"
        "  clive/clive    full: others hold it [QOSGrpMemLimit]\n"
        "    cpu      =...................         2 of 80  0 yours  asks 8\n"
        "  x mem      ================....  250G of 312.5G  0 yours  lacks 62.5G\n"
        "    gres/gpu ....................          0 of 1  0 yours  asks 1\n"
        "    held by bob 250G\n"
        "> maigan/maigan  fits now\n"
        "    cpu      ....................        0 of 160  0 yours  asks 8\n"
        "    mem      ....................       0 of 625G  0 yours  asks 125G\n"
        "    gres/gpu ....................          0 of 4  0 yours  asks 1\n"
        "  brusko         blocked: throttled since March (since 2026-03-02)\n"
        "\n"
        "# yours  = others'  + queued by you  . free\n"
    )


def test_nothing_is_changed(cli: Cli) -> None:
    cli.policy()
    before = json.loads(cli.run("explain", "--json", "--", *GPU_JOB).out)
    for _ in range(5):
        assert cli.run("explain", "--", *GPU_JOB).rc == 0
    after = json.loads(cli.run("explain", "--json", "--", *GPU_JOB).out)
    before["snapshot"]["age_seconds"] = after["snapshot"]["age_seconds"] = 0
    assert before == after
    assert not cli.log().exists()
    assert cli.cluster.run("squeue", "-h").stdout == ""


def test_a_refusal_is_an_answer(cli: Cli) -> None:
    cli.policy()
    fill(cli, "clive", "300G")
    fill(cli, "maigan", "600G")
    full = cli.run("explain", "--", *GPU_JOB)
    assert (full.rc, full.err) == (0, "")
    assert full.out.startswith("sbatch refuses this with exit code 75: try again later\n")
    assert "next      squeue -A clive,maigan; `when_full: queue`" in full.out
    never = cli.run("explain", "--", "--mem=1T")
    assert (never.rc, never.err) == (0, "")
    assert never.out.startswith("sbatch refuses this with exit code 77: no account may ever run it")
    assert "lacks 399G" in never.out


def test_no_policy_and_a_broken_one(cli: Cli) -> None:
    found = cli.run("explain", "--", "--mem=1G")
    assert (found.rc, found.out) == (1, "")
    assert found.err == (
        "Error: no policy found, so sbatch submits every job as it is; write one with "
        "`sbatch-router init`\n"
    )
    path = cli.policy("version: 1\naccounts: [a]\nwhen_ful: x\n")
    found = cli.run("explain", "--", "--mem=1G")
    assert (found.rc, found.out) == (1, "")
    assert found.err == (
        f"Error: policy error: {path}:3: when_ful: unknown key; did you mean `when_full`?; "
        "see `sbatch-router check`\n"
    )
    found = cli.run("explain", "--", "x", env={"SBATCH_ROUTER_POLICY": "/nowhere.yaml"})
    assert (found.rc, found.out, found.err.count("\n")) == (1, "", 1)
    assert "/nowhere.yaml" in found.err


def test_a_review_that_is_due_is_said(cli: Cli) -> None:
    path = cli.policy(
        "version: 1\naccounts: [clive]\n"
        "blocked: [{account: brusko, reason: full, review: 2020-01-01}]\n"
    )
    found = cli.run("explain", "--json", "--", "--mem=1G")
    assert found.rc == 0
    assert json.loads(found.out)["account"] == "clive"
    assert found.err == f"warning: {path}: brusko was to be reviewed on 2020-01-01: full\n"


def test_the_script_counts_and_stays(cli: Cli) -> None:
    cli.policy()
    text = "#!/bin/sh\n#SBATCH --mem=7G -A maigan\ntrue\n"
    script = cli.cluster.home("alice") / "job.sh"
    script.write_text(text)
    script.chmod(0o644)
    for options in ({"input": text}, {}):
        argv = ["explain", "--json", "--", *([] if options else [str(script)])]
        found = cli.run(*argv, **options)
        data = json.loads(found.out)
        assert (found.rc, found.err) == (0, "")
        assert data["request"]["tres"]["mem"] == 7168
        assert data["account"] == "maigan"


def test_a_script_that_is_not_there(cli: Cli) -> None:
    cli.policy()
    found = cli.run("explain", "--", "--mem=1G", "nosuch.sh")
    assert (found.rc, found.err) == (0, "")
    assert found.out.startswith("sbatch submits this as you wrote it\n")
    assert "  script    nosuch.sh does not exist\n" in found.out


@pytest.mark.slow
def test_an_output_that_ends_early_or_is_full(cli: Cli) -> None:
    cli.policy()
    for command in ("explain -- --mem=1G", "status", "history", "doctor"):
        for sink in ("| head -1 >/dev/null", "> /dev/full"):
            done = cli.run("-c", f"sbatch-router {command} {sink}", program="/bin/sh")
            assert "Traceback" not in done.err, done.err
            assert done.err.count("\n") <= 2, done.err


def test_a_silent_pipe_does_not_hold_it(cli: Cli) -> None:
    cli.policy()
    read, write = os.pipe()
    process = cli.cluster.popen_as(
        "alice",
        [PROGRAM, "explain", "--json", "--", "--mem=1G"],
        env=cli.env("alice"),
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=30)
    finally:
        os.close(read)
        os.close(write)
    assert process.returncode == 0
    assert json.loads(out)["action"] == "route"
    assert err == b"nothing came on standard input: judged without a script\n"


def test_a_terminal_is_not_read(cli: Cli) -> None:
    cli.policy()
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    process = cli.cluster.popen_as(
        "alice",
        [PROGRAM, "explain", "--", "--mem=1G"],
        env={**cli.env("alice"), "TERM": "xterm"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    os.write(leader, b"for the next command\n")
    said = b""
    deadline = time.monotonic() + 30
    while process.poll() is None or select.select([leader], [], [], 0.1)[0]:
        assert time.monotonic() < deadline, said
        try:
            said += os.read(leader, 65536)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            break
    os.close(leader)
    assert process.returncode == 0, said
    assert "→ ".encode() in said
    assert b"\x1b[" in said, "no colours on a terminal"


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_widths(cli: Cli, columns: str) -> None:
    cli.policy()
    fill(cli, "clive", "250G")
    found = cli.run("explain", "--", *GPU_JOB, env={"COLUMNS": columns})
    assert (found.rc, found.err) == (0, "")
    assert max(map(len, found.out.splitlines())) <= int(columns)
    assert "\x1b" not in found.out


def test_no_color_and_plain_output(cli: Cli) -> None:
    cli.policy()
    for env in ({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}):
        found = cli.run("explain", "--", *GPU_JOB, env={**env, "NO_COLOR": "1"})
        assert (found.rc, found.err) == (0, "")
        assert "\x1b" not in found.out
        assert found.out.isascii() == bool(env)


def test_what_is_kept(cli: Cli) -> None:
    cli.policy()
    found = cli.run("explain", "--", "-A", "brusko", "--mem=1G")
    assert (found.rc, found.err) == (0, "")
    assert found.out.startswith("sbatch keeps the account you named: brusko\n")
    assert "  named     account brusko on the command line\n" in found.out
    other = cli.run("explain", "--", "-A", "dept", "--mem=1G")
    assert other.out.startswith("sbatch submits this as you wrote it\n")
    assert "account dept is not in the policy" in other.out


@pytest.mark.parametrize("rest", [("--wrap", "sleep 300"), ("there.sh",)])
def test_components_on_the_command_line(cli: Cli, rest: tuple[str, ...]) -> None:
    """The colon is no script that cannot be found: sbatch takes the job, and we say one line."""
    cli.policy()
    script = cli.cluster.home("alice") / "there.sh"
    script.write_text("#!/bin/sh\nsleep 300\n")
    call = ("-c1", "--mem=10M", ":", "-c2", "--mem=10M", *rest)
    shown = cli.run("explain", "--", *call, cwd=script.parent)
    assert "the command line describes a heterogeneous job" in " ".join(shown.out.split())
    assert "does not exist" not in shown.out
    path = {"PATH": f"{cli.shim_dir}:{cli.cluster.env['PATH']}"}
    done = cli.run(*call, program=f"{cli.shim_dir}/sbatch", env=path, cwd=script.parent)
    assert (done.rc, done.err) == (0, (
        "sbatch-router: submitted as you wrote it: the command line describes a heterogeneous "
        "job\n"
    ))  # fmt: skip
    job = done.out.split()[-1]
    queue = cli.cluster.run("squeue", "-h", "-j", job, "-o", "%i").stdout.split()
    assert sorted(queue) == [f"{job}+0", f"{job}+1"]

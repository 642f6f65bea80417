"""The file of lean bytecode beside the shim: the same modules, and never in the way."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sbatch_router import hot, hotbuild, shimfile

PACKAGE = Path(hot.__file__).resolve().parent

#: Imports through the file and says which modules it gave, then decides nothing.
PROBE = """\
import sys
sys.path[:0] = {paths!r}
import sbatch_router.hot as hot
hot.activate({file!r})
hot.bring(*{packs!r})
import sbatch_router.route as route
given = [n for n, m in sys.modules.items() if n.startswith("sbatch_router.") and
         (getattr(m, "__spec__", None) is None or type(m.__spec__.loader).__name__ == "HotFinder")]
print(len(given), route.__file__, route.route.__annotations__, route.__doc__)
"""


def probe(file: Path) -> list[str]:
    code = PROBE.format(paths=shimfile.import_paths(), file=str(file), packs=tuple(hotbuild.PACKS))
    done = subprocess.run(
        [sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.split(maxsplit=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hot"
    path.write_bytes(hotbuild.build())
    return path


def test_every_module_of_a_submission_comes_from_the_file(file: Path) -> None:
    count, rest = probe(file)
    assert int(count) >= 30
    assert rest == f"{PACKAGE / 'route.py'} {{}} None\n"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:100],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"\0" * len(data),
        lambda data: data[: hot.HEAD] + b"\xff" * hot.INDEX + data[hot.HEAD + hot.INDEX :],
        lambda data: data[: hot.HEAD] + bytes((data[hot.HEAD] ^ 1,)) + data[hot.HEAD + 1 :],
    ],
    ids=["empty", "head only", "cut", "longer", "zeros", "garbled index", "a bit"],
)
def test_a_file_that_cannot_be_used_is_left_alone(file: Path, spoil) -> None:
    file.write_bytes(spoil(file.read_bytes()))
    assert probe(file)[0] == "0"


def test_damaged_modules_come_from_their_sources(file: Path) -> None:
    """marshal crashes over some of this (SIGSEGV), which would take the job with it."""
    whole = file.read_bytes()
    everything = int(probe(file)[0])
    rng = random.Random(0)
    for _ in range(20):
        data = bytearray(whole)
        for _ in range(200):
            data[rng.randrange(hot.HEAD + hot.INDEX, len(data))] = rng.randrange(256)
        file.write_bytes(data)
        assert not hotbuild.is_fresh(file)
        assert int(probe(file)[0]) < everything
    file.write_bytes(whole)
    assert hotbuild.is_fresh(file)


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert probe(tmp_path / "pipe")[0] == "0"


def test_a_missing_file_is_left_alone(tmp_path: Path) -> None:
    assert probe(tmp_path / "none")[0] == "0"


def test_a_file_of_another_python_is_left_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot, "key", lambda: (hot.FORMAT, "cpython-27", 0))
    file.write_bytes(hotbuild.build())
    assert probe(file)[0] == "0"


def test_a_module_that_changed_since_comes_from_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "lib" / "sbatch_router"
    copy.parent.mkdir()
    subprocess.run(["cp", "-R", str(PACKAGE), str(copy.parent)], check=True)
    monkeypatch.setattr(hotbuild, "__file__", str(copy / "hotbuild.py"))
    file = tmp_path / "hot"
    file.write_bytes(hotbuild.build())
    with (copy / "core" / "tres.py").open("a") as source:
        source.write("\nCHANGED = True\n")
    code = (
        f"import sys; sys.path[:0] = [{str(copy.parent)!r}]\n"
        f"import sbatch_router.hot as hot; hot.activate({str(file)!r})\n"
        "import sbatch_router.route, sbatch_router.core.tres as tres\n"
        "print(tres.CHANGED, tres.__doc__ is not None)"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_install_writes_it_and_uninstall_removes_it(tmp_path: Path) -> None:
    target = shimfile.install(tmp_path / "bin")
    assert shimfile.is_fresh(target)
    text = target.read_bytes()
    target.write_bytes(text.replace(b" -ISXutf8\n", b" -IS\n", 1))
    assert not shimfile.is_fresh(target)
    target.write_bytes(text)
    assert shimfile.is_fresh(target)
    (tmp_path / "bin" / shimfile.HOT).write_bytes(b"old")
    assert not shimfile.is_fresh(target)
    shimfile.uninstall(tmp_path / "bin")
    assert list((tmp_path / "bin").iterdir()) == []


def test_an_install_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / shimfile.HOT).mkdir()
    with pytest.raises(shimfile.ShimError):
        shimfile.install(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [shimfile.HOT]

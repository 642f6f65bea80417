"""The ledger's file: it grows by an entry, and whatever happens to it, what is whole is read."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbatch_router.core.ledger import Promise
from sbatch_router.state import Lock, append, load_list, store_list


def promise(number: int) -> Promise:
    return Promise(1e9 + number, number, "maigan", "maigan", "main", {"cpu": number}, 1, 1, 60)


def fill(path: Path, count: int) -> list[int]:
    """A list of `count` promises, made one by one; the file's size after each."""
    end = 0
    sizes = []
    for number in range(count):
        end = append(str(path), promise(number), end)
        sizes.append(end)
    return sizes


def read(path: Path) -> tuple[list[int], int]:
    entries, end = load_list(str(path), Promise)
    assert all(entry == promise(entry.pid) for entry in entries)
    return [entry.pid for entry in entries], end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_nothing_there(path: Path) -> None:
    assert read(path) == ([], 0)


def test_every_entry_is_read_again(path: Path) -> None:
    sizes = fill(path, 5)
    assert read(path) == ([0, 1, 2, 3, 4], sizes[-1])
    assert path.stat().st_size == sizes[-1]


def test_cut_anywhere_loses_only_what_was_cut(path: Path) -> None:
    sizes = fill(path, 3)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        entries, end = read(path)
        assert entries == [n for n, size in enumerate(sizes) if size <= length]
        # And the next entry takes the place of what was cut.
        append(str(path), promise(9), end)
        assert read(path)[0] == [*entries, 9]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_garbage_is_never_an_entry(path: Path, data: st.DataObject) -> None:
    fill(path, 3)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
    content += data.draw(st.binary(max_size=40))
    path.write_bytes(content)
    entries, end = read(path)
    assert entries == list(range(len(entries)))
    append(str(path), promise(7), end)
    assert read(path)[0] == [*entries, 7]


def test_a_list_in_the_list_is_not_read(path: Path) -> None:
    size = fill(path, 2)[-1]
    path.write_bytes(path.read_bytes() * 2)
    assert read(path) == ([0, 1], size)


def test_settled_promises_leave(path: Path) -> None:
    size = fill(path, 3)[-1]
    end = store_list(str(path), (promise(2),), size)
    assert read(path) == ([2], end)
    head = store_list(str(path), (), end)
    assert read(path) == ([], head)
    # Never to nothing: see store_list.
    assert path.stat().st_size == head > 0
    append(str(path), promise(5), head)
    assert read(path)[0] == [5]


def test_a_full_disk_leaves_the_list_as_it_was() -> None:
    """On a real one: /dev/full is no file, so the limit on file sizes stands in for it."""
    import resource
    import signal
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ledger"
        size = fill(path, 2)[-1]
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, old[1]))
            with pytest.raises(OSError, match=r"space|large"):
                append(str(path), promise(3), size)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, handler)
        assert read(path) == ([0, 1], size)
        assert path.stat().st_size == size


@pytest.mark.parametrize("kind", ["pipe", "link", "half a file"])
def test_what_lies_where_the_new_file_is_written(path: Path, tmp_path: Path, kind: str) -> None:
    """It is neither waited for, nor followed, nor in the way."""
    new, other = path.with_name("ledger.new"), tmp_path / "other"
    if kind == "pipe":
        os.mkfifo(new)
    elif kind == "link":
        other.write_bytes(b"mine")
        new.symlink_to(other)
    else:
        new.write_bytes(b"x" * 9999)
    fill(path, 2)
    assert read(path)[0] == [0, 1]
    assert kind != "link" or other.read_bytes() == b"mine"


def test_a_file_that_no_memory_holds_is_not_read(path: Path) -> None:
    fill(path, 1)
    os.truncate(path, 1 << 32)
    assert read(path) == ([], 0)


# -- the lock --------------------------------------------------------------------------------


def test_taking_the_lock_is_a_sign_of_life(tmp_path: Path) -> None:
    """A submission that is refused, or changes nothing, leaves no other."""
    lock = tmp_path / "lock"
    lock.write_bytes(b"")
    os.utime(lock, (1e9, 1e9))
    with Lock(str(tmp_path)) as taken:
        assert taken.held
        assert 0 <= time.time() - lock.stat().st_mtime < 1


@pytest.mark.parametrize("signs", [0, 3])
def test_the_lock_is_waited_for_while_others_get_on(tmp_path: Path, signs: int) -> None:
    """Longer than the wait itself, as each of many has its turn; not behind a stopped one."""
    lock = tmp_path / "lock"

    def others(held: int) -> None:
        for _ in range(signs):
            time.sleep(0.6)
            os.utime(lock)
        time.sleep(0.2 if signs else 1.5)
        os.close(held)

    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    # As of a holder before them.
    os.utime(lock, (1e9, 1e9))
    thread = threading.Thread(target=others, args=(held,))
    thread.start()
    began = time.monotonic()
    with Lock(str(tmp_path), wait=1.0) as waited:
        assert waited.held == bool(signs), waited.trouble
        assert time.monotonic() - began >= (1.8 if signs else 1.0)
    thread.join()

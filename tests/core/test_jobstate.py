"""Job states and ids (known cases B52, B57, B58, B64)."""

import pytest

from sbatch_router.core.jobstate import (
    FAILED,
    RUNNING,
    SUCCESS,
    base_id,
    combine,
    covers,
    plain_id,
    settle,
    task_numbers,
    word,
)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETED", SUCCESS),
        ("completed", SUCCESS),
        ("COMPLETE+", SUCCESS),
        ("COMPLETING", RUNNING),
        ("COMPLETI+", RUNNING),
        ("CANCELLED by 1001", FAILED),
        ("CANCELLED+", FAILED),
        ("OUT_OF_ME+", FAILED),
        ("OUT_OF_MEMORY", FAILED),
        ("TIMEOUT", FAILED),
        ("DEADLINE", FAILED),
        ("BOOT_FAIL", FAILED),
        ("NODE_FAIL", FAILED),
        ("PREEMPTED", FAILED),
        ("SPECIAL_EXIT", FAILED),
        ("REVOKED", FAILED),
        ("FAILED", FAILED),
        ("RESIZING", RUNNING),
        ("REQUEUED", RUNNING),
        ("REQUEUE_HOLD", RUNNING),
        ("SUSPENDED", RUNNING),
        ("PENDING", RUNNING),
        ("RUNNING", RUNNING),
        ("", None),
        ("NEVER_HEARD_OF", None),
    ],
)
def test_B58_a_decorated_or_rare_state_has_one_of_three_words(state, expected):
    assert word(state) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("123", ("123", "")), ("123;clustera", ("123", "clustera")), (" 7;b \n", ("7", "b"))],
)
def test_B52_the_cluster_is_taken_off(given, expected):
    assert plain_id(given) == expected


@pytest.mark.parametrize(
    ("ident", "base", "tasks"),
    [
        ("123", "123", None),
        ("123_4", "123", [(4, 4, 1)]),
        ("123_[5-9%2]", "123", [(5, 9, 1)]),
        ("123_[1,3,5-9:2%3]", "123", [(1, 1, 1), (3, 3, 1), (5, 9, 2)]),
        ("123+1", "123", None),
    ],
)
def test_B64_array_ids(ident, base, tasks):
    assert base_id(ident) == base
    assert task_numbers(ident) == tasks


@pytest.mark.parametrize(
    ("row", "asked", "expected"),
    [
        ("123_4", "123", True),
        ("123_[5-9%2]", "123", True),
        ("123_[5-9%2]", "123_7", True),
        ("123_[5-9%2]", "123_4", False),
        ("123_4", "123_4", True),
        ("123_4", "123_[5-9%2]", False),
        ("1234", "123", False),
        ("123+1", "123", True),
    ],
)
def test_which_rows_stand_for_a_job(row, asked, expected):
    assert covers(row, asked) is expected


def test_a_job_is_final_only_when_all_its_parts_are():
    assert combine([SUCCESS, RUNNING, FAILED]) == RUNNING
    assert combine([SUCCESS, FAILED]) == FAILED
    assert combine([SUCCESS, SUCCESS]) == SUCCESS
    assert combine([]) is None


def test_B57_either_source_alone_is_enough():
    assert settle({"5": {"5": RUNNING}}, {}, "5") == RUNNING
    assert settle({}, {"5": {"5": SUCCESS}}, "5") == SUCCESS
    assert settle({}, {}, "5") is None


def test_a_requeued_job_is_what_the_queue_says():
    assert settle({"5": {"5": RUNNING}}, {"5": {"5": FAILED}}, "5") == RUNNING


def test_pending_tasks_keep_an_array_running():
    queue = {"9": {"9_[3-5%1]": RUNNING}}
    accounting = {"9": {"9_1": SUCCESS, "9_2": SUCCESS, "9_[3-5%1]": RUNNING}}
    assert settle(queue, accounting, "9") == RUNNING
    assert settle(queue, accounting, "9_2") == SUCCESS
    assert settle(queue, accounting, "9_4") == RUNNING
    assert settle({}, {"9": {"9_1": SUCCESS, "9_2": FAILED}}, "9") == FAILED

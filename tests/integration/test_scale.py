"""bench/scale.py with few of everything: its figures are not looked at, its checks are."""

import sys

from harness import REPO, mark

sys.path.insert(0, str(REPO / "bench"))
import scale  # noqa: E402

SMALL = ["--seconds", "0.2", "--settle", "0", "--lease-ttl-ms", "1000", "--queues", "60", "--partitions", "3000"]


@mark(timeout=300, store="file")
def test_many_queues(env):
    scale.measure_queues(env, scale.options_of(SMALL))


@mark(timeout=300, store="file")
def test_many_partitions_of_a_queue(env):
    scale.measure_partitions(env, scale.options_of(SMALL))


@mark(timeout=300, store="file")
def test_many_ids(env):
    scale.measure_dedup(env, scale.options_of([*SMALL, "--ids", "20000"]))

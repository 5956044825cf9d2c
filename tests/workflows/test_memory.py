from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hicache_bench.units import GIB, MIB
from hicache_bench.workflows.memory import available_memory_bytes, usable_memory_bytes

MACHINE_BYTES = 64 * GIB


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of a machine with 64 GiB available, and no control group yet."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    lines = f"MemTotal: {2 * MACHINE_BYTES // 1024} kB\nMemAvailable:   {MACHINE_BYTES // 1024} kB\n"
    (tmp_path / "proc" / "meminfo").write_text(lines)
    return tmp_path / "proc"


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def join(proc: Path, *lines: str) -> None:
    (proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))


def add_v2(group: Path, limit: int | str, usage: int, inactive_file: int = 0) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{usage}\n")
    (group / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_file {inactive_file}\n")


def add_v1(group: Path, limit: int, usage: int, inactive_file: int = 0) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (group / "memory.usage_in_bytes").write_text(f"{usage}\n")
    (group / "memory.stat").write_text(f"inactive_file 7\ntotal_inactive_file {inactive_file}\n")


def test_without_a_limit_the_machine_counts(proc: Path, cgroups: Path) -> None:
    assert MACHINE_BYTES == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_v2_limit_minus_working_set(proc: Path, cgroups: Path) -> None:
    join(proc, "0::/")
    add_v2(cgroups, 8 * GIB, usage=3 * GIB, inactive_file=GIB)
    assert 6 * GIB == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_v2_without_limit(proc: Path, cgroups: Path) -> None:
    join(proc, "0::/")
    add_v2(cgroups, "max", usage=3 * GIB)
    assert MACHINE_BYTES == available_memory_bytes(proc=proc, cgroups=cgroups)


@pytest.mark.parametrize("tightest", ["user.slice", "user.slice/job", "user.slice/job/step"])
def test_v2_tightest_ancestor_wins(proc: Path, cgroups: Path, tightest: str) -> None:
    join(proc, "0::/user.slice/job/step")
    for group in ("user.slice", "user.slice/job", "user.slice/job/step"):
        add_v2(cgroups / group, (2 if group == tightest else 16) * GIB, usage=GIB)
    add_v2(cgroups / "user.slice" / "other", MIB, usage=0)
    assert GIB == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_v1_limit_minus_working_set(proc: Path, cgroups: Path) -> None:
    join(proc, "9:name=systemd:/a", "4:cpu,cpuacct:/a", "3:memory:/a", "0::/")
    add_v1(cgroups / "memory" / "a", 8 * GIB, usage=3 * GIB, inactive_file=GIB)
    assert 6 * GIB == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_v1_path_of_the_host_inside_a_container(proc: Path, cgroups: Path) -> None:
    join(proc, "3:memory:/docker/0123456789ab")
    add_v1(cgroups / "memory", 4 * GIB, usage=GIB)
    assert 3 * GIB == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_v1_unlimited(proc: Path, cgroups: Path) -> None:
    join(proc, "3:memory:/")
    add_v1(cgroups / "memory", 2**63 - 4096, usage=GIB)
    assert MACHINE_BYTES == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_machine_below_the_limit_wins(proc: Path, cgroups: Path) -> None:
    join(proc, "0::/")
    add_v2(cgroups, 4 * MACHINE_BYTES, usage=0)
    assert MACHINE_BYTES == available_memory_bytes(proc=proc, cgroups=cgroups)


def test_group_over_its_limit_leaves_nothing(proc: Path, cgroups: Path) -> None:
    join(proc, "0::/")
    add_v2(cgroups, GIB, usage=GIB + MIB)
    assert available_memory_bytes(proc=proc, cgroups=cgroups) == 0


def test_no_proc_is_physical_memory(tmp_path: Path) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert physical == available_memory_bytes(proc=tmp_path, cgroups=tmp_path)


def test_this_machine() -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory_bytes() <= physical


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds only on Linux")
def test_a_run_leaves_some_of_it_to_the_machine() -> None:
    assert 0 < usable_memory_bytes() < 0.9 * available_memory_bytes()


def test_address_space_limit_counts() -> None:
    script = "from hicache_bench.workflows import memory; print(memory.available_memory_bytes())"
    limit = 512 * MIB
    child = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    # Less than the limit, since the interpreter itself is in it.
    assert 0 < int(child.stdout) < limit - MIB

"""How much memory a run may still take.

In a container the machine's own figure is far too high: what counts there is the limit of the control group
and of each group above it. A limit on the address space (``ulimit -v``) counts as well.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

MEMORY_SHARE = 0.85
"""Part of the available memory that a run may take; the rest is for the interpreter and the machine."""

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")

# Files of the limit and the usage, and the entry of memory.stat, for each version of control groups.
_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def usable_memory_bytes() -> int:
    """Bytes that a run may take: :data:`MEMORY_SHARE` of :func:`available_memory_bytes`."""
    return int(available_memory_bytes() * MEMORY_SHARE)


def available_memory_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that this process can still take before something refuses or kills it; never negative.

    The least of: the kernel's ``MemAvailable``; limit minus working set of every control group (v2 or v1)
    that this process is in, up to the root; what ``RLIMIT_AS`` leaves. The working set is the usage without
    inactive file pages, which the kernel gives back before it kills (the kubelet counts in the same way).
    Swap is not counted: a benchmark that swaps measures the disk. Where there is no ``/proc`` (macOS) it is
    the physical memory.

    ``proc`` and ``cgroups`` are where these file systems are mounted.
    """
    rooms = [_machine_bytes(proc), *_cgroup_rooms(proc, cgroups), *_address_space_rooms(proc)]
    return max(0, min(rooms))


def _machine_bytes(proc: Path) -> int:
    for line in _lines(proc / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024  # "kB" there means KiB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_rooms(proc: Path, cgroups: Path) -> Iterator[int]:
    for line in _lines(proc / "self" / "cgroup"):
        # hierarchy:controllers:path; version 2 has no controllers.
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, mount = _V2, cgroups
        elif "memory" in controllers.split(","):
            version, mount = _V1, cgroups / "memory"
        else:
            continue
        # Inside a container the path may be the host's and exist only up to the mount, which is then the
        # container's own group. So every ancestor is tried, and those that are not there are no limit.
        group = mount / path.strip().lstrip("/")
        for ancestor in (group, *group.parents):
            yield from _group_room(ancestor, *version)
            if ancestor == mount:
                break


def _group_room(group: Path, limit_file: str, usage_file: str, inactive: str) -> Iterator[int]:
    limit = _lines(group / limit_file)
    usage = _lines(group / usage_file)
    if not limit or not usage or limit[0] == "max":
        return
    statistics = dict(line.split() for line in _lines(group / "memory.stat"))
    working_set_bytes = int(usage[0]) - int(statistics.get(inactive, 0))
    yield int(limit[0]) - max(0, working_set_bytes)


def _address_space_rooms(proc: Path) -> Iterator[int]:
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit_bytes == resource.RLIM_INFINITY:
        return
    size = _lines(proc / "self" / "statm")
    taken_bytes = int(size[0].split()[0]) * resource.getpagesize() if size else 0
    yield limit_bytes - taken_bytes


def _lines(path: Path) -> list[str]:
    """Lines of a kernel file; none where it is missing or may not be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_bench.records.io import record_name
from hicache_bench.report.sweep_csv import write_rows
from tests.workflows.simulate.rig import simulated


@pytest.mark.parametrize(("prefixes", "place"), [((1024,), ""), ((1024, 2048), "-1of2")])
def test_a_table_has_the_name_of_its_records(tmp_path: Path, prefixes: tuple[int, ...], place: str) -> None:
    first, *_ = simulated("llama-3.1-8b", prefix_tokens=prefixes)
    path = write_rows([{"a": 1, "b": None}, {"a": 2, "b": "x,y"}], first, tmp_path)
    assert (tmp_path, ".csv") == (path.parent, path.suffix)
    assert record_name(first) == f"{path.stem}{place}.json"
    assert 'a,b\n1,\n2,"x,y"\n' == path.read_text()

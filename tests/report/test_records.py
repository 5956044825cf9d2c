from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hicache_bench.errors import InputError
from hicache_bench.records.io import load_record
from hicache_bench.records.kinds import KINDS
from hicache_bench.report.records import listed_in, render_listed, render_record
from tests.records.golden import FOLDER, golden_path, golden_record
from tests.report.outputs import plain


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_shown_as_by_its_command(kind: str) -> None:
    record = load_record(golden_path(kind))
    text = plain(render_record(record))
    assert len(text.splitlines()) > 5
    assert max(map(len, text.splitlines())) <= 80


def test_a_kind_without_tables_is_named() -> None:
    class Unknown:
        kind, subject, created_utc, status = "walk", "model", "2026-01-01", "ok"

    assert "walk record of model, 2026-01-01: ok\n" == plain(render_record(Unknown()))


def test_what_cannot_be_read_is_listed_with_its_fault(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "good.json").write_text(golden_path("run").read_text())
    bad, good = listed_in(tmp_path)
    assert ("unreadable", True) == (bad.status, "bad.json' is not a JSON record" in (bad.fault or ""))
    assert ("run", "kitchen-sink", (8192,), "measured", "ok", None) == (
        good.kind, good.subject, good.tokens, good.evidence, good.status, good.fault,
    )  # fmt: skip
    text = plain(render_listed([bad, good]))
    assert "bad.json" in text
    assert "is not a JSON record" in " ".join(text.split())


def test_a_name_is_never_broken(tmp_path: Path) -> None:
    name = "20261130T020019.893372Z-simulate-llama-3.1-70b-bb0cbe17-1of2.json"
    (tmp_path / name).write_text(golden_path("simulate").read_text())
    (tmp_path / "bad.json").write_text("{")
    lines = plain(render_listed(listed_in(tmp_path))).splitlines()
    assert [name, "  simulate: ok", "bad.json", "  -: unreadable"] == lines[:4]


def test_every_kept_record_is_listed() -> None:
    assert {f"{kind}.v1.json" for kind in KINDS} <= {listed.file for listed in listed_in(FOLDER)}


def test_a_directory_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no record; hicache-bench run writes some"):
        listed_in(tmp_path)


def test_what_fits_no_table_is_refused(tmp_path: Path) -> None:
    """Every field has its type, and the figures are still none that a bench writes."""
    record = golden_record("bench")
    record["series"][0]["summary"]["median"] = 0.0
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"this bench record fits no table \(ZeroDivisionError"):
        render_record(load_record(path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="holds no record"):
        listed_in(tmp_path)

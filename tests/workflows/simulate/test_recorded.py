from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.config.catalogue import shipped_files
from hicache_bench.errors import InputError
from hicache_bench.records.io import write_record
from hicache_bench.workflows.simulate.recorded import read_run
from tests.workflows.runs import cached_run, run_now
from tests.workflows.simulate.rig import one, simulated


def recorded(tmp_path: Path, preset: str, *lengths: int, **options: Any) -> Path:
    return write_record(cached_run(preset, *lengths, **options), tmp_path)


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("deepseek-v4-flash", {"tp": 4}),
        ("gpt-oss-120b", {"tp": 2}),
        ("jamba-1.5-mini", {"tp": 8}),
        ("kitchen-sink", {"tp": 2, "cp": "2:sharded"}),
        ("qwen3-next-80b-a3b", {"tp": 2, "save_policy": "state=last", "local_prefix_tokens": 1024}),
    ],
)
def test_a_record_gives_the_times_of_its_preset(tmp_path: Path, preset: str, options: dict[str, Any]) -> None:
    run = read_run(recorded(tmp_path, preset, 16384, **options))
    from_record = one(run, prefix_tokens=16384, save_policy=run.save_policy, local_tokens=run.local_tokens)
    assert from_record.volumes.startswith("record 2")
    assert "counted" == from_record.volumes_evidence
    if "cp" not in options:
        planned = one(
            preset,
            prefix_tokens=16384,
            tp=options["tp"],
            save_policy=run.save_policy,
            local_tokens=run.local_tokens,
        )
        assert (planned.policies, planned.recompute) == (from_record.policies, from_record.recompute)
        assert (planned.preset, planned.preset_digest) == (from_record.preset, from_record.preset_digest)


def test_layers_that_share_are_read_back(tmp_path: Path) -> None:
    text = shipped_files()["llama-3.1-8b"].read_text(encoding="utf-8")
    shared = text.replace(
        "  - repeat: 32\n    of: [full]", "  - repeat: 20\n    of: [full]\n  - repeat: 12\n    of: [none]"
    )
    path = tmp_path / "sharing.yaml"
    path.write_text(shared + "shared_layers:\n  - repeat: 12\n    of: [full]\n")
    record = run_now(str(path), 1024)
    spec = read_run(write_record(record, tmp_path)).served.spec
    assert (32, 20, 12) == (
        record.pools[0].unit_bytes // (64 * 4096),
        spec.layer_counts["full"],
        len(spec.shared_layers),
    )


def test_bytes_that_were_moved_are_measured(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path, "kitchen-sink", 1024, store="local"))
    assert "measured" == one(run, prefix_tokens=1024).volumes_evidence


def test_limits_narrow_what_the_record_says(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path, "llama-3.1-8b", 16384))
    whole, limited = simulated(run, prefix_tokens=16384, host_capacity_tokens=(None, 8192))
    assert [16384, 8192] == [record.policies[0].used_tokens for record in (whole, limited)]
    assert whole.policies[0].num_bytes == 2 * limited.policies[0].num_bytes


@pytest.mark.parametrize("is_dense", [True, False], ids=["all", "selected"])
def test_what_an_index_selected_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dense: bool
) -> None:
    monkeypatch.setattr("hicache_bench.workflows.selection.dense_is_cheaper", lambda *_, **__: is_dense)
    record = run_now("kitchen-sink", 65536, num_queries=1)
    run = read_run(write_record(record, tmp_path))
    times = {time.policy: time for time in one(run, prefix_tokens=65536).policies}
    expected = {policy.policy: policy.read.num_bytes for policy in record.results[0].policies}
    assert expected == {name: time.num_bytes for name, time in times.items()}
    plain = {time.policy: time for time in one("kitchen-sink", tp=1, prefix_tokens=65536).policies}
    assert is_dense == (times["selective"].num_bytes == plain["selective"].num_bytes)
    assert {65536} == {time.used_tokens for time in times.values()}


def test_a_length_that_is_not_there_is_told(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path, "llama-3.1-8b", 1024, 2048))
    with pytest.raises(InputError, match="has no prefix of 4,096 tokens; its lengths: 1,024, 2,048"):
        one(run, prefix_tokens=4096)


def edited(path: Path, **changes: Any) -> Path:
    data = json.loads(path.read_text()) | changes
    target = path.with_name("edited.json")
    target.write_text(json.dumps(data))
    return target


def test_bytes_that_the_plan_does_not_have_are_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path, "llama-3.1-8b", 1024)
    data = json.loads(path.read_text())
    (result,) = data["results"]
    selective = result["ranks"][0]["policies"][2]
    account = selective["pools"][0]
    for amount in (account["total"], account["read"], selective["read"], result["policies"][2]["read"]):
        amount["pages"] -= 1
        amount["objects"] -= data["pools"][0]["unit_objects"]
        amount["num_bytes"] -= data["pools"][0]["unit_bytes"]
    run = read_run(edited(path, results=data["results"]))
    with pytest.raises(InputError, match=r"selective read .* B in .* run it again"):
        one(run, prefix_tokens=1024)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset_digest": "0" * 64}, "does not have the digest that it names"),
        ({"status": "failed"}, "whose checks failed"),
        ({"preset": {}}, "None is no name of a preset"),
        ({"preset": {"name": "llama-3.1-8b"}}, "not a whole record"),
        ({"deployment": {}}, "not a whole record"),
        ({"save_policy": "none"}, "is not a save policy"),
    ],
)
def test_a_record_that_was_changed_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_run(edited(recorded(tmp_path, "llama-3.1-8b", 1024), **changes))


def test_a_record_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_record(one("llama-3.1-8b"), tmp_path)
    with pytest.raises(InputError, match="is a record of 'simulate'; --from takes one of 'run'"):
        read_run(path)

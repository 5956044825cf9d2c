from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import StoreError
from hicache_bench.records.io import read_record
from hicache_bench.store.faults import CorruptGet, FaultyStore
from hicache_bench.units import MIB
from hicache_bench.workflows import run as workflow
from hicache_bench.workflows.stores import open_store
from tests.cli.command import Command, finish, resident_bytes, run_apart, start, wait_until

SMALL = ("run", "--preset", "kitchen-sink", "--tokens", "1k", "--repeat", "1")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results"


def only_record(out: Path) -> Path:
    (path,) = out.iterdir()
    return path


def test_the_main_job(command: Command, out: Path) -> None:
    answer = command("run", "--preset", "deepseek", "--out", out, "--repeat", 1)
    assert 0 == answer.code
    for figure in ("293,062,656", "40,102,656", "-86.3%", "7.31x", "[measured]", "moved and verified"):
        assert figure in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    path = only_record(out)
    assert f"record: {path}\n" == answer.err
    record = read_record(path)
    assert ("ok", "deepseek-v4-flash") == (record["status"], record["preset"]["name"])
    assert ["hicache-bench", "run", "--preset", "deepseek", "--out", "results", "--repeat", "1"] == record[
        "command"
    ]
    assert str(out) not in path.read_text()


def test_json_on_stdout_is_the_record_on_disk(command: Command, out: Path) -> None:
    answer = command(*SMALL, "--json", "--out", out)
    assert 0 == answer.code
    assert json.loads(answer.out) == read_record(only_record(out))


def test_every_option_reaches_the_run(command: Command, out: Path) -> None:
    options = (
        "--preset deepseek-v3.2 --tokens 1k,2k --store count --local-prefix 512 --queries 2 "
        "--save-policy state=all,window=trailing:+1 --key-scheme sglang --layout page_first_direct --json"
    )
    record = json.loads(command("run", *options.split(), "--out", out).out)
    assert [1024, 2048] == [result["tokens"] for result in record["results"]]
    assert {"page_first_direct"} == {pool["layout"] for pool in record["pools"]}
    expected = {
        "store": "count",
        "local_prefix_tokens": 512,
        "queries": 2,
        "key_scheme": "sglang",
        "save_policy": "state=all,window=trailing:+1",
    }
    assert expected == {name: record[name] for name in expected}


def malformed(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text("name: bad\nname: twice\nlayers: [\n")
    return path


def impossible(tmp_path: Path) -> Path:
    """A window that not even the query's own token is in."""
    source = Path(__file__).parents[2] / "presets" / "models" / "kitchen-sink.yaml"
    path = tmp_path / "impossible.yaml"
    path.write_text(source.read_text().replace("window: 512", "window: 0"))
    return path


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--preset", "depseek"], ["no preset is named 'depseek'", "did you mean 'deepseek'"]),
        (["--preset", "MALFORMED"], ["bad.yaml", "2"]),
        (["--preset", "IMPOSSIBLE"], ["impossible.yaml", "window"]),
        (["--preset", "GONE.yaml"], ["GONE.yaml"]),
        (["--tokens", "255"], ["255", "shorter than a page of 256", "--tokens 256"]),
        (["--tokens", "eight"], ["'eight'", "8k"]),
        (["--tokens", "8k,,32k"], ["''", "8k"]),
        (["--tokens", "-8k"], ["-8k"]),
        (["--tokens", "1e400"], ["1e400"]),
        (["--memory", "1024TiB"], ["--memory", "more than"]),
        (["--memory", "lots"], ["'lots'", "64GiB"]),
        (["--memory", "4"], ["'4' is 4 bytes of memory", "give it a unit: 4GiB"]),
        (["--segment", "8XB", "--store", "mooncake"], ["'8XB'", "64GiB"]),
        (["--local-prefix", "some"], ["'some'", "8k"]),
        (["--save-policy", "state=first"], ["state=first", "state=last", "window=trailing:+2"]),
        (["--save-policy", ""], ["state=last"]),
        (["--save-policy", "state=every:0"], ["at least one token"]),
        (["--store", "redis"], ["'redis'", "local, count, mooncake"]),
        (["--master", "127.0.0.1:50051"], ["--master is for --store mooncake"]),
        (["--key-scheme", "sg"], ["'sg'", "namespaced, sglang"]),
        (["--layout", "page_last"], ["'page_last'", "page_head"]),
        (["--layout", "layer_first"], ["layer_first", "use page_first"]),
        (["--repeat", "0"], ["--repeat"]),
        (["--queries", "-1"], ["--queries"]),
        (["--preset", "qwen3-next", "--queries", "1"], ["--queries", "no index", "leave --queries out"]),
        (["--preset", "minimax-m3", "--queries", "1"], ["--queries", "no index", "leave --queries out"]),
        (["--preset", "kitchen-sink", "--key-scheme", "sglang"], ["use --key-scheme namespaced"]),
    ],
    ids=" ".join,
)
def test_bad_input(
    command: Command, tmp_path: Path, out: Path, arguments: list[str], parts: list[str]
) -> None:
    files = {"MALFORMED": malformed(tmp_path), "IMPOSSIBLE": impossible(tmp_path)}
    given = [str(files.get(argument, argument)) for argument in arguments]
    preset = [] if "--preset" in given else ["--preset", "deepseek"]
    command("run", *preset, *given, "--out", out).assert_refused(2, *parts)
    assert not out.exists()


def test_results_that_cannot_be_written_are_found_before_any_work(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = command("run", "--preset", "llama-3.1-70b", "--out", tmp_path / "file" / "runs")
    answer.assert_refused(2, "cannot write results to", "--out")


@pytest.mark.parametrize(
    ("address", "code"),
    [("127.0.0.1:PORT", 3), ("nonsense", 2), ("127.0.0.1", 2), ("127.0.0.1:0", 2), ("127.0.0.1:99999", 2)],
)
def test_a_master_that_is_not_there(command: Command, out: Path, address: str, code: int) -> None:
    with socket.socket() as taken:  # bound and not listening: the port refuses
        taken.bind(("127.0.0.1", 0))
        given = address.replace("PORT", str(taken.getsockname()[1]))
        started = time.monotonic()
        answer = command(*SMALL, "--store", "mooncake", "--master", given, "--out", out)
        assert time.monotonic() - started < 5  # the client's own retry would take 90 s
    answer.assert_refused(code, given)
    assert not out.exists()


class CorruptAll(CorruptGet):
    """One wrong bit in every object that is read."""

    def spoils(self, call: int, key: str) -> bool:
        return True


def test_bytes_that_come_back_wrong_exit_with_4(
    command: Command, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def corrupting(*arguments, **options):
        with open_store(*arguments, **options) as opened:
            yield replace(opened, backend=FaultyStore(opened.backend, [CorruptAll(frozenset())]))

    monkeypatch.setattr(workflow, "open_store", corrupting)
    answer = command(*SMALL, "--out", out)
    assert 4 == answer.code
    assert 3 == answer.out.count("FAILED")
    assert "error: 3 checks failed; the record says what was expected and found" in answer.err
    assert "failed" == read_record(only_record(out))["status"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(out: Path, stop: signal.Signals) -> None:
    with start("run", "--preset", "deepseek", "--repeat", 100_000, "--out", out) as process:
        # Host pools and store are filled: it is restoring, or about to.
        wait_until(lambda: resident_bytes(process.pid) > 400 * MIB, process)
        process.send_signal(stop)
        answer = finish(process)
    assert (130, "") == (answer.code, answer.out)
    assert "interrupted: what was started is stopped; a record is there whole or not at all\n" == answer.err
    assert not out.exists()


def test_what_the_last_preset_refuses_is_found_before_the_first_is_run(
    command: Command, tmp_path: Path
) -> None:
    arguments = ["--page-tokens", 32, "--store", "count", "--tokens", "1k", "--out", tmp_path / "new"]
    command("run", "--preset", "kitchen-sink,deepseek", *arguments).assert_refused(
        2, "256 tokens only, not 32"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("problem", [KeyboardInterrupt, StoreError])
def test_several_presets_of_which_one_was_run_are_still_a_list(
    command: Command, monkeypatch: pytest.MonkeyPatch, out: Path, problem: type[BaseException]
) -> None:
    run, names = workflow.run, []

    def once(options: workflow.RunOptions, *arguments: Any) -> Any:
        names.append(options.variant.spec.name)
        if len(names) > 1:
            raise problem
        return run(options, *arguments)

    monkeypatch.setattr(workflow, "run", once)
    options = ("run", "--preset", "kitchen-sink,llama-3.1-8b", "--tokens", "1k", "--store", "count")
    answer = command(*options, "--json", "--out", out)
    assert answer.code == (130 if problem is KeyboardInterrupt else 3)
    assert [names[0]] == [record["preset"]["name"] for record in json.loads(answer.out)]
    assert 2 == len(names)


@pytest.mark.parametrize("option", ["--json", "--queries=0"])
def test_a_reader_that_stops_reading_is_no_fault(out: Path, option: str) -> None:
    with start(
        "run", "--preset", "deepseek", "--store", "count", "--tokens", "8k,16k", option, "--out", out
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        err = process.stderr.read()
        assert 0 == process.wait()
    assert "" == err.replace(f"record: {only_record(out)}\n", "")
    assert "ok" == read_record(only_record(out))["status"]


def test_piped_output_has_80_columns_whatever_the_terminal(out: Path) -> None:
    answer = run_apart("run", "--preset", "deepseek", "--store", "count", "--tokens", "8k,1M", "--out", out)
    assert 0 == answer.code
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "\x1b" not in answer.out + answer.err

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hicache_bench.errors import InputError, OutputError
from hicache_bench.trace.columns import read_columns
from hicache_bench.trace.format import OnError, read_trace, write_trace
from hicache_bench.trace.generate import GenerateOptions, TraceKind, generate
from tests.trace.traces import CONVERSATION, needs_conversation


def line(tokens: int = 1000, ids: object = (0, 1), stamp: object = 0, **fields: object) -> str:
    row = {"timestamp": stamp, "input_length": tokens, "output_length": 5, "hash_ids": ids, **fields}
    return json.dumps(row)


def written(folder: Path, *lines: str, name: str = "t.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{text}\n" for text in lines))
    return path


@needs_conversation
def test_the_conversation_trace_is_read_as_its_publisher_describes_it() -> None:
    trace = read_trace(CONVERSATION)
    assert (12_031, 288_500, 182_790) == (
        len(trace),
        len(trace.prompts.ids),
        trace.prompts.distinct,
    )
    assert (6758, 500, 102) == (trace.input_tokens[0], trace.output_tokens[0], trace.tail_tokens[0])
    assert (512, 144_793_823, 0) == (trace.block_tokens, trace.input_tokens.sum(), trace.skipped)


@pytest.mark.parametrize(
    ("tokens", "blocks", "tail"), [(6758, 14, 102), (1025, 3, 1), (512, 1, 512), (28, 1, 28)]
)
def test_e87_the_last_block_covers_what_the_others_leave(
    tmp_path: Path, tokens: int, blocks: int, tail: int
) -> None:
    trace = read_trace(written(tmp_path, line(tokens, list(range(blocks)))))
    assert tail == trace.tail_tokens[0]


def test_ids_keep_their_64_bits_and_equal_timestamps_their_order(tmp_path: Path) -> None:
    ids = [[1], [2**32 + 1], [2**64 - 1]]
    trace = read_trace(written(tmp_path, *(line(9, one, stamp=5) for one in ids)))
    assert [number for one in ids for number in one] == trace.prompts.ids.tolist()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_written_trace_is_read_back(tmp_path: Path, suffix: str) -> None:
    trace = generate(GenerateOptions(requests=40, seed=3))
    write_trace(trace, tmp_path / f"t{suffix}")
    back = read_trace(tmp_path / f"t{suffix}")
    assert trace.digest == back.digest
    assert back.outputs is not None
    with pytest.raises(OutputError, match="exists already"):
        write_trace(trace, tmp_path / f"t{suffix}")


def test_a_digest_is_of_the_requests(tmp_path: Path) -> None:
    plain = written(tmp_path, line(), line(ids=(0, 2)))
    packed = tmp_path / "other.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    changed = written(tmp_path, line(), line(ids=(0, 3)), name="changed.jsonl")
    digests = [read_trace(path).digest for path in (plain, packed, changed)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("fields", [{"block_size": 64}, {}])
def test_the_block_size_is_the_files_own_or_the_users(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = written(tmp_path, line(130, [4, 5, 6], **fields))
    trace = read_trace(path, block_tokens=None if fields else 64)
    assert 64 == trace.block_tokens


BAD = {
    "cut off": ('{"timestamp": 0', "not JSON"),
    "a list": ("[1, 2]", "not a JSON object"),
    "lacks a field": ('{"timestamp": 0, "input_length": 3}', "lacks output_length, hash_ids"),
    "text for a number": (line("x"), "input_length 'x' is not a whole number"),  # type: ignore[arg-type]
    "a fraction": (line(1.5, [0]), "input_length 1.5 is not a whole number"),  # type: ignore[arg-type]
    "true for a number": (line(True, [0]), "input_length True"),
    "NaN": (line(9, [0], stamp=float("nan")), "timestamp nan is not a number of milliseconds"),
    "ids that are text": (line(9, ["a"]), "hash_ids is not a list of whole numbers"),
    "too few ids": (line(1025, [0, 1]), "2 hash_ids for input_length 1025, which has 3 blocks of 512"),
    "too many ids": (line(20, [0, 1]), "2 hash_ids for input_length 20, which has 1 blocks of 512"),
    "an id twice": (line(1500, [0, 7, 7]), "holds id 7 twice"),
    "a negative id": (line(9, [-1]), "outside 0 to 2**64 - 1"),
    "an id of 65 bits": (line(9, [2**64]), "outside 0 to 2**64 - 1"),
    "no prompt": (line(0, []), "input_length 0 is no prompt"),
    "a negative output": (line(9, [0], output_length=-1), "output_length -1"),
    "time that goes back": (line(9, [0], stamp=-5), "timestamp -5 is before 0"),
    "another block size": (line(9, [0], block_size=64), "contradicts 512 of --trace-block-tokens"),
    "no block size": (line(9, [0], block_size=0), "block_size 0 is no size"),
    "outputs that do not fit": (line(9, [0], output_hash_ids=[1, 2]), "2 output_hash_ids, and 1 blocks"),
}


@pytest.mark.parametrize("behind", ["", line()], ids=["a blank line behind", "none behind"])
@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD)
def test_a_bad_line_is_named_or_left_out_and_counted(
    tmp_path: Path, bad: str, message: str, behind: str
) -> None:
    path = written(tmp_path, line(), bad, behind, line())
    with pytest.raises(InputError) as refused:
        read_trace(path, block_tokens=512)
    assert str(refused.value).startswith("t.jsonl:2: ")
    assert message in str(refused.value)
    trace = read_trace(path, block_tokens=512, on_error=OnError.SKIP)
    assert (3 if behind else 2, 1) == (len(trace), trace.skipped)
    assert message in str(trace.first_problem)


@pytest.mark.parametrize("kind", TraceKind, ids=str)
def test_a_trace_is_the_same_read_at_once_or_line_by_line(tmp_path: Path, kind: TraceKind) -> None:
    write_trace(generate(GenerateOptions(kind=kind, requests=50, block_tokens=96)), tmp_path / "t.jsonl")
    at_once = read_trace(tmp_path / "t.jsonl")
    content = (tmp_path / "t.jsonl").read_bytes()
    assert read_columns(content, None, 512) is not None
    (tmp_path / "t.jsonl").write_bytes(content.replace(b"\n", b"\n\n"))
    assert read_columns(content.replace(b"\n", b"\n\n"), None, 512) is None
    assert at_once.digest == read_trace(tmp_path / "t.jsonl").digest


def test_lines_that_only_together_are_json_are_refused(tmp_path: Path) -> None:
    whole = line()
    with pytest.raises(InputError, match=r"t\.jsonl:1: not JSON"):
        read_trace(written(tmp_path, whole[:30], whole[30:]))


@pytest.mark.parametrize("lines", [(), ("", " "), ("nonsense",)])
def test_a_trace_without_a_request_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="holds no request"):
        read_trace(written(tmp_path, *lines), on_error=OnError.SKIP)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.jsonl", None),
        ("t.jsonl.gz", b"plain"),
        ("t.jsonl.gz", b"\x1f\x8b\x08"),
        ("t.jsonl.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xff\xff\xff\xff"),
    ],
)
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="cannot read trace"):
        read_trace(tmp_path / name)


@pytest.mark.parametrize("name", ["endless.jsonl", "endless.jsonl.gz"])
def test_a_device_is_no_trace_and_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a pipe or a device"):
        read_trace(tmp_path / name)

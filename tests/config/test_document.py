from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_bench.config import document
from hicache_bench.config.document import MAX_DEPTH, Document, Mark, format_path, read_document


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def loader(request, monkeypatch):
    """Both readers of PyYAML: libyaml is an optional part of it."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(document, "LOADER", getattr(yaml, request.param))


def faults(text: str) -> list[tuple[int, int, str]]:
    read = read_document(text)
    return [(problem.mark.line, problem.mark.column, problem.field) for problem in read.problems]


def test_plain_data():
    read = read_document("a: [1, {b: x}]\nc:\n  - d\n  - e: null\n")
    assert {"a": [1, {"b": "x"}], "c": ["d", {"e": None}]} == read.data
    assert read.is_complete
    assert [] == read.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", 8),
        ("-8", -8),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ('"8"', "8"),
        ("'true'", "true"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text, expected):
    value = read_document(f"key: {text}").data["key"]
    assert expected == value
    assert type(expected) is type(value)


def test_marks_are_those_of_keys_and_items():
    read = read_document("a:\n  b: 1\nlist:\n  - x\n  - {c: 2}\n")
    assert {
        ("a",): Mark(1, 1),
        ("a", "b"): Mark(2, 3),
        ("list",): Mark(3, 1),
        ("list", 0): Mark(4, 5),
        ("list", 1): Mark(5, 5),
        ("list", 1, "c"): Mark(5, 6),
    } == read.marks
    assert Mark(2, 3) == read.mark_of(("a", "b", "missing"))
    assert Mark(1, 1) == read.mark_of(("missing",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1, "a")),
        ("x:\n  - {a: 1, b: 2, a: 3}\n", (2, 18, "x[0].a")),
        ("a: 1\n1: 2\n", (2, 1, "")),
        ("a:\n  true: 2\n", (2, 3, "a")),
        ("? [a]\n: 2\n", (1, 3, "")),
        ("? {a: b}\n: [1, 2]\n", (1, 3, "")),
        ("a: &x 1\n", (1, 4, "a")),
        ("a: [1, *x]\n", (1, 8, "a[1]")),
        ("a: !!python/object:os.system [x]\n", (1, 4, "a")),
        ("a: !!python/object/apply:os.system [x]\n", (1, 4, "a")),
        ("a: !custom x\n", (1, 4, "a")),
        ('a: !!int "8"\n', (1, 4, "a")),
        ("a: .nan\n", (1, 4, "a")),
        ("a: -.inf\n", (1, 4, "a")),
        ("a: 1e999\n", (1, 4, "a")),
        ("a: 1e300\n", (1, 4, "a")),
        ("a: -1e300\n", (1, 4, "a")),
        ("a: 1000000000000000000000\n", (1, 4, "a")),
        ("a: 1\n---\nb: 2\n", (2, 1, "")),
    ],
)
def test_each_fault_has_its_place(text, expected):
    assert [expected] == faults(text)


def test_faults_are_all_told_at_once():
    text = "a: .nan\nb: &x 1\nb: 2\n3: 4\nc: !t [*x]\n"
    assert [(1, 4, "a"), (2, 4, "b"), (3, 1, "b"), (4, 1, ""), (5, 4, "c"), (5, 8, "c[0]")] == faults(text)


def test_the_first_of_two_equal_keys_stays():
    assert {"a": 1} == read_document("a: 1\na: 2").data


@pytest.mark.parametrize("text", ["a: 1\n\tb: 2\n", "\ta: 1\n", "a:\n  \tb: 1\n  c"])
def test_tabs_are_named(text):
    (problem,) = read_document(text).problems
    assert "tab" in problem.text


@pytest.mark.parametrize("text", ["a: [1", "a: 'x", "a: b: c", "]", "a: @x", "- a\nb: 1", "%YAML 9\n---\na"])
def test_what_is_not_yaml_is_told_once_with_a_line(text):
    read = read_document(text)
    (problem,) = read.problems
    assert problem.mark.line >= 1
    assert not read.is_complete


def test_a_control_character_is_placed():
    assert [(2, 4, "")] == faults("a: é\nb: \x01\n")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n"])
def test_an_empty_file(text):
    read = read_document(text)
    assert ["the file holds nothing"] == [problem.text for problem in read.problems]
    assert not read.is_complete


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500_000,
        "{a: " * 200_000,
        "- " * 400_000,
        "? " * 400_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    ],
    ids=["lists", "maps", "items", "keys", "one too many"],
)
def test_deep_nesting_is_refused_without_recursion(text):
    read = read_document(text)
    assert 1 == len(read.problems)
    assert not read.is_complete


def test_the_deepest_nesting_that_is_allowed():
    read = read_document("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert read.is_complete
    assert [] == read.problems


def test_an_alias_bomb_is_not_expanded():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    read = read_document("\n".join(lines))
    assert 30 + 29 * 9 == len(read.problems)
    assert all(len(value) == 9 for value in read.data.values())


def test_half_a_surrogate_pair_is_refused():
    assert 1 == len(faults('a: "\\ud800"'))


def test_format_path():
    assert "layers[2].of[0]" == format_path(("layers", 2, "of", 0))
    assert "" == format_path(())


def test_placeholders_cover_what_is_below_them():
    read = Document(placeholders={("a", 0)})
    assert read.is_placeholder(("a", 0))
    assert read.is_placeholder(("a", 0, "b"))
    assert not read.is_placeholder(("a",))
    assert not read.is_placeholder(("a", 1))


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    read = read_document(text)
    assert read.is_complete or read.problems


TEXT = st.text(st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S", "Zs"]), max_size=12)
PLAIN_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(-1e99, 1e99) | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(PLAIN_DATA, st.sampled_from([None, 1]))
def test_json_reads_as_json(data, indent):
    # YAML 1.2 contains JSON; YAML 1.1 does not, and would take 1e5 for text.
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    read = read_document(text)
    assert [] == read.problems
    assert text == json.dumps(read.data, ensure_ascii=False, indent=indent)

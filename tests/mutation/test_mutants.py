"""The mutation check checked: each mutant breaks something, survivors are told, a few are caught."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.mutation import run
from tests.mutation.laboratory import CAUGHT, ROOT, STAGES, Laboratory, laboratory
from tests.mutation.mutant import Mutant
from tests.mutation.mutants import MUTANTS

PACKAGE = ROOT / "hicache_bench"
HARMLESS = Mutant(
    "another message", "planning/resolve.py", "no rank reported its legal endpoints", "no rank reported"
)
UNTOLD = Mutant("no such name", "planning/resolve.py", "def _largest(", "def _largest_of(")
SHORT = (
    "the state of the endpoint before",
    "the minimum of the pools' maxima",
    "not resolved again after the read",
    "a key without the dtype",
    "any component instead of all",
    "poison that is not looked for",
)
"""What every test run tries; ``make mutants`` tries all."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory() as opened:
        yield opened


def named(name: str) -> Mutant:
    (found,) = (mutant for mutant in MUTANTS if mutant.name == name)
    return found


def test_there_are_enough_mutants_each_with_its_own_name() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert len(names) >= 25
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_another_program(mutant: Mutant) -> None:
    original = mutant.original(PACKAGE)
    assert ast.dump(ast.parse(mutant.applied_to(original))) != ast.dump(ast.parse(original))


@pytest.mark.parametrize("old", ["no such line", "import"])
def test_a_mutant_whose_place_is_gone_or_unclear_is_refused(old: str) -> None:
    mutant = replace(HARMLESS, old=old)
    with pytest.raises(ValueError, match="must stand once"):
        mutant.applied_to(mutant.original(PACKAGE))


def test_the_package_is_whole_again_after_a_mutant(lab: Laboratory) -> None:
    mutant = MUTANTS[0]
    before = mutant.original(lab.package)
    with lab.broken(mutant):
        assert mutant.original(lab.package) != before
    assert mutant.original(lab.package) == before == mutant.original(PACKAGE)


@pytest.mark.slow
def test_the_package_as_it_is_passes(lab: Laboratory) -> None:
    assert [str(lab.outcome(stage)) for stage in ("bytes", "faults")] == ["passed", "passed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_mutant_is_caught(lab: Laboratory, name: str) -> None:
    with lab.broken(named(name)):
        *_, last = lab.outcomes(("bytes", "faults"))
    assert last.exit_code in CAUGHT, str(last)


@pytest.mark.slow
def test_a_crash_is_not_a_catch(lab: Laboratory) -> None:
    with lab.broken(UNTOLD):
        outcome = lab.outcome("bytes")
    assert not outcome.passed
    assert not outcome.caught
    assert "NameError" in str(outcome)


@pytest.mark.slow
def test_survivors_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    broken = named("a key without its namespace")
    equivalent = replace(HARMLESS, name="told the same", equivalent="nobody reads it")
    wrong = replace(broken, name="told otherwise", equivalent="it is not")
    monkeypatch.setattr(run, "MUTANTS", (HARMLESS, broken, equivalent, wrong))
    assert run.main(["--stages", "bytes"]) == 1
    told = capsys.readouterr().out
    assert "SURVIVED   planning/resolve.py: another message" in told
    assert "caught     pools/keys.py: a key without its namespace" in told
    assert "equivalent planning/resolve.py: told the same" in told
    assert "CAUGHT, though said to be equivalent pools/keys.py: told otherwise" in told
    assert "4 mutants in" in told


@pytest.mark.slow
def test_all_caught_is_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MUTANTS", (named("a key without its namespace"),))
    assert run.main(["--stages", "bytes"]) == 0


@pytest.mark.parametrize("arguments", [["--stages", "bites"], ["--only", "no such mutant"]])
def test_what_does_not_exist_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(arguments) == 2
    assert f"stages: {', '.join(STAGES)}" in capsys.readouterr().out


def test_mutants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list", "--only", "resolve.py"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert f"{HARMLESS.path}: the minimum of the pools' maxima" in listed

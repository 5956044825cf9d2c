"""Several ``run`` records of one setting as one: lengths side by side, timing samples of a length together.

Three runs of three restores are nine samples, with which a gate can judge time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hicache_bench.errors import InputError
from hicache_bench.records.compare import setting_differences
from hicache_bench.records.metrics import FAILED_CHECKS, Key, Value, metrics_of

_SAMPLES = ("seconds", "store_seconds", "selection_seconds")
_SAME = ("environment", "libraries", "tool_version", "token_seed", "store")


def merged(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One record of several, oldest first; the newest gives what there can be only one of.

    Raises:
        InputError: none given, of another kind, one that is there twice, or they differ in a setting, a
            machine or a figure.
    """
    if not records:
        raise InputError("nothing to merge; give run records")
    other = next((record["kind"] for record in records if record["kind"] != "run"), None)
    if other is not None:
        raise InputError(f"only run records can be merged, and one is of kind {other!r}")
    ordered = sorted(records, key=lambda record: str(record["created_utc"]))
    newest = ordered[-1]
    for record in ordered[:-1]:
        _check_alike(record, newest)
    lengths: dict[int, dict[str, Any]] = {}
    for record in ordered:
        for result in record["results"]:
            known = lengths.get(result["tokens"])
            if known is not None:
                _check_figures(_figures(newest, known), _figures(newest, result))
            lengths[result["tokens"]] = dict(result) if known is None else _joined(known, result)
    status = "ok" if all(record["status"] == "ok" for record in ordered) else "failed"
    return {**newest, "status": status, "results": [lengths[tokens] for tokens in sorted(lengths)]}


def _check_alike(record: Mapping[str, Any], newest: Mapping[str, Any]) -> None:
    differences = setting_differences(record, newest)
    differences += [
        f"{name}: {record[name]} and {newest[name]}" for name in _SAME if record[name] != newest[name]
    ]
    if differences:
        raise InputError(
            f"records that differ cannot be merged: {'; '.join(differences)}; compare them with "
            "hicache-bench gate"
        )


def _figures(record: Mapping[str, Any], result: Mapping[str, Any]) -> dict[Key, Value]:
    """Everything about a length that two runs must agree in: all but samples and verdicts."""
    return {
        key: value
        for key, value in metrics_of({**record, "results": [result]}).items()
        if not isinstance(value, tuple) and key.name[:1] != (FAILED_CHECKS,)
    }


def _check_figures(before: Mapping[Key, Value], after: Mapping[Key, Value]) -> None:
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if differing:
        place = ", ".join([label for _, label in differing[0].where] + [" ".join(differing[0].name)])
        raise InputError(
            f"records that disagree in {len(differing)} figures cannot be merged, the first of them is "
            f"{place}; compare them with hicache-bench gate"
        )


def _share_samples(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether all samples of one are samples of the other: no two runs agree to the last digit."""
    before, after = set(old["seconds"]), set(new["seconds"])
    return bool(before and after) and (before <= after or after <= before)


def _joined(known: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """One length of two runs."""
    for name in ("evidence", "store", "store_settings"):
        if known[name] != result[name]:
            raise InputError(
                f"at {result['tokens']} tokens the {name} differs: {known[name]} and {result[name]}; "
                "merge records that were made alike"
            )
    ranks = []
    for before, after in zip(known["ranks"], result["ranks"], strict=True):
        if any(map(_share_samples, before["policies"], after["policies"])):
            raise InputError(
                f"at {result['tokens']} tokens the same samples are there twice, and would look like more "
                "than were taken; give each run once"
            )
        policies = [
            {**new, **{name: [*old[name], *new[name]] for name in _SAMPLES}}
            for old, new in zip(before["policies"], after["policies"], strict=True)
        ]
        ranks.append({**after, "policies": policies})
    return {**result, "ranks": ranks, "checks": [*known["checks"], *result["checks"]]}

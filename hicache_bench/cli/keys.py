"""``hicache-bench keys``: under which keys a model's objects lie, and whether a store has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from hicache_bench.cli.quiet import takes_quiet
from hicache_bench.cli.variant import takes_variant

if TYPE_CHECKING:
    from hicache_bench.pools.keys import KeyUnit
    from hicache_bench.workflows.model_keys import Tokens
    from hicache_bench.workflows.variant import Variant, VariantOptions

_FIND_STORE = "mooncake"


@takes_variant
@takes_quiet
def keys_command(
    variant: VariantOptions,
    preset: str = typer.Option(..., "--preset", help="Name or alias of a preset, or a path to a .yaml file."),
    page_hash: str | None = typer.Option(
        None, "--hash", help="Hash of the page whose keys are printed, in hexadecimal."
    ),
    tokens: str | None = typer.Option(
        None, help="Length of an example prompt of token ids 1, 2, 3, ...; the keys of its last whole page."
    ),
    prompt: str | None = typer.Option(
        None,
        help="File of token ids (a JSON list, or separated by spaces; - is stdin); the keys of its pages.",
    ),
    key_unit: str = typer.Option("token", help="What a page counts: token, or bigram (SGLang under EAGLE)."),
    describe: bool = typer.Option(
        False, "--describe", help="Print as JSON what a router needs to build the keys itself."
    ),
    find: bool = typer.Option(False, "--find", help="Ask a running store which keys of --prompt it has."),
    store: str | None = typer.Option(None, help="Store that --find asks: mooncake, which is the default."),
    master: str | None = typer.Option(
        None, help="HOST:PORT of the running Mooncake master that --find asks."
    ),
    json: bool = typer.Option(False, "--json", help="Print JSON on stdout."),
) -> None:
    """Print the keys of a page: each pool, component and shard.

    Each key has a line of its own. Exits 1 if --find finds nothing at all.

    Example: hicache-bench keys --preset deepseek --key-scheme sglang --tokens 1k
    """
    from hicache_bench.cli.terminal import print_json, print_note, print_text
    from hicache_bench.config.load import load_model
    from hicache_bench.report.keys import describe_keys, keys_as_dict, keys_text
    from hicache_bench.workflows.footprint import PAGE_HASH
    from hicache_bench.workflows.model_keys import example_tokens, prompt_hashes, read_prompt, shards_of
    from hicache_bench.workflows.variant import apply_options

    _check_pages(page_hash, tokens, prompt, describe=describe, find=find)
    _check_find(prompt, find=find, store=store, master=master)
    unit = _key_unit(key_unit)
    chosen = apply_options(load_model(preset), variant)
    shards = shards_of(chosen)
    if describe:
        print_json(describe_keys(chosen, shards, unit))
        return
    if find and prompt is not None and master is not None:
        _find(chosen, read_prompt(prompt), unit, master, json=json)
        return
    if prompt is not None:
        pages = list(enumerate(prompt_hashes(chosen, read_prompt(prompt), unit)))
    elif tokens is not None:
        pages = list(enumerate(prompt_hashes(chosen, example_tokens(_length(tokens)), unit)))[-1:]
    else:
        pages = [(-1, page_hash or PAGE_HASH)]
        if page_hash is not None and chosen.chain_seed is not None:
            print_note(
                "note: --adapter and --salt enter the hash of a page; the one given with --hash must contain "
                "them already"
            )
    if json:
        print_json(keys_as_dict(chosen, shards, pages, unit))
    else:
        for line in keys_text(chosen, shards, pages):
            print_text(f"{line}\n")


def _check_pages(
    page_hash: str | None, tokens: str | None, prompt: str | None, *, describe: bool, find: bool
) -> None:
    from hicache_bench.errors import InputError

    pages = {"--hash": page_hash, "--tokens": tokens, "--prompt": prompt}
    given = [option for option, value in pages.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} name different pages; give one of them")
    if describe and (given or find):
        raise InputError(f"--describe is of no single page; leave {given[0] if given else '--find'} out")
    if page_hash is not None and not re.fullmatch("(?:[0-9a-fA-F]{2})+", page_hash):
        raise InputError(
            f"--hash {page_hash!r} is no page hash; give an even number of hexadecimal digits (a whole hash "
            "has 64)"
        )


def _check_find(prompt: str | None, *, find: bool, store: str | None, master: str | None) -> None:
    from hicache_bench.errors import InputError

    if store not in (None, _FIND_STORE):
        raise InputError(f"--store {store!r} has no running server to ask; allowed: {_FIND_STORE}")
    if find and (prompt is None or master is None):
        missing = "--prompt FILE" if prompt is None else "--master HOST:PORT"
        raise InputError(f"--find asks a running store for the keys of a prompt; give {missing} too")
    for option, value in (("--master", master), ("--store", store)):
        if value is not None and not find:
            raise InputError(f"{option} is the store that --find asks; give --find too, or leave it out")


def _key_unit(name: str) -> KeyUnit:
    from hicache_bench.errors import InputError
    from hicache_bench.pools.keys import KeyUnit

    try:
        return KeyUnit(name)
    except ValueError as error:
        allowed = ", ".join(unit.value for unit in KeyUnit)
        raise InputError(f"unknown --key-unit {name!r}; allowed: {allowed}") from error


def _length(text: str) -> int:
    from hicache_bench.errors import InputError
    from hicache_bench.units import parse_tokens

    longest = 1 << 24
    length = parse_tokens(text)
    if length > longest:
        raise InputError(f"--tokens {text} is longer than an example needs; allowed: up to {longest:,}")
    return length


def _find(variant: Variant, tokens: Tokens, unit: KeyUnit, master: str, *, json: bool) -> None:
    from dataclasses import asdict

    from hicache_bench.cli.terminal import print_json, print_result
    from hicache_bench.errors import HicacheBenchError
    from hicache_bench.report.keys import render_inventory
    from hicache_bench.workflows.key_inventory import look_elsewhere, missing_keys_text, take_inventory
    from hicache_bench.workflows.model_keys import prompt_hashes
    from hicache_bench.workflows.stores import open_store

    hashes = prompt_hashes(variant, tokens, unit)
    with open_store(_FIND_STORE, stored_bytes=0, master=master) as opened:
        found = take_inventory(opened.backend, variant, hashes)
        hint = None
        if not found.keys_found:
            hint = missing_keys_text(found, *look_elsewhere(opened.backend, variant, tokens, unit))
    if json:
        print_json({**asdict(found), "hint": hint})
    else:
        print_result(render_inventory(found))
    if hint is not None:
        raise HicacheBenchError(hint)

"""Requests as paths of pages in the tree of all prefixes that a trace names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hicache_bench.errors import InputError
from hicache_bench.trace.columns import Counts
from hicache_bench.trace.format import IdLists, Trace

MAX_PAGES = 1 << 27
"""Pages of all requests together, and of all distinct blocks, that are followed: 0.5 GiB of memory each."""

Nodes = npt.NDArray[np.int32]


class HitDefinition(str, Enum):
    """What counts as a hit; printed with every rate.

    ``engine``: whole pages, and at least one token is recomputed. ``trace``: every page of every block, a
    partial last one too, and a whole prompt may hit; this is how papers and block simulators count.
    """

    ENGINE = "engine"
    TRACE = "trace"

    def __str__(self) -> str:
        return self.value

    @property
    def text(self) -> str:
        """The definition as a sentence."""
        return _DEFINITIONS[self]


_DEFINITIONS = {
    HitDefinition.ENGINE: (
        "the longest prefix of whole pages that is legal in every pool when the request arrives, at least "
        "one token of the prompt left to recompute"
    ),
    HitDefinition.TRACE: (
        "the longest prefix of blocks that is there when the request arrives; a partial last block counts "
        "with its tokens, and a whole prompt may hit"
    ),
}


class OutputSave(str, Enum):
    """What is saved of generated tokens: nothing, all but recurrent and compressor states, or everything."""

    NONE = "none"
    ATTENTION = "attention"
    ALL = "all"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class PagePaths:
    """The pages of each request, first to last, as numbers of pages in the tree.

    Two requests share a page if and only if they share its block and every block before it; a partial block
    is another one than the same id with another length. Request ``r`` saves
    ``pages[starts[r]:starts[r + 1]]``, of which the first ``prompt_pages[r]`` belong to its prompt and
    ``matchable[r]`` may hit.
    """

    page_tokens: int
    num_pages: int
    pages: Nodes = field(repr=False)
    starts: Counts = field(repr=False)
    prompt_pages: Counts = field(repr=False)
    matchable: Counts = field(repr=False)
    input_tokens: Counts = field(repr=False)

    def __len__(self) -> int:
        return len(self.matchable)

    @property
    def lengths(self) -> Counts:
        """Pages that each request saves."""
        return np.diff(self.starts)

    def of(self, request: int) -> Nodes:
        """Pages of one request."""
        return self.pages[self.starts[request] : self.starts[request + 1]]

    def tokens_at(self, endpoints: Counts) -> Counts:
        """Tokens of one endpoint per request; a partial last page counts what it holds."""
        return np.minimum(endpoints * self.page_tokens, self.input_tokens)

    @cached_property
    def request_of(self) -> Nodes:
        """The request of each page of :attr:`pages`."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @cached_property
    def previous(self) -> Nodes:
        """For each page of each request, the last request before it that has it; -1 where none does."""
        order, same = self._uses
        found = np.full(len(self.pages), -1, dtype=np.int32)
        found[order[1:][same]] = self.request_of[order[:-1][same]]
        return found

    @cached_property
    def following(self) -> Nodes:
        """For each page of each request, the next request that has it; ``len(self)`` where none does."""
        order, same = self._uses
        found = np.full(len(self.pages), len(self), dtype=np.int32)
        found[order[:-1][same]] = self.request_of[order[1:][same]]
        return found

    @cached_property
    def _uses(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """All pages sorted by page, then by time, and whether each is the same page as the one before it."""
        order = np.argsort(self.pages, kind="stable")
        return order, self.pages[order[1:]] == self.pages[order[:-1]]

    @cached_property
    def runs(self) -> tuple[Counts, Counts, Counts]:
        """Request, owner and length of each run of pages that the same request, the owner, had last.

        Owners only grow older along a path, since who has a page has all before it: a run ends where they
        change. Pages that nobody had before are at the end of a path, and in no run.
        """
        owners, request_of = self.previous, self.request_of
        changes = np.flatnonzero((owners[1:] != owners[:-1]) | (request_of[1:] != request_of[:-1])) + 1
        firsts = np.concatenate([np.zeros(min(1, len(owners)), dtype=np.int64), changes])
        lengths = np.diff(firsts, append=len(owners))
        had = owners[firsts] >= 0
        firsts = firsts[had]
        return request_of[firsts].astype(np.int64), owners[firsts].astype(np.int64), lengths[had]

    @cached_property
    def runs_of(self) -> list[list[tuple[int, int]]]:
        """Owner and length of the runs of each request, the first pages first."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(len(self))]
        for request, owner, length in zip(*(column.tolist() for column in self.runs), strict=True):
            found[request].append((owner, length))
        return found

    def seen_pages(self) -> Counts:
        """Pages of each request that an earlier one had: what a tier without bounds would hold of it."""
        return _leading(self.previous >= 0, self.starts)


def page_paths(
    trace: Trace,
    page_tokens: int,
    *,
    definition: HitDefinition = HitDefinition.ENGINE,
    outputs: OutputSave = OutputSave.NONE,
) -> PagePaths:
    """Split each block into pages of ``page_tokens``.

    With ``outputs``, a request saves its generated tokens too; its partial last block is then saved as a part
    of the block that the output completes, under that block's id.

    Raises:
        InputError: a block that is no whole number of pages, outputs without ids, too many pages.
    """
    per_block, rest = divmod(trace.block_tokens, page_tokens)
    if rest:
        raise InputError(
            f"blocks of {trace.block_tokens} tokens are no whole number of pages of {page_tokens}; give a "
            "--page-tokens that divides the block"
        )
    if outputs is not OutputSave.NONE and trace.outputs is None:
        raise InputError(
            f"trace {trace.name!r} has no output_hash_ids, so that its decode KV cannot be followed; leave "
            "--include-output out"
        )
    saved_tokens, blocks = trace.input_tokens, trace.prompts
    if outputs is not OutputSave.NONE and trace.outputs is not None:
        saved_tokens = trace.input_tokens + trace.output_tokens
        blocks = _joined(trace, trace.outputs)
    nodes, num_nodes = _block_nodes(trace, blocks, saved_tokens)
    pages = _page_counts(saved_tokens, page_tokens, definition)
    if max(int(pages.sum()), num_nodes * per_block) > MAX_PAGES:
        raise InputError(
            f"trace {trace.name!r} has {int(pages.sum()):,} pages of {page_tokens} tokens, more than the "
            f"{MAX_PAGES:,} that are followed; give a larger --page-tokens"
        )
    starts = np.zeros(len(trace) + 1, dtype=np.int64)
    np.cumsum(pages, out=starts[1:])
    prompt_pages, matchable = _endpoints(trace, page_tokens, definition, outputs)
    return PagePaths(
        page_tokens=page_tokens,
        num_pages=num_nodes * per_block,
        pages=_split(nodes, blocks.starts, pages, per_block),
        starts=starts,
        prompt_pages=prompt_pages,
        matchable=matchable,
        input_tokens=trace.input_tokens,
    )


def _endpoints(
    trace: Trace, page_tokens: int, definition: HitDefinition, outputs: OutputSave
) -> tuple[Counts, Counts]:
    """Pages of each prompt, and how many of them may hit."""
    tokens = trace.input_tokens
    prompt_pages = _page_counts(tokens, page_tokens, definition)
    matchable = prompt_pages if definition is HitDefinition.TRACE else (tokens - 1) // page_tokens
    if outputs is not OutputSave.NONE:
        # Nobody saves the pages of a partial block under its own id.
        whole = tokens // trace.block_tokens * (trace.block_tokens // page_tokens)
        matchable = np.minimum(matchable, whole)
    return prompt_pages, matchable


def _page_counts(tokens: Counts, page_tokens: int, definition: HitDefinition) -> Counts:
    return -(-tokens // page_tokens) if definition is HitDefinition.TRACE else tokens // page_tokens


def _joined(trace: Trace, outputs: IdLists) -> IdLists:
    """Ids of each prompt's whole blocks, then those of its outputs."""
    whole = trace.input_tokens // trace.block_tokens
    prompts = trace.prompts
    return IdLists.of(
        [
            [
                *prompts.ids[start : start + count].tolist(),
                *outputs.ids[first:last].tolist(),
            ]
            for start, count, first, last in zip(
                prompts.starts.tolist(), whole.tolist(), outputs.starts, outputs.starts[1:], strict=False
            )
        ]
    )


def _block_nodes(trace: Trace, blocks: IdLists, tokens: Counts) -> tuple[Nodes, int]:
    """For each block of each request its number in the tree of prefixes, and how many there are."""
    held = np.full(len(blocks.ids), trace.block_tokens, dtype=np.int64)
    has_blocks = blocks.lengths > 0
    last = blocks.starts[1:][has_blocks] - 1
    held[last] = (tokens - (blocks.lengths - 1) * trace.block_tokens)[has_blocks]
    _, inverse = np.unique(blocks.ids, return_inverse=True)
    compact: Nodes = np.asarray(inverse, dtype=np.int32).reshape(-1)
    num_ids = int(compact.max()) + 1 if len(compact) else 0
    before = np.empty_like(compact)
    before[1:] = compact[:-1]
    before[blocks.starts[:-1][has_blocks]] = -1
    parent, size = np.empty(num_ids, dtype=np.int32), np.empty(num_ids, dtype=np.int64)
    parent[compact], size[compact] = before, held
    if (parent[compact] == before).all() and (size[compact] == held).all():
        return compact, num_ids  # an id names one prefix alone, as the format says
    return _walk(compact.tolist(), held.tolist(), blocks.starts.tolist())


def _walk(ids: list[int], held: list[int], starts: list[int]) -> tuple[Nodes, int]:
    """Nodes of a trace whose ids stand for blocks alone, or for blocks of several lengths."""
    edges: dict[tuple[int, int, int], int] = {}
    nodes = np.empty(len(ids), dtype=np.int32)
    for start, end in pairwise(starts):
        node = -1
        for index in range(start, end):
            node = edges.setdefault((node, ids[index], held[index]), len(edges))
            nodes[index] = node
    return nodes, len(edges)


def _split(nodes: Nodes, block_starts: Counts, pages: Counts, per_block: int) -> Nodes:
    """Pages of each request, from the nodes of its blocks; the last block may have fewer."""
    if per_block == 1 and (pages == np.diff(block_starts)).all():
        return nodes
    starts = np.cumsum(pages) - pages
    index = np.arange(int(pages.sum()), dtype=np.int64) - np.repeat(starts, pages)
    index += np.repeat(block_starts[:-1] * per_block, pages)
    found: Nodes = nodes[index // per_block] * np.int32(per_block) + (index % per_block).astype(np.int32)
    return found


def _leading(flags: npt.NDArray[np.bool_], starts: Counts) -> Counts:
    """True flags that each request has before its first false one."""
    gaps = np.flatnonzero(~flags)
    ends: Counts = np.append(gaps, len(flags))[np.searchsorted(gaps, starts[:-1])]
    return np.minimum(ends, starts[1:]) - starts[:-1]

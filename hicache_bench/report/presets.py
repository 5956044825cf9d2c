"""What one preset comes to, as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import Attention, count_layers
from hicache_bench.planning.footprint import Footprint, Slope
from hicache_bench.planning.policy import TransferPolicy
from hicache_bench.pools.descriptor import KVPoolDescriptor
from hicache_bench.pools.keys import NamespacedKeyBuilder
from hicache_bench.pools.names import AttentionType, Requirement
from hicache_bench.report.tables import plural
from hicache_bench.units import format_size, format_tokens
from hicache_bench.workflows.footprint import (
    COMPARED_TOKENS,
    PAGE_HASH,
    POLICIES,
    PoolBytes,
    ProfileBytes,
    VariantBytes,
)
from hicache_bench.workflows.variant import Variant

_KEY_WIDTH = 78
_SHARED_FIELDS = 3
"""Fields that all keys of a model begin with: scheme, namespace, layout."""


def render_preset(counted: VariantBytes) -> RenderableType:
    """Layers, pools, bytes and keys [counted], and where the dimensions come from."""
    several = len(counted.variant.pools) > 1
    where = "cluster" if several else "one rank"
    return Group(
        _heading(counted.variant),
        Text("\nlayers by kind", style="bold"),
        _layers(counted.variant),
        Text(f"\npools{' of a rank' if several else ''}, bytes of a page [counted]", style="bold"),
        _pools(counted.pools),
        *(_ranks(counted) if several else ()),
        Text(f"\na restore needs, {where}: fixed + tokens x per token [counted]", style="bold"),
        _slopes(counted),
        *_slope_notes(counted.pools),
        Text(f"\nbytes of a prefix, {where} [counted]", style="bold"),
        _lengths(counted),
        Text(
            f"stored: kept by a save of the whole prefix ({counted.save_policy}), all of which the policy "
            "dense reads. needed: read by the other two to restore its last page"
        ),
        *_profiles(counted.profiles),
        *_keys(counted),
        Text("\nsources of the dimensions", style="bold"),
        *(Text(f"{name}: {source}") for name, source in counted.variant.preset.sources.items()),
    )


def render_number(value: Fraction) -> str:
    """Bytes that need not be whole: ``3,899.25``."""
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):,.2f}"


def hit_policy_text(pool: KVPoolDescriptor, trailing_pages: int | None) -> str:
    """Which pages an engine needs of the pool, in few words."""
    if pool.is_logical:
        return "nothing"
    return "all pages" if trailing_pages is None else f"trailing {trailing_pages}"


def dimension_text(attention: Attention) -> str:
    """Dimensions of an attention as a file writes them; those left out keep their default."""
    given = {name: value for name, value in asdict(attention).items() if value not in (None, ())}
    extra = given.pop("extra", ())
    named = [f"{name} {value}" for name, value in given.items() if name != "attention"]
    named += [f"{tensor['name']} {'x'.join(map(str, tensor['shape']))} {tensor['dtype']}" for tensor in extra]
    return ", ".join(named)


def deployment_text(deployment: Deployment) -> str:
    """``TP 8, PP 2, 16 ranks``; empty for one rank."""
    kind = " sharded" if deployment.cp_sharded else " replicated"
    parts = [
        f"{name} {size}{suffix}"
        for name, size, suffix in (
            ("TP", deployment.tp_size, ""),
            ("PP", deployment.pp_size, ""),
            ("CP", deployment.cp_size, kind),
            ("DCP", deployment.dcp_size, ""),
            ("heads in", deployment.tp_lcm or 1, " objects"),
        )
        if size > 1
    ]
    return ", ".join([*parts, f"{deployment.num_workers} ranks"]) if parts else ""


def plain_table(*columns: str, left: Sequence[str] = (), fold: Sequence[str] = ()) -> Table:
    """A table without rules between rows; only the columns in ``fold`` may be broken."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="left" if column in left else "right",
            no_wrap=column not in fold,
            overflow="fold",
        )
    return table


def _heading(variant: Variant) -> Text:
    preset, spec, deployment = variant.preset, variant.spec, variant.deployment
    aliases = f" ({', '.join(preset.aliases)})" if preset.aliases else ""
    served = ", ".join(preset.served_by) or "no engine"
    default = spec.engine_default_page_tokens
    dtypes = (spec.kv_dtype, spec.state_dtype, spec.conv_dtype, spec.index_dtype)
    lines = [
        f"{preset.name}{aliases}: {preset.summary}",
        f"{spec.architecture}, served by {served}, digest {spec.digest[:16]}",
        f"profile {variant.profile}, pages of {_page_text(variant)} (engine default {default})",
        "KV {}, states {}, convolutions {}, index {}, layout {}".format(*dtypes, deployment.layout),
    ]
    spread = deployment_text(deployment)
    return Text("\n".join([*lines, spread] if spread else lines))


def _page_text(variant: Variant) -> str:
    """``64 tokens``; with decode-context ranks, which share a page, also what each holds of it."""
    ranks = variant.deployment.dcp_size
    text = plural(variant.page_tokens, "token")
    if ranks == 1:
        return text
    return f"{text}: {variant.spec.page_tokens} on each of {ranks} decode-context ranks"


def _layers(variant: Variant) -> Table:
    spec = variant.spec
    table = plain_table(
        "name", "attention", "layers", "draft", "dimensions",
        left=("name", "attention", "dimensions"), fold=("dimensions",),
    )  # fmt: skip
    draft = count_layers(spec.draft_layers)
    for name, attention in spec.attentions.items():
        table.add_row(
            name,
            attention.attention,
            str(spec.layer_counts.get(name, 0)),
            str(draft.get(name, 0)),
            Text(dimension_text(attention)),
        )
    empty, empty_draft = (sum(not names for names in layers) for layers in (spec.layers, spec.draft_layers))
    if empty or empty_draft:
        sharing = sum(map(bool, spec.shared_layers))
        read = f"; {sharing} read what others cached" if sharing else ""
        table.add_row("none", "", str(empty), str(empty_draft), f"caches nothing{read}")
    table.add_section()
    table.add_row("in all", "", str(len(spec.layers)), str(len(spec.draft_layers)), "")
    return table


def _pools(pools: Sequence[PoolBytes]) -> Table:
    table = plain_table("pool", "attention", "needs", "objects", "bytes", left=("pool", "attention", "needs"))
    for entry in pools:
        speed = "*" if entry.pool.required_for is Requirement.SPEED else ""
        least, most = entry.rank_bytes
        table.add_row(
            entry.pool.name,
            entry.pool.attention.value,
            hit_policy_text(entry.pool, entry.trailing_pages) + speed,
            str(len(entry.keys)),
            f"{most:,}" if least == most else f"up to {most:,}",
        )
    if any(entry.pool.required_for is Requirement.SPEED for entry in pools):
        table.caption = "* for speed only: its absence never shortens a prefix"
        table.caption_justify = "left"
    return table


def _ranks(counted: VariantBytes) -> Iterator[RenderableType]:
    """How the ranks share each pool."""
    table = plain_table("pool", "ranks hold", "shards", "copies", "cluster", left=("pool", "ranks hold"))
    for entry in counted.pools:
        if not entry.pool.is_logical:
            table.add_row(
                entry.pool.name,
                f"{entry.num_ranks} x {_held(entry)}",
                str(entry.shards),
                f"{entry.copies:.4g}",
                f"{entry.cluster_bytes:,}",
            )
    yield Text(
        "\npools of the cluster, bytes of a page; what ranks share is stored once [counted]", style="bold"
    )
    yield table
    if any(entry.copies > 1 for entry in counted.pools):
        yield Text(
            "copies above 1: fewer heads (or state groups) than ranks, so some are stored more than once"
        )


def _held(entry: PoolBytes) -> str:
    if entry.shards == entry.num_ranks:
        return "its own part"
    return "the same" if entry.shards == 1 else f"1 of {entry.shards} parts"


def _slopes(counted: VariantBytes) -> Table:
    table = plain_table(
        "policy", "per token", "fixed", "", "fixed part", left=("policy", "fixed part"), fold=("fixed part",)
    )
    trailing = [entry.pool.name for entry in counted.pools if entry.trailing_pages is not None]
    what = ", ".join(trailing) or "no pool is needed once only"
    rows: dict[Slope, list[str]] = {}
    for policy in POLICIES:
        rows.setdefault(counted.slopes[policy], []).append(policy.value)
    for found, policies in rows.items():
        table.add_row("\n".join(policies), *_two_numbers(found), what)
    if len(counted.variant.pools) > 1:
        found = counted.rank_slopes[TransferPolicy.HIT_POLICY]
        table.add_section()
        table.add_row("a rank, at most", *_two_numbers(found), f"under {TransferPolicy.HIT_POLICY}")
    return table


def _slope_notes(pools: Sequence[PoolBytes]) -> Iterator[Text]:
    if any(entry.pool.attention is AttentionType.CHUNKED for entry in pools):
        yield Text(
            "selective is at most so much: behind the start of a chunk it needs less of a chunked pool"
        )
    if any(entry.pool.selection is not None for entry in pools):
        yield Text("selective reads every block that an index may select, as a prefill may need them all")


def _two_numbers(found: Slope) -> tuple[str, str, str]:
    return f"{render_number(found.per_token)} B", f"{found.fixed:,} B", format_size(found.fixed)


def _lengths(counted: VariantBytes) -> Table:
    table = plain_table("tokens", "stored\n= dense reads", "needed\nhit_policy", "needed\nselective")
    for tokens, found in counted.footprints.items():
        table.add_row(format_tokens(tokens), *_sizes(found))
    return table


def _sizes(found: Footprint) -> list[str]:
    return [format_size(size) for size in (found.stored, found.hit_policy, found.selective)]


def _profiles(profiles: Sequence[ProfileBytes]) -> Iterator[RenderableType]:
    """The engine's grouping beside the ideal one."""
    if not profiles:
        return
    table = plain_table(
        "profile", "stored\n= dense reads", "needed\nhit_policy", "needed\nselective", left=("profile",)
    )
    for entry in profiles:
        if entry.footprint is not None:
            table.add_row(entry.profile, *_sizes(entry.footprint))
    yield Text(f"\nengine profiles, {format_tokens(COMPARED_TOKENS)} tokens [counted]", style="bold")
    yield table
    engine, ideal = (entry.footprint for entry in profiles)
    for entry in profiles:
        if entry.refusal is not None:
            yield Text(f"{entry.profile} cannot group these layers: {entry.refusal}")
    if engine is not None and ideal is not None:
        yield Text(_difference(engine, ideal))


def _difference(engine: Footprint, ideal: Footprint) -> str:
    if engine == ideal:
        return "no difference: by_kind stores and needs the same bytes"
    saved = engine.selective - ideal.selective
    if not saved:
        return "selective needs the same under both; the engine's windows differ from the model's"
    return f"the engine's grouping costs {format_size(saved)} more under selective"


def _keys(counted: VariantBytes) -> Iterator[RenderableType]:
    """One key of each component, without what all of them begin with."""
    scheme = counted.variant.keys.scheme
    first = next(example.key for entry in counted.pools for example in entry.keys)
    shared = first.split("/")[:_SHARED_FIELDS] if scheme == NamespacedKeyBuilder.scheme else ()
    common = "".join(f"{field}/" for field in shared)
    yield Text(f"\nobjects of a page and their keys, scheme {scheme}", style="bold")
    if common:
        yield Text(f"each key begins with {common}")
    for entry in counted.pools:
        shards = f" on each of {entry.shards} shards; of the first" if entry.shards > 1 else ""
        for example in entry.keys:
            yield Text(f"{entry.pool.name} {example.component}, {example.num_bytes:,} bytes{shards}")
            yield Text("\n".join(_broken(example.key.removeprefix(common).replace(PAGE_HASH, "<hash>"))))


def _broken(key: str) -> Iterator[str]:
    """A key on indented lines that end behind a slash, where a reader sees that it goes on."""
    line = ""
    for part in key.replace("/", "/ ").split():
        if line and len(line) + len(part) > _KEY_WIDTH:
            yield f"  {line}"
            line = ""
        line += part
    yield f"  {line}"

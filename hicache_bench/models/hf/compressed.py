"""DeepSeek V4: a window in every layer, and in most of them rows pooled 4:1 or 128:1.

Sources: ``compress_ratios`` of the published configs; transformers 5.24 ``DeepseekV4Config`` for its
``layer_types``; SGLang 0.5.23 ``configs/model_config.py``.
"""

from __future__ import annotations

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.fields import MAX_LAYERS, Fields, shown
from hicache_bench.models.hf.layers import LAYER_COUNTS
from hicache_bench.models.spec import Attention, CompressedAttention, LatentWindow

RATIOS = {0: (), 4: ("c4",), 128: ("c128",)}
WORD_RATIOS = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
INDEXED_RATIO = 4
"""Only the rows that are pooled 4:1 have an index."""


def is_compressed(fields: Fields) -> bool:
    """Whether the config describes layers of DeepSeek V4."""
    words = fields.value("layer_types")
    listed = isinstance(words, (list, tuple))
    return fields.has("compress_ratios") or (
        listed and any(word in WORD_RATIOS and WORD_RATIOS[word] for word in words if isinstance(word, str))
    )


class CompressedPlan:
    """Attentions and layers of a DeepSeek V4 config; its draft layers are the tail of ``compress_ratios``."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.draft_count = fields.count("num_nextn_predict_layers", MAX_LAYERS)
        number = fields.dimension(*LAYER_COUNTS)
        ratios = self._ratios()
        if len(ratios) not in (number, number + self.draft_count):
            raise ConfigError(
                f"the list of compressed layers has {len(ratios)} entries for {number} layers and "
                f"{self.draft_count} draft layers; one of the numbers is wrong"
            )
        layers = [("window", *RATIOS[ratio]) for ratio in ratios]
        self.layers = tuple(layers[:number])
        self.draft_layers = tuple(layers[number:])
        self.sources: dict[str, str] = {}
        self.attentions = self._attentions({name for names in layers for name in names})

    def _ratios(self) -> list[int]:
        fields = self._fields
        name = "compress_ratios" if fields.has("compress_ratios") else "layer_types"
        ratios = [self._ratio(name, entry) for entry in fields.items(name)]
        fields.set_aside("layer_types", "compress_ratios")
        return ratios

    def _ratio(self, name: str, entry: object) -> int:
        if name == "compress_ratios":
            ratio, allowed = entry, [str(ratio) for ratio in RATIOS]
        else:
            ratio = WORD_RATIOS.get(entry, entry) if isinstance(entry, str) else entry
            allowed = list(WORD_RATIOS)
        # A bool equals 0 or 1 to Python, and is no ratio.
        if type(ratio) is int and ratio in RATIOS:
            return ratio
        raise ConfigError(f"{self._fields.path(name)} holds {shown(entry)}; known are {', '.join(allowed)}")

    def _attentions(self, used: set[str]) -> dict[str, Attention]:
        fields = self._fields
        self._check_rates()
        start = fields.mark()
        head_dim, rope = fields.dimension("head_dim"), self._rope_dim()
        if rope >= head_dim:
            raise ConfigError(
                f"{rope} rotary dims leave nothing of a head of {head_dim}; correct one of them"
            )
        dims = fields.since(start)
        start = fields.mark()
        window = fields.dimension("sliding_window", "window_size")
        attentions: dict[str, Attention] = {
            "window": LatentWindow(nope_dim=head_dim - rope, rope_dim=rope, window=window)
        }
        self.sources["window"] = f"{dims}, {fields.since(start)}"
        for ratio, names in RATIOS.items():
            for name in used.intersection(names):
                start = fields.mark()
                indexed = ratio == INDEXED_RATIO
                attentions[name] = CompressedAttention(
                    ratio=ratio,
                    nope_dim=head_dim - rope,
                    rope_dim=rope,
                    index_head_dim=fields.dimension("index_head_dim") if indexed else None,
                    index_top_k=fields.dimension("index_topk") if indexed else None,
                )
                read = fields.since(start)
                self.sources[name] = f"{dims}, {read}" if read else dims
        return attentions

    def _rope_dim(self) -> int:
        """``qk_rope_head_dim``; configs that transformers saved have the fraction of the head instead."""
        fields = self._fields
        given = fields.optional("qk_rope_head_dim")
        if given is not None:
            return given
        fraction = fields.value("partial_rotary_factor")
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
            raise ConfigError(
                f"config has no {fields.path('qk_rope_head_dim')}, and partial_rotary_factor is "
                f"{shown(fraction)}; one of them says how many dims of a row are rotary"
            )
        dims = fraction * fields.dimension("head_dim")
        if dims != int(dims) or dims < 1:
            raise fields.wrong("partial_rotary_factor", fraction, "a fraction that gives whole dims")
        return int(dims)

    def _check_rates(self) -> None:
        """``compress_rates`` may only say what the words already mean."""
        rates = self._fields.block("compress_rates")
        if rates is None:
            return
        for word, ratio in WORD_RATIOS.items():
            if rates.has(word) and rates.dimension(word) != ratio:
                raise ConfigError(f"{rates.path(word)} is {rates.value(word)}, and only {ratio} is known")

"""Which kinds of state each layer caches: the layer patterns of a ``config.json``.

An explicit list (``layer_types`` and its relatives) wins over every rule that would derive one, and two
explicit lists must agree. Sources: the configuration classes of transformers 5.24 and SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.families import PATTERN_DEFAULTS, PATTERN_NEEDED, WINDOW_IN_EVERY_LAYER
from hicache_bench.models.hf.fields import MAX_LAYERS, Fields, shown

LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
DRAFT_COUNTS = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
    "num_mtp_modules",
)
WINDOWS = ("sliding_window_size", "sliding_window", "window_size")


class Kind(str, Enum):
    """What a layer caches, before its dimensions are known."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    LINEAR = "linear"
    CONV = "conv"
    ROW_INDEX = "row index"
    BLOCK_INDEX = "block index"


Kinds = tuple[Kind, ...]

FULL: Kinds = (Kind.FULL,)
WINDOW: Kinds = (Kind.WINDOW,)
LINEAR: Kinds = (Kind.LINEAR,)
INDEXED: Kinds = (Kind.FULL, Kind.ROW_INDEX)
BLOCKS: Kinds = (Kind.FULL, Kind.BLOCK_INDEX)

WORDS: dict[str, Kinds] = {
    "full_attention": FULL,
    "attention": FULL,
    "sliding_attention": WINDOW,
    "chunked_attention": (Kind.CHUNK,),
    "linear_attention": LINEAR,
    "mamba": LINEAR,
    "mamba2": LINEAR,
    "hybrid": (Kind.FULL, Kind.LINEAR),
    "conv": (Kind.CONV,),
    "short_conv": (Kind.CONV,),
    "indexed_attention": INDEXED,
    "deepseek_sparse_attention": INDEXED,
    "minimax_m3_sparse": BLOCKS,
    "moe": (),
    "mlp": (),
}
"""Words of ``layer_types`` and ``layers_block_type``; a layer that is only an MLP caches nothing."""

LETTERS: dict[str, Kinds] = {"M": LINEAR, "*": FULL, "-": (), "E": ()}
"""Letters of ``hybrid_override_pattern`` (Nemotron-H)."""

INDEX_SPELLINGS = {"indexer_types": ("full", "shared"), "index_topk_pattern": ("F", "S")}
"""Fields that say of each layer whether it owns its token index or uses that of the layer before."""

EXPLICIT = ("layer_types", "layers_block_type", "hybrid_override_pattern", "hybrid_layer_pattern")


class LayerPlan:
    """What each layer caches, the layers of a draft head apart; ``notes`` says what was assumed."""

    def __init__(self, fields: Fields, model_type: str | None) -> None:
        self.fields = fields
        self.model_type = model_type
        self.notes: list[str] = []
        self.draft_count = max(fields.count(name, MAX_LAYERS) for name in DRAFT_COUNTS)
        self._tail: list[Kinds] = []
        self._check_pattern_is_there()
        given = {name: self._explicit(name) for name in EXPLICIT if fields.has(name)}
        self.explicit = bool(given)
        lengths = {len(layers) for layers in given.values()}
        self.num_layers = _num_layers(fields, lengths)
        fields.num_layers = self.num_layers
        fitted = {name: self._fit(name, layers) for name, layers in given.items()}
        layers = next(iter(fitted.values())) if fitted else self._derived()
        if any(other != layers for other in fitted.values()):
            raise ConfigError(f"config contradicts itself: {' and '.join(fitted)} name different layers")
        self.layers = self._without_shared_indexes(layers)
        self.draft = self._tail or self._draft_layers()
        self._set_aside_rules()
        if self.explicit and not any(set(kinds) - {Kind.FULL} for kinds in self.layers):
            self._note_unused_indexes()

    def _check_pattern_is_there(self) -> None:
        needed = PATTERN_NEEDED.get(self.model_type or "", ())
        if needed and not any(self.fields.has(name) for name in needed):
            raise ConfigError(
                f"config has no {' or '.join(map(self.fields.path, needed))}, which says what each layer of "
                f"a {self.model_type} model is; add it, as the model's own code has it"
            )

    def _explicit(self, name: str) -> list[Kinds]:
        value = self.fields.value(name)
        if isinstance(value, str):
            return [self._one(name, letter, LETTERS) for letter in value]
        return [self._entry(name, word) for word in self.fields.items(name)]

    def _entry(self, name: str, word: object) -> Kinds:
        if name == "hybrid_layer_pattern" and type(word) is int and word in (0, 1):
            return WINDOW if word else FULL
        return self._one(name, word, WORDS)

    def _one(self, name: str, word: object, known: dict[str, Kinds]) -> Kinds:
        if isinstance(word, str) and word in known:
            return known[word]
        raise ConfigError(
            f"{self.fields.path(name)} holds {shown(word)}, which is not known; known are "
            f"{', '.join(known)}; describe such a model in a preset of your own"
        )

    def _fit(self, name: str, layers: list[Kinds]) -> list[Kinds]:
        """``layers`` without the tail that Step's configs add for their draft layers."""
        if self.draft_count and len(layers) == self.num_layers + self.draft_count:
            self._tail = layers[self.num_layers :]
        elif len(layers) != self.num_layers:
            raise ConfigError(
                f"{self.fields.path(name)} has {len(layers)} layers, and the config {self.num_layers}; "
                "one of the two is wrong"
            )
        return layers[: self.num_layers]

    def _derived(self) -> list[Kinds]:
        """The first rule whose field is there decides."""
        rules: tuple[tuple[str, Callable[[], list[Kinds]]], ...] = (
            ("linear_attn_config", self._linear_attn_config),
            ("attn_type_list", self._attn_type_list),
            ("attn_layer_period", self._attn_layer_period),
            ("attn_layer_indices", lambda: self._listed("attn_layer_indices", LINEAR)),
            ("full_attn_idxs", lambda: self._listed("full_attn_idxs", (Kind.CONV,))),
            ("full_attention_interval", lambda: self._every("full_attention_interval", LINEAR)),
            ("attention_chunk_size", self._chunks),
            ("sparse_attention_config", self._sparse_attention),
        )
        for name, rule in rules:
            if self.fields.known(name):
                return rule()
        if PATTERN_DEFAULTS.get(self.model_type or "", ("",))[0] == "full_attention_interval":
            return self._every("full_attention_interval", LINEAR)
        if self.model_type == "falcon_h1":
            return [(Kind.FULL, Kind.LINEAR)] * self.num_layers
        if self.fields.has("index_topk"):
            return [INDEXED] * self.num_layers
        return self._windows()

    def _without_shared_indexes(self, layers: list[Kinds]) -> list[Kinds]:
        """An indexed layer that uses the choice of the layer before owns no index."""
        if INDEXED not in layers:
            return layers
        owners = index_owners(self.fields, self.num_layers)
        return [
            FULL if kinds == INDEXED and not owns else kinds
            for kinds, owns in zip(layers, owners, strict=True)
        ]

    def _linear_attn_config(self) -> list[Kinds]:
        """Kimi-Linear lists its layers from 1."""
        block = self.fields.block("linear_attn_config")
        assert block is not None
        layers: list[Kinds | None] = [None] * self.num_layers
        for name, kinds in (("full_attn_layers", FULL), ("kda_layers", LINEAR)):
            for number in block.integers(name, minimum=1, maximum=self.num_layers):
                if layers[number - 1] is not None:
                    raise ConfigError(f"{block.path(name)} names layer {number}, which is named before")
                layers[number - 1] = kinds
        missing = [number for number, kinds in enumerate(layers, start=1) if kinds is None]
        if missing:
            raise ConfigError(
                f"{block.path('full_attn_layers')} and kda_layers leave out layers {missing[:8]} of "
                f"{self.num_layers}; each layer belongs to one of them"
            )
        return [kinds for kinds in layers if kinds is not None]

    def _attn_type_list(self) -> list[Kinds]:
        """MiniMax: 0 is lightning, 1 is softmax attention."""
        types = self.fields.integers("attn_type_list", maximum=1)
        return self._fit("attn_type_list", [FULL if kind else LINEAR for kind in types])

    def _attn_layer_period(self) -> list[Kinds]:
        period = self.fields.dimension("attn_layer_period")
        offset = self.fields.value("attn_layer_offset")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < period:
            raise self.fields.wrong("attn_layer_offset", offset, f"an integer from 0 to {period - 1}")
        return [FULL if layer % period == offset else LINEAR for layer in range(self.num_layers)]

    def _listed(self, name: str, others: Kinds) -> list[Kinds]:
        listed = set(self.fields.integers(name, maximum=self.num_layers - 1))
        return [FULL if layer in listed else others for layer in range(self.num_layers)]

    def _every(self, name: str, others: Kinds) -> list[Kinds]:
        """Full attention in each layer whose number, from 1, is a multiple of the field."""
        interval = self._pattern(name)
        return [FULL if (layer + 1) % interval == 0 else others for layer in range(self.num_layers)]

    def _pattern(self, name: str) -> int:
        interval = self.fields.optional(name)
        if interval is not None:
            return interval
        default_field, default = PATTERN_DEFAULTS.get(self.model_type or "", ("", 0))
        if default_field != name:
            raise ConfigError(
                f"config has no {self.fields.path(name)}, which says which layers are full attention"
            )
        self.notes.append(
            f"{name} is absent: {default}, as the {self.model_type} class of transformers has it"
        )
        return default

    def _chunks(self) -> list[Kinds]:
        """Llama-4: layers without rotary positions are full, the others chunked. A 1 means "with"."""
        if self.fields.has("no_rope_layers") and self.fields.items("no_rope_layers"):
            rotary = self.fields.integers("no_rope_layers", maximum=1)
            return self._fit("no_rope_layers", [(Kind.CHUNK,) if flag else FULL for flag in rotary])
        return self._every("no_rope_layer_interval", (Kind.CHUNK,))

    def _sparse_attention(self) -> list[Kinds]:
        """MiniMax-M3; an index that has values too would be another pool than a block index."""
        block = self.fields.block("sparse_attention_config")
        assert block is not None
        if block.flag("use_sparse_attention") is False:
            self.notes.append("sparse_attention_config is switched off: no layer has an index")
            block.set_aside(*block.names())
            return [FULL] * self.num_layers
        name = "sparse_attention_freq"
        sparse = block.integers(name, maximum=1)
        flags = "sparse_disable_index_value"
        disabled = block.integers(flags, maximum=1) if block.has(flags) else [1] * len(sparse)
        if not block.has(flags):
            self.notes.append(f"{block.path(flags)} is absent: index values are taken not to be cached")
        if len(disabled) != len(sparse) or any(s and not d for s, d in zip(sparse, disabled, strict=True)):
            raise ConfigError(
                f"{block.path(flags)} must have 1 for each sparse layer: an index with values is not known"
            )
        return self._fit(name, [BLOCKS if flag else FULL for flag in sparse])

    def _windows(self) -> list[Kinds]:
        """Sliding windows: by pattern, from one layer on, or in every layer; off where the config says so."""
        fields, everywhere = self.fields, [FULL] * self.num_layers
        windowed = any(fields.known(name) for name in WINDOWS)
        uses = fields.flag("use_sliding_window")
        if not windowed or uses is False:
            return everywhere
        pattern = (
            "_sliding_window_pattern" if fields.has("_sliding_window_pattern") else "sliding_window_pattern"
        )
        default = PATTERN_DEFAULTS.get(self.model_type or "", ("",))[0]
        if isinstance(fields.value(pattern), str):
            return self._spelled(pattern)
        if fields.has(pattern) or default == "sliding_window_pattern":
            return self._every(pattern, WINDOW)
        if fields.has("max_window_layers"):
            if uses is None:
                self.notes.append("use_sliding_window is absent: off, as in the Qwen classes of transformers")
                return everywhere
            first = fields.count("max_window_layers")
            return [WINDOW if layer >= first else FULL for layer in range(self.num_layers)]
        if uses and self.model_type not in WINDOW_IN_EVERY_LAYER:
            raise ConfigError(
                f"{fields.path('use_sliding_window')} is true and max_window_layers is absent: which layers "
                "have a window is not said; add it, or layer_types"
            )
        if self.model_type not in WINDOW_IN_EVERY_LAYER and any(name in fields.defaults for name in WINDOWS):
            raise ConfigError(
                f"config has no {fields.path('layer_types')}, and the {self.model_type} class of "
                "transformers has windows in some layers only; add the list that its code makes"
            )
        if self.model_type not in WINDOW_IN_EVERY_LAYER:
            self.notes.append("warning: no layer pattern is given; every layer is taken to have the window")
        return [WINDOW] * self.num_layers

    def _spelled(self, name: str) -> list[Kinds]:
        """EXAONE writes its pattern in letters: L local, G global."""
        letters = self.fields.text(name) or ""
        kinds = [self._one(name, letter, {"L": WINDOW, "G": FULL}) for letter in letters]
        return [kinds[layer % len(kinds)] for layer in range(self.num_layers)]

    def _set_aside_rules(self) -> None:
        """What the layers are is settled, so the fields that could have said it are read."""
        aside = [
            "use_sliding_window",
            "max_window_layers",
            "sliding_window_pattern",
            "_sliding_window_pattern",
        ]
        aside += ["no_rope_layers", "no_rope_layer_interval", "full_attention_interval", "full_attn_idxs"]
        used = {kind for kinds in (*self.layers, *self.draft) for kind in kinds}
        if Kind.WINDOW not in used:
            aside += WINDOWS
        if Kind.CONV not in used and self.explicit:
            aside.append("conv_L_cache")
        if Kind.CHUNK not in used and (self.explicit or Kind.WINDOW in used):
            aside.append("attention_chunk_size")
        if self.explicit:
            aside += ["attn_type_list", "attn_layer_period", "attn_layer_offset", "attn_layer_indices"]
        self.fields.set_aside(*aside)

    def _note_unused_indexes(self) -> None:
        unused = ("index_topk", "index_head_dim", "index_block_size", "index_topk_blocks")
        given = [name for name in unused if self.fields.has(name)]
        if given:
            self.notes.append(f"no layer of layer_types has an index, so {', '.join(given)} decide nothing")
            self.fields.set_aside(*given, "index_topk_freq", "index_skip_topk_offset", "indexer_types")

    def _draft_layers(self) -> list[Kinds]:
        """What the layers of a draft head cache, where that follows from the config; else nothing."""
        if not self.draft_count:
            return []
        pattern = next(
            (n for n in ("mtp_layers_block_type", "mtp_hybrid_override_pattern") if self.fields.has(n)), ""
        )
        if pattern:
            return self._explicit(pattern) * self.draft_count
        kinds = {kind for layer in self.layers for kind in layer}
        if Kind.ROW_INDEX in kinds:
            return [INDEXED] * self.draft_count
        if kinds == {Kind.FULL} or (self.model_type or "").startswith(("qwen3_next", "qwen3_5")):
            return [FULL] * self.draft_count
        return []


def index_owners(fields: Fields, num_layers: int) -> list[bool]:
    """Which layers compute their own token index; the others use that of the layer before.

    Source: ``dsa_layer_skips_topk`` of SGLang 0.5.23; transformers' GlmMoeDsaConfig derives the same.
    """
    spelled = {
        name: _spelled_owners(fields, name, owns, shares, num_layers)
        for name, (owns, shares) in INDEX_SPELLINGS.items()
        if fields.has(name)
    }
    if spelled:
        # GLM-5.2 publishes the interval beside the list that it makes; the engine reads the list.
        fields.set_aside("index_topk_freq", "index_skip_topk_offset")
        owners = next(iter(spelled.values()))
        if any(other != owners for other in spelled.values()):
            named = " and ".join(map(fields.path, spelled))
            raise ConfigError(f"config contradicts itself: {named} name different layers; keep the right one")
        return owners
    interval = fields.optional("index_topk_freq") or 1
    first = fields.optional("index_skip_topk_offset") or 2
    return [max(layer - first + 1, 0) % interval == 0 for layer in range(num_layers)]


def _spelled_owners(fields: Fields, name: str, owns: str, shares: str, num_layers: int) -> list[bool]:
    value = fields.value(name)
    entries: Sequence[object] = value if isinstance(value, str) else fields.items(name)
    unknown = [entry for entry in entries if entry not in (owns, shares)]
    if unknown or len(entries) != num_layers:
        wrong = f"holds {shown(unknown[0])}" if unknown else f"has {len(entries)} entries"
        raise ConfigError(
            f"{fields.path(name)} {wrong}; it must say {owns!r} or {shares!r} for each of {num_layers} layers"
        )
    if entries[0] == shares:
        raise ConfigError(f"{fields.path(name)} begins with {shares!r}, and there is no layer to share with")
    return [entry == owns for entry in entries]


def _num_layers(fields: Fields, lengths: set[int]) -> int:
    """The layer count; Nemotron-H may leave it to its pattern."""
    number = fields.optional(*LAYER_COUNTS)
    if number is None and len(lengths) == 1:
        number = lengths.pop()
    if number is None:
        raise ConfigError(
            f"config has no {' or '.join(map(fields.path, LAYER_COUNTS))}, and no list of layers; give the "
            "config of the text model"
        )
    if not 1 <= number <= MAX_LAYERS:
        raise ConfigError(f"config has {number:,} layers, and must have from 1 to {MAX_LAYERS:,}")
    return number

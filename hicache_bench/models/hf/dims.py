"""Dimensions of each attention: which fields of a ``config.json`` they come from.

Sources: ``configs`` and ``models`` of SGLang 0.5.23, configuration classes of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable

from hicache_bench.errors import ConfigError
from hicache_bench.models.hf.fields import Fields, shown
from hicache_bench.models.hf.layers import WINDOWS, Kind
from hicache_bench.models.spec import (
    Attention,
    BlockIndex,
    ChunkedAttention,
    FullAttention,
    GatedDelta,
    KimiDelta,
    Lightning,
    Mamba1,
    Mamba2,
    MlaAttention,
    RecurrentAttention,
    ShortConv,
    SlidingWindow,
    SparseIndex,
)

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")
KV_HEADS = (
    *("num_key_value_heads", "num_key_value_heads_per_layer", "num_kv_heads", "n_head_kv"),
    *("num_attention_groups", "num_query_groups"),
)
HEAD_DIMS = ("head_dim", "attention_head_dim", "kv_channels")
MAMBA_HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
MAMBA_HEAD_DIMS = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
MAMBA_GROUPS = ("mamba_n_groups", "mamba_num_groups", "mamba_ngroups", "n_groups")
MAMBA_STATES = ("mamba_d_state", "mamba_state_dim", "ssm_state_size", "state_size")
MAMBA_KERNELS = ("mamba_d_conv", "conv_kernel", "conv_dimension")
MAMBA_EXPANDS = ("mamba_expand", "expand", "expansion_factor")
DOUBLE_WIDTH = ("zamba", "zamba2")
"""Families whose attention runs on twice the hidden size where no head size is given."""
LIGHTNING_FAMILIES = ("minimax", "minimax_m1", "minimax_text_01")


class Dimensions:
    """Builds the attention of a kind for one layer; ``notes`` says what an absent field was taken to mean."""

    def __init__(self, fields: Fields, model_type: str | None) -> None:
        self.fields = fields
        self.model_type = model_type or ""
        self.notes: dict[str, None] = {}
        self._builders: dict[Kind, Callable[[int], Attention]] = {
            Kind.FULL: self._full,
            Kind.WINDOW: self._window,
            Kind.CHUNK: self._chunk,
            Kind.LINEAR: self._linear,
            Kind.CONV: self._conv,
            Kind.ROW_INDEX: self._token_index,
            Kind.BLOCK_INDEX: self._block_index,
        }

    def build(self, kind: Kind, layer: int) -> Attention:
        """The attention of ``kind`` in ``layer``.

        Raises:
            ConfigError: a dimension that is absent, or that no model can have.
        """
        return self._builders[kind](layer)

    def _full(self, layer: int) -> FullAttention | MlaAttention:
        fields = self.fields
        if fields.has("kv_lora_rank"):
            fields.set_aside(*KV_HEADS)
            return MlaAttention(
                kv_lora_rank=fields.dimension("kv_lora_rank"),
                qk_rope_head_dim=fields.dimension("qk_rope_head_dim"),
            )
        # Gemma-4 says both in one of two ways: by layer, or by the fields of its global layers.
        by_layer = bool(fields.per_layer)
        heads = None
        if fields.has("num_global_key_value_heads") and not by_layer and fields.flag("attention_k_eq_v"):
            heads = fields.dimension("num_global_key_value_heads")
            self._check_shared("num_global_key_value_heads", heads, fields, HEADS, layer)
        fields.set_aside("num_global_key_value_heads", "global_head_dim")
        head_dim = None if by_layer else fields.optional("global_head_dim")
        head_dim = head_dim or self._head_dim(layer)
        return FullAttention(
            kv_heads=heads or self._kv_heads(layer),
            head_dim=head_dim,
            v_head_dim=self._v_head_dim(head_dim, layer),
        )

    def _window(self, layer: int) -> SlidingWindow:
        self._refuse_latent("sliding")
        fields = self.fields
        other = fields.block("attention_other_setting")
        heads = fields.optional("swa_num_key_value_heads", layer=layer)
        head_dim = fields.optional("swa_head_dim", layer=layer)
        if heads is not None:
            attention_heads = ("swa_num_attention_heads",) if fields.has("swa_num_attention_heads") else HEADS
            self._check_shared("swa_num_key_value_heads", heads, fields, attention_heads, layer)
        if other is not None:  # Step: its sliding layers have settings of their own
            own_heads = other.optional(*KV_HEADS)
            if own_heads is not None:
                self._check_shared(other.given(*KV_HEADS), own_heads, other, HEADS, None)
            heads = heads or own_heads
            head_dim = head_dim or other.optional("head_dim")
        own = head_dim
        head_dim = head_dim or self._head_dim(layer)
        v_head_dim = fields.optional("swa_v_head_dim", layer=layer)
        if v_head_dim is None and own is None:
            v_head_dim = self._v_head_dim(head_dim, layer)
        return SlidingWindow(
            kv_heads=heads or self._kv_heads(layer),
            head_dim=head_dim,
            v_head_dim=None if v_head_dim == head_dim else v_head_dim,
            window=self._window_tokens(),
        )

    def _window_tokens(self) -> int:
        """MiMo's own configs leave out the query's own token, under either name; other windows count it.

        That of a MiMo config as transformers writes it too, which has no ``hybrid_layer_pattern``. SGLang
        0.5.23 needs that pattern, and takes the number as it stands (``_get_sliding_window_size``).
        """
        fields = self.fields
        name = "sliding_window_size" if fields.has("sliding_window_size") else "sliding_window"
        own = name == "sliding_window_size" or fields.has("hybrid_layer_pattern")
        if self.model_type.startswith("mimo_v2") and own and fields.has(name):
            fields.set_aside("sliding_window")
            self.notes[f"{name} leaves out the query's own token: the window is one longer"] = None
            return fields.dimension(name) + 1
        return fields.dimension(*WINDOWS)

    def _chunk(self, layer: int) -> ChunkedAttention:
        self._refuse_latent("chunked")
        head_dim = self._head_dim(layer)
        return ChunkedAttention(
            kv_heads=self._kv_heads(layer),
            head_dim=head_dim,
            v_head_dim=self._v_head_dim(head_dim, layer),
            chunk=self.fields.dimension("attention_chunk_size"),
        )

    def _refuse_latent(self, kind: str) -> None:
        if self.fields.has("kv_lora_rank"):
            raise ConfigError(
                f"{self.fields.path('kv_lora_rank')} is given, and some layers are {kind}: a latent with a "
                "window is not known; describe such a model in a preset of your own"
            )

    def _kv_heads(self, layer: int) -> int:
        fields = self.fields
        if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
            return self._one_head(layer)
        groups = ("multi_query_group_num",) if fields.flag("multi_query_attention") else ()
        heads = fields.optional(*groups, *KV_HEADS, layer=layer)
        if groups and not fields.has("multi_query_group_num"):
            heads = fields.dimension("multi_query_group_num")
        if heads is None:
            heads = self._attention_heads(layer)
            self.notes["num_key_value_heads is absent or null: there are as many as attention heads"] = None
        elif not fields.has("num_attention_heads_per_layer"):
            self._check_shared(fields.given(*groups, *KV_HEADS), heads, fields, HEADS, layer)
        return heads

    def _one_head(self, layer: int) -> int:
        """``multi_query``: one KV head, whatever number of heads Falcon's class saves beside it."""
        fields = self.fields
        heads = fields.optional(*KV_HEADS, layer=layer)
        name = fields.given(*KV_HEADS)
        falcon = name in ("num_kv_heads", "n_head_kv") and heads == fields.optional(*HEADS, layer=layer)
        if heads not in (None, 1) and not falcon:
            raise ConfigError(
                f"config contradicts itself: {fields.path('multi_query')} is true, which is one KV head, and "
                f"{fields.path(name)} is {heads}; keep the right one"
            )
        return 1

    def _check_shared(
        self, name: str, kv_heads: int, fields: Fields, attention_names: tuple[str, ...], layer: int | None
    ) -> None:
        """Each KV head serves as many attention heads; without their number nothing can be said."""
        heads = fields.optional(*attention_names, layer=layer)
        if heads is not None and heads % kv_heads:
            raise ConfigError(
                f"config contradicts itself: {fields.path(name)} is {kv_heads}, and "
                f"{fields.path(fields.given(*attention_names))} {heads} is no multiple of it; correct one of "
                "them"
            )

    def _attention_heads(self, layer: int) -> int:
        fields = self.fields
        heads = fields.optional(*HEADS, layer=layer)
        if heads is None:
            raise ConfigError(
                f"config has no {' or '.join(map(fields.path, HEADS))}, and what is cached depends on it; "
                "add it, or both num_key_value_heads and head_dim, as the model's own code has them"
            )
        return heads

    def _head_dim(self, layer: int) -> int:
        fields = self.fields
        # Zamba has kv_channels too, which its attention does not use.
        names = HEAD_DIMS[:2] if self.model_type in DOUBLE_WIDTH else HEAD_DIMS
        # Hunyuan says one size by both of the first two names.
        given = [name for name in HEAD_DIMS[:2] if fields.found(name, layer)] or [
            name for name in names if fields.found(name, layer)
        ]
        if given:
            return fields.dimension(*given, layer=layer)
        value = fields.optional(*names, layer=layer)
        return value or self._derived_head_dim(layer)

    def _derived_head_dim(self, layer: int) -> int:
        fields = self.fields
        heads = self._attention_heads(layer)
        factor = 2 if self.model_type in DOUBLE_WIDTH else 1
        width = factor * fields.dimension(*HIDDEN, layer=layer)
        if width % heads:
            raise ConfigError(
                f"config has no head_dim, and hidden size {width // factor} is no multiple of {heads} "
                "attention heads; add head_dim, as the model's own code has it"
            )
        times = "twice the hidden size" if factor > 1 else "hidden size"
        note = f"head_dim is absent or null: {times} by attention heads, {width // heads}"
        self.notes[note] = None
        return width // heads

    def _v_head_dim(self, head_dim: int, layer: int) -> int | None:
        value = self.fields.optional("v_head_dim", layer=layer)
        return None if value == head_dim else value

    def _token_index(self, _layer: int) -> SparseIndex:
        fields = self.fields
        if not fields.has("kv_lora_rank"):
            raise ConfigError(
                f"{fields.path('index_topk')} is given without kv_lora_rank: an index over keys that are no "
                "latent is not known; describe such a model in a preset of your own"
            )
        pooled = fields.optional("index_kpool")
        if pooled not in (None, 1):
            raise fields.wrong("index_kpool", pooled, "1: index keys of several tokens in one are not known")
        return SparseIndex(
            index_head_dim=fields.dimension("index_head_dim"), top_k=fields.dimension("index_topk")
        )

    def _block_index(self, _layer: int) -> BlockIndex:
        block = self.fields.block("sparse_attention_config")
        if block is None:
            fields, names = self.fields, ("index_head_dim", "index_block_size", "index_topk_blocks")
        else:
            fields, names = block, ("sparse_index_dim", "sparse_block_size", "sparse_topk_blocks")
        head_dim, tokens, top_k = (fields.dimension(name) for name in names)
        return BlockIndex(index_head_dim=head_dim, block_tokens=tokens, top_k=top_k)

    def _conv(self, _layer: int) -> ShortConv:
        return ShortConv(
            channels=self.fields.dimension(*HIDDEN), conv_kernel=self.fields.dimension("conv_L_cache")
        )

    def _linear(self, layer: int) -> RecurrentAttention:
        """The family of a recurrent layer follows from the dimensions that the config has."""
        fields = self.fields
        kimi = fields.block("linear_attn_config")
        if kimi is not None:
            return KimiDelta(
                heads=kimi.dimension("num_heads"),
                head_dim=kimi.dimension("head_dim"),
                conv_kernel=kimi.dimension("short_conv_kernel_size"),
            )
        if fields.has("linear_num_heads"):
            return KimiDelta(
                heads=fields.dimension("linear_num_heads"),
                head_dim=fields.dimension("linear_head_dim"),
                conv_kernel=fields.dimension("linear_conv_kernel_dim"),
            )
        if fields.has("linear_num_value_heads"):
            return GatedDelta(
                key_heads=fields.dimension("linear_num_key_heads"),
                value_heads=fields.dimension("linear_num_value_heads"),
                key_dim=fields.dimension("linear_key_head_dim"),
                value_dim=fields.dimension("linear_value_head_dim"),
                conv_kernel=fields.dimension("linear_conv_kernel_dim"),
            )
        if any(fields.has(name) for name in (*MAMBA_HEADS, *MAMBA_HEAD_DIMS)):
            return self._mamba2()
        if any(fields.has(name) for name in MAMBA_STATES):
            return self._mamba1()
        if fields.has("attn_type_list") or self.model_type in LIGHTNING_FAMILIES:
            fields.set_aside("attn_type_list")
            return Lightning(heads=fields.dimension(*HEADS), head_dim=self._head_dim(layer))
        raise ConfigError(
            "some layers are linear attention or mamba, and no field gives their dimensions "
            "(linear_num_value_heads, linear_num_heads, mamba_n_heads, mamba_d_state, …); add those it has"
        )

    def _mamba2(self) -> Mamba2:
        fields = self.fields
        automatic = [name for name in MAMBA_HEAD_DIMS if fields.value(name) == "auto"]
        given = [name for name in MAMBA_HEAD_DIMS if name not in automatic]
        head_dim, inner = fields.optional(*given), fields.optional("mamba_d_ssm")
        heads = fields.optional(*MAMBA_HEADS)
        if heads is None:  # Zamba2 as it was first published gives the head size alone
            heads = self._heads_of(inner or self._expanded(), head_dim)
        if head_dim is None or inner is not None:
            inner = inner or self._expanded()
            if inner % heads or (head_dim is not None and heads * head_dim != inner):
                raise ConfigError(
                    f"mamba layers have an inner size of {inner}, which {heads} heads"
                    + (f" of {head_dim}" if head_dim else "")
                    + " do not make; correct mamba_d_ssm or the heads"
                )
            head_dim = inner // heads
        groups = fields.dimension(*MAMBA_GROUPS)
        if heads % groups:
            raise ConfigError(
                f"config contradicts itself: {fields.path(fields.given(*MAMBA_GROUPS))} is {groups}, and "
                f"{fields.path(fields.given(*MAMBA_HEADS))} {heads} is no multiple of it; correct one of them"
            )
        return Mamba2(
            heads=heads,
            head_dim=head_dim,
            state_dim=fields.dimension(*MAMBA_STATES),
            groups=groups,
            conv_kernel=fields.dimension(*MAMBA_KERNELS),
        )

    def _heads_of(self, inner: int, head_dim: int | None) -> int:
        if head_dim is None or inner % head_dim:
            raise ConfigError(
                f"config has no {' or '.join(map(self.fields.path, MAMBA_HEADS))}, and heads of {head_dim} "
                f"do not make the inner size {inner} of its mamba layers; add the number of heads"
            )
        return inner // head_dim

    def _mamba1(self) -> Mamba1:
        return Mamba1(
            inner_dim=self._expanded(),
            state_dim=self.fields.dimension(*MAMBA_STATES),
            conv_kernel=self.fields.dimension(*MAMBA_KERNELS),
        )

    def _expanded(self) -> int:
        """The inner size of a mamba layer: Zamba2 writes its factor as a float."""
        fields = self.fields
        name = next((name for name in MAMBA_EXPANDS if fields.has(name)), MAMBA_EXPANDS[0])
        factor = fields.value(name)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 1024:
            raise fields.wrong(name, factor, "a factor of the hidden size, from above 0 to 1,024")
        inner = factor * fields.dimension(*HIDDEN)
        if inner != int(inner):
            raise ConfigError(f"{fields.path(name)} {shown(factor)} times the hidden size is no whole number")
        return int(inner)

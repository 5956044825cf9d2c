"""Which unread fields of a ``config.json`` may not be passed over.

A name that looks as if it decided what is cached is an error unless it is known to decide nothing.
"""

from __future__ import annotations

import re

DECIDES = re.compile(
    r"attn|attention|window|cache|(?:^|_)kv(?:_|$)|heads?(?:_|$)|mamba|ssm|(?:^|_)conv(?:_|$)|linear_|recurrent"
    r"|index|latent|lora_rank|layer_types|layers_block|block_config|block_type|_pattern|compress|chunk"
    r"|(?:^|_)states?(?:_|$)|lru|rnn|rwkv|(?:^|_)sparse_|hybrid|layer_group|retention|per_layer_config"
    r"|(?:^|_)(?:local|global)(?:_|$)|layer_ids|layer_indices|sconv"
)
SHARES = re.compile(
    r"(?:^|_)cla(?:_|$)|cross_layer|yoco|self_decoder|reuse|kv_?shar|layers?_?shar|(?:^|_)kv_groups?_layers"
    r"|shar(?:e|ed|ing)_?(?:cross_)?(?:kv|keys?|values?|layers?|caches?|attn|attention|with)(?:_|$)"
)
"""Names of fields by which layers may use the KV of other layers."""
"""Names of fields that may decide what is cached."""

_HARMLESS = """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal
    activation_situ_linear_beta activation_sparsity_pattern add_classification_head add_cross_attention
    attention_hidden_size attention_in_multiplier attention_k_eq_v attention_out_multiplier
    attention_projection_layout attention_softmax_in_fp32 attention_type attention_value_scale
    attn_implementation attn_output_gate attn_res_block_size attn_rotary_emb attn_scale
    attn_temperature_tuning cache_implementation chunk_size chunk_size_feed_forward conv_dim conv_dim_out
    conv_use_xavier_init cross_attention_hidden_size decoder_sparse_step dual_chunk_attention_config
    enable_lm_head_fp32 final_logit_softcapping first_k_dense_replace for_llm_compressor
    full_attn_alpha_factor full_attn_beta_factor gated_linear_unit head_dim head_dtype
    hidden_size_per_layer_input hybrid_layer_ids index_local_blocks index_n_heads
    index_share_for_mtp_iteration indexer_rope_interleave interleave_moe_layer_step is_hybrid_swa
    key_multiplier kv_channels layernorm_full_attention_alpha layernorm_full_attention_beta
    layernorm_linear_attention_alpha layernorm_linear_attention_beta linear_a_log_max linear_a_log_min
    linear_allow_neg_eigval linear_attn_alpha_factor linear_attn_beta_factor linear_dt_init_floor
    linear_dt_max linear_dt_min lm_head_multiplier lora_rank mamba_chunk_size mamba_dt_init_floor
    mamba_dt_limit mamba_dt_max mamba_dt_min mamba_dt_rank mamba_expand mamba_hidden_act
    mamba_inner_layernorms mamba_ssm_cache_dtype mamba_use_mlp max_seq_len mla_use_nope mla_use_output_gate
    mlp_layer_types moe_latent_size mtp_hybrid_override_pattern mtp_layers_block_type norm_head
    num_attention_heads num_attention_heads_per_layer num_heads num_key_value_heads num_ln_in_parallel_attn
    num_mem_blocks o_lora_rank output_attentions output_hidden_states parallel_attn position_embedding_type
    pre_allocate_kv_cache pretraining_tp q_lora_rank qk_head_dim qk_nope_head_dim query_pre_attn_scalar
    reorder_and_upcast_attn rope_local_base_freq scale_attention_softmax_in_fp32
    scale_attn_by_inverse_layer_idx scale_attn_weights sparse_init_block sparse_local_block
    sparse_num_index_heads sparse_score_type ssm_in_multiplier ssm_multipliers ssm_out_multiplier
    swa_num_attention_heads swa_rope_theta use_associative_scan use_bidirectional_attention use_cache
    use_flash_attention use_flash_attn use_logn_attn use_mamba_kernels use_mambapy use_mem_eff_path
    use_shared_attention_adapter use_shared_attention_lora v_head_dim
"""

HARMLESS_NAMES = frozenset(_HARMLESS.split())
"""Names of that shape that decide nothing of what is cached, or only together with a field that is read."""

HARMLESS_SHAPES = re.compile(
    r"(?:_dropout|_pdrop|_dropout_prob|_bias|_norm|_norm_eps|_multiplier|_softcapping|_softcap|_clamp|_theta|_gate"
    r"|_prob|_experts|_interpolate|_activation|_init|_init_std|_token_id|_token_index|_start_index|_end_index)$"
)


def may_decide(name: str, value: object) -> bool:
    """Whether an unread field of this name and value could change what is cached."""
    if name in HARMLESS_NAMES:
        return False
    if SHARES.search(name):
        # A factor of 1 shares nothing; a bool equals 1 to Python, and true shares.
        return not (value is False or (type(value) is int and value in (0, 1)))
    return bool(DECIDES.search(name)) and not HARMLESS_SHAPES.search(name)

"""The options by which every command that takes a preset changes it, declared once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hicache_bench.cli.signature import parameters_of, show_parameters

if TYPE_CHECKING:
    import inspect

    from hicache_bench.workflows.variant import VariantOptions


def takes_variant(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` these options; its parameter ``variant`` gets them as :class:`VariantOptions`.

    An option that the command declares itself, such as one that takes a list, is left to it.
    """
    own = parameters_of(command)
    taken = {parameter.name for parameter in own}
    added = [parameter for parameter in _added_parameters() if parameter.name not in taken]

    @wraps(command)
    def with_options(**values: Any) -> None:
        variant = _variant_options(**{parameter.name: values.pop(parameter.name) for parameter in added})
        command(**values, variant=variant)

    show_parameters(with_options, [*(parameter for parameter in own if parameter.name != "variant"), *added])
    return with_options


@cache
def _added_parameters() -> list[inspect.Parameter]:
    return parameters_of(_variant_options)


def _variant_options(
    kv_dtype: Annotated[
        str | None,
        typer.Option(help="KV: bf16, fp16, fp32, fp8; fp8-packed for MLA only, fp8-scaled for K and V only."),
    ] = None,
    state_dtype: Annotated[str | None, typer.Option(help="Recurrent states: fp32, bf16, fp16, fp8.")] = None,
    index_dtype: Annotated[str | None, typer.Option(help="Index keys: fp8 or fp4.")] = None,
    page_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a page.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="How layers become pools: sglang-0.5.23, or by_kind (one pool a kind).")
    ] = None,
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    cp: Annotated[str, typer.Option(help="Context-parallel ranks: N:sharded or N:replicated.")] = "1",
    dcp: Annotated[int, typer.Option(min=1, help="Decode-context-parallel ranks; divides --tp.")] = 1,
    tp_lcm: Annotated[
        int | None,
        typer.Option(min=1, help="Cut the heads into this many objects, shared by other TP sizes."),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="Host layout: page_first, page_first_direct, page_head.")
    ] = "page_first",
    draft: Annotated[
        bool,
        typer.Option("--draft", help="Add the draft (MTP) layers, in the pools that the profile gives them."),
    ] = False,
    salt: Annotated[str | None, typer.Option(help="Tenant salt: another one shares no key.")] = None,
    adapter: Annotated[
        str | None, typer.Option(help="Name of a LoRA adapter: another one shares no key.")
    ] = None,
    key_scheme: Annotated[
        str, typer.Option(help="namespaced, or sglang (SGLang's own keys).")
    ] = "namespaced",
    model_name: Annotated[
        str | None, typer.Option(help="Model name in SGLang's keys, where the server was given one.")
    ] = None,
    extra_backend_tag: Annotated[str | None, typer.Option(help="extra_backend_tag in SGLang's keys.")] = None,
) -> VariantOptions:
    from hicache_bench.workflows.variant import VariantOptions

    return VariantOptions(
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
        index_dtype=index_dtype,
        page_tokens=page_tokens,
        profile=profile,
        tp=tp,
        pp=pp,
        cp=cp,
        dcp=dcp,
        tp_lcm=tp_lcm,
        layout=layout,
        draft=draft,
        salt=salt,
        adapter=adapter,
        key_scheme=key_scheme,
        model_name=model_name,
        extra_backend_tag=extra_backend_tag,
    )

"""Where requests run: a model's ranks on a system behind a link, at every end of the constants' bands."""

from __future__ import annotations

from collections.abc import Callable

from hicache_bench.config.deployments import load_compute
from hicache_bench.config.schema import ModelPreset
from hicache_bench.cost.compute import Compute, compute_model
from hicache_bench.cost.prefetch import PrefetchOptions
from hicache_bench.cost.ttft import Scene
from hicache_bench.errors import ConfigError, InputError
from hicache_bench.links.constant import Constant, Edge
from hicache_bench.links.link import Link
from hicache_bench.links.system import System
from hicache_bench.models.compute import ComputeDims
from hicache_bench.models.spec import ModelSpec
from hicache_bench.records.schema import Evidence
from hicache_bench.records.simulation import ConstantRecord
from hicache_bench.workflows.simulate.served import Served
from hicache_bench.workflows.simulate.times import Corners
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options


def variant_on(
    source: ModelPreset, system: System, tp: int | None, options_of: Callable[[int], VariantOptions]
) -> Variant:
    """The preset on ``tp`` ranks; where that is None, on those of its prefill fit, else on all GPUs.

    ``options_of`` gives the options for a number of tensor-parallel ranks. A model that cannot be spread so
    far gets half as many, and so on.

    Raises:
        ConfigError: a deployment that the engine refuses.
    """
    if tp is not None:
        return apply_options(source, options_of(tp))
    fit = system.prefill.get(source.name)
    ranks = fit.gpus if fit else system.gpus
    while True:
        variant = apply_options(source, options_of(ranks))
        try:
            assert Served.of(variant).stages
        except ConfigError:
            if ranks == 1:
                raise
            ranks //= 2
        else:
            return variant


def dims_of(
    spec: ModelSpec, *, hidden_size: int | None, active_parameters: float | None
) -> ComputeDims | None:
    """The shipped dimensions, or those that the command line gives.

    Raises:
        InputError: ``--active-parameters`` of a model whose width is not known.
    """
    known = load_compute().get(spec.name)
    if hidden_size is not None:
        return ComputeDims(
            hidden_size=hidden_size,
            active_parameters=active_parameters,
            source="--hidden-size" + ("" if active_parameters is None else ", --active-parameters"),
        )
    if active_parameters is None:
        return known
    if known is None:
        raise InputError("--active-parameters needs the width of the model too; give --hidden-size")
    return ComputeDims(
        hidden_size=known.hidden_size, active_parameters=active_parameters, source="--active-parameters"
    )


def corners_of(
    link: Link,
    system: System,
    served: Served,
    dims: ComputeDims | None,
    *,
    prompt_tokens: int,
    local_tokens: int,
    prefetch: PrefetchOptions,
    concurrency: int,
) -> Corners:
    """A request with every constant at its value, at its quick and at its slow end.

    Raises:
        ConfigError: neither a fit nor dimensions for the model's compute.
    """
    num_ranks = served.deployment.num_workers

    def scene(edge: Edge) -> Scene:
        at_edge = system.at_edge(edge)
        return Scene(
            link=link.at_edge(edge),
            system=at_edge,
            compute=compute_model(at_edge, served.spec, dims, gpus=num_ranks),
            num_ranks=num_ranks,
            num_layers=served.layers_of_a_rank,
            prompt_tokens=prompt_tokens,
            local_tokens=local_tokens,
            prefetch=prefetch,
            concurrency=concurrency,
        )

    return Corners(value=scene(Edge.VALUE), quick=scene(Edge.QUICK), slow=scene(Edge.SLOW))


def constants_of(link: Link, system: System, compute: Compute) -> tuple[ConstantRecord, ...]:
    """Every constant that a time rests on, with its source."""
    owned: list[tuple[str, Constant]] = [
        *((link.name, constant) for constant in link.constants),
        *((system.name, constant) for constant in (system.h2d, system.h2d_node)),
        *((system.name, constant) for constant in compute.constants),
    ]
    return tuple(
        ConstantRecord(
            of=owner,
            name=constant.name,
            value=constant.value,
            low=constant.band[0],
            high=constant.band[1],
            unit=constant.unit,
            source=constant.source,
            evidence=(Evidence.MODELED if constant.is_fitted else Evidence.ASSUMED).value,
        )
        for owner, constant in owned
    )

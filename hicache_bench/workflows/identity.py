"""What a record says its figures are of: the model and how it is deployed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hicache_bench.models.deployment import Deployment
from hicache_bench.models.spec import ModelSpec


def preset_dict(spec: ModelSpec) -> dict[str, Any]:
    """The resolved preset; a layer is written as the names of what it caches, joined by ``+``.

    Shared layers are left out where there are none, as they were before presets knew of them.
    """
    fields = {**asdict(spec), "layers": ["+".join(names) or "none" for names in spec.layers]}
    if not spec.shared_layers:
        del fields["shared_layers"]
    return fields


def deployment_dict(deployment: Deployment) -> dict[str, int | str | None]:
    """A deployment, in a record's words."""
    return {
        "tp": deployment.tp_size,
        "pp": deployment.pp_size,
        "cp": deployment.cp_size,
        "cp_sharded": deployment.cp_sharded,
        "dcp": deployment.dcp_size,
        "tp_lcm": deployment.tp_lcm,
        "layout": deployment.layout.value,
        "draft": deployment.with_draft,
    }

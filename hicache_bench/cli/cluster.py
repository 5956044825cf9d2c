"""Options of the commands that can join a running cluster, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

Master = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of a running Mooncake master to join; a private one is started otherwise."),
]
MasterHttpPort = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, help="HTTP port of that master, which tells of its cluster. 9003 by default."
    ),
]
Segment = Annotated[
    str | None,
    typer.Option(
        help="Memory to give to the Mooncake cluster, such as 8GiB. Joined clusters get none by default."
    ),
]

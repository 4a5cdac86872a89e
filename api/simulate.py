"""The commands ``reliable-channel simulate …``: their options, and nothing of their work.

Each function imports the loss laboratory when it is called, so that ``--help`` waits for nothing and the library is
whole without it. What goes wrong is told by ``cli``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


class RunByDefault(TyperGroup):
    """Commands of which ``run`` is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put it in front of options that are not the group's own."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


simulate = typer.Typer(cls=RunByDefault, rich_markup_mode=None)

ENGINE = typer.Option(
    help="spark, or process: in processes of this machine, with the same results."
)
MASTER = typer.Option(
    help="Spark's: local[4], spark://host:7077, sc://host; by default what "
    "RELIABLE_CHANNEL_SPARK_MASTER or SPARK_REMOTE says, else all of this machine.",
    show_default=False,
)


@simulate.callback()
def simulate_group() -> None:
    """See what arrives, of thousands of channels over bad networks.

    Without a command it is run: see simulate run --help. It needs the extra: pip install 'reliable-channel[spark]'.
    """


@simulate.command("run")
def simulate_run(
    grid: Annotated[
        str, typer.Option(help="What to play: a name that simulate grids lists, or a TOML file.")
    ] = "default",
    channels: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Channels of each cell.")
    ] = 5_000,
    seed: Annotated[
        int, typer.Option(min=0, help="Other results; equal seeds give equal results.")
    ] = 0,
    engine: Annotated[str, ENGINE] = "spark",
    master: Annotated[str | None, MASTER] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results; simulate- and the grid's name by default.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1024, help="Cores of this machine; all by default.", show_default=False
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Pieces of work; by their cost by default.", show_default=False
        ),
    ] = None,
) -> int:
    """Play a grid and write a report.

    The same command goes on with what was interrupted. It ends with 1 when a channel could not be played, and says
    which command plays it again.
    """
    from benchmarks.laboratory.command import run_simulate

    return run_simulate(
        grid,
        channels=channels,
        seed=seed,
        engine=engine,
        master=master,
        out=out,
        workers=workers,
        partitions=partitions,
    )


@simulate.command("replay")
def simulate_replay(
    out: Annotated[Path, typer.Option(help="Folder of the run.", show_default=False)],
    scenario: Annotated[
        str, typer.Option(help="The cell: its key, name, or number.", show_default=False)
    ],
    channel: Annotated[int, typer.Option(help="Number of the channel.", show_default=False)],
    trace: Annotated[
        str, typer.Option(help="File for what happens in it; - is standard output.")
    ] = "-",
) -> int:
    """Play one channel of a run again, event by event.

    Its last line says whether the result equals the stored one; it ends with 1 when it does not. Needs no Spark.
    """
    from benchmarks.laboratory.command import run_replay

    return run_replay(out, scenario, channel, trace)


@simulate.command("analyze")
def simulate_analyze(
    database: Annotated[
        list[str] | None,
        typer.Option(help="URL of a service's database; repeatable.", show_default=False),
    ] = None,
    events: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead, a file or folder with a service's events; repeatable.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        int, typer.Option(min=1, help="Seconds of a channel's time that make a row of results.")
    ] = 3_600,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("simulate-analyze"),
    engine: Annotated[str, ENGINE] = "spark",
    master: Annotated[str | None, MASTER] = None,
) -> int:
    """Report what real services logged, in the same way."""
    from benchmarks.laboratory.command import run_analyze

    return run_analyze(
        database or [], events or [], window_sec=window, out=out, engine=engine, master=master
    )


@simulate.command("grids")
def simulate_grids(
    grid: Annotated[
        str | None,
        typer.Argument(help="List the cells of this one: name or TOML file.", show_default=False),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Play some channels to see what they cost here.")
    ] = False,
) -> int:
    """List what grids there are, and what they cost."""
    from benchmarks.laboratory.command import run_grids

    return run_grids(grid, measure=measure)

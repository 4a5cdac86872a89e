"""The command line: ``reliable-channel COMMAND``.

Each command is a module of its own. The function here declares its options, imports the module only when it is called,
so that ``--help`` need not wait for the library, and hands over. What goes wrong is written here and nowhere else, as
one line on standard error. Nothing here may do a command's work.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from api.simulate import simulate

PROGRAM: Final = "reliable-channel"

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130
"""Exit codes: it did not work, it was called wrongly, and, as shells have it, Ctrl-C."""

# Plain help looks the same on a terminal, in a pipe and at any width. A bug's traceback never shows
# the values of variables: keys are among them.
app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(simulate, name="simulate")


def main() -> None:
    """Run the command that the arguments of the process name, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name may hold what the terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:  # said already; the interpreter would say it once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; what goes wrong is one line on standard error."""
    try:
        result = app(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except Exception as error:
        code, text = explain(error)
        complain(text)
        return code
    if result == INTERRUPTED:
        complain("interrupted")
    return result if isinstance(result, int) else 0


def explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the line for an error; a bug is raised again.

    Args:
        error: What a command, or the reading of its options, raised.
    """
    describe = getattr(error, "format_message", None)
    if describe is not None:  # typer's own errors; no version exports a base for all of them
        return MISUSED, str(describe())
    from reliable_channel import ConfigurationError, ReliableChannelError

    if isinstance(error, ReliableChannelError):
        return MISUSED if isinstance(error, ConfigurationError) else FAILED, str(error)
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        named = isinstance(error.filename, str | os.PathLike)
        return FAILED, f"{os.fspath(error.filename)}: {text}" if named else text
    raise error


def complain(text: str) -> None:
    """Write a text to standard error as one line, whatever it holds."""
    typer.echo(f"{PROGRAM}: {' '.join(text.split())}", err=True)


def show_version(wanted: bool) -> None:
    """Print the version and end, when it is wanted."""
    if wanted:
        from reliable_channel import __version__

        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Messages that arrive whole, once and in order, over networks that promise none of it."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(MISUSED)


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="What to send; by default a large file of the running Python.",
            show_default=False,
            readable=False,  # the command says it better
        ),
    ] = None,
    loss: Annotated[
        float, typer.Option(min=0, max=1, help="Share of messages that each receiver loses.")
    ] = 0.2,
    duplicate: Annotated[
        float, typer.Option(min=0, max=1, help="Share that arrives twice.")
    ] = 0.05,
    reorder: Annotated[
        float, typer.Option(min=0, max=1, help="Share that later ones overtake.")
    ] = 0.1,
    seed: Annotated[
        int | None,
        typer.Option(help="Draw the same faults again; by default others each time."),
    ] = None,
    parity: Annotated[
        bool, typer.Option("--parity", help="Add Reed-Solomon segments: 1 to 8 of data.")
    ] = False,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds before it gives up.")] = 120,
) -> None:
    """Send a file to two receivers through a lossy network.

    Everything happens in this process: one sender and two receivers on an encrypted channel, and a network between them
    that loses, repeats and reorders messages. It ends with the numbers and the SHA-256 at each of the three, and
    succeeds only if all of them agree and every message was acknowledged.
    """
    from api.demo import Faults, run_demo

    faults = Faults(loss=loss, duplicate=duplicate, reorder=reorder, seed=seed)
    run_demo(file, faults, parity=parity, timeout=timeout)


DATABASE = typer.Option(
    help="URL of the database: sqlite:///alice.db or postgresql+psycopg://…",
    show_default=False,
)


@app.command()
def serve(
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; 127.0.0.1 by default.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 takes a free one, which is printed.", show_default=False),
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="URL of the database.", show_default=False)
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="URL of the messaging node.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with settings.", show_default=False, readable=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether the settings are usable, and end.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Who may read and write.", show_default=False, readable=False),
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(help="Encryption keys by name.", show_default=False, readable=False),
    ] = None,
    allow_insecure: Annotated[
        bool | None,
        typer.Option(
            "--allow-insecure",
            help="Listen beyond this machine without tokens.",
            show_default=False,
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may call; repeatable.", show_default=False),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Further name of this service; repeatable.", show_default=False),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", show_default=False)
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="text or json.", show_default=False)
    ] = None,
    shutdown_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds that requests may take at the end.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Only 1: a channel is driven by one process.", show_default=False),
    ] = None,
) -> None:
    """Serve channels over HTTP, and a page to look at.

    Options beat environment variables (RELIABLE_CHANNEL_PORT and so on), which beat the file. SIGTERM and Ctrl-C end it
    when what is under way is done, a second one at once.
    """
    from api.settings import load_settings

    flags = {
        "host": host,
        "port": port,
        "database": database,
        "node": node,
        "token_file": token_file,
        "keys_file": keys_file,
        "allow_insecure": allow_insecure,
        "cors_origins": cors_origin,
        "allowed_hosts": allowed_host,
        "log_level": log_level,
        "log_format": log_format,
        "shutdown_timeout_sec": shutdown_timeout,
        "workers": workers,
    }
    settings = load_settings(flags, os.environ, config)
    from api.serving import run_check, run_serve

    (run_check if check else run_serve)(settings, os.environ)


@app.command()
def devnode(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port of the first node, the others follow; 0 takes free ones.")
    ] = 8645,
    nodes: Annotated[
        int, typer.Option(help="Nodes of the network, each with a port and caches of its own.")
    ] = 1,
    peers: Annotated[
        int, typer.Option(help="Peers that each node has besides; 0 with one node: no network.")
    ] = 4,
    loss: Annotated[
        float, typer.Option(help="Share of messages that do not reach a node's caches.")
    ] = 0,
    duplicate: Annotated[float, typer.Option(help="Share that comes twice.")] = 0,
    reorder: Annotated[float, typer.Option(help="Share that later ones overtake.")] = 0,
    delay_ms: Annotated[float, typer.Option(help="Time under way, milliseconds.")] = 0,
    jitter_ms: Annotated[float, typer.Option(help="Up to so much more, milliseconds.")] = 0,
    drop_every: Annotated[
        int, typer.Option(help="Every such message does not reach the caches; 0 is none.")
    ] = 0,
    self_echo: Annotated[
        bool, typer.Option(help="Whether a node's own messages come back to it.")
    ] = True,
    store_lag_s: Annotated[
        float, typer.Option(help="How much later the store shows a message, seconds.")
    ] = 3,
    store_loss: Annotated[float, typer.Option(help="Share that the store misses.")] = 0,
    store_messages: Annotated[int, typer.Option(help="Messages that the store keeps.")] = 65_536,
    store_mb: Annotated[int, typer.Option(help="Megabytes that the store keeps.")] = 64,
    cache_capacity: Annotated[
        int, typer.Option(help="Messages in a relay cache; the oldest goes.")
    ] = 50,
    timeout_rate: Annotated[
        float, typer.Option(help="Share of requests to the network that time out after 5 s.")
    ] = 0,
    answer_delay_ms: Annotated[
        float, typer.Option(help="How much later each answer comes, milliseconds.")
    ] = 0,
    cut_rate: Annotated[
        float, typer.Option(help="Share of JSON answers that end in the middle.")
    ] = 0,
    queue_s: Annotated[
        float,
        typer.Option(help="How long the messaging API keeps a message back, seconds."),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Makes the faults.")] = 0,
    cluster_id: Annotated[int, typer.Option(help="Number in the names of pubsub topics.")] = 1,
    shards: Annotated[int, typer.Option(help="Shards of the network.")] = 8,
    auto_sharding: Annotated[
        bool, typer.Option(help="Whether nodes find the shard of a content topic.")
    ] = True,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Not mounted: relay, filter, lightpush or store; repeatable.", show_default=False
        ),
    ] = None,
    messaging_api: Annotated[
        str, typer.Option(help="Generation of the messaging API: 2026-08, 2026-09 or none.")
    ] = "2026-09",
    reliability: Annotated[
        bool, typer.Option(help="Whether the messaging API asks the store.")
    ] = True,
    admin: Annotated[bool, typer.Option("--admin", help="Have admin routes.")] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may ask, or *; repeatable.", show_default=False),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Stand in for a Waku node, or a small network of them.

    It speaks the REST API of a node, for trials and tests on one machine, and keeps everything in memory. Services use
    it with --node waku+http://127.0.0.1:8645. SIGTERM and Ctrl-C end it.
    """
    given = {name: value for name, value in locals().items() if not name.startswith("log_")}
    from api.devnode.settings import make_settings, read_log_format, read_log_level

    settings = make_settings(given)
    level, form = read_log_level(log_level), read_log_format(log_format)
    from api.devnode.command import run_devnode

    run_devnode(settings, log_level=level, log_format=form)


@app.command()
def inspect(
    database: Annotated[str, DATABASE],
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Show what a database holds: sizes, open requests, budgets.

    It only reads, and needs no channel to be closed.
    """
    from api.inspection import run_inspect

    run_inspect(database, as_json=json)


@app.command()
def restored(
    database: Annotated[str, DATABASE],
    epoch_period_sec: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1 << 31,
            help="Length of an epoch, for a rate limit that may be newer than the backup.",
            show_default=False,
        ),
    ] = None,
    forget_future: Annotated[
        bool,
        typer.Option(
            "--forget-future",
            help="Set budgets that were counted by a clock that was ahead back to now.",
        ),
    ] = False,
) -> None:
    """Make a database that was restored from a backup safe to use.

    Run it after restoring and before starting anything that uses the database. What was transmitted after the backup
    was made is not counted in it, so all epoch budgets are marked as used up until their epoch ends; and new messages
    get times after now.
    """
    from api.restored import run_restored

    run_restored(database, epoch_period_sec, forget_future=forget_future)

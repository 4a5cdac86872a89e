"""The parts of the demo: which file, its pieces, what the participants count, what is shown."""

from __future__ import annotations

import io
import os
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from api.demo import (
    RECEIVERS,
    SENDER,
    DemoFailedError,
    Faults,
    Group,
    LiveView,
    Output,
    PlainView,
    Receiver,
    Sender,
    Share,
    carry,
    default_file,
    join,
    open_file,
    piece_sizes,
    python_files,
    read_pieces,
    report,
    view_for,
)
from messaging_adapter.memory import NetworkParameters
from reliable_channel import AesGcmEncryption, ConfigurationError

CALM = Faults(loss=0.0, duplicate=0.0, reorder=0.0, seed=1)


# --- The file ------------------------------------------------------------------------------------


def test_the_default_is_the_largest_file_of_the_running_python() -> None:
    chosen = default_file()
    assert chosen.stat().st_size >= os.stat(os.path.realpath(sys.executable)).st_size
    assert chosen.stat().st_size >= 100_000
    assert chosen in list(python_files())


def test_the_shared_library_is_among_the_places() -> None:
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("this Python has no shared library")
    assert any(path.is_file() for path in python_files() if "libpython" in path.name)


def test_a_static_library_is_not_what_runs() -> None:
    assert not [path for path in python_files() if path.suffix == ".a"]


def test_a_python_without_files_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *names: [None for _ in names])
    with pytest.raises(ConfigurationError, match="name a FILE"):
        default_file()


def test_a_framework_build_has_its_library_below_the_frameworks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "Python.framework" / "Versions" / "3.11" / "Python"
    library.parent.mkdir(parents=True)
    with library.open("wb") as handle:
        handle.truncate(1 << 30)  # larger than any interpreter, and takes no space
    values = {
        "PYTHONFRAMEWORKPREFIX": str(tmp_path),
        "LDLIBRARY": "Python.framework/Versions/3.11/Python",
    }
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *names: [values.get(n) for n in names])
    assert default_file() == library.resolve()


def test_a_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with open_file(path) as handle:
        assert handle.read() == b"content"
    assert handle.closed


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    problems = {"empty": "is empty", "": "is a directory", "none": "cannot be read: No such file"}
    for name, problem in problems.items():
        path = tmp_path / name
        with pytest.raises(ConfigurationError) as caught, open_file(path):
            pass
        assert f"{str(path)!r} {problem}" in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (
        pytest.raises(ConfigurationError, match="no regular file"),
        open_file(tmp_path / "pipe"),
    ):
        pass


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(1, [1]), (9, [9]), (10, [10]), (11, [10, 1]), (30, [10, 10, 10]), (31, [10, 10, 10, 1])],
)
def test_a_file_is_cut_into_as_few_messages_as_possible(size: int, sizes: list[int]) -> None:
    assert piece_sizes(size, 10) == sizes


async def test_pieces_are_read_in_order() -> None:
    pieces = [piece async for piece in read_pieces(io.BytesIO(b"abcdefg"), [3, 3, 1])]
    assert pieces == [b"abc", b"def", b"g"]


async def test_a_file_that_grows_is_sent_as_it_was() -> None:
    assert [piece async for piece in read_pieces(io.BytesIO(b"abcdefg"), [3])] == [b"abc"]


async def test_a_file_that_shrinks_is_an_error() -> None:
    with pytest.raises(DemoFailedError, match="shorter"):
        async for _ in read_pieces(io.BytesIO(b"abcd"), [3, 3]):
            pass


async def test_a_file_that_fails_is_an_error(tmp_path: Path) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(DemoFailedError, match="Input/output error"):
        async for _ in read_pieces(Failing(), [3]):
            pass


# --- The network ---------------------------------------------------------------------------------


def test_faults_are_what_the_network_gets() -> None:
    faults = Faults(loss=0.2, duplicate=1e-05, reorder=0.1, seed=-7)
    parameters = NetworkParameters.parse(faults.transport)
    assert parameters.seed == -7
    assert (parameters.faults.loss, parameters.faults.duplicate) == (0.2, 1e-05)
    assert (parameters.faults.reorder, parameters.faults.delay_ms) == (0.1, 5)


def test_faults_are_said_in_percent() -> None:
    faults = Faults(loss=0.2, duplicate=0.05, reorder=0.125, seed=7)
    assert str(faults) == "20 % loss, 5 % duplicates, 12.5 % out of order, 5-20 ms, seed 7"


# --- The participants ----------------------------------------------------------------------------


@asynccontextmanager
async def open_group(size: int, *, parity: bool = False) -> AsyncIterator[Group]:
    """Let everybody join a network without faults."""
    async with AsyncExitStack() as stack:
        encryption = AesGcmEncryption(AesGcmEncryption.generate_key())
        sender, *receivers = [
            await join(stack, name, encryption, CALM, parity=parity)
            for name in (SENDER, *RECEIVERS)
        ]
        yield Group(Sender(sender, size), tuple(Receiver(channel) for channel in receivers))


class Recorder:
    """A view that keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[list[int]] = []

    def show(self, shares: object) -> None:
        assert isinstance(shares, list)
        self.shown.append([share.percent for share in shares])


async def test_the_file_arrives_and_is_counted() -> None:
    content = os.urandom(500_000)
    console = Console(file=io.StringIO(), width=60, soft_wrap=True)
    view = Recorder()
    async with open_group(len(content)) as group:
        assert not group.is_done
        assert [share.total for share in group.shares] == [0, 0, 0]
        await carry(group, io.BytesIO(content), 15, view)
        assert group.is_done
        assert [share.percent for share in group.shares] == [100, 100, 100]
        assert {participant.octets for participant in group.everybody} == {len(content)}
        assert len({share.done for share in group.shares} | {group.sender.segments}) == 1
        report(group, console)
    assert view.shown[0] == [0, 0, 0]
    assert view.shown[-1] == [100, 100, 100]
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[-1].startswith("delivered")
    digest = group.sender.digest.hexdigest()
    assert lines[-4:-1] == [f"sha256 {name:<5}  {digest}" for name in (SENDER, *RECEIVERS)]
    assert not [line for line in lines if "parity" in line]


async def test_a_digest_that_differs_is_a_failure_that_names_the_receiver() -> None:
    console = Console(file=io.StringIO())
    async with open_group(3) as group:
        await carry(group, io.BytesIO(b"abc"), 15, Recorder())
        group.receivers[1].take(b"more")
        with pytest.raises(DemoFailedError, match=r"^what carol received is not what alice sent$"):
            report(group, console)
    assert isinstance(console.file, io.StringIO)
    assert group.receivers[1].digest.hexdigest() in console.file.getvalue()
    assert "delivered" not in console.file.getvalue()


async def test_a_file_that_shrinks_ends_the_transfer() -> None:
    async with open_group(4) as group:
        with pytest.raises(DemoFailedError, match="shorter"):
            await carry(group, io.BytesIO(b"abc"), 15, Recorder())


async def test_what_takes_too_long_says_how_far_it_came() -> None:
    async with open_group(4) as group:
        group.sender.size = 8  # of which the second half never comes
        with pytest.raises(DemoFailedError) as caught:
            await carry(group, io.BytesIO(b"abcd"), 1, Recorder())
    assert str(caught.value) == (
        "not finished within 1 s: alice acknowledged 1 of 2 segments, "
        "bob received 1 of 2 segments, carol received 1 of 2 segments"
    )


async def test_segments_to_come_are_estimated_from_those_that_are_sent() -> None:
    async with open_group(1_000_000) as group:
        sender = group.sender
        assert sender.plan == "1.0 MB in 1 message"
        assert sender.expected_segments == 0
        sender.octets, sender.segments = 300_000, 3
        assert sender.expected_segments == 10
        sender.octets, sender.segments = 1_000_000, 11
        assert sender.expected_segments == 11


async def test_large_files_are_several_messages() -> None:
    async with open_group(25_000_000) as group:
        assert group.sender.sizes == [8 << 20, 8 << 20, 25_000_000 - (16 << 20)]
        assert group.sender.plan == "25.0 MB in 3 messages"


# --- What is shown -------------------------------------------------------------------------------


def shares(*done: int) -> list[Share]:
    names = ((SENDER, "acknowledged"), *((name, "received") for name in RECEIVERS))
    return [Share(name, what, n, 200) for (name, what), n in zip(names, done, strict=True)]


@pytest.mark.parametrize(
    ("done", "total", "percent"), [(0, 0, 0), (0, 3, 0), (1, 3, 33), (3, 3, 100), (4, 3, 100)]
)
def test_percent(done: int, total: int, percent: int) -> None:
    assert Share("bob", "received", done, total).percent == percent


def test_a_share_in_words() -> None:
    assert str(Share("bob", "received", 2, 3)) == "bob received 2 of 3 segments"


def test_plain_progress_is_a_line_for_each_quarter_of_the_slowest() -> None:
    console = Console(file=io.StringIO(), width=20, soft_wrap=True, highlight=False)
    view = PlainView(console)
    for done in ((0, 0, 0), (199, 199, 49), (60, 50, 51), (99, 99, 99), (200, 150, 200)):
        view.show(shares(*done))
    for _ in range(2):
        view.show(shares(200, 200, 200))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "alice acknowledged 30 %, bob received 25 %, carol received 25 %",
        "alice acknowledged 100 %, bob received 75 %, carol received 100 %",
        "alice acknowledged 100 %, bob received 100 %, carol received 100 %",
    ]


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=Terminal(), width=60)
    with view_for(console) as view:
        assert isinstance(view, LiveView)
        view.show([Share(SENDER, "acknowledged", 0, 0)])
        view.show(shares(50, 100, 200))
    assert isinstance(console.file, Terminal)
    text = console.file.getvalue()
    for piece in ("25%", "50%", "100%", "50 acknowledged", "100 received", "200 received"):
        assert piece in text


@pytest.mark.parametrize(
    ("file", "variable", "value"),
    [
        (io.StringIO(), "TERM", "xterm"),
        (io.StringIO(), "FORCE_COLOR", "1"),
        (io.StringIO(), "TTY_INTERACTIVE", "1"),
        (Terminal(), "TERM", "dumb"),
    ],
    ids=["pipe", "pipe with colours", "interactive pipe", "dumb terminal"],
)
def test_elsewhere_nothing_is_drawn(
    file: io.StringIO, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with view_for(Console(file=file, highlight=False)) as view:
        assert isinstance(view, PlainView)
        view.show(shares(50, 50, 50))
    assert file.getvalue() == "alice acknowledged 25 %, bob received 25 %, carol received 25 %\n"


def test_a_reader_that_went_away_is_an_error_and_not_the_end_of_the_process() -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        Output(file=Gone()).print("anybody there?")

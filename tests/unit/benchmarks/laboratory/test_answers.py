"""Answers: the right cells, the right numbers, and silence about what a grid does not vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from benchmarks.laboratory.answers import MOST_ANSWERS, Question, exact, questions, seconds
from benchmarks.laboratory.axes import Shown
from benchmarks.laboratory.measures import Measures, RatioSums
from benchmarks.laboratory.results import REPAIR
from reliable_channel.config import RateLimitConfig
from tests.support.laboratory_rows import Place, cell_of, measures_of


def asked(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> dict[str, Question]:
    return {question.title: question for question in questions(cells, measures)}


def texts(question: Question) -> list[str]:
    return [answer.text.replace("\N{NO-BREAK SPACE}", " ") for answer in question.answers]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.5, "50.0 %"),
        (0.994, "99.40 %"),
        (0.9991, "99.910 %"),
        (0.999996, "99.9996 %"),
        (0.99999999, "over 99.9999 %"),
        (0.0, "0.0 %"),
    ],
)
def test_shares_near_all_keep_their_distance(share: float, text: str) -> None:
    assert exact(share).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_230, "1.23 s"), (119_999, "120 s"), (120_000, "2 min")],
)
def test_times(milliseconds: int, text: str) -> None:
    assert seconds(milliseconds).replace("\N{NO-BREAK SPACE}", " ") == text


def test_the_loss_survived_is_the_last_before_a_lower_bound_falls_below_the_level() -> None:
    made = {0.05: 1_000, 0.1: 1_000, 0.2: 995, 0.3: 970, 0.4: 999}
    cells = [Place(str(loss), (("faults.loss", loss),)) for loss in made]
    measures = {
        str(loss): measures_of(str(loss), delivered=number) for loss, number in made.items()
    }

    (text,) = texts(asked(cells, measures)["What loss is survived"])

    assert "99.9 % up to a loss of 10 %, 99 % up to a loss of 20 %" in text
    assert "95 % up to a loss of 40 %, the largest that was tried" in text
    assert "90 %" not in text, "the same loss as at a stricter level"


def test_what_comes_after_the_last_survived_is_told() -> None:
    cells = [Place(str(loss), (("loss", loss),)) for loss in (0.1, 0.5)]
    measures = {"0.1": measures_of("0.1"), "0.5": measures_of("0.5", delivered=600)}
    (answer,) = asked(cells, measures)["What loss is survived"].answers
    assert "at 50\N{NO-BREAK SPACE}% they were 60.0\N{NO-BREAK SPACE}% (58." in answer.text
    assert answer.cells == ("0.1", "0.5")


def test_few_channels_do_not_show_much() -> None:
    cells = [Place(str(loss), (("loss", loss),)) for loss in (0.1, 0.2, 0.3)]
    measures = {cell.key: measures_of(cell.key, channels=5) for cell in cells[:2]}
    measures["0.3"] = measures_of("0.3", channels=5, delivered=800)
    (text,) = texts(asked(cells, measures)["What loss is survived"])
    assert "all deliveries were made up to a loss of 20 %, but so few channels" in text
    measures["0.1"] = measures_of("0.1", channels=50, delivered=500)
    (text,) = texts(asked(cells, measures)["What loss is survived"])
    assert text.startswith("at no loss that was tried were 90 %")


def test_what_parity_buys() -> None:
    cells = [Place(str(rate), (("parity", rate),)) for rate in (0, 0.25, 0.5)]
    measures = {
        "0": measures_of(
            "0", delivered=990, latency={0: {5_000: 10}}, sums={"retransmissions": 10**6}
        ),
        "0.25": measures_of("0.25"),
        "0.5": measures_of("0.5", latency={0: {50: 10}}, sums={"retransmissions": 250_000}),
    }
    for key, sent in {"0": 100, "0.25": 110, "0.5": 120}.items():
        measures[key].ratios["bytes"] = RatioSums(channels=1, numerator=sent, denominator=50)

    (question,) = questions(cells, measures)

    assert question.title == "What parity buys"
    assert texts(question) == [
        "parity 50 % instead of none: "
        "1.25 retransmissions for 100 data segments instead of 5 (−75 %), "
        "95 % of those delivered within 50 ms instead of 5 s, "
        "2.4 bytes to a byte of payload instead of 2 (+20 %), "
        "100 % of the deliveries made instead of 99.00 %."
    ]
    assert question.answers[0].cells == ("0", "0.5")


def test_what_a_group_costs() -> None:
    cells = [Place(str(n), (("participants", n),)) for n in (2, 50)]
    measures = {"2": measures_of("2"), "50": measures_of("50", latency={REPAIR: {9_000: 1}})}
    measures["50"].ratios["repairs"] = RatioSums(channels=1, numerator=3, denominator=100)
    (text,) = texts(asked(cells, measures)["What a group costs"])
    assert (
        "from 2 to 50 participants, transmissions for each data segment went from 1.5 to 1.5"
        in text
    )
    assert "repairs for each hundred deliveries from 0 to 3" in text
    assert "latency from 50 ms to 9 s" in text


def test_what_the_rate_limit_costs() -> None:
    limit = RateLimitConfig(enabled=True, epoch_period_sec=60, messages_per_epoch=100)
    cell = cell_of("limited", rate_limit=limit)
    measures = measures_of(cell.key, queue={10: 90, 60_000: 10})
    measures.sums |= {"messages": 100, "segments": 400, "parity": 100}
    (text,) = texts(asked([cell], {cell.key: measures})["What the rate limit costs"])
    assert "limited: with a demand of 150 % of the budget" in text
    assert "within 10 ms and 95 % within 60 s" in text


def test_other_axes_are_compared_end_to_end() -> None:
    cells = [Place(str(n), (("sds.bloom_capacity", n),)) for n in (10, 100)]
    (text,) = texts(
        asked(cells, {cell.key: measures_of(cell.key) for cell in cells})[
            "What the other settings change"
        ]
    )
    assert text.startswith("bloom capacity 100 instead of 10: 0 retransmissions")
    assert "bytes" not in text, "none were counted"


def test_real_traffic_says_what_was_delivered_the_worst_first() -> None:
    cells = [Place(name, (("channel", name),)) for name in ("quays", "cranes")]
    measures = {"quays": measures_of("quays"), "cranes": measures_of("cranes", delivered=900)}
    (question,) = questions(cells, measures)
    assert question.title == "What was delivered"
    assert [answer.cells for answer in question.answers] == [("cranes",), ("quays",)]


def test_nothing_is_said_of_nothing() -> None:
    cells = [Place("a", (("loss", 0.1),)), Place("b", (("loss", 0.2),))]
    assert questions(cells, {"a": Measures.empty("a")}) == []
    assert questions([], {}) == []


def test_many_answers_are_thinned_out_and_said_to_be() -> None:
    cells = [
        Place(f"{bloom}-{loss}", (("loss", loss), ("bloom", bloom)))
        for bloom in range(1, 30)
        for loss in (0.1, 0.2)
    ]
    found = asked(cells, {cell.key: measures_of(cell.key, channels=9) for cell in cells})
    question = found["What loss is survived"]
    assert len(question.answers) == MOST_ANSWERS
    assert question.more == 29 - MOST_ANSWERS
    assert question.answers[0].cells[0] == "1-0.1"
    assert question.answers[-1].cells[0] == "29-0.1"

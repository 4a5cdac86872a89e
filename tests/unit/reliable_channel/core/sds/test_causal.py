"""Causal order of whole payloads: what waits, what is set free, in which order, and what is given up."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.sds.causal import (
    CYCLE_LOOKS,
    CYCLE_WAIT_NS,
    EDGES_PER_WAIT,
    SEARCH_CREDIT,
    CausalOrder,
    IdRing,
)
from reliable_channel.core.sds.log import KnownMessage, MessageLog
from reliable_channel.records import LostRecord
from tests.support.builders import ALICE, BOB, NOW, entry
from tests.support.cpu_time import cpu_seconds


class Order:
    """Causal order over a log of its own that notes what it delivers."""

    def __init__(
        self,
        *,
        max_parked_messages: int = 1000,
        max_parked_bytes: int = 1 << 20,
        max_parked_messages_per_sender: int = 1000,
        max_parked_bytes_per_sender: int = 1 << 20,
        max_lost_ids: int = 10,
    ) -> None:
        config = SdsConfig(
            bloom_capacity=0,
            max_parked_messages=max_parked_messages,
            max_parked_bytes=max_parked_bytes,
            max_parked_messages_per_sender=max_parked_messages_per_sender,
            max_parked_bytes_per_sender=max_parked_bytes_per_sender,
            max_lost_ids=max_lost_ids,
        )
        outbox = Outbox()
        self.delivered: list[str] = []
        self.serial = 0
        log = MessageLog(config, outbox)
        self.causal = CausalOrder(config, log, outbox, IdRing(10), self.note)

    def __getattr__(self, name: str) -> Any:
        """Return what the causal order has."""
        return getattr(self.causal, name)

    def note(self, payload: IncomingPayload) -> None:
        self.delivered.append(payload.message_id)

    def know(self, message_id: str, lamport: int = 1, *, logged: bool = False) -> None:
        """Make an id known."""
        self.log.add(
            KnownMessage(
                message_id, lamport, ALICE, index=0, segment_count=1, hint=None, logged=logged
            )
        )

    def payload(
        self,
        *message_ids: str,
        names: str = "",
        lamport: int = 1,
        octets: int = 1,
        sender_id: str = ALICE,
    ) -> IncomingPayload:
        """Return a whole payload of some ids that names others; its ids are held."""
        self.serial += 1
        key = SetKey(sender_id, b"", 0, len(message_ids), 0, octets, 0)
        payload = IncomingPayload(serial=self.serial, key=key, octets=octets)
        for index, message_id in enumerate(message_ids):
            self.know(message_id, lamport + index)
            payload.ids[index] = message_id
            payload.lamports[index] = lamport + index
            self.hold(message_id, payload)
        payload.dependencies = {name: entry(name) for name in names}
        return payload

    def arrive(self, *message_ids: str, names: str = "", lamport: int = 1) -> bool:
        """Complete a payload; say whether it was delivered."""
        return self.complete(self.payload(*message_ids, names=names, lamport=lamport))


@pytest.fixture
def order() -> Order:
    return Order()


# --- The ring ------------------------------------------------------------------------------------


def test_a_ring_forgets_the_oldest() -> None:
    ring = IdRing(2)
    assert ring.add("a") is None
    assert ring.add("b") is None
    assert ring.add("a") is None
    assert ring.add("c") == "a"
    assert "a" not in ring
    assert "b" in ring
    assert "c" in ring


# --- What counts as met --------------------------------------------------------------------------


def test_a_payload_that_names_nothing_is_delivered_at_once(order: Order) -> None:
    assert order.arrive("a")
    assert order.delivered == ["a"]
    assert order.log.newest(5) == ("a",)
    assert not order.holder


def test_a_payload_waits_for_what_it_names(order: Order) -> None:
    assert not order.arrive("b", names="a", lamport=2)
    assert order.delivered == []
    assert order.log.newest(5) == ()  # only delivered ids may be named
    assert order.is_awaited("a")
    assert order.arrive("a")
    assert order.delivered == ["a", "b"]
    assert not order.is_awaited("a")
    assert not order.parked
    assert order.parked_octets == 0


@pytest.mark.parametrize("how", ["logged", "lost", "passing"])
def test_delivered_own_lost_and_passing_ids_are_met(order: Order, how: str) -> None:
    if how == "logged":
        order.know("a", logged=True)
    elif how == "lost":
        order.lose("a", NOW)
    else:
        order.excuse(["a"])
    assert order.is_met("a")
    assert not order.lacks("a")
    assert order.arrive("b", names="a")


def test_a_dependency_that_is_only_parked_is_not_met(order: Order) -> None:
    """WIRE: one is met when the payload that holds the id is delivered or lost."""
    order.arrive("b", names="a", lamport=2)
    assert not order.is_met("b")
    assert not order.lacks("b")
    assert not order.arrive("c", names="b", lamport=3)
    order.arrive("a")
    assert order.delivered == ["a", "b", "c"]


def test_a_dependency_whose_payload_is_incomplete_is_not_met(order: Order) -> None:
    part = order.payload("a", lamport=1)
    assert not order.arrive("b", names="a", lamport=2)
    assert order.complete(part)
    assert order.delivered == ["a", "b"]


def test_an_unknown_id_is_lacking(order: Order) -> None:
    assert order.lacks("a")
    assert not order.is_met("a")


def test_own_segments_are_no_dependencies(order: Order) -> None:
    """WIRE: all entries of its segments except its own ids."""
    assert order.arrive("a", "b", "c", names="abc")
    assert order.delivered == ["a"]
    assert order.log.newest(5) == ("a", "b", "c")


def test_below_the_floor_nothing_is_waited_for(order: Order) -> None:
    """WIRE: dependencies of messages below it count as met."""
    order.causal.floor = 10
    assert order.arrive("b", names="a", lamport=9)
    assert not order.arrive("c", names="a", lamport=10)


# --- Setting free --------------------------------------------------------------------------------


def test_the_last_missing_one_releases_a_whole_chain_in_order(order: Order) -> None:
    for number, message_id in enumerate("bcdef", 2):
        order.arrive(message_id, names=chr(ord(message_id) - 1), lamport=number)
    order.arrive("a")
    assert order.delivered == list("abcdef")


def test_what_comes_free_together_goes_by_lamport_time_then_id(order: Order) -> None:
    for message_id, lamport in (("z", 5), ("m", 7), ("k", 5), ("b", 9)):
        order.arrive(message_id, names="a", lamport=lamport)
    order.arrive("a")
    assert order.delivered == ["a", "k", "z", "m", "b"]


def test_a_payload_that_waits_for_several_goes_with_the_last(order: Order) -> None:
    order.arrive("d", names="abc", lamport=9)
    for message_id in "cab":
        assert "d" not in order.delivered
        order.arrive(message_id)
    assert order.delivered == ["c", "a", "b", "d"]


def test_several_segments_of_one_payload_set_free_once(order: Order) -> None:
    order.arrive("d", names="abc", lamport=9)
    order.arrive("a", "b", "c")
    assert order.delivered == ["a", "d"]


def test_a_random_order_of_arrival_ends_in_causal_order() -> None:
    rng = Random(11)
    for _ in range(50):
        names = {number: rng.sample(range(number), min(number, 3)) for number in range(20)}
        arrival = rng.sample(range(20), 20)
        order = Order()
        for number in arrival:
            order.arrive(
                chr(97 + number),
                names="".join(chr(97 + item) for item in names[number]),
                lamport=number + 1,
            )
        place = {message_id: index for index, message_id in enumerate(order.delivered)}
        assert len(place) == 20
        for number, needed in names.items():
            assert all(place[chr(97 + item)] < place[chr(97 + number)] for item in needed)


def test_the_last_segment_of_a_delivered_payload_is_named_next(order: Order) -> None:
    order.arrive("a", "b")
    order.arrive("c", lamport=9)
    assert list(order.log.frontier) == ["b", "c"]
    order.arrive("d", names="bc", lamport=20)
    assert list(order.log.frontier) == ["d"]


# --- Giving up -----------------------------------------------------------------------------------


def test_losing_an_id_sets_free_and_writes_it_down(order: Order) -> None:
    order.arrive("b", names="a", lamport=2)
    order.lose("a", NOW)
    assert order.delivered == ["b"]
    assert order.was_given_up(["x", "a"])
    assert not order.was_given_up(["b"])
    row = LostRecord(message_id="a", lost_ns=NOW)
    assert order.outbox.take().changes[LostRecord, ("a",)] == row


def test_lost_ids_are_remembered_up_to_a_bound() -> None:
    order = Order(max_lost_ids=2)
    for message_id in "abc":
        order.lose(message_id, NOW)
    assert not order.is_met("a")
    assert order.is_met("b")
    changes = order.outbox.take().changes
    assert changes[LostRecord, ("a",)] is None
    assert changes[LostRecord, ("c",)] is not None


def test_excusing_sets_free_without_a_trace(order: Order) -> None:
    order.arrive("c", names="ab", lamport=2)
    order.outbox.take()
    order.excuse(["a", "b"])
    assert order.delivered == ["c"]
    kinds = {kind for kind, _ in order.outbox.take().changes}
    assert LostRecord not in kinds
    assert order.was_given_up(["a"])


def test_forcing_delivers_parked_payloads_that_it_waits_for_first(order: Order) -> None:
    order.arrive("b", names="a", lamport=2)
    order.arrive("c", names="b", lamport=3)
    last = order.payload("d", names="cx", lamport=4)
    order.complete(last)
    chain, missing = order.closure(last)
    assert sorted(item.message_id for item in chain) == ["b", "c", "d"]
    assert list(missing) == ["x", "a"]
    assert missing["x"] == last.dependencies["x"]
    order.force(last)
    assert order.delivered == ["b", "c", "d"]
    assert not order.parked
    assert not order.waiting


def test_forcing_leaves_what_is_not_needed_parked(order: Order) -> None:
    first = order.payload("b", names="a", lamport=2)
    order.complete(first)
    order.arrive("c", names="x", lamport=3)
    order.force(first)
    assert order.delivered == ["b"]
    assert order.is_awaited("x")


def test_taking_out_of_the_parking_lot_twice_is_harmless(order: Order) -> None:
    payload = order.payload("b", names="a", lamport=2, octets=7)
    order.complete(payload)
    assert order.parked_octets == 7
    order.unpark(payload)
    order.unpark(payload)
    assert order.parked_octets == 0
    assert not order.waiting


def test_waiters_for_an_id_leave_one_by_one(order: Order) -> None:
    first = order.payload("b", names="a", lamport=2)
    order.complete(first)
    order.arrive("c", names="a", lamport=3)
    order.unpark(first)
    assert order.is_awaited("a")


@pytest.mark.parametrize(
    ("messages", "octets", "above"), [(2, 100, 3), (100, 1 << 16, 3)], ids=["number", "bytes"]
)
def test_above_a_bound_the_oldest_parked_payload_is_named(
    messages: int, octets: int, above: int
) -> None:
    order = Order(max_parked_messages=messages, max_parked_bytes=max(octets, 1 << 16))
    size = octets // 2
    parked = [order.payload(name, names="x", octets=size) for name in "abc"]
    for number, payload in enumerate(parked, 1):
        order.complete(payload)
        oldest = order.overflow(ALICE)
        assert oldest is (parked[0] if number >= above else None)


@pytest.mark.parametrize(
    "bounds",
    [{"max_parked_messages_per_sender": 2}, {"max_parked_bytes_per_sender": 1 << 16}],
    ids=["number", "bytes"],
)
def test_above_its_own_bound_the_oldest_of_a_sender_is_named_and_nobody_elses(
    bounds: dict[str, int],
) -> None:
    order = Order(**bounds)
    of_bob = order.payload("a", names="x", octets=1 << 15, sender_id=BOB)
    of_alice = [order.payload(name, names="x", octets=1 << 15) for name in "bcd"]
    order.complete(of_bob)
    for payload in of_alice[:2]:
        order.complete(payload)
        assert order.overflow(ALICE) is None
    order.complete(of_alice[2])
    assert order.overflow(ALICE) is of_alice[0]
    assert order.overflow(BOB) is None
    for payload in (of_bob, *of_alice):
        order.unpark(payload)
    assert not order.parked_of


# --- Cycles --------------------------------------------------------------------------------------


def test_in_a_cycle_the_lowest_goes_first(order: Order) -> None:
    """WIRE: if foreign senders produce a cycle, the lowest (lamport, id) goes first."""
    order.arrive("b", names="c", lamport=5)
    order.arrive("c", names="a", lamport=5)
    assert order.delivered == []
    order.arrive("a", names="b", lamport=9)
    assert order.delivered == ["b", "c", "a"]
    assert not order.parked
    assert not order.waiting


def test_what_waits_for_a_cycle_goes_after_it(order: Order) -> None:
    order.arrive("d", names="a", lamport=1)
    order.arrive("a", names="b", lamport=3)
    order.arrive("b", names="a", lamport=2)
    assert order.delivered == ["b", "a", "d"]


def test_a_message_that_only_waits_for_itself_does_not_wait(order: Order) -> None:
    assert order.arrive("a", names="a")


def test_waiting_in_a_line_is_no_cycle(order: Order) -> None:
    order.arrive("c", names="b", lamport=3)
    order.arrive("b", names="a", lamport=2)
    assert order.delivered == []


def test_a_cycle_that_also_waits_for_another_goes_when_that_has_come(order: Order) -> None:
    order.arrive("a", names="bx", lamport=2)
    order.arrive("b", names="a", lamport=3)
    assert order.delivered == []
    order.arrive("x", lamport=1)
    assert order.delivered == ["x", "a", "b"]


@pytest.mark.parametrize("how", ["lost", "excused"])
def test_a_cycle_that_also_waits_for_another_goes_when_that_is_given_up(
    order: Order, how: str
) -> None:
    order.arrive("a", names="bx", lamport=2)
    order.arrive("b", names="a", lamport=3)
    if how == "lost":
        order.lose("x", NOW)
    else:
        order.excuse(["x"])
    assert order.delivered == ["a", "b"]
    assert not order.parked


def test_a_cycle_that_waits_for_a_cycle_goes_after_it(order: Order) -> None:
    """Whatever their Lamport times: causes come first where there is an order."""
    order.arrive("a", names="bc", lamport=1)
    order.arrive("c", names="d", lamport=8)
    order.arrive("b", names="a", lamport=2)
    order.arrive("e", names="x", lamport=1)
    assert order.delivered == []
    order.arrive("d", names="c", lamport=9)
    assert order.delivered == ["c", "d", "a", "b"]
    assert order.is_awaited("x")


def test_a_payload_whose_segments_are_in_a_cycle_is_looked_at_once(order: Order) -> None:
    order.arrive("a", "b", names="c", lamport=5)
    order.arrive("c", names="ab", lamport=4)
    assert order.delivered == ["c", "a"]


def test_a_cycle_longer_than_a_short_look_is_found(order: Order) -> None:
    ids = [chr(0x4E00 + number) for number in range(3 * CYCLE_LOOKS)]
    for number, message_id in enumerate(ids):
        order.arrive(message_id, names=ids[number - 1], lamport=number)
    assert order.delivered == ids


def test_edges_are_those_of_what_is_parked(order: Order) -> None:
    rng = Random(5)
    for number in range(300):
        names = "".join(rng.sample("abcdefghijklmnopqrst", rng.randrange(4)))
        if chr(97 + number % 40) not in order.log.known:
            order.arrive(chr(97 + number % 40), names=names, lamport=number)
        elif number % 7 == 0:
            order.lose(rng.choice("abcdefghijklmnopqrst"), NOW)
        assert order.edges == sum(len(item.unmet) for item in order.parked.values())
        assert order.edges == sum(map(len, order.waiting.values()))
        assert not order.stuck()


def crowd(order: Order, size: int) -> None:
    """Park payloads that all name each other, and something that is to come."""
    ids = [chr(0x4E00 + number) for number in range(size)]
    for number, message_id in enumerate(ids):
        names = "".join(item for item in ids if item != message_id)
        order.arrive(message_id, names=names + ("x" if not number else "") + "y", lamport=number)
        order.next_search()


def test_large_cycles_wait_for_their_time_and_the_rest_does_not(order: Order) -> None:
    crowd(order, 100)
    assert order.edges == 100 * 100 + 1 > SEARCH_CREDIT
    order.arrive("y")
    order.arrive("x")
    assert order.delivered == ["y", "x"]
    assert order.next_search() == CYCLE_WAIT_NS
    order.break_cycles()
    assert len(order.delivered) == 102
    assert order.delivered[2:] == sorted(order.delivered[2:])
    assert order.next_search() is None
    assert not order.edges


def test_the_more_there_is_to_go_through_the_less_often(order: Order) -> None:
    order.causal.cycle_suspected = True
    order.causal.edges = 10 * EDGES_PER_WAIT
    assert order.next_search() == 10 * CYCLE_WAIT_NS


def test_one_input_goes_through_so_much_and_no_more(order: Order) -> None:
    """Even if it gives up hundreds of ids one by one."""
    order.arrive("a", names="bx", lamport=2)
    order.arrive("b", names="a", lamport=3)
    order.causal.search_credit = 2
    order.arrive("x")
    assert order.delivered == ["x", "a", "b"]
    order.arrive("c", names="d", lamport=4)
    order.arrive("d", names="c", lamport=5)
    assert order.next_search() == CYCLE_WAIT_NS
    order.arrive("e")
    assert order.delivered == ["x", "a", "b", "e", "c", "d"]


def test_a_release_costs_little_however_much_is_parked(order: Order) -> None:
    crowd(order, 300)
    assert cpu_seconds(lambda: order.arrive("y")) < 0.1
    assert order.delivered == ["y"]

"""The closed forms that the real machines are compared with, numbered as in the laboratory's notes.

Every form is a function of plain numbers. Forms 1 to 8 hold in the degenerate mode alone: each received copy is
acknowledged by itself, and the acknowledgement is back, or lost, before the next try; messages are far apart; there is
no store, no repair, no filter. Elsewhere they are curves to compare with. What each needs of the settings is said with
it, and ``grids/theory.toml`` has them. Two can hold nowhere: form 6 with parity sent again, which no machine does, and
form 7 in steps, as the network's time is continuous; the form in time is its limit.

Losses are computed before deliveries, so that both are exact where the other is next to 1. It must not know grids,
measures or machines, and draws nothing: constants of the machine are stated here again, so that a change of the
machine is seen.

Spec: none of its own; LIP-109 (SDS), LIP-243 and 17/WAKU2-RLN-RELAY for what is modelled.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Final

MOST_SEGMENTS: Final = 255
"""Data and parity of one payload."""

SPARE_SYNC_FROM: Final = 10
"""From this budget on the limiter keeps one message of each epoch for a sync."""

LONGEST_SPREAD_SEC: Final = 30.0
"""Waiting traffic resumes within a tenth of an epoch after its start, and within this."""


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        text = f"{name} must be from 0 to 1, not {value!r}"
        raise ValueError(text)
    return float(value)


def _count(name: str, value: int, least: int = 0, most: int | None = None) -> int:
    if isinstance(value, bool) or value != int(value) or value < least:
        text = f"{name} must be a whole number of {least} or more, not {value!r}"
        raise ValueError(text)
    if most is not None and value > most:
        text = f"{name} must be at most {most}, not {value!r}"
        raise ValueError(text)
    return int(value)


def _positive(name: str, value: float) -> float:
    if not 0.0 < value < math.inf:
        text = f"{name} must be above 0, not {value!r}"
        raise ValueError(text)
    return float(value)


def _any_of(rate: float, count: int) -> float:
    """Return the probability that of independent events of one rate at least one happens."""
    if rate >= 1.0:
        return 1.0 if count else 0.0
    return -math.expm1(count * math.log1p(-rate))


def _geometric(rate: float, count: int) -> float:
    """Return 1 + x + x² + … of so many terms, where x is 1 − rate."""
    return float(count) if rate == 0.0 else _any_of(rate, count) / rate


def binomial(count: int, rate: float, found: int) -> float:
    """Return the probability that of independent events of one rate so many happen."""
    if not 0 <= found <= count:
        return 0.0
    if rate in (0.0, 1.0):
        return float(found == count * rate)
    ways = math.lgamma(count + 1) - math.lgamma(found + 1) - math.lgamma(count - found + 1)
    return math.exp(ways + found * math.log(rate) + (count - found) * math.log1p(-rate))


# -- 1, 2: delivery of segments ---------------------------------------------------------------------------------------


def segment_loss(loss: float, retransmissions: int) -> float:
    """Form 1: probability that one receiver gets no copy of a segment, p^(R+1).

    Args:
        loss: Of a copy, p.
        retransmissions: After the first transmission, R.

    Raises:
        ValueError: An argument is out of its range; so of all forms.
    """
    return _share("loss", loss) ** (_count("retransmissions", retransmissions) + 1)


def segment_delivery(loss: float, retransmissions: int) -> float:
    """Form 1: probability that one receiver gets a segment, 1 − p^(R+1)."""
    return 1.0 - segment_loss(loss, retransmissions)


def loss_to_some(loss: float, retransmissions: int, receivers: int) -> float:
    """Form 1b: probability that not all of N receivers get a segment that is sent until all have acknowledged it."""
    return _any_of(segment_loss(loss, retransmissions), _count("receivers", receivers, 1))


def delivery_to_all(loss: float, retransmissions: int, receivers: int) -> float:
    """Form 1b: probability that all of N receivers get it, (1 − p^(R+1))^N.

    SDS stops at the first acknowledgement from anybody (form 4), so this holds of N channels of one receiver each.
    """
    return 1.0 - loss_to_some(loss, retransmissions, receivers)


def payload_loss(loss: float, retransmissions: int, segments: int) -> float:
    """Form 2: probability that a payload of k segments without parity stays incomplete."""
    return _any_of(segment_loss(loss, retransmissions), _count("segments", segments, 1))


def payload_delivery(loss: float, retransmissions: int, segments: int) -> float:
    """Form 2: (1 − p^(R+1))^k.

    Where segments of a payload time out together, our machine sends one of them first and the rest after news of it
    (docs/adr/0014-one-segment-asks-first.md); those it holds back use timeouts up. The form is exact where they time
    out at least a quarter of a timeout apart, for then each begins a round of its own.
    """
    return 1.0 - payload_loss(loss, retransmissions, segments)


# -- 3, 4, 5: sends ---------------------------------------------------------------------------------------------------


def answered(loss: float, ack_loss: float) -> float:
    """Return the probability that a try is acknowledged: s = a = (1 − p)(1 − q)."""
    return (1.0 - _share("loss", loss)) * (1.0 - _share("ack_loss", ack_loss))


def expected_sends(loss: float, ack_loss: float, retransmissions: int) -> float:
    """Form 3: expected transmissions of a segment to one receiver, (1 − (1−s)^(R+1)) / s.

    Args:
        loss: Of a copy, p.
        ack_loss: Of an acknowledgement, q.
        retransmissions: At most, R.
    """
    tries = _count("retransmissions", retransmissions) + 1
    return _geometric(answered(loss, ack_loss), tries)


def sends_shares(loss: float, ack_loss: float, retransmissions: int) -> list[float]:
    """Form 3: probabilities of 1, 2, … R+1 transmissions."""
    success = answered(loss, ack_loss)
    rounds = _count("retransmissions", retransmissions)
    return [success * (1.0 - success) ** i for i in range(rounds)] + [(1.0 - success) ** rounds]


def group_delivery(loss: float, ack_loss: float, retransmissions: int, receivers: int) -> float:
    """Form 4: probability that a given one of N receivers gets a segment that is sent until anybody acknowledges it.

    (1−p)(1 − u^(R+1))/(1−u) with u = p(1−a)^(N−1). Acknowledgements must be independent: whoever hears another's in
    time keeps its own back, so the form needs a way longer than the back-off of acknowledgements.
    """
    others = _count("receivers", receivers, 1) - 1
    tries = _count("retransmissions", retransmissions) + 1
    again = _share("loss", loss) * (1.0 - answered(loss, ack_loss)) ** others
    return (1.0 - loss) * _geometric(1.0 - again, tries)


def group_sends(loss: float, ack_loss: float, retransmissions: int, receivers: int) -> float:
    """Form 4: expected transmissions until the first acknowledgement of N receivers."""
    success = _any_of(answered(loss, ack_loss), _count("receivers", receivers, 1))
    return _geometric(success, _count("retransmissions", retransmissions) + 1)


def sends_until_all(loss: float, ack_loss: float, retransmissions: int, receivers: int) -> float:
    """Form 5: expected transmissions until all of N have acknowledged, Σ_{t=0..R} [1 − (1 − (1−s)^t)^N].

    Our machine stops at the first; the form holds of the most transmissions among N channels of one receiver each.
    """
    return math.fsum(until_all_shares(loss, ack_loss, retransmissions, receivers))


def until_all_shares(
    loss: float, ack_loss: float, retransmissions: int, receivers: int
) -> list[float]:
    """Form 5: probabilities of more than 0, 1, … R transmissions."""
    miss = 1.0 - answered(loss, ack_loss)
    group = _count("receivers", receivers, 1)
    rounds = _count("retransmissions", retransmissions)
    return [_any_of(miss**t, group) for t in range(rounds + 1)]


# -- 6: parity --------------------------------------------------------------------------------------------------------


def _code(data: int, parity: int) -> tuple[int, int]:
    _count("data", data, 1, MOST_SEGMENTS)
    return data, _count("parity", parity, 0, MOST_SEGMENTS - data)


def resent_parity_delivery(loss: float, rounds: int, data: int, parity: int) -> float:
    """Form 6: F_r, a payload is whole after r rounds in which data and parity are all sent again.

    F_0 is parity alone. Our machine never sends parity again, so beyond F_0 this is a curve to compare with; what holds
    is `parity_delivery`.

    Args:
        loss: Of a copy, p.
        rounds: Retransmissions of each segment so far, r.
        data: Data segments, k.
        parity: Parity segments, m; any k of all n rebuild the payload.
    """
    data, parity = _code(data, parity)
    rate = segment_loss(loss, rounds)
    found = math.fsum(binomial(data + parity, rate, i) for i in range(parity + 1))
    return min(1.0, found)


def resent_parity_latency(
    loss: float, rounds: int, retransmissions: int, data: int, parity: int
) -> float:
    """Form 6: F_r / F_R, the share of deliveries made by delay + r · timeout."""
    whole = resent_parity_delivery(loss, retransmissions, data, parity)
    part = resent_parity_delivery(loss, min(rounds, retransmissions), data, parity)
    return part / whole if whole else 0.0


def parity_loss(loss: float, rounds: int, data: int, parity: int) -> float:
    """Form 6, ours: probability that a payload is not whole after r rounds: parity sent once, data sent again.

    Of the data i are lost with p^(r+1) each, of the parity j with p each; whole is i + j ≤ m. It holds
    where data segments time out a quarter of a timeout apart, as form 2, and all parity arrives before the first does.
    """
    data, parity = _code(data, parity)
    shares = [binomial(data, segment_loss(loss, rounds), i) for i in range(data + 1)]
    # more[i]: more than i − 1 are lost; summed from the small end, so that tails keep their digits.
    more = [*accumulate(reversed(shares))][::-1] + [0.0] * (parity + 1)
    return min(
        1.0, _sum_of_products(loss, parity, [more[parity - j + 1] for j in range(parity + 1)])
    )


def parity_delivery(loss: float, rounds: int, data: int, parity: int) -> float:
    """Form 6, ours: probability that a payload is whole after r rounds."""
    data, parity = _code(data, parity)
    shares = [binomial(data, segment_loss(loss, rounds), i) for i in range(data + 1)]
    most = [*accumulate(shares)] + [math.fsum(shares)] * parity
    return min(1.0, _sum_of_products(loss, parity, [most[parity - j] for j in range(parity + 1)]))


def _sum_of_products(loss: float, parity: int, chances: list[float]) -> float:
    """Return the sum over j lost parity segments of their probability times what goes with it."""
    return math.fsum(binomial(parity, loss, j) * chances[j] for j in range(parity + 1))


def parity_latency(loss: float, rounds: int, retransmissions: int, data: int, parity: int) -> float:
    """Form 6, ours: the share of deliveries made within r rounds, F_r / F_R."""
    whole = parity_delivery(loss, retransmissions, data, parity)
    part = parity_delivery(loss, min(rounds, retransmissions), data, parity)
    return part / whole if whole else 0.0


# -- 7: bursts --------------------------------------------------------------------------------------------------------


def _burst_loss(loss: float, memory: float, retransmissions: int) -> float:
    """Return p(p + (1−p)x)^R where x is what is left of the state from one try to the next."""
    again = _share("loss", loss) + (1.0 - loss) * memory
    return loss * again ** _count("retransmissions", retransmissions)


def burst_loss(loss: float, burst: float, retransmissions: int, steps: int) -> float:
    """Form 7, in steps: all of R+1 tries D steps apart are lost, p(p + (1−p)ρ^D)^R.

    Args:
        loss: Mean loss, all of it in the bad state, p; below 1.
        burst: Mean length of a bad state, steps, L; at least 1, and so long that p/(L(1−p)) is no more than 1.
        retransmissions: R.
        steps: Between two tries, D.
    """
    _share("loss", loss)
    if not 1.0 <= burst < math.inf:
        text = f"burst must be at least 1 step, not {burst!r}"
        raise ValueError(text)
    if loss == 1.0 or loss / (burst * (1.0 - loss)) > 1.0:
        text = f"a mean loss of {loss!r} needs longer bursts than {burst!r} steps"
        raise ValueError(text)
    memory = 1.0 - loss / (burst * (1.0 - loss)) - 1.0 / burst
    return _burst_loss(loss, memory ** _count("steps", steps), retransmissions)


def burst_loss_in_time(
    loss: float, burst_ms: float, retransmissions: int, distance_ms: float
) -> float:
    """Form 7, in continuous time: ρ^D is e^{−(λ+μ)τ}, where λ+μ = 1/(L(1−p)).

    Args:
        loss: Mean loss, all of it in the bad state, p; below 1.
        burst_ms: Mean time in the bad state, milliseconds, L.
        retransmissions: R.
        distance_ms: Between two tries, milliseconds, τ.
    """
    if _share("loss", loss) == 1.0:
        text = "loss must be below 1 where it comes in bursts"
        raise ValueError(text)
    if not distance_ms >= 0.0:
        text = f"distance_ms must be 0 or more, not {distance_ms!r}"
        raise ValueError(text)
    rate = 1.0 / (_positive("burst_ms", burst_ms) * (1.0 - loss))
    return _burst_loss(loss, math.exp(-rate * distance_ms), retransmissions)


# -- 8: the rate limit ------------------------------------------------------------------------------------------------


def queue_wait(segments: int, budget: int, epoch: float) -> float:
    """Form 8: the last of n segments waits floor((n−1)/Q)·E from an empty queue at the start of an epoch.

    Args:
        segments: n.
        budget: Transmissions an epoch, Q.
        epoch: Its length, E, in any unit; the answer has the same.
    """
    before = _count("segments", segments, 1) - 1
    return before // _count("budget", budget, 1) * _positive("epoch", epoch)


def fresh_budget(messages_per_epoch: int) -> int:
    """Return what our limiter gives to data where nothing else waits: all, but for one sync from 10 messages on."""
    budget = _count("messages_per_epoch", messages_per_epoch, 1)
    return budget - (budget >= SPARE_SYNC_FROM)


def limiter_wait(segments: int, messages_per_epoch: int, epoch_sec: float) -> tuple[float, float]:
    """Form 8, ours: between what the last of n segments waits, seconds, evenly distributed.

    Form 8 with what is left for data; and traffic that waits for an epoch resumes at a time drawn evenly from its first
    tenth, or first 30 s, so that not everybody begins at once.

    Returns:
        Earliest and latest; both 0 where nothing waits for another epoch.
    """
    earliest = queue_wait(segments, fresh_budget(messages_per_epoch), epoch_sec)
    spread = min(LONGEST_SPREAD_SEC, epoch_sec / 10)
    return earliest, earliest + (spread if earliest else 0.0)


# -- 9: filters, and losses that nobody sees --------------------------------------------------------------------------


def false_positives(hashes: int, items: int, bits: int) -> float:
    """Form 9: probability that a filter of M bits and h hashes with j items holds one more, (1 − e^{−hj/M})^h."""
    hashes = _count("hashes", hashes, 1)
    load = hashes * _count("items", items) / _count("bits", bits, 1)
    return (-math.expm1(-load)) ** hashes


def unseen_loss(loss: float, messages: int) -> float:
    """Form 9: probability that none of H messages arrives that would name a lost one, p^H."""
    return _share("loss", loss) ** _count("messages", messages)


def seen_losses(loss: float, messages: int, history: int) -> float:
    """Form 9, ours: the share of messages that are lost, and that a later one which arrives names.

    Of one sender's messages, far apart, each names those before it, as many as a causal history has: H is its size, and
    less at the end.

    Args:
        loss: Of a message after all its tries, for which `segment_loss` is.
        messages: Sent in all; at least 1.
        history: Ids in a causal history.
    """
    count = _count("messages", messages, 1)
    size = _count("history", history, 1)
    seen = (1.0 - unseen_loss(loss, min(size, later)) for later in range(count))
    return loss * math.fsum(seen) / count

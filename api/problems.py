"""Problem documents: what every error looks like on the wire, and which status it has.

One row for each kind of problem, one entry for each exception class in the tree. No payload, key or token may get
into a problem document.

Spec: RFC 9457 (Problem Details for HTTP APIs).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from starlette.responses import Response

from api.errors import (
    ChannelConflictError,
    ChannelNotFoundError,
    ChannelUnavailableError,
    ServiceClosingError,
    ServiceError,
    ServiceStartingError,
    TooManyChannelsError,
    UnknownKeyError,
)
from api.readers import InvalidCursorError, TooManyStreamsError
from reliable_channel import errors

logger = logging.getLogger("reliable_channel.api.problems")

MEDIA_TYPE: Final = "application/problem+json"

TYPE_PREFIX: Final = "/problems/"
"""Types are relative URIs below this; docs/rest.md describes each."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A kind of problem.

    Attributes:
        name: Last part of its ``type``.
        status: The HTTP status that it always has.
        title: The same for all its occurrences.
        retry_after_sec: Seconds in the header ``Retry-After``; 0 where trying again does not help.
    """

    name: str
    status: int
    title: str
    retry_after_sec: int = 0

    @property
    def uri(self) -> str:
        """The ``type`` member."""
        return TYPE_PREFIX + self.name


_KINDS: Final = (
    # Requests that are wrong in themselves.
    ProblemType("bad-request", 400, "The request cannot be read"),
    ProblemType("unauthorized", 401, "A valid bearer token is needed"),
    ProblemType("forbidden", 403, "The token does not allow this"),
    ProblemType("origin-not-allowed", 403, "The page's origin is not allowed"),
    ProblemType("not-found", 404, "There is nothing at this path"),
    ProblemType("method-not-allowed", 405, "The path does not take this method"),
    ProblemType("not-acceptable", 406, "The answer cannot be had in this form"),
    ProblemType("request-timeout", 408, "The request did not arrive in time"),
    ProblemType("payload-too-large", 413, "The request's body is too large"),
    ProblemType("uri-too-long", 414, "The request's address is too long"),
    ProblemType("unsupported-media-type", 415, "The body is of a type that is not read here"),
    ProblemType("host-not-allowed", 421, "The host is not this service"),
    ProblemType("invalid-request", 422, "The request has fields that are missing or wrong"),
    ProblemType("rate-limited", 429, "Too many requests", 1),
    ProblemType("headers-too-large", 431, "The request's headers are too large"),
    # Channels.
    ProblemType("invalid-configuration", 422, "The channel cannot be opened with these settings"),
    ProblemType("invalid-content-topic", 422, "The content topic is not of the prescribed form"),
    ProblemType("unknown-key", 409, "No key has this name"),
    ProblemType("channel-not-found", 404, "No such channel is open"),
    ProblemType("channel-conflict", 409, "The channel is open with other settings"),
    ProblemType("channel-exists", 409, "Another process has the channel open"),
    ProblemType("channel-closed", 409, "The channel was closed meanwhile"),
    ProblemType("channel-error", 409, "The channel cannot do this"),
    ProblemType("too-many-channels", 409, "No more channels may be open"),
    ProblemType("channel-unavailable", 503, "The channel could not be opened again yet", 5),
    ProblemType("channel-failed", 503, "The channel stopped working", 5),
    ProblemType("lease-lost", 503, "Another process took the channel", 5),
    # Messages, requests, events.
    ProblemType("channel-full", 429, "Too much is not acknowledged yet", 1),
    ProblemType("empty-payload", 422, "The payload is empty"),
    ProblemType("invalid-payload", 422, "The payload is not what can be sent"),
    ProblemType("message-too-large", 413, "The payload is too large"),
    ProblemType("not-allowed", 422, "The protocol does not allow this"),
    ProblemType("idempotency-conflict", 409, "The Idempotency-Key was used for something else"),
    ProblemType("outcome-unknown", 503, "The message may have been stored, or not", 2),
    ProblemType("request-not-found", 404, "No such request on the channel"),
    ProblemType("request-failed", 409, "The request ended in an error"),
    ProblemType("events-expired", 410, "The events after the cursor are no longer kept"),
    ProblemType("invalid-cursor", 422, "There is no such place among the channel's events"),
    ProblemType("slow-consumer", 503, "The events were not read fast enough", 1),
    ProblemType("too-many-streams", 503, "No more event streams may be open", 5),
    # The service and what it stands on.
    ProblemType("starting", 503, "The service is starting", 1),
    ProblemType("closing", 503, "The service is shutting down", 5),
    ProblemType("store-unavailable", 503, "The store cannot be reached", 2),
    ProblemType("node-unavailable", 503, "The messaging node cannot be reached", 5),
    ProblemType("publish-rejected", 502, "The messaging node refused the message"),
    ProblemType("internal-error", 500, "A fault of the service"),
)

KINDS: Final[Mapping[str, ProblemType]] = {kind.name: kind for kind in _KINDS}
"""Every kind of problem by its name."""

PROBLEM_TYPES: Final[dict[type[Exception], ProblemType]] = {
    kind: KINDS[name]
    for kind, name in (
        (errors.ReliableChannelError, "internal-error"),
        (errors.ConfigurationError, "invalid-configuration"),
        (errors.InvalidContentTopicError, "invalid-content-topic"),
        (UnknownKeyError, "unknown-key"),
        (errors.ChannelError, "channel-error"),
        (errors.ChannelExistsError, "channel-exists"),
        (errors.ChannelClosedError, "channel-closed"),
        (errors.ChannelFailedError, "channel-failed"),
        (errors.ChannelFullError, "channel-full"),
        (errors.SendOutcomeUnknownError, "outcome-unknown"),
        (ChannelNotFoundError, "channel-not-found"),
        (ChannelConflictError, "channel-conflict"),
        (ChannelUnavailableError, "channel-unavailable"),
        (errors.LocalProtocolError, "not-allowed"),
        (errors.EmptyPayloadError, "empty-payload"),
        (errors.InvalidPayloadError, "invalid-payload"),
        (errors.MessageTooLargeError, "message-too-large"),
        (errors.IdempotencyConflictError, "idempotency-conflict"),
        (errors.RemoteProtocolError, "internal-error"),
        (errors.DecodeError, "internal-error"),
        (errors.InvalidSegmentError, "internal-error"),
        (errors.UnrecoverableError, "internal-error"),
        (errors.EncryptionError, "internal-error"),
        (errors.EncryptError, "internal-error"),
        (errors.DecryptError, "internal-error"),
        (errors.NodeError, "node-unavailable"),
        (errors.NodeClosedError, "closing"),
        (errors.NodeUnavailableError, "node-unavailable"),
        (errors.PublishRejectedError, "publish-rejected"),
        (errors.StoreError, "store-unavailable"),
        (errors.StoreUnavailableError, "store-unavailable"),
        (errors.StoreOutcomeUnknownError, "outcome-unknown"),
        (errors.StoreClosedError, "closing"),
        (errors.LeaseLostError, "lease-lost"),
        (errors.BudgetInUseError, "store-unavailable"),
        (errors.EventsExpiredError, "events-expired"),
        (errors.CursorAheadError, "invalid-cursor"),
        (errors.RequestError, "request-failed"),
        (errors.RequestNotFoundError, "request-not-found"),
        (errors.RequestFailedError, "request-failed"),
        (errors.SlowConsumerError, "slow-consumer"),
        (InvalidCursorError, "invalid-cursor"),
        (TooManyStreamsError, "too-many-streams"),
        (ServiceError, "internal-error"),
        (ServiceStartingError, "starting"),
        (ServiceClosingError, "closing"),
        (TooManyChannelsError, "too-many-channels"),
    )
}
"""The kind of problem that each exception of the tree is; a class that is not there is what its parent is."""

_STATUS_KINDS: Final[Mapping[int, str]] = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    413: "payload-too-large",
    414: "uri-too-long",
    415: "unsupported-media-type",
    421: "host-not-allowed",
    422: "invalid-request",
    429: "rate-limited",
    431: "headers-too-large",
}
"""The kind that stands for a bare status."""

_EXTRA_MEMBERS: Final[dict[type[Exception], tuple[str, ...]]] = {
    errors.ConfigurationError: ("problems",),
    errors.ChannelFullError: ("messages", "octets"),
    errors.MessageTooLargeError: ("size", "limit"),
    errors.EventsExpiredError: ("after", "oldest"),
    ChannelConflictError: ("differences",),
    TooManyChannelsError: ("limit",),
}
"""Attributes of exceptions that become members of the document, under their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One occurrence of a problem, RFC 9457.

    Attributes:
        type: URI reference of its kind.
        title: What kind it is, for people.
        status: HTTP status.
        detail: What happened this time and what to do.
        instance: The path asked for, as it was sent.
        extra: Further members.
        headers: Header fields of the response.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the members of the document."""
        body: dict[str, Any] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail:
            body["detail"] = self.detail
        if self.instance:
            body["instance"] = self.instance
        return body | {name: value for name, value in self.extra.items() if name not in body}


def make_problem(
    name: str,
    detail: str = "",
    *,
    instance: str = "",
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    retry_after_sec: float | None = None,
) -> Problem:
    """Return an occurrence of a kind of problem.

    Args:
        name: One of `KINDS`.
        detail: What happened this time.
        instance: The path asked for.
        extra: Further members.
        headers: Header fields of the response.
        retry_after_sec: Instead of what the kind says.
    """
    kind = KINDS[name]
    wait = kind.retry_after_sec if retry_after_sec is None else retry_after_sec
    fields = dict(headers or {})
    if wait:
        fields.setdefault("Retry-After", str(max(1, ceil(wait))))
    return Problem(
        type=kind.uri,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=instance,
        extra=extra or {},
        headers=fields,
    )


def kind_of(error: Exception) -> ProblemType:
    """Return what kind of problem an exception is; a bug where none of its classes has an entry."""
    for parent in type(error).__mro__:
        if (kind := PROBLEM_TYPES.get(parent)) is not None:
            return kind
    return KINDS["internal-error"]


def problem_of(error: Exception, *, instance: str = "") -> Problem:
    """Return the problem document of an exception.

    A fault of ours says nothing of itself: what it says may hold what nobody should read.
    """
    kind = kind_of(error)
    if kind.status == 500:
        return make_problem(kind.name, "The service failed; its log says more.", instance=instance)
    extra: dict[str, Any] = {}
    for parent, names in _EXTRA_MEMBERS.items():
        if isinstance(error, parent):
            extra |= {name: getattr(error, name) for name in names}
    text = errors.one_line(error)
    return make_problem(
        kind.name,
        text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 3] + "...",
        instance=instance,
        extra=extra,
        retry_after_sec=getattr(error, "retry_after_sec", None),
    )


def problem_of_status(
    status: int,
    detail: str = "",
    *,
    instance: str = "",
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """Return the problem document that stands for a bare HTTP status."""
    if (name := _STATUS_KINDS.get(status)) is not None:
        return make_problem(name, detail, instance=instance, headers=headers)
    if status >= 500:
        return make_problem("internal-error", instance=instance, headers=headers)
    return Problem(
        type="about:blank",
        title=f"HTTP {status}",
        status=status,
        detail=detail,
        instance=instance,
        headers=headers or {},
    )


def invalid_request(found: Sequence[Mapping[str, Any]], *, instance: str = "") -> Problem:
    """Return the problem document of a request that does not fit its model.

    Args:
        found: pydantic's errors; what was given is left out, for it may be a payload.
        instance: The path asked for.
    """
    listed = [{"at": _place(item.get("loc", ())), "problem": str(item["msg"])} for item in found]
    shown = "; ".join(f"{item['at']}: {item['problem']}" for item in listed[:3])
    more = f" (and {len(listed) - 3} more)" if len(listed) > 3 else ""
    return make_problem(
        "invalid-request",
        f"{shown}{more}",
        instance=instance,
        extra={"errors": listed[:MAX_LISTED_ERRORS]},
    )


MAX_DETAIL: Final = 800
"""Characters of a detail: an id in a path may be as long as a path."""

MAX_LISTED_ERRORS: Final = 20
"""A body can be wrong in more places than anybody reads."""

MAX_PLACE: Final = 120
"""Characters of the place of an error: names of unknown fields are the caller's, and may be long."""


def _place(location: Sequence[object]) -> str:
    """Return where in the request an error is, such as ``body.sds.bloomCapacity``."""
    text = ".".join(str(part) for part in location)
    shown = text.encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= MAX_PLACE else shown[: MAX_PLACE - 3] + "..."


def problem_response(problem: Problem) -> Response:
    """Return a problem document as a response."""
    return Response(
        json.dumps(problem.to_json()).encode(),
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type=MEDIA_TYPE,
    )


def log_problem(problem: Problem, method: str, cause: BaseException | None = None) -> None:
    """Write the traceback of a fault; of anything else the request log has its line already.

    Args:
        problem: What is answered.
        method: The request's.
        cause: The exception, where there is one.
    """
    if problem.status == 500:
        logger.error("%s %s: fault", method, problem.instance, exc_info=cause)

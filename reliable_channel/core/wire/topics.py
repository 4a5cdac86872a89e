"""Content topics, and the shard and pubsub topic that follow from them.

Nothing here subscribes; which shards a network has is the caller's knowledge.

Spec: 23/TOPICS, Content topics; RELAY-SHARDING, Automatic sharding.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from reliable_channel.errors import InvalidContentTopicError

GENERATION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
"""A plain decimal number; ten digits are far above any generation to come."""


MAX_TOPIC_LENGTH: Final = 1024
"""Longest content topic, characters; 23/TOPICS names no limit."""


@dataclass(frozen=True, slots=True)
class ContentTopic:
    """The parts of a content topic, ``/{application}/{version}/{name}/{encoding}``."""

    generation: int | None
    """The sharding rule that applies; None where the topic does not say, which means 0."""
    application: str
    version: str
    name: str
    encoding: str

    def __str__(self) -> str:
        """Return the text that `parse_content_topic` was given."""
        generation = "" if self.generation is None else f"/{self.generation}"
        return f"{generation}/{self.application}/{self.version}/{self.name}/{self.encoding}"


def parse_content_topic(text: object) -> ContentTopic:
    """Return the parts of a content topic.

    Args:
        text: ``/{application}/{version}/{name}/{encoding}``, or the same after ``/{generation}``.

    Raises:
        InvalidContentTopicError: Another number of parts, an empty one, a generation that is no
            number, characters that are not printable, or more than 1,024 characters.

    Spec: 23/TOPICS, Content topic format.
    """
    if not isinstance(text, str):
        raise InvalidContentTopicError(str(text), "is not text")
    if len(text) > MAX_TOPIC_LENGTH or not text.isprintable():
        raise InvalidContentTopicError(
            text, f"is above {MAX_TOPIC_LENGTH} characters, or not printable"
        )
    if not text.startswith("/"):
        raise InvalidContentTopicError(text, "does not start with a slash")
    parts = text[1:].split("/")
    if len(parts) not in (4, 5):
        raise InvalidContentTopicError(text, f"has {len(parts)} parts")
    if not all(parts):
        raise InvalidContentTopicError(text, "has an empty part")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidContentTopicError(text, "is not encodable as UTF-8") from error
    if len(parts) == 4:
        return ContentTopic(None, *parts)
    generation, *rest = parts
    if GENERATION.fullmatch(generation) is None:
        raise InvalidContentTopicError(text, "has five parts, the first of which is no number")
    return ContentTopic(int(generation), *rest)


def shard_of(content_topic: ContentTopic, shard_count: int) -> int:
    """Return the shard that carries a content topic, from 0.

    Args:
        content_topic: A parsed topic; name and encoding have no part in the choice.
        shard_count: Shards in the cluster, at least 1.

    Raises:
        InvalidContentTopicError: The topic is of a generation above 0, for which no rule is known.
        ValueError: The shard count is below 1.

    Spec: RELAY-SHARDING, Automatic sharding, generation 0.
    """
    if shard_count < 1:
        problem = f"shard_count must be at least 1, not {shard_count}"
        raise ValueError(problem)
    if content_topic.generation:
        raise InvalidContentTopicError(
            str(content_topic), f"has generation {content_topic.generation}, only 0 is defined"
        )
    digest = hashlib.sha256((content_topic.application + content_topic.version).encode()).digest()
    return int.from_bytes(digest, "big") % shard_count


def pubsub_topic(cluster_id: int, shard: int) -> str:
    """Return the name of the pubsub topic of a shard.

    Spec: RELAY-SHARDING, Static sharding.
    """
    return f"/waku/2/rs/{cluster_id}/{shard}"

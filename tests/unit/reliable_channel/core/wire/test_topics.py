"""Content topics and the shards that follow from them."""

from __future__ import annotations

import pytest

from reliable_channel.core.wire.topics import (
    ContentTopic,
    parse_content_topic,
    pubsub_topic,
    shard_of,
)
from reliable_channel.errors import ConfigurationError, InvalidContentTopicError


def test_topic_of_four_parts_has_no_generation() -> None:
    assert parse_content_topic("/myapp/1/chat room/proto") == ContentTopic(
        generation=None, application="myapp", version="1", name="chat room", encoding="proto"
    )


@pytest.mark.parametrize(("text", "generation"), [("/0/a/1/n/e", 0), ("/17/a/1/n/e", 17)])
def test_topic_of_five_parts_begins_with_the_generation(text: str, generation: int) -> None:
    assert parse_content_topic(text) == ContentTopic(generation, "a", "1", "n", "e")


@pytest.mark.parametrize("text", ["/a/1/n/e", "/0/a/1/n/e", "/12/ä/1/n/e"])
def test_parsed_topic_reads_as_the_text_it_came_from(text: str) -> None:
    assert str(parse_content_topic(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "a/1/n/e",
        "/a/1/n",
        "/a/1/n/e/",
        "/a/1/n/e/f/g",
        "//1/n/e",
        "/a//n/e",
        "/a/1/n/",
        "/0//1/n/e",
        "/gen/a/1/n/e",
        "/-1/a/1/n/e",
        "/01/a/1/n/e",
        "/ 1/a/1/n/e",
        "/1\n/a/1/n/e",
        "/\u0663/a/1/n/e",
        pytest.param(f"/{'9' * 10_000}/a/1/n/e", id="ten thousand digits"),
        pytest.param("/a/1/\ud800/e", id="lone surrogate"),
    ],
)
def test_text_of_another_form_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidContentTopicError) as caught:
        parse_content_topic(text)
    assert caught.value.content_topic == text
    assert caught.value.reason
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    ("text", "shard_count", "shard"),
    [
        ("/myapp/1/mytopic/proto", 8, 0),
        ("/toychat/2/huilong/proto", 8, 3),
        ("/waku/2/content/test.js", 8, 1),
        ("/toychat/2/huilong/proto", 1, 0),
        # sha256sum of toychat2 ends with e3f3.
        ("/toychat/2/huilong/proto", 1 << 16, 0xE3F3),
    ],
)
def test_shard_is_the_hash_of_application_and_version_modulo_the_shards(
    text: str, shard_count: int, shard: int
) -> None:
    assert shard_of(parse_content_topic(text), shard_count) == shard


def test_shard_depends_on_application_and_version_only() -> None:
    shard = shard_of(parse_content_topic("/app/1/one/proto"), 1 << 64)
    assert shard_of(parse_content_topic("/0/app/1/two/cbor"), 1 << 64) == shard
    assert shard_of(parse_content_topic("/app/2/one/proto"), 1 << 64) != shard
    assert shard_of(parse_content_topic("/ppa/1/one/proto"), 1 << 64) != shard


def test_generation_without_a_known_rule_has_no_shard() -> None:
    with pytest.raises(InvalidContentTopicError, match="generation 1"):
        shard_of(parse_content_topic("/1/app/1/one/proto"), 8)


@pytest.mark.parametrize("shard_count", [0, -8])
def test_cluster_without_shards_is_refused(shard_count: int) -> None:
    with pytest.raises(ValueError, match="shard_count"):
        shard_of(parse_content_topic("/app/1/one/proto"), shard_count)


def test_pubsub_topic_names_cluster_and_shard() -> None:
    assert pubsub_topic(16, 5) == "/waku/2/rs/16/5"

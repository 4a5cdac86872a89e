"""The library's configurations and status as models of the wire, made from its dataclasses: they cannot drift apart.

Nothing here knows routes.

Spec: RELIABLE-CHANNEL-API, Type definitions.
"""

from __future__ import annotations

import ast
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, cast, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from reliable_channel import ChannelStatus, RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.config import (
    RATE_LIMIT_BOUNDS,
    SDS_BOUNDS,
    SEGMENTATION_BOUNDS,
    Bounds,
)


class WireModel(BaseModel):
    """What all models share: camelCase on the wire, nothing unknown, nothing converted silently."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        field_title_generator=lambda name, _: to_camel(name),
        hide_input_in_errors=True,
    )


class RequestModel(WireModel):
    """What clients send: fields go by their names on the wire, and by no others."""

    model_config = ConfigDict(validate_by_name=False, validate_by_alias=True)


# --- Settings of a channel -----------------------------------------------------------------------


@cache
def _tree_of(kind: type) -> ast.ClassDef:
    """Return the source of a class, which lies there also where its module is compiled."""
    package, _, module = kind.__module__.rpartition(".")
    source = ast.parse(files(package).joinpath(f"{module}.py").read_text(encoding="utf-8"))
    (tree,) = (
        node
        for node in source.body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    return tree


def _field_types(kind: type) -> dict[str, Any]:
    """Return the type of each field of a class; a compiled one knows them only without their arguments."""
    written = {
        node.target.id: ast.unparse(node.annotation)
        for node in _tree_of(kind).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return get_type_hints(
        type(kind.__name__, (), {"__annotations__": written, "__module__": kind.__module__})
    )


def _field_texts(kind: type) -> dict[str, str]:
    """Return the string below each field of a class."""
    tree = _tree_of(kind)
    texts = {}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        match node, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                texts[name] = str(text).replace("``", "`")
    return texts


def model_of(
    name: str,
    kind: type,
    bounds: Bounds,
    *,
    base: type[WireModel] = RequestModel,
    without: tuple[str, ...] = ("persistence",),
) -> type[WireModel]:
    """Return the model of a dataclass of the library, with its defaults, bounds and texts.

    Args:
        name: Of the model.
        kind: The dataclass.
        bounds: Smallest and largest value of its numeric fields.
        base: Of the model.
        without: Fields that do not go over the wire.
    """
    hints, texts = _field_types(kind), _field_texts(kind)
    members: dict[str, Any] = {}
    for item in fields(kind):
        if item.name in without:
            continue
        low, high = bounds.get(item.name, (None, None))
        annotation = hints[item.name]
        if low is not None:
            annotation = _bounded(annotation, low, cast("float", high))
        members[item.name] = (
            annotation,
            Field(
                ... if item.default is MISSING else item.default,
                description=texts.get(item.name),
            ),
        )
    return create_model(
        name,
        __base__=base,
        __doc__=(ast.get_docstring(_tree_of(kind)) or "").partition("\n")[0],
        **members,
    )


def whole_number(given: object) -> object:
    """Return 2 for 2.0, which is an integer in JSON, and anything else as it is."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _bounded(annotation: Any, low: float, high: float) -> Any:
    """Return a number's type with its bounds; None stays possible where it was."""
    number: Any = float if isinstance(low, float) else int
    bounded: Any = Annotated[number, Field(ge=low, le=high, allow_inf_nan=False)]
    if number is int:
        bounded = Annotated[bounded, BeforeValidator(whole_number)]
    return bounded if annotation is number else bounded | None


SdsModel = model_of("SdsSettings", SdsConfig, SDS_BOUNDS)
"""Settings of Scalable Data Sync."""

SegmentationModel = model_of("SegmentationSettings", SegmentationConfig, SEGMENTATION_BOUNDS)
"""Settings of segmentation."""

RateLimitModel = model_of("RateLimitSettings", RateLimitConfig, RATE_LIMIT_BOUNDS)
"""A limit that narrows the node's for one channel."""

StatusModel = model_of(
    "ChannelStatus",
    ChannelStatus,
    {},
    base=WireModel,
    without=("channel_id", "sender_id", "content_topic"),
)
"""Sizes and counters of a channel."""

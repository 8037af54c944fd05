"""How records are read from and written to JSON in the shape of Nomad's HTTP API.

A record class lists its fields with types; everything else follows from the types:

* `int` is any signed 64-bit integer (never a bool or a float), `Amount`, `CoreId`, `Megahertz` are narrower or say more in an error;
* `X | None` keeps null apart from the zero value. Everywhere else absent, null and zero are one value (plan-apply, general value conventions);
* `Any` is opaque JSON, copied and otherwise left alone. So is every key that a class does not know.

Each record remembers which keys its input had and which of them were null, so `to_api` gives back what `from_api` was given.
Records with the same keys share that knowledge.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import msgspec

from fastplan.errors import InvalidInput, shown

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

# Opaque JSON deeper than this is refused, so that no input exhausts the stack.
DEPTH_MAX = 100

# Beyond this many different key sets of one class the knowledge about keys is no longer shared (only hostile input has so many).
SHAPES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Integer:
    """Bounds of an integer field and the words for it in an error."""

    words: str
    low: int = INT64_MIN
    high: int = INT64_MAX


# A quantity. Negative ones load, because the checks have defined answers for them (plan-apply 2.2).
Amount: TypeAlias = Annotated[int, Integer("integer ≥ 0")]
# CPU core ids and MHz of the topology are unsigned (plan-apply, general value conventions, 2).
CoreId: TypeAlias = Annotated[int, Integer("integer from 0 to 65535", 0, 65535)]
CoreCount: TypeAlias = CoreId
Megahertz: TypeAlias = Annotated[int, Integer("integer ≥ 0", 0)]
# Unix nanoseconds or RFC 3339 text, as the source has it; empty text is the zero time.
Time: TypeAlias = int | str

_UPPER_PARTS = {"id", "ip", "mb", "dns", "cni", "cidr", "iops", "numa", "ui", "csi", "tls", "http", "tg", "acl"}
_SPECIAL_PARTS = {"ids": "IDs", "mbits": "MBits", "ltarget": "LTarget", "rtarget": "RTarget"}


def api_name(name: str) -> str:
    """Return the API's spelling of a field name: `followup_eval_id` → `FollowupEvalID`."""
    return "".join(part.upper() if part in _UPPER_PARTS else _SPECIAL_PARTS.get(part) or part.capitalize() for part in name.split("_"))


class _Wrong(Exception):
    """A value that cannot be read; *steps* is the way to it, innermost first."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(expected)
        self.value = value
        self.expected = expected
        self.steps: list[str] = []


class Record(msgspec.Struct, kw_only=True, rename=api_name):
    """Base of all records: a mutable, typed object in the shape of Nomad's API."""

    ROOT: ClassVar[str] = ""
    """First word of the paths in errors; the class name in lower case if empty."""

    _shape: Any = None
    _unknown: dict[str, Any] | None = None

    @classmethod
    def from_api(cls, data: dict[str, Any], path: str = "") -> Self:
        """Return the record that *data*, parsed JSON in the API's shape, describes. *data* is neither changed nor kept.

        *path* replaces the first word of paths in errors (`allocs[3]` instead of `alloc`). Unknown keys are kept for `to_api`.
        Raises InvalidInput naming path and value for a wrong type, a number outside 64 bits, NaN, and text that is not Unicode.
        """
        try:
            record: Self = schema_of(cls).decode(data)
        except _Wrong as wrong:
            steps = "".join(step if step.startswith("[") else f".{step}" for step in reversed(wrong.steps))
            raise InvalidInput((path or cls.ROOT or cls.__name__.lower()) + steps, wrong.value, wrong.expected) from None
        return record

    def to_api(self) -> dict[str, Any]:
        """Return the record as fresh JSON in the API's shape: the keys it was read with, and every other field that is not zero."""
        return schema_of(type(self)).encode(self) or {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def copy(self) -> Self:
        """Return a deep copy: no change of the one ever shows in the other."""
        twin: Self = self.__copy__()  # type: ignore[attr-defined]  # every Struct has it
        for name, duplicate in schema_of(type(self)).containers:
            value = getattr(self, name)
            if value:
                setattr(twin, name, duplicate(value))
            elif type(value) is list or type(value) is dict:
                # Most are empty.
                setattr(twin, name, type(value)())
        return twin

    def is_given(self, name: str) -> bool:
        """Return whether the input had a key for the field *name*; for a record made in Python, whether the field is set."""
        schema = schema_of(type(self))
        if self._shape is None:
            return not _is_zero(getattr(self, name))
        return schema.keys[name] in self._shape.keys

    def is_left_out(self, name: str) -> bool:
        """Return whether the input says nothing about the field *name*: no key, or null; for a record made in Python, whether the field is not set."""
        if not _is_zero(getattr(self, name)):
            return False
        key = schema_of(type(self)).keys[name]
        return self._shape is None or key not in self._shape.keys or key in self._shape.nulls

    @property
    def is_from_api(self) -> bool:
        """Return whether the record was read by `from_api` (and not made in Python)."""
        return self._shape is not None

    def __eq__(self, other: object) -> bool:
        """Compare by content: all fields and unknown keys; absent, null and zero are equal where they mean the same."""
        if type(other) is not type(self):
            return NotImplemented
        if (self._unknown or None) != (other._unknown or None):
            return False
        return all(getattr(self, name) == getattr(other, name) for name in schema_of(type(self)).keys)

    __hash__ = None  # type: ignore[assignment]  # records change

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in schema_of(type(self)).keys)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown if not _is_zero(value))})"


def _is_zero(value: object) -> bool:
    return not schema_of(type(value)).encode(value) if isinstance(value, Record) else not value


# --- one field ---------------------------------------------------------------------------------------------------

Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are read, written and copied; None stands for "as it is". *nullable*: null is kept apart from zero."""

    decode: Convert
    encode: Convert | None = None
    duplicate: Convert | None = None
    nullable: bool = False
    null: Convert | None = None
    """Makes the value that a null inside a list or map stands for; null is refused there without it."""


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Wrong(value, "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Wrong(value, "valid Unicode text") from None
    return value


def _step(key: Any) -> str:
    return key.encode(errors="backslashreplace").decode() if isinstance(key, str) else shown(key)


def _flag(value: Any) -> bool:
    if value is not True and value is not False:
        raise _Wrong(value, "true or false")
    return value is True


def _integer(kind: Integer) -> Convert:
    low, high, words = kind.low, kind.high, kind.words

    def decode(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            raise _Wrong(value, "integer within signed 64 bits")
        raise _Wrong(value, words)

    return decode


_int64 = _integer(Integer("integer"))


def _number(value: Any) -> Any:
    if type(value) is float:
        if math.isfinite(value):
            return value
        raise _Wrong(value, "finite number")
    if type(value) is not int:
        raise _Wrong(value, "number")
    return _int64(value)


def _time(value: Any) -> Any:
    if type(value) is int:
        return _int64(value)
    if type(value) is not str:
        raise _Wrong(value, "time (RFC 3339 text or integer nanoseconds)")
    return _text(value)


def read_json(value: Any, depth: int = 0) -> Any:
    """Return a deep copy of opaque JSON; whatever JSON cannot say is refused (as `_Wrong`)."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        if INT64_MIN <= value <= UINT64_MAX:
            return value
        raise _Wrong(value, "integer within 64 bits")
    if kind is float:
        return _number(value)
    if depth >= DEPTH_MAX:
        raise _Wrong(value, f"at most {DEPTH_MAX} levels of nesting")
    if isinstance(value, dict):
        result = {}
        for key, inner in value.items():
            try:
                result[_text(key)] = read_json(inner, depth + 1)
            except _Wrong as wrong:
                wrong.steps.append(_step(key))
                raise
        return result
    if isinstance(value, list):
        return _elements(value, lambda inner: read_json(inner, depth + 1))
    raise _Wrong(value, "JSON value")


def copy_json(value: Any) -> Any:
    """Return a deep copy of JSON that has been read before."""
    if isinstance(value, dict):
        return {key: copy_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_json(inner) for inner in value]
    return value


def _elements(values: list[Any], decode: Convert) -> list[Any]:
    result: list[Any] = []
    try:
        for value in values:
            result.append(decode(value))
    except _Wrong as wrong:
        wrong.steps.append(f"[{len(result)}]")
        raise
    return result


def _inside(codec: Codec) -> Codec:
    """Return *codec* for the elements of a list or map, where null has no key that could be left out."""
    decode, encode, duplicate, null = codec.decode, codec.encode, codec.duplicate, codec.null
    if codec.nullable:
        return Codec(
            lambda value: None if value is None else decode(value),
            None if encode is None else lambda value: None if value is None else encode(value),
            None if duplicate is None else lambda value: None if value is None else duplicate(value),
        )
    if null is not None:
        return Codec(lambda value: null(value) if value is None else decode(value), encode, duplicate)
    return codec


def _list_codec(element: Codec) -> Codec:
    element = _inside(element)
    convert, encode, duplicate = element.decode, element.encode, element.duplicate

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _Wrong(value, "list")
        return _elements(value, convert)

    return Codec(
        decode,
        list if encode is None else lambda value: [encode(inner) for inner in value],
        list if duplicate is None else lambda value: [duplicate(inner) for inner in value],
    )


def _map_codec(element: Codec) -> Codec:
    element = _inside(element)
    convert, encode, duplicate = element.decode, element.encode, element.duplicate

    def decode(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Wrong(value, "object")
        result = {}
        for key, inner in value.items():
            try:
                result[_text(key)] = convert(inner)
            except _Wrong as wrong:
                wrong.steps.append(_step(key))
                raise
        return result

    return Codec(
        decode,
        dict if encode is None else lambda value: {key: encode(inner) for key, inner in value.items()},
        dict if duplicate is None else lambda value: {key: duplicate(inner) for key, inner in value.items()},
    )


_JSON = Codec(read_json, copy_json, copy_json, nullable=True)
_SCALARS: dict[Any, Codec] = {str: Codec(_text), bool: Codec(_flag), int: Codec(_int64), float: Codec(_number), Any: _JSON, Time: Codec(_time)}


def _codec_of(hint: Any) -> Codec:
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Codec(_integer(arguments[1]))
    if origin in (typing.Union, types.UnionType):
        rest = tuple(argument for argument in arguments if argument is not types.NoneType)
        inner = _codec_of(typing.Union[rest])  # noqa: UP007 - built at run time
        return Codec(inner.decode, inner.encode, inner.duplicate, nullable=len(rest) < len(arguments))
    if origin is list:
        return _list_codec(_codec_of(arguments[0]))
    if origin is dict:
        return _map_codec(_codec_of(arguments[1]))
    schema = schema_of(hint)
    return Codec(schema.decode, schema.encode, hint.copy, null=schema.null)


# --- one class ---------------------------------------------------------------------------------------------------

Slot = tuple[str, str, Convert | None, bool]


class Shape:
    """Which keys an input object had, in order, and which of them were null; `null` when it was null itself, inside a list or map."""

    __slots__ = ("absent", "keys", "null", "nulls")

    def __init__(self, keys: tuple[str, ...], nulls: tuple[str, ...], slots: dict[str, Slot], null: bool = False) -> None:
        self.keys = keys
        self.nulls = nulls
        self.null = null
        self.absent = tuple(slot for key, slot in slots.items() if key not in keys)


class Schema:
    """How records of one class are read, written and copied."""

    def __init__(self, cls: type[Record]) -> None:
        self.cls = cls
        hints = typing.get_type_hints(cls, include_extras=True)
        self.keys = {field.name: field.encode_name for field in msgspec.structs.fields(cls) if not field.name.startswith("_")}
        codecs = {name: _codec_of(hints[name]) for name in self.keys}
        self._known = {key: (name, codecs[name].decode) for name, key in self.keys.items()}
        self._slots: dict[str, Slot] = {key: (key, name, codecs[name].encode, codecs[name].nullable) for name, key in self.keys.items()}
        self.containers = tuple((name, codec.duplicate) for name, codec in codecs.items() if codec.duplicate is not None)
        self._made = Shape((), (), self._slots)
        self._null = Shape((), (), self._slots, null=True)
        self._shapes: dict[tuple[tuple[str, ...], tuple[str, ...]], Shape] = {}

    def decode(self, data: Any) -> Any:
        """Return the record that the object *data* describes. Raises _Wrong."""
        if not isinstance(data, dict):
            raise _Wrong(data, "object")
        known = self._known
        values: dict[str, Any] = {}
        nulls: tuple[str, ...] = ()
        unknown: dict[str, Any] | None = None
        key: Any = None
        try:
            for key, value in data.items():
                if key not in known:
                    if unknown is None:
                        unknown = {}
                    unknown[_text(key)] = read_json(value)
                elif value is None:
                    nulls += (key,)
                else:
                    name, decode = known[key]
                    values[name] = decode(value)
        except _Wrong as wrong:
            wrong.steps.append(_step(key))
            raise
        keys = tuple(data)
        shape = self._shapes.get((keys, nulls))
        if shape is None:
            shape = Shape(keys, nulls, self._slots)
            if len(self._shapes) < SHAPES_MAX:
                shape = self._shapes.setdefault((keys, nulls), shape)
        return self.cls(_shape=shape, _unknown=unknown, **values)

    def null(self, _value: None) -> Any:
        """Return the zero record that a null inside a list or map stands for."""
        return self.cls(_shape=self._null)

    def encode(self, record: Any) -> dict[str, Any] | None:
        """Return *record* as JSON; None if it is still the null that it was read from."""
        shape: Shape = record._shape or self._made
        result: dict[str, Any] = {}
        for key in shape.keys:
            slot = self._slots.get(key)
            if slot is None:
                result[key] = copy_json(record._unknown[key])
                continue
            _, name, encode, nullable = slot
            value = getattr(record, name)
            if value is not None and encode is not None:
                value = encode(value)
            result[key] = None if not value and not nullable and key in shape.nulls else value
        for key, name, encode, nullable in shape.absent:
            value = getattr(record, name)
            if value is None or (not value and not nullable):
                continue
            if encode is not None:
                value = encode(value)
                if not value and not nullable:
                    continue
            result[key] = value
        return None if shape.null and not result else result


@functools.cache
def schema_of(cls: type[Record]) -> Schema:
    """Return the schema of a record class."""
    return Schema(cls)

# SPDX-License-Identifier: Apache-2.0
"""Calls of items' constructors: names, options and their types are checked, with the signature in each error."""

from __future__ import annotations

import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

from atb.errors import InvalidArgumentError

P = ParamSpec("P")
T = TypeVar("T")


class _Kind(NamedTuple):
    """What an annotation of an option takes: in words, as a test, and as what Python type it goes on."""

    words: str
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any]


def _is(value: Any, abstract: type) -> bool:
    return isinstance(value, abstract) and not isinstance(value, bool)


def _are_integers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is(one, numbers.Integral) for one in value)


# Numbers of other libraries become Python's. Annotations that are not here are checked by the constructor itself.
_KINDS: dict[Any, _Kind] = {
    int: _Kind("an integer", lambda value: _is(value, numbers.Integral), int),
    float: _Kind("a number", lambda value: _is(value, numbers.Real), float),
    bool: _Kind("True or False", lambda value: isinstance(value, bool), bool),
    str: _Kind("text", lambda value: isinstance(value, str), str),
    Sequence[int]: _Kind("a list of integers", _are_integers, lambda value: [int(one) for one in value]),
    types.NoneType: _Kind("None", lambda value: value is None, lambda value: value),
}


def constructor(kind: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes wrong calls of an item's constructor raise `atb.InvalidArgumentError` with its signature.

    kind: the item's name in errors, as in those of the core: "linear".
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def construct(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = _bind(kind, function, args, kwargs)
            hints = _hints(function)
            for name, value in bound.arguments.items():
                bound.arguments[name] = _checked(kind, function, name, value, hints[name])
            return function(*bound.args, **bound.kwargs)

        return construct

    return decorate


def shown(function: Callable[..., Any]) -> str:
    """The call as users write it: `Linear(name=None, *, out_features, bias=True)`."""
    parameters = inspect.signature(function).parameters.values()
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return f"{function.__name__}{inspect.Signature(bare)}"


def fail(kind: str, function: Callable[..., Any], what: str) -> NoReturn:
    """Raises `atb.InvalidArgumentError` with the signature of a constructor."""
    raise InvalidArgumentError(f"[{kind}] {what}; the call is {shown(function)}")


@functools.cache
def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(function)


def _bind(
    kind: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    signature = inspect.signature(function)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = signature.parameters.values()
        unknown = [name for name in kwargs if name not in signature.parameters]
        missing = [one.name for one in parameters if one.default is one.empty and one.name not in kwargs]
        if unknown:
            what = f"there is no option {', '.join(unknown)}"
        elif args and not isinstance(args[0], str | None):
            what = _no_name(args[0])
        elif missing and len(args) < 2:
            what = f"{', '.join(missing)} must be given"
        else:
            what = str(error)
    fail(kind, function, what)


def _no_name(value: object) -> str:
    return f"the first argument is the item's name, text; got {value!r}, and options are given by name"


def _checked(kind: str, function: Callable[..., Any], name: str, value: Any, hint: Any) -> Any:
    """The value as the core takes it."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if any(option not in _KINDS for option in options):
        return value
    for option in options:
        if _KINDS[option].accepts(value):
            return _KINDS[option].convert(value)
    if name == "name":
        fail(kind, function, _no_name(value))
    expected = " or ".join(_KINDS[option].words for option in options if option is not types.NoneType)
    fail(kind, function, f"{name}={value!r}; expected {expected}")

"""A model changes in one step or not at all, and is asked as it is at one moment.

What a model has learned is several attributes that belong together: ids, factors, a calibration. A
fit that fails in its second stage must not leave half of them behind, and a prediction must not
read some before and some after another thread has fitted the model anew: row numbers of one fit are
out of bounds in the arrays of another.

So what changes a model works on a twin and hands over all that it changed at once, at the end; what
asks a model works on a twin that nobody else can change. A twin shares every array with its model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

from noisewise.errors import FitInterrupted

NOTHING_KEPT = "Training was interrupted before there was anything to keep: the model is as it was."

M = TypeVar("M")
Method = TypeVar("Method", bound=Callable[..., Any])


def as_it_is(model: M) -> M:
    """Return a twin: another object with the attributes that a model has at this moment.

    Examples
    --------
    >>> from noisewise.models.type_mean import TypeMean
    >>> model = TypeMean().fit([("hall", 8, 1.0), ("attic", 8, 3.0)])
    >>> twin = as_it_is(model)
    >>> model = model.fit([("hall", 8, 5.0), ("attic", 8, 7.0)])
    >>> twin.predict([("hall", 9)]).item(), model.predict([("hall", 9)]).item()
    (2.0, 6.0)
    """
    twin = object.__new__(type(model))
    twin.__dict__ = dict(vars(model))  # a copy in one step, whatever other threads do
    return twin


def at_one_moment(method: Method) -> Method:
    """Let a method that asks a model see it as it is when it is called, and no change after."""

    @functools.wraps(method)
    def ask(model: Any, *given: Any, **named: Any) -> Any:
        return method(as_it_is(model), *given, **named)

    return cast(Method, ask)


def in_one_step(method: Method) -> Method:
    """Let a method change a model all at once, when it has done its work, and return the model.

    If it raises, the model is as it was before, but for ``interrupted``.
    """

    @functools.wraps(method)
    def change(model: Any, *given: Any, **named: Any) -> Any:
        twin = as_it_is(model)
        before = dict(vars(twin))
        try:
            method(twin, *given, **named)
        except FitInterrupted as stop:
            if stop.model is not twin:  # but a model inside, of which alone nothing can be made
                raise KeyboardInterrupt(NOTHING_KEPT) from None
            stop.model = model
            _hand_over(model, before, vars(twin))
            raise
        _hand_over(model, before, vars(twin))
        return model

    return cast(Method, change)


def interrupted(model: Any, worth: str) -> NoReturn:
    """End a fit by Ctrl-C when all that is to be kept is in place; say what it is worth."""
    raise FitInterrupted(worth, model)


def _hand_over(model: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Give a model what its twin has changed; all else is left as it is by now."""
    now = dict(vars(model))
    stays = {name: value for name, value in now.items() if name in after or name not in before}
    changed = {
        name: value
        for name, value in after.items()
        if name not in before or before[name] is not value
    }
    model.__dict__ = stays | changed  # one step: nobody sees a half of it

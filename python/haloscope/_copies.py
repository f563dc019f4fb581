"""Copies of objects that hold something of the extension."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

T = TypeVar("T")


def deep_copy(original: T, memo: dict[int, Any]) -> T:
    """A copy that shares nothing but what the extension holds, which cannot be copied and is never changed."""
    made = copy.copy(original)
    memo[id(original)] = made
    for name, value in vars(original).items():
        try:
            vars(made)[name] = copy.deepcopy(value, memo)
        except TypeError:
            vars(made)[name] = value
    return made

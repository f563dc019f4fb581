"""Job files from dictionaries: the part of TOML that they use."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import ArgumentError


def to_toml(document: Mapping[str, Any]) -> str:
    """A document of sections, and of lists of sections such as ``operators``."""
    plain, sections = [], []
    for name, value in document.items():
        if isinstance(value, Mapping):
            sections.append("\n".join([f"[{_key(name)}]", *_pairs(value)]))
        elif _is_list_of_sections(value):
            sections += ["\n".join([f"[[{_key(name)}]]", *_pairs(section)]) for section in value]
        else:
            plain.append(f"{_key(name)} = {_value(value)}")
    return "\n".join(plain + sections) + "\n"


def _is_list_of_sections(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and bool(value) and all(isinstance(item, Mapping) for item in value)


def _pairs(section: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in section.items() if value is not None]


def _key(name: str) -> str:
    is_bare = all(letter.isalnum() or letter in "-_" for letter in name)
    return name if is_bare and name else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray)):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise ArgumentError(f"a job cannot hold {value!r}; numbers, text, lists and sections are accepted")

"""The options of a view: checked here, and given their defaults here and in `_kernels`."""

import operator
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from lazyrows._sources import Placement


@dataclass(frozen=True, slots=True)
class Options:
    """How a view makes its rows; `None` is the default, chosen when rows are first made."""

    chunk_size: "int | None" = None
    prefetch: "int | None" = None
    device: Placement = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunk_size", _count("chunk_size", self.chunk_size, least=1))
        object.__setattr__(self, "prefetch", _count("prefetch", self.prefetch, least=0))
        if not isinstance(self.device, jax.Device | Sharding | None):
            raise TypeError(f"device must be a jax.Device or a jax.sharding.Sharding, not {self.device!r}")

    def updated(self, newer: "Options") -> "Options":
        """These options, except where newer ones are given."""
        given = {field.name: getattr(newer, field.name) for field in fields(newer)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def depth(self) -> int:
        # one chunk ahead overlaps the making of rows with their use; a second one only holds memory
        return 1 if self.prefetch is None else self.prefetch


def _count(name: str, value: Any, least: int) -> "int | None":
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer or None, not {value!r}")
    if operator.index(value) < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return operator.index(value)

"""The options of a view: checked and given their defaults here, but for the size of a chunk, which `_kernels` knows."""

import operator
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from lazyrows._sources import Placement, foreign_memory


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
        if isinstance(self.device, Sharding) and len(self.device.device_set) > 1:
            raise ValueError(f"device must be one device, or a sharding on one, not {self.device!r}")
        if isinstance(self.device, Sharding) and foreign_memory(self.device):
            raise ValueError(f"device must be of the memory that its devices compute in, not {self.device!r}")

    def updated(self, newer: "Options") -> "Options":
        """These options, except where newer ones are given."""
        given = {field.name: getattr(newer, field.name) for field in fields(newer)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def __deepcopy__(self, memo: Any) -> "Options":
        return self

    def __reduce__(self) -> Any:
        # a jax.Device cannot be pickled; it has a name that can
        device: Any = self.device
        named = (device.platform, device.id) if isinstance(device, jax.Device) else device
        return _restored, (self.chunk_size, self.prefetch, named)

    @property
    def depth(self) -> int:
        # one chunk ahead overlaps the making of rows with their use; a second one only holds memory
        return 1 if self.prefetch is None else self.prefetch


def _count(name: str, value: Any, least: int) -> "int | None":
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be an integer or None, not {value!r}")
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return count


def _restored(chunk_size: "int | None", prefetch: "int | None", device: Any) -> Options:
    if isinstance(device, tuple):
        platform, number = device
        (device,) = [found for found in jax.devices(platform) if found.id == number]
    return Options(chunk_size, prefetch, device)


DEFAULT = Options()

"""The options of a view: checked and given their defaults here, but for the size of a chunk, which `_kernels` knows."""

import io
import operator
import pickle
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, Sharding

from lazyrows._sources import Placement, foreign_memory, has_block


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
        if isinstance(self.device, Sharding) and not has_block(self.device):
            raise ValueError(f"device must be one device, or a NamedSharding over several, not {self.device!r}")
        if isinstance(self.device, Sharding) and foreign_memory(self.device):
            raise ValueError(f"device must be of the memory that its devices compute in, not {self.device!r}")

    def updated(self, newer: "Options") -> "Options":
        """These options, except where newer ones are given."""
        given = {field.name: getattr(newer, field.name) for field in fields(newer)}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def __deepcopy__(self, memo: Any) -> "Options":
        return self

    def __reduce__(self) -> Any:
        device = io.BytesIO()
        _Pickler(device).dump(self.device)
        return _restored, (self.chunk_size, self.prefetch, device.getvalue())

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


class _Pickler(pickle.Pickler):
    """For shardings too: a `jax.Device` has only a name that can be pickled, and JAX 0.6 drops the types of axes."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, jax.Device):
            return _named_device, (value.platform, value.id)
        if isinstance(value, Mesh):
            return _mesh, (value.devices, value.axis_names, value.axis_types)
        return NotImplemented


def _named_device(platform: str, number: int) -> Any:
    (device,) = [found for found in jax.devices(platform) if found.id == number]
    return device


def _mesh(devices: Any, names: Any, types: Any) -> Mesh:
    return Mesh(devices, names, axis_types=types)


def _restored(chunk_size: "int | None", prefetch: "int | None", device: bytes) -> Options:
    return Options(chunk_size, prefetch, pickle.loads(device))


DEFAULT = Options()

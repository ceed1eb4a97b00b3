"""Pytrees of sources, and views inside them: rows are pytrees of the same structure."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lazyrows._kernels import Chunking
from lazyrows._orders import Order
from lazyrows._sources._protocols import Block, Source
from lazyrows._sources._traced import locate


@dataclass(frozen=True, slots=True)
class NestedSource:
    """A view inside a tree: the rows of its source, in its order."""

    source: Source
    order: Order

    def __len__(self) -> int:
        return len(self.order)

    @property
    def element_spec(self) -> Any:
        return self.source.element_spec

    def fetch(self, order: Order, chunking: Chunking) -> Block:
        return self.source.fetch(self.order.then(order), chunking)

    def row(self, position: "int | jax.Array") -> Any:
        return self.source.row(locate(self.order, position))

    def context(self) -> Hashable:
        return self.source.context()


@dataclass(frozen=True, slots=True)
class TreeBlock:
    """One block for each leaf of a pytree, row by row in step."""

    treedef: Any
    blocks: "Sequence[Block]"

    def __len__(self) -> int:
        return len(self.blocks[0])

    @property
    def step(self) -> int:
        return self.blocks[0].step

    def rows(self, start: int) -> list[Any]:
        return [self.treedef.unflatten(leaves) for leaves in zip(*(block.rows(start) for block in self.blocks))]

    def arrays(self) -> list[jax.Array]:
        return [array for block in self.blocks for array in block.arrays()]


@dataclass(frozen=True, slots=True)
class TreeSource:
    """A pytree of sources of one length; rows are pytrees of the same structure.

    Each leaf keeps its own programs, so that a row's leaves are as its leaf alone would give them: on their
    own devices, committed or not.
    """

    treedef: Any
    sources: "Sequence[Source]"

    def __len__(self) -> int:
        return len(self.sources[0])

    @property
    def element_spec(self) -> Any:
        return self.treedef.unflatten([source.element_spec for source in self.sources])

    def fetch(self, order: Order, chunking: Chunking) -> TreeBlock:
        return TreeBlock(self.treedef, [source.fetch(order, chunking) for source in self.sources])

    def row(self, position: "int | jax.Array") -> Any:
        return self.treedef.unflatten([source.row(position) for source in self.sources])

    def context(self) -> Hashable:
        return tuple(source.context() for source in self.sources)

"""The rows of arrays, lazily, on device."""

from lazyrows._view import RowView, iter

__all__ = ["RowView", "iter"]

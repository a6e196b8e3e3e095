"""Containers of IR are Python's own: sequences are tuples, maps are dictionaries. These names are for programs that ask for them."""

__all__ = ["Array", "Map"]

Array = tuple
"""A sequence in IR."""
Map = dict
"""A mapping in IR."""

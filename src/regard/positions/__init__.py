"""Position encodings: one file each, every token's place given as an explicit integer.

>>> from regard import positions
>>> positions.create("sinusoidal", width=20)
Sinusoidal(width=20, base=10000.0)
"""

from regard.family import Family
from regard.positions._encoding import Encoding, OffsetTable, RowRule

family = Family[Encoding]("position encoding", "regard.positions")
create = family.create
get = family.get
names = family.names

__all__ = ["Encoding", "OffsetTable", "RowRule", "create", "get", "names"]

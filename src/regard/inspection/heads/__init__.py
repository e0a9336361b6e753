"""What heads do: one file a measure, all streaming over rows of weights.

>>> len(family.names()), family.get("induction").unit
(9, 'share')
"""

from regard.family import Family
from regard.inspection.heads._measure import Block, Measure, Text

family: Family[Measure] = Family("measure", "regard.inspection.heads")

__all__ = ["Block", "Measure", "Text", "family"]

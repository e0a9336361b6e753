"""Edits: one file each. Add one by adding a file.

>>> create("temperature", temperature=2.0).changes("scores")
True
"""

from regard.family import Family
from regard.inspection.interventions.edits._edit import Edit, Place

family: Family[Edit] = Family("edit", "regard.inspection.interventions.edits")
create = family.create

__all__ = ["Edit", "Place", "create", "family"]

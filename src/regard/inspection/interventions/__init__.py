"""Interventions: change what heads do, and see what the model answers."""

from regard.inspection.interventions.change import Change
from regard.inspection.interventions.editing import Editing, edit
from regard.inspection.interventions.importance import head_importance

__all__ = ["Change", "Editing", "edit", "head_importance"]

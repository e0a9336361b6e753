"""Tasks: what a run reads, which model it trains, how it is measured. One file a task."""

from regard.family import Family
from regard.training.tasks._task import Task

family: Family[Task] = Family("task", __name__)
get = family.get
names = family.names

__all__ = ["Task", "family", "get", "names"]

"""Inspection: what a model attends to, exactly, as it runs."""

"""Text in, attention out, every number in view."""

__version__ = "0.1.0"

"""Exact maps of attention at any length: tiles, grids, and the strongest links."""

from regard.inspection.atlas.grid import Grid, GridBuild
from regard.inspection.atlas.head import Head, head_of
from regard.inspection.atlas.tiles import Tile, preview, tile

__all__ = ["Grid", "GridBuild", "Head", "Tile", "head_of", "preview", "tile"]

"""Exact maps of attention at any length: tiles, grids, and the strongest links."""

from regard.inspection.atlas.atlas import BUDGET, Atlas
from regard.inspection.atlas.grid import Grid, GridBuild
from regard.inspection.atlas.head import Head, head_of
from regard.inspection.atlas.queue import GridQueue
from regard.inspection.atlas.store import Store
from regard.inspection.atlas.strongest import Link, strongest
from regard.inspection.atlas.tiles import Tile, preview, tile

__all__ = [
    "BUDGET",
    "Atlas",
    "Grid",
    "GridBuild",
    "GridQueue",
    "Head",
    "Link",
    "Store",
    "Tile",
    "head_of",
    "preview",
    "strongest",
    "tile",
]

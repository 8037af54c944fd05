"""A tiny package that embeds fastplan's compiled fit check through its `.pxd`."""

from fleetcount._count import verdicts

__all__ = ["verdicts"]

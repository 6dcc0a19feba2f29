"""Plug-ins that come in the same wheel: found by their entry points, as those of any other package."""

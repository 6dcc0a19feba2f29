"""Embeds on the machines of a Ray cluster: `openbook index build --engine ray`."""

"""A larger checkpoint of Openbook, which points at its answers; `openbook.extensions` finds it by its entry point."""

"""The default checkpoint of Openbook, which points at its answers; found by its entry point."""

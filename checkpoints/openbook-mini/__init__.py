"""The default checkpoint of Openbook; `openbook.extensions` finds this folder by its entry point."""

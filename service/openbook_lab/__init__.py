"""What trains and measures Openbook: it imports `openbook`, which never imports it."""

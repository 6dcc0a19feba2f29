"""A key for each reader: who may ask at all, how often, and whose call a line of the log is."""

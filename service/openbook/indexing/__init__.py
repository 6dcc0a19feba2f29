"""Building, importing, updating and merging versions of an index, offline."""

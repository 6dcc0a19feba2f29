"""Questions, claims and texts of public data sets: how their files are read, and how an answer is scored."""

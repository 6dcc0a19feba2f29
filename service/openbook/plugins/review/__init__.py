"""A review of an edit: which guarded answers it changes, and which it breaks, before any service has the new text."""

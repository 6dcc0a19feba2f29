"""Receipts: answers that are kept with a signature, and answered again, to be checked years later."""

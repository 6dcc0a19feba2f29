"""Versions in an object store: S3, Google Cloud Storage, Azure, a folder, memory."""

"""HTTP: one module per group of calls, their schemas, the page, and the composition root that builds the service."""

"""HTTP: schemas, routes, and the composition root that builds the service."""

"""How a version is made of another one and of what has changed, and how two versions differ."""

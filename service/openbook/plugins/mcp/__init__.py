"""Lets an assistant ask a running service by the Model Context Protocol: `openbook mcp`."""

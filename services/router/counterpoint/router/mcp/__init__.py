"""MCP: tools, resources and prompts for calling agents (docs/mcp.md)."""

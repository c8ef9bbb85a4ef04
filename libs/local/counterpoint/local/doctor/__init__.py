"""Checks of a machine, of configured servers and of a running stack, each with what to do."""

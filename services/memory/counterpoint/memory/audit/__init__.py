"""The audit log: leaves in order, a tree over them, signed checkpoints kept elsewhere, and the checks of it all."""

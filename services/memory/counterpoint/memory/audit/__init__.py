"""The audit log: leaves in order, a tree over them, signed checkpoints with external copies, and their verification."""

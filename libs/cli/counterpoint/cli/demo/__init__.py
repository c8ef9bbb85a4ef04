"""The story that the demo plays, and its checks."""

"""The commit path: plan, apply, publish."""

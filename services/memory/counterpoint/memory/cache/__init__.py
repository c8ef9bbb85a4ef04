"""The answer cache: in this process, and in Valkey."""

"""Investigation of a failure by a model in a loop of turns, judged by the rules (docs/agents.md)."""

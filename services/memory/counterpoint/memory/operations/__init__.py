"""Commands of operators: take-back, erasure, re-embedding."""

"""Benchmarks of the services and engines, each beside its physical limit where there is one."""

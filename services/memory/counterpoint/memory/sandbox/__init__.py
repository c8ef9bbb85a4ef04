"""Sandbox: a piece of work in a process of its own, within limits. A crash, an endless loop or exhausted memory costs
that piece of work, and delays nobody. `worker_process` starts and ends it, `limits` is what it imposes on itself."""

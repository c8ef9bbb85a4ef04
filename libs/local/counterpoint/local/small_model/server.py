"""OpenAI-compatible server of the small model. It runs in the environment of the runtime, without Counterpoint.

    python server.py MODEL NAME PORT

prints the base URL once it answers, and ends when its standard input does.
"""

import os
import sys

import xllamacpp

CONTEXT_TOKENS = 16_384
PARALLEL = 2


def main() -> None:
    """Serve until standard input ends."""
    path, name, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = PARALLEL
    params.cpuparams.n_threads = os.cpu_count() or 1
    params.ui = False
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

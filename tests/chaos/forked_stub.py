"""A module to fork: it writes its environment, its open files and its command line to stdout, and waits or ends."""

import json
import os
import signal
import sys

print(
    json.dumps(
        {
            "environment": dict(os.environ),
            "files": {
                number: os.fstat(number).st_ino for number in range(100) if os.path.exists(f"/proc/self/fd/{number}")
            },
            "arguments": sys.argv[1:],
            "session": os.getsid(0),
            "parent": os.getppid(),
            "folder": os.getcwd(),
        }
    ),
    flush=True,
)
if "CODE" in os.environ:
    sys.exit(int(os.environ["CODE"]))
signal.pause()

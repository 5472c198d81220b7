"""A program of test_preloaded.py: says what it was given and what it is, then ends as its first argument says."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from pathlib import Path

atexit.register(lambda: print("at exit", flush=True))
facts = {
    "name": __name__,
    "argv": sys.argv,
    "session": os.getsid(0),
    "folder": str(Path.cwd()),
    "told": os.environ.get("TOLD"),
    "stdin": sys.stdin.read(),
    "threads": len(list(Path("/proc/self/task").iterdir())),
    "tensorflow": "tensorflow" in sys.modules,
    "ours": "tf_strategies.collective" in sys.modules,
    "hash": hash("the order of a set"),
    "open": len([fd for fd in range(3, 64) if Path(f"/proc/self/fd/{fd}").exists()]),
}
print("facts", json.dumps(facts), flush=True)
ending = sys.argv[1]
if ending == "raises":
    raise RuntimeError("of its own")
if ending == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "holds":
    time.sleep(60)
sys.exit(5 if ending == "exits" else 0)

"""A launcher that replaces itself by a program after tying its life to the parent's.

Run as a script, with the standard library only: `launch.py PARENT_PID DEATH_SIGNAL OWNED COMMAND...`.
`OWNED` is the folder that the program must own when it may not run as root, or empty when it may.
The kernel sends DEATH_SIGNAL when the parent's spawning thread ends (on Linux; elsewhere the next start stops leftover
processes). It is a separate program because Python code between fork and exec is unsafe in a process with threads.
"""

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000


def _enter_user_namespace() -> None:
    """Become uid 65534 in a user namespace while the file system still sees root, for folders below a 0700 one."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"65534 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"65534 {gid} 1")


def _user_namespace_allowed() -> bool:
    """Try the namespace in a fork, since one whose map cannot be written cannot be left."""
    if not sys.platform.startswith("linux"):
        return False
    child = os.fork()
    if child == 0:
        try:
            _enter_user_namespace()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _give(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of all files below `folder`, the folder last, so that an interrupted run is repeated."""
    if folder.stat().st_uid == uid:
        return
    for root, folders, files in os.walk(folder, topdown=False):
        for name in (*folders, *files):
            os.lchown(os.path.join(root, name), uid, gid)
    os.lchown(folder, uid, gid)


def _drop_root(owned: Path) -> None:
    if _user_namespace_allowed():
        _give(owned, os.geteuid(), os.getegid())
        _enter_user_namespace()
        return
    nobody = pwd.getpwnam("nobody")
    _give(owned, nobody.pw_uid, nobody.pw_gid)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def main(parent_pid: str, death_signal: str, owned: str, *command: str) -> None:
    """Drop root if required, set the death signal (which dropping root clears), and exec."""
    if owned:
        _drop_root(Path(owned))
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
    if os.getppid() != int(parent_pid):
        sys.exit("the parent ended first")
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What our libraries must not touch: they are preloaded, and all is as without them."""

import ctypes.util
import os
import shutil
import subprocess
import sys

from programs.running import LIBAIO, POSIX_AIO, Machine, Skip, Told, same, show, spoken

# io_setup, a PREAD by io_submit, io_getevents and io_destroy by syscall(2), each of them as it is told by the kernel.
OWN_CALLS = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    said = libc.syscall(*words)
    return said if said >= 0 else -ctypes.get_errno()
setup, destroy, getevents, submit = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}[os.uname().machine]
context, file = ctypes.c_ulong(0), os.open(sys.argv[1], os.O_RDONLY)
print("io_setup", call(setup, 8, ctypes.byref(context)))
memory = ctypes.create_string_buffer(4096)
iocb = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", 7, 0, 0, 0, 0, file, ctypes.addressof(memory), 4096, 512, 0, 0, 0))
entries = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
print("io_submit", call(submit, context, ctypes.c_long(1), entries))
event = ctypes.create_string_buffer(32)
print("io_getevents", call(getevents, context, ctypes.c_long(1), ctypes.c_long(1), event, None))
data, _, result, further = struct.unpack("=QQqq", event.raw)
print("event", data, result, further, memory.raw == os.pread(file, 4096, 512))
print("io_submit of nothing", call(submit, context, ctypes.c_long(1), None))
print("io_destroy", call(destroy, context), call(destroy, context))
"""


def preloaded(machine: Machine) -> list[dict[str, str]]:
    """The environments with each of ours that is built, preloaded."""
    found = []
    for library in (LIBAIO, POSIX_AIO):
        try:
            found.append(machine.ours(library, preload=True))
        except Skip:
            pass
    if not found:
        raise Skip("none of our libraries is built")
    return found


def alike(machine: Machine, words: list[str], **how) -> Told:
    """The same status and the same words, with each of ours and without."""
    plain = machine.run(words, machine.original(), **how)
    for environ in preloaded(machine):
        show(words, environ)
        told = machine.run(words, environ, **how)
        same(f"{spoken(words, environ)}: what it says", (plain.status, plain.out), (told.status, told.out))
    return plain


def stress_ng_aiol(machine: Machine) -> None:
    """It makes its own system calls, which nothing of ours sees."""
    machine.needs(stress_ng="stress-ng")
    words = ["stress-ng", "--aiol", "2", "--aiol-ops", "4000", "--verify", "--temp-path", str(machine.here), "--metrics-brief"]
    for environ in (machine.original(), *preloaded(machine)):
        show(words, environ)
        told = machine.run(words, environ)
        same("operations that stress-ng --aiol has made", told.number(r"aiol +(\d+)") >= 4000, True)


def own_calls(machine: Machine) -> None:
    with open(machine.here / "bytes", "wb") as file:
        file.write(os.urandom(8192))
    (machine.here / "own_calls.py").write_text(OWN_CALLS)
    told = alike(machine, [sys.executable, "own_calls.py", "bytes"])
    if "io_setup -38" in told.out:
        raise Skip("this kernel has no io_setup")
    same("its event", "event 7 4096 0 True" in told.out, True)


def setuid(machine: Machine) -> None:
    """The loader takes nothing from the environment of a program that runs as another: it must neither fail nor be ours."""
    if os.geteuid() != 0:
        raise Skip("only root can make a program that runs as another")
    if "nosuid" in subprocess.run(["findmnt", "-no", "OPTIONS", "-T", machine.here], capture_output=True, text=True).stdout:
        raise Skip(f"{machine.here} is mounted nosuid")
    # As somebody else: for root nothing changes who it is. What is mapped into it tells.
    program = machine.here / "reader"
    shutil.copy(shutil.which("cat"), program)
    program.chmod(0o4755)
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    status = machine.run([*drop, program, "/proc/self/status"], machine.original()).out
    same("the user as who it runs", "Uid:\t65534\t0\t0\t0" in status, True)
    for environ in preloaded(machine):
        show([*drop, program, "/proc/self/maps"], environ)
        maps = machine.run([*drop, program, "/proc/self/maps"], environ).out
        same("what is loaded of ours", [line for line in maps.splitlines() if any(f" {at}/" in line for at in machine.dirs)], [])
    # The system's own, which anybody may ask.
    if shutil.which("passwd"):
        alike(machine, [*drop, "passwd", "--status", "nobody"], fails=True)

"""What the drivers beside this file have in common: files laid out, processes run and timed, medians, tables."""

import argparse
import json
import os
import re
import shlex
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent


def size(text):
    """Bytes of `64K`, `1G`."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match:
        raise ValueError(text)
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def arguments(doc, seconds, binaries=(), further={}):
    """The command line of a driver: binaries of ours, the options of all, further ones with their defaults and their help."""
    parser = argparse.ArgumentParser(description=doc)
    for name in binaries:
        parser.add_argument(name, type=lambda path: Path(path).resolve())
    parser.add_argument("--dir", type=Path, default=Path("."), help="where the files are laid out, and kept")
    parser.add_argument("--size", type=size, default=size("1G"), help="bytes of the large file (1G)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"of each run ({seconds})")
    for name, (default, told) in further.items():
        parser.add_argument(name, default=default, help=told)
    return parser.parse_args()


def turns(rounds, sides):
    """Each side in each round; another one begins, so that nobody always follows the same one."""
    for turn in range(rounds):
        first = turn % len(sides)
        yield from sides[first:] + sides[:first]


def lay_out(path, bytes_):
    """Writes `bytes_` of noise, unless a file of that size is there; none of it stays in the kernel's cache."""
    if not (path.exists() and path.stat().st_size == bytes_):
        with open(path, "wb") as file:
            for at in range(0, bytes_, 1 << 20):
                file.write(os.urandom(min(1 << 20, bytes_ - at)))
    drop(path)


def drop(path):
    """Writes a file back and drops it from the kernel's cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(command, environment=None):
    """Runs a command; what it printed as JSON, and the processor time of the whole process in seconds (wait4(2))."""
    environment = environment and {**os.environ, **environment}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    printed = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{shown(command)}\nfailed with status {child.returncode}: {printed.strip()}")
    return json.loads(printed), used.ru_utime + used.ru_stime


def shown(command, environment=None):
    """As a shell would be given it."""
    words = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    return " ".join(words + [shlex.quote(str(word)) for word in command])


STARTS = {}


def timed(command, start, environment=None, start_environment=None):
    """Requests a second, and processor time of one in microseconds: the whole process's, less that of the command `start`, which
    is the same with next to nothing to do (the least of three)."""
    printed, cpu = run(command, environment)
    if printed["errors"]:
        sys.exit(f"{shown(command, environment)}\n{printed['errors']} requests failed: {printed.get('first_error')}")
    key = shown(start, start_environment)
    if key not in STARTS:
        STARTS[key] = min(run(start, start_environment)[1] for _ in range(3))
    return printed["iops"], (cpu - STARTS[key]) * 1e6 / printed["requests"]


def staged(command):
    """Requests a second, and processor time of one in microseconds: the whole process's from the first request to the last end, as
    `baio stress` tells it. A start that costs as much as the requests (64 MiB of frames) varies too much to be taken off."""
    printed, _ = run(command)
    if printed["errors"]:
        sys.exit(f"{shown(command)}\n{printed['errors']} requests failed: {printed.get('first_error')}")
    return printed["iops"], printed["cpu_us_per_request"]


def stress(baio, target, words, seconds):
    """`baio stress` for so long, and its start."""
    runtime = [f"{int(seconds * 1000)}ms", "1ms"]
    return [[str(baio), "stress", str(target), *words.split(), "--one-turn", "--json", "--runtime", time] for time in runtime]


def started(path, child):
    """Waits for the socket of a server."""
    for _ in range(200):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if "broker" in path.name else socket.SOCK_STREAM) as it:
                it.connect(str(path))
                return
        except OSError:
            if child.poll() is not None:
                break
            time.sleep(0.02)
    sys.exit(f"{shown(child.args)}\ndid not serve")


@contextmanager
def serving(path, command):
    """A server that runs meanwhile."""
    path.unlink(missing_ok=True)
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started(path, child)
        yield child
    finally:
        child.terminate()
        child.wait()


def cpu_of(child):
    """Processor time in seconds of a process that runs, to a hundredth."""
    words = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def median(values):
    return statistics.median(values) if values else float("nan")


def ratio(ours, theirs):
    """The median of the ratios of the rounds: what disturbs the machine disturbs both sides of one round."""
    return median([our / their for our, their in zip(ours, theirs)])


def table(head, rows):
    widths = [max(len(str(row[at])) for row in [head, *rows]) for at in range(len(head))]
    for row in [head, *rows]:
        cells = [str(cell).rjust(width) for cell, width in zip(row, widths)]
        print("  ".join([str(row[0]).ljust(widths[0]), *cells[1:]]).rstrip())
    print(flush=True)


def said(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "not there"


def machine():
    """One line on what this ran on."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"Linux {os.uname().release}, {os.cpu_count()} processors, {cpu[1] if cpu else os.uname().machine}"

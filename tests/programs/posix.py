"""Programs on POSIX AIO."""

from programs.disks import fio_rate, fio_words
from programs.running import POSIX_AIO, Machine, Told, must_have_carried, show, spoken


def stress_ng(machine: Machine) -> None:
    """--aio is POSIX AIO, 16 requests a worker, each with a signal; --verify compares what is read."""
    machine.library(POSIX_AIO)
    machine.needs(stress_ng="stress-ng")
    words = ["stress-ng", "--aio", "2", "--verify", "--timeout", "3s", "--metrics-brief", "--temp-path", str(machine.here)]

    def signals(told: Told) -> float:
        return told.number(r"([0-9.]+) async I/O signals per sec")

    machine.compare(POSIX_AIO, words, signals, "async I/O signals a second")
    machine.counted(POSIX_AIO, words)


def fio(machine: Machine) -> None:
    """One file, 1 and 64 requests in flight; then what is written is verified."""
    machine.library(POSIX_AIO)
    machine.needs(fio="fio")
    for depth in (1, 64):
        words = fio_words("posixaio", "randread", depth, machine)
        machine.compare(POSIX_AIO, words, fio_rate, f"requests a second, depth {depth}")
    words = ["fio", "--name=verify", "--ioengine=posixaio", "--rw=randwrite", "--bs=4k", "--size=32m", "--iodepth=32", "--verify=crc32c"]
    words += [f"--filename={machine.here}/verified"]
    ours = machine.ours(POSIX_AIO)
    show(words, ours)
    must_have_carried(machine.run(words, ours).err, spoken(words, ours))
    machine.counted(POSIX_AIO, words)

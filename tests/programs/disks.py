"""Programs that drive a file by libaio, and check what they read."""

import hashlib
import json
import os
import shutil

from programs.running import LIBAIO, Machine, Skip, Told, must_have_carried, same, show, spoken

HOP = "it waits for an event fd and reads the live ring without a call, so the library's thread stands between (docs/program/drop-ins.md)"
MIB = 1 << 20


def fio_words(engine: str, rw: str, depth: int, machine: Machine) -> list[str]:
    """A second of direct requests of 4 KiB."""
    words = f"fio --name=turn --ioengine={engine} --rw={rw} --bs=4k --direct=1 --iodepth={depth} --size=128m".split()
    return [*words, "--time_based", "--runtime=1s", "--output-format=json", f"--filename={machine.here}/file"]


def fio_rate(told: Told) -> float:
    job = json.loads(told.out[told.out.index("{"):])["jobs"][0]
    return job["read"]["iops"] + job["write"]["iops"]


def fio(machine: Machine) -> None:
    """What is written is verified, direct and through the cache; fio takes its events from the live ring too."""
    machine.needs(fio="fio")
    machine.compare(LIBAIO, fio_words("libaio", "randread", 16, machine), fio_rate, "requests a second")
    ours = machine.ours(LIBAIO)
    for further in ("--direct=1", "--direct=1 --userspace_reap=1", "--direct=0 --bsrange=512-64k --bs_unaligned=1"):
        words = "fio --name=verify --ioengine=libaio --rw=randwrite --size=32m --iodepth=32 --verify=crc32c".split()
        words += [*further.split(), f"--filename={machine.here}/verified"]
        show(words, ours)
        must_have_carried(machine.run(words, ours).err, spoken(words, ours))


def sysbench(machine: Machine) -> None:
    """Its figure with many in flight. It checks what it reads with one: all of a thread share a buffer, so more fail on any libaio."""
    machine.needs(sysbench="sysbench")
    files = "sysbench fileio --file-num=8 --file-total-size=64M --file-io-mode=async --file-extra-flags=direct --max-requests=0".split()
    ours = machine.ours(LIBAIO)
    show([*files, "--validate", "prepare"], ours)
    machine.run([*files, "--validate", "prepare"], ours)

    def each_second(told: Told) -> float:
        # What took longer than it should is no more a second.
        return told.number(r"total number of events: +(\d+)") / told.number(r"total time: +([0-9.]+)s")

    for further in ("--file-async-backlog=1 --validate", "--file-async-backlog=64"):
        words = [*files, "--file-test-mode=rndrw", "--time=2", *further.split(), "run"]
        machine.compare(LIBAIO, words, each_second, f"events a second, {further}")
    machine.run([*files, "cleanup"], ours)


def random_file(machine: Machine, mib: int) -> str:
    """Half of it holes, as images have them."""
    with open(machine.here / "raw", "wb") as file:
        for number in range(mib):
            file.write(os.urandom(MIB)) if number % 2 == 0 else file.seek(MIB, os.SEEK_CUR)
        file.truncate(mib * MIB)
        os.fsync(file.fileno())
    return str(machine.here / "raw")


def qemu_img_bench(machine: Machine) -> None:
    machine.needs(qemu_img="qemu-utils")
    path = random_file(machine, 128)

    def rate(told: Told) -> float:
        return 1 / told.number(r"Run completed in ([0-9.]+) seconds")

    for depth, count in ((1, 8000), (16, 40000), (64, 40000)):
        words = ["qemu-img", "bench", "-c", count, "-d", depth, "-t", "none", "-n", "-f", "raw", path]

        def requests(told: Told, count: int = count) -> float:
            return count * rate(told)

        machine.compare(LIBAIO, words, requests, f"requests a second, depth {depth}", why=HOP)


def digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()


def qemu_img_convert(machine: Machine) -> None:
    """raw to qcow2 and back. Each side is opened direct and with aio=native: the target is made first, since its options name it."""
    machine.needs(qemu_img="qemu-utils")
    raw, size = random_file(machine, 128), 128 * MIB
    middle, back = str(machine.here / "middle"), str(machine.here / "back")

    def image(driver: str, path: str) -> str:
        return f"driver={driver},file.driver=file,file.filename={path},file.aio=native,file.cache.direct=on"

    ours = machine.ours(LIBAIO)
    for environ in (machine.original(), ours):
        for driver, path in (("qcow2", middle), ("raw", back)):
            machine.run(["qemu-img", "create", "-q", "-f", driver, path, size], machine.original())
        for source, target in ((("raw", raw), ("qcow2", middle)), (("qcow2", middle), ("raw", back))):
            words = "qemu-img convert -n -t none -T none --target-image-opts --image-opts".split()
            words += [image(*source), image(*target)]
            if environ is ours:
                show(words, ours)
            told = machine.run(words, environ)
            if environ is ours:
                must_have_carried(told.err, spoken(words, ours))
        same("the sha256 of the image and of what came back", digest(raw), digest(back))
        os.remove(back)
    words = ["qemu-img", "check", "-q", middle]
    machine.run(words, machine.original())


def aio_stress(machine: Machine) -> None:
    if not shutil.which("aio-stress"):
        raise Skip("no package of the distribution has it: it comes with the sources of LTP and of libaio")
    words = ["aio-stress", "-O", "-o", "2", "-o", "3", "-s", "128m", "-r", "4k", "-d", "64", "-v", str(machine.here / "file")]
    machine.compare(LIBAIO, words, lambda told: told.number(r"random read on .*\(([0-9.]+) MB/s\)"), "MB/s of random reads")

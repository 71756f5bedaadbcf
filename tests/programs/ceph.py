"""A Ceph OSD (BlueStore in a file) on our libaio: written, killed, started again, and read back."""

import hashlib
import os
import signal
import subprocess
import time
import uuid

from programs.running import LIBAIO, Machine, Skip, Wrong, must_have_carried, ratio, same, show, spoken, which

CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port1},v1:127.0.0.1:{port}]
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
auth allow insecure global id reclaim = true
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail warn = 2
mon data avail crit = 1
run dir = {at}/run
log file = {at}/log/$name.log
admin socket = {at}/run/$name.asok
pid file = {at}/run/$name.pid
mon data = {at}/mon
mgr data = {at}/mgr
osd data = {at}/osd
osd objectstore = bluestore
bluestore block size = 12884901888
bdev ioring = false
osd memory target = 939524096
[client]
log file =
"""


class Cluster:
    """A monitor, a manager and one OSD on this machine; the OSD has the environment that is compared."""

    def __init__(self, machine: Machine, name: str, port: int, environ: dict[str, str]) -> None:
        self.machine, self.at, self.environ = machine, machine.here / name, environ
        for part in ("mon", "mgr", "osd", "run", "log"):
            (self.at / part).mkdir(parents=True)
        self.fsid = str(uuid.uuid4())
        (self.at / "ceph.conf").write_text(CONF.format(fsid=self.fsid, port=port, port1=port + 1, at=self.at))
        self.plain = {**machine.original(), "CEPH_CONF": str(self.at / "ceph.conf")}
        self.environ = {**environ, "CEPH_CONF": str(self.at / "ceph.conf")}
        self.processes: dict[str, subprocess.Popen] = {}
        self.port = port

    def run(self, *words: str, environ: dict[str, str] | None = None, patience: float = 60) -> str:
        return self.machine.run(list(words), environ or self.plain, patience=patience).out

    def spawn(self, name: str, words: list[str], environ: dict[str, str]) -> None:
        """In the foreground, so that it is ours to kill and says what it says into a file."""
        with open(self.at / f"{name}.said", "ab") as to:
            self.processes[name] = subprocess.Popen([*words, "-f"], env=environ, stdout=to, stderr=to, cwd=self.at)

    def start(self) -> None:
        addresses = f"[v2:127.0.0.1:{self.port + 1},v1:127.0.0.1:{self.port}]"
        self.run("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", addresses, str(self.at / "monmap"))
        self.run(which("ceph-mon"), "--mkfs", "-i", "a", "--monmap", str(self.at / "monmap"))
        self.spawn("mon", [which("ceph-mon"), "-i", "a"], self.plain)
        osd = str(uuid.uuid4())
        self.run("ceph", "osd", "new", osd)
        self.spawn("mgr", [which("ceph-mgr"), "-i", "x"], self.plain)
        self.run(which("ceph-osd"), "-i", "0", "--mkfs", "--osd-uuid", osd, environ=self.environ)
        self.osd()
        self.run("ceph", "osd", "pool", "create", "baio", "8", "8")

    def osd(self) -> None:
        self.spawn("osd", [which("ceph-osd"), "-i", "0"], self.environ)
        deadline = time.monotonic() + 60
        while " 1 up" not in self.run("ceph", "osd", "stat"):
            if self.processes["osd"].poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"the OSD does not come up: {self.said('osd')[-1000:]}")
            time.sleep(0.3)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(60)

    def said(self, name: str) -> str:
        return (self.at / f"{name}.said").read_text(errors="replace")

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()


def osd(machine: Machine) -> None:
    """`rados bench` on the original and on ours; then objects of ours are put, the OSD killed, and each is read back."""
    if os.geteuid() != 0:
        raise Skip("its daemons want to be root")
    machine.needs(ceph_mon="ceph-mon", ceph_mgr="ceph-mgr", ceph_osd="ceph-osd", rados="ceph-common")
    rates = []
    port = 20000 + os.getpid() % 20000
    for name, environ in (("original", machine.original()), ("ours", machine.ours(LIBAIO))):
        cluster = Cluster(machine, name, port, environ)
        try:
            cluster.start()
            words = ["rados", "bench", "-p", "baio", "5", "write", "-b", "65536", "-t", "16", "--no-cleanup"]
            told = machine.run(words, cluster.plain)
            rates.append(told.number(r"Average IOPS: +(\d+)"))
            if name == "ours":
                show([which("ceph-osd"), "-i", "0", "-f"], cluster.environ)
                show(words)
                killed(cluster, 10 if machine.long else 2)
                must_have_carried(cluster.said("osd"), spoken(["ceph-osd"], cluster.environ))
        finally:
            cluster.end()
        port += 10
    ratio("writes of 64 KiB a second by rados bench", [rates[1] / rates[0]], f"{rates[1]:.0f} to {rates[0]:.0f}", "one round of 5 s")


def killed(cluster: Cluster, times: int) -> None:
    """What a put that has ended has written is there after a kill in the middle of others."""
    sums: dict[str, str] = {}
    for turn in range(times):
        for number in range(16):
            name, source = f"object.{turn}.{number}", cluster.at / "source"
            source.write_bytes(os.urandom((number + 1) * 100_003))
            cluster.run("rados", "-p", "baio", "put", name, str(source))
            sums[name] = hashlib.sha256(source.read_bytes()).hexdigest()
        load = ["rados", "bench", "-p", "baio", "30", "write", "-b", "65536", "-t", "16", "--run-name", f"load{turn}"]
        under = subprocess.Popen(load, env=cluster.plain, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            cluster.kill("osd")
        finally:
            under.kill()
            under.wait()
        cluster.osd()
        for name, wanted in sums.items():
            back = cluster.at / "back"
            cluster.run("rados", "-p", "baio", "get", name, str(back))
            same(f"{name} after {turn + 1} kills", wanted, hashlib.sha256(back.read_bytes()).hexdigest())
    print(f"   {times} times killed under load and started again: all {len(sums)} objects are as they were put", flush=True)

"""MariaDB, its InnoDB on libaio: killed while it is written, and started again."""

import os
import pathlib
import signal
import subprocess
import time

from programs.running import LIBAIO, Machine, Skip, Wrong, must_have_carried, ratio, same, show, spoken, which

ROWS = 100
WRITERS = 4


class Server:
    """A server with a data directory and a socket of its own, and no network."""

    def __init__(self, machine: Machine, name: str, environ: dict[str, str]) -> None:
        self.machine, self.environ = machine, environ
        self.dir = machine.here / name
        self.dir.mkdir()
        self.socket, self.log = str(self.dir / "socket"), self.dir / "log"
        self.process: subprocess.Popen | None = None
        # No configuration of the machine's. What is acknowledged must be on the disk.
        self.words = [which("mariadbd"), "--no-defaults", f"--datadir={self.dir}/data", f"--socket={self.socket}", "--skip-networking"]
        self.words += ["--innodb-use-native-aio=1", "--innodb-linux-aio=aio", "--innodb-flush-method=O_DIRECT", "--max-allowed-packet=64M"]
        self.words += ["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=48M"]
        self.words += [f"--pid-file={self.dir}/pid", "--skip-grant-tables", f"--user=root"]
        told = machine.run([which("mariadbd"), "--no-defaults", "--verbose", "--help"], machine.original())
        if "--innodb-linux-aio" not in told.out:
            raise Skip("this MariaDB has no option that keeps InnoDB off io_uring (innodb_linux_aio)")
        words = ["mariadb-install-db", "--no-defaults", f"--datadir={self.dir}/data", f"--user=root", "--skip-test-db"]
        machine.run([*words, "--auth-root-authentication-method=normal", "--innodb-linux-aio=aio"], environ)

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.words, env=self.environ, stdout=log, stderr=log, cwd=self.dir)
        deadline = time.monotonic() + 60
        while subprocess.run([*self.client(), "-e", "select 1"], capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"{spoken(self.words, self.environ)}: it does not start: {self.said()[-1500:]}")
            time.sleep(0.05)

    def client(self) -> list[str]:
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", "-N", "-B"]

    def sql(self, text: str) -> str:
        told = subprocess.run([*self.client(), "baio"], input=text, capture_output=True, text=True, timeout=120)
        if told.returncode != 0:
            raise Wrong(f"{text[:80]}: {told.stderr.strip()}")
        return told.stdout

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self, how: signal.Signals) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Wrong(f"MariaDB did not end of {how.name} in 60 s") from None


class Writer:
    """A client that inserts rows, each a transaction, and says which were acknowledged; killed with the server."""

    def __init__(self, server: Server, number: int, first: int) -> None:
        # The number of a row is said after it has been committed.
        rows = "\n".join(
            f"insert into acknowledged values ({number}, {at}, repeat(char(97 + {at} % 26), 3000)); select {at};" for at in range(first, first + 20_000)
        )
        self.at = pathlib.Path(server.dir / f"acknowledged.{number}")
        (server.dir / f"rows.{number}.sql").write_text(rows)
        with open(server.dir / f"rows.{number}.sql") as rows_of_it, open(self.at, "w") as to:
            self.process = subprocess.Popen([*server.client(), "--unbuffered", "baio"], stdin=rows_of_it, stdout=to, stderr=subprocess.DEVNULL)

    def last(self) -> int | None:
        """The last one of which the whole line is there."""
        lines = self.at.read_text().split("\n")[:-1]
        return int(lines[-1]) if lines else None


def mariadb(machine: Machine) -> None:
    """200 MB are loaded; then it is killed while four clients write, and started again. All that was acknowledged must be there."""
    if os.geteuid() != 0:
        raise Skip("it is started as root, with a data directory of its own")
    machine.needs(mariadbd="mariadb-server", mariadb="mariadb-client", mariadb_install_db="mariadb-server")
    servers = [Server(machine, "original", machine.original()), Server(machine, "ours", machine.ours(LIBAIO))]
    show(servers[1].words, servers[1].environ)
    seconds = []
    try:
        for server in servers:
            server.start()
            began = time.monotonic()
            load(server)
            seconds.append(time.monotonic() - began)
            if server is not servers[1]:
                server.end(signal.SIGTERM)
        ratio("200 MB loaded, bytes a second", [seconds[0] / seconds[1]], f"{seconds[1]:.1f} s against {seconds[0]:.1f} s", "one round")
        kills(servers[1], 10 if machine.long else 3)
        servers[1].end(signal.SIGTERM)
    finally:
        for server in servers:
            if server.process and server.process.poll() is None:
                server.process.kill()
                server.process.wait()
    said = servers[1].said()
    must_have_carried(said, "MariaDB")
    same("its word about libaio", "falling back to innodb_use_native_aio=OFF" in said, False)


def load(server: Server) -> None:
    subprocess.run([*server.client(), "-e", "create database baio"], check=True)
    server.sql("create table loaded (id int primary key, bytes longblob) engine=innodb;")
    server.sql("create table acknowledged (writer int, id int, bytes varchar(3000), primary key (writer, id)) engine=innodb;")
    # A hundred rows of 2 MB, each with its sum beside it.
    server.sql("alter table loaded add sum varbinary(40);")
    for at in range(ROWS):
        server.sql(f"insert into loaded (id, bytes) values ({at}, {blob(at)});")
    server.sql("update loaded set sum = sha1(bytes);")


def blob(at: int) -> str:
    """2 MB that are another sum in each row."""
    return f"repeat(sha2('{at}', 512), 15625)"


def kills(server: Server, times: int) -> None:
    first = dict.fromkeys(range(WRITERS), 0)
    acknowledged = 0
    for _ in range(times):
        writers = {number: Writer(server, number, first[number]) for number in range(WRITERS)}
        deadline = time.monotonic() + 30
        # Under load: some of each writer's rows are there, and pages are written meanwhile.
        server.sql("update loaded set bytes = reverse(bytes) where id < 10; update loaded set bytes = reverse(bytes) where id < 10;")
        while min(writer.last() or 0 for writer in writers.values()) < 50 + min(first.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
        server.end(signal.SIGKILL)
        for number, writer in writers.items():
            writer.process.wait(30)
            last = writer.last()
            if last is not None:
                first[number] = last + 1
        server.start()
        checked = server.sql("check table loaded, acknowledged extended;")
        same("what CHECK TABLE says", [line.split("\t")[3] for line in checked.splitlines()], ["OK", "OK"])
        for number, rows in first.items():
            there = server.sql(f"select count(*) from acknowledged where writer = {number} and id < {rows} and bytes = repeat(char(97 + id % 26), 3000);")
            same(f"rows of writer {number} that were acknowledged, and are there", rows, int(there))
            # One more may have been committed whose word was lost.
            server.sql(f"delete from acknowledged where writer = {number} and id >= {rows};")
        broken = server.sql("select count(*) from loaded where sha1(bytes) <> sum;")
        same("rows of what was loaded that are not as they were", int(broken), 0)
        acknowledged = sum(first.values())
    print(f"   {times} times killed and started again: CHECK TABLE is content, and all {acknowledged} acknowledged rows are there", flush=True)

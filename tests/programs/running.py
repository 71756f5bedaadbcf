"""Running a program on the original libraries and on ours, and what is asserted of each run."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIBAIO, POSIX_AIO = "libaio.so.1", "libbaio-posix-aio.so"
# Below it a ratio needs its reason, which is printed beside it.
ENOUGH = 0.97
# What a library says with BAIO_EXPLAIN=1 of whatever it carries itself.
CARRIED = re.compile(r"^baio [a-z-]+: (?:.*: )?(?:io_uring|the kernel's AIO, and io_uring when its reads wait)$", re.MULTILINE)


class Skip(Exception):
    """It cannot run here."""


class Wrong(Exception):
    """It has run, and something is not as it must be."""


class Machine:
    """Our libraries, and where a program works."""

    def __init__(self, libraries: list[str] | None, long: bool) -> None:
        self.long = long
        self.dirs = [pathlib.Path(at).resolve() for at in libraries] if libraries else list(built())
        self.here = pathlib.Path()
        self.policy: pathlib.Path | None = None

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_: object) -> None:
        if self.policy:
            self.policy.unlink(missing_ok=True)

    @contextlib.contextmanager
    def place(self, name: str):
        """A directory for one program."""
        with tempfile.TemporaryDirectory(prefix=f"baio-{name}.", ignore_cleanup_errors=True) as at:
            os.chmod(at, 0o755)
            self.here = pathlib.Path(at)
            yield

    def library(self, name: str) -> pathlib.Path:
        for at in self.dirs:
            if (at / name).exists():
                return at / name
        raise Skip(f"our {name} is not built")

    def needs(self, **packages: str) -> None:
        """Commands (`_` stands for `-`) and the packages that have them."""
        lacking = sorted({package for command, package in packages.items() if not which(command.replace("_", "-"))})
        if not lacking:
            return
        names = ", ".join(lacking)
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise Skip(f"{names} is not installed, and only root can install it with apt")
        self.no_services()
        for words in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *lacking]):
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            told = subprocess.run(["apt-get", *words], env=environ, capture_output=True, text=True)
            if told.returncode != 0:
                raise Skip(f"apt could not install {names}: {last_line(told.stderr)}")

    def no_services(self) -> None:
        """What is installed must not be started: a package would run a server of its own."""
        policy = pathlib.Path("/usr/sbin/policy-rc.d")
        if not policy.exists():
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
            self.policy = policy

    def original(self) -> dict[str, str]:
        """The environment of a run on the original libraries."""
        return {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "BAIO_"))}

    def ours(self, library: str, *, preload: bool = False) -> dict[str, str]:
        """The environment of a run on one of ours."""
        at = self.library(library)
        where = {"LD_PRELOAD": str(at)} if preload or library == POSIX_AIO else {"LD_LIBRARY_PATH": str(at.parent)}
        return {**self.original(), **where, "BAIO_EXPLAIN": "1"}

    def run(self, words: list[str], environ: dict[str, str], *, patience: float = 120, fails: bool = False) -> "Told":
        """Runs it to its end, which must be a good one."""
        words = [str(word) for word in words]
        try:
            told = subprocess.run(words, env=environ, cwd=self.here, capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{shlex.join(words)}: it did not end in {patience:.0f} s") from None
        if told.returncode != 0 and not fails:
            said = (told.stderr + told.stdout).strip().splitlines()[-5:]
            raise Wrong(f"{spoken(words, environ)}: it ended with {told.returncode}: {' | '.join(said)}")
        return Told(told.returncode, told.stdout, told.stderr)

    def compare(self, library: str, words: list[str], figure, said: str, *, rounds: int = 3, why: str = "", carried=None) -> None:
        """Original, ours, in turn: the figure is what `figure` finds in what a run says, larger is better."""
        theirs, ours = self.original(), self.ours(library)
        show(words, ours)
        ratios, last = [], (0.0, 0.0)
        for _ in range(rounds):
            one = figure(self.run(words, theirs))
            told = self.run(words, ours)
            (carried or must_have_carried)(told.err, spoken(words, ours))
            last = (figure(told), one)
            ratios.append(last[0] / last[1])
        ratio(said, ratios, f"{last[0]:.0f} to {last[1]:.0f}", why)


    def counted(self, library: str, words: list[str]) -> None:
        """Runs it once more by `baio run`, which counts: all that it asked for went by our library's io_uring, and nothing has failed."""
        option, key = {LIBAIO: ("--libaio", "libaio"), POSIX_AIO: ("--posix-aio", "posix_aio")}[library]
        counts = self.here / "counts.json"
        run = [self.baio(), "run", option, "--libraries", self.library(library).parent, "--counts", counts, "--", *words]
        show(run)
        self.run(run, self.original())
        told = json.loads(counts.read_text())[key]
        lines = {name: line for name, line in told["operations"].items() if line["requests"] > 0}
        failed = sum(line["failed"] for line in lines.values())
        if not lines or told["on_io_uring"] == 0 or told["without_io_uring"] != 0 or failed != 0:
            raise Wrong(f"{spoken(run, {})}: not all was carried by our library, or not well: {json.dumps(told)}")
        counted = ", ".join(f"{line['requests']} {name}" for name, line in lines.items())
        print(f"   carried by io_uring, as counted: {counted}", flush=True)

    def baio(self) -> pathlib.Path:
        """Beside the directories of the libraries, where cargo puts it; it is built if need be."""
        beside = [at.parent / "baio" for at in self.dirs]
        words = ["cargo", "build", "--quiet", "--locked", "--release", "-p", "baio-cli"]
        if not any(at.exists() for at in beside) and shutil.which("cargo"):
            subprocess.run(words, cwd=REPOSITORY)
        for at in filter(pathlib.Path.exists, beside):
            return at
        raise Skip("baio is not built")


class Told:
    """What a process has said."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def number(self, pattern: str) -> float:
        found = re.search(pattern, self.out + self.err)
        if not found:
            raise Wrong(f"it does not say {pattern!r}: {last_line(self.err + self.out)}")
        return float(found[1])


def built():
    """Builds ours; each script says where it has put them."""
    for script in sorted(REPOSITORY.glob("crates/*/build.sh")):
        told = subprocess.run([script], stdout=subprocess.PIPE, text=True)
        if told.returncode != 0:
            raise SystemExit(f"{script} has failed")
        yield pathlib.Path(told.stdout.strip().splitlines()[-1])


def must_have_carried(said: str, whose: str) -> None:
    if not CARRIED.search(said):
        explained = [line for line in said.splitlines() if line.startswith("baio ")]
        raise Wrong(f"{whose}: our library has not carried it: {' | '.join(explained) or 'it says nothing'}")


def ratio(said: str, ratios: list[float], values: str, why: str) -> None:
    """Prints the median of the rounds, with the reason where it is low."""
    middle = statistics.median(ratios)
    low = "" if middle >= ENOUGH else f"; below {ENOUGH}: {why or 'NO REASON IS KNOWN'}"
    print(f"   {said}: {middle:.2f} of the original's (rounds {' '.join(f'{each:.2f}' for each in ratios)}; {values}){low}", flush=True)


def same(what: str, *values: object) -> None:
    if any(value != values[0] for value in values):
        raise Wrong(f"{what} differs: {' and '.join(str(value)[:200] for value in values)}")


def show(words: list[str], environ: dict[str, str] | None = None) -> None:
    print(f"   $ {spoken(words, environ or {})}", flush=True)


def spoken(words: list[str], environ: dict[str, str]) -> str:
    ours = [f"{name}={environ[name]}" for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if name in environ]
    return shlex.join([*ours, *map(str, words)])


def which(command: str) -> str | None:
    """Servers stand where only root looks."""
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it failed without a word"])[-1]

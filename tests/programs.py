#!/usr/bin/env python3
"""Programs of the distribution on our libraries, unmodified, beside the originals.

    tests/programs.py [--only NAME]... [--libraries DIR]... [--long]

Each program runs on the original library and on ours in turn and does its own check. For each it is printed what was run, the ratio of
its own figure (ours to the original's), whether our library has carried its requests, and whether all was right. It ends with 1 if
anything was wrong; what cannot run here is a line `SKIPPED: NAME: reason`.

What is missing is installed with apt by root; anybody else is told which package it is. Without --libraries ours are built. All of it
happens in a directory of its own, below $TMPDIR, which goes when it ends. --long kills MariaDB and the Ceph OSD more often;
all else is the same.
"""

import argparse
import sys
import time

from programs import ceph, databases, disks, harmless, posix
from programs.running import Machine, Skip, Wrong

PROGRAMS = {
    "stress-ng": posix.stress_ng,
    "fio-posixaio": posix.fio,
    "fio-libaio": disks.fio,
    "sysbench": disks.sysbench,
    "qemu-img-bench": disks.qemu_img_bench,
    "qemu-img-convert": disks.qemu_img_convert,
    "aio-stress": disks.aio_stress,
    "mariadb": databases.mariadb,
    "ceph": ceph.osd,
    "stress-ng-aiol": harmless.stress_ng_aiol,
    "own-calls": harmless.own_calls,
    "setuid": harmless.setuid,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--libraries", action="append", metavar="DIR", help="where ours are; else they are built")
    parser.add_argument("--long", action="store_true", help="ten kills of MariaDB and of the Ceph OSD, else three and two")
    asked = parser.parse_args()
    wrong = []
    with Machine(asked.libraries, asked.long) as machine:
        for name in asked.only or PROGRAMS:
            print(f"== {name}", flush=True)
            began = time.monotonic()
            try:
                with machine.place(name):
                    PROGRAMS[name](machine)
            except Skip as reason:
                print(f"SKIPPED: {name}: {reason}", flush=True)
                continue
            except Wrong as what:
                wrong.append(name)
                print(f"   WRONG: {what}", flush=True)
                continue
            print(f"   right, in {time.monotonic() - began:.0f} s", flush=True)
    print("== wrong: " + ", ".join(wrong) if wrong else "== all that has run was right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

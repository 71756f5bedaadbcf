#!/usr/bin/env python3
"""What growth costs when a segment is one run of blocks, and when it may be a few extents.

A volume holds segments of log-uniform sizes. At a steady fill it lives through creates, deletes and growths in random order.
A growth takes the blocks behind its last extent; where those are taken, a segment of one run moves, one of several
extents takes another, and moves into one when it has all it may have. Numbers are of one seed; `--seed` takes another.

    python3 0020-growth.py [--seed N] [--steps N]
"""

import argparse
import bisect
import math
import random

BLOCKS = 1 << 22  # 16 GiB of 4 KiB blocks


class Space:
    """Free runs by place; next fit from a hint, as `segment/free_set.rs`."""

    def __init__(self, blocks):
        self.starts, self.lengths, self.hint, self.free = [0], [blocks], 0, blocks

    def take_at(self, start, blocks):
        at = bisect.bisect_right(self.starts, start) - 1
        if at < 0:
            return False
        begin, length = self.starts[at], self.lengths[at]
        if start + blocks > begin + length:
            return False
        parts = [(begin, start - begin), (start + blocks, begin + length - start - blocks)]
        parts = [part for part in parts if part[1]]
        self.starts[at : at + 1] = [part[0] for part in parts]
        self.lengths[at : at + 1] = [part[1] for part in parts]
        self.free -= blocks
        return True

    def take(self, blocks):
        first = max(bisect.bisect_right(self.starts, self.hint) - 1, 0)
        order = list(range(first, len(self.starts))) + list(range(first))
        for at in order:
            if self.lengths[at] >= blocks:
                start = self.starts[at]
                self.take_at(start, blocks)
                self.hint = start + blocks
                return start
        return None

    def give(self, start, blocks):
        at = bisect.bisect_left(self.starts, start)
        self.starts.insert(at, start)
        self.lengths.insert(at, blocks)
        self.free += blocks
        for left in (at, at - 1):
            if 0 <= left < len(self.starts) - 1 and self.starts[left] + self.lengths[left] == self.starts[left + 1]:
                self.lengths[left] += self.lengths[left + 1]
                del self.starts[left + 1], self.lengths[left + 1]


def extents_for(space, blocks, count):
    """A few runs that hold so many blocks together: the largest first, none if they are too many."""
    runs = sorted(zip(space.lengths, space.starts), reverse=True)[:count]
    if sum(length for length, _ in runs) < blocks:
        return None
    taken = []
    for length, start in runs:
        part = min(length, blocks)
        space.take_at(start, part)
        taken.append([start, part])
        blocks -= part
        if not blocks:
            return taken


def live(fill, most, reserve, steps, seed):
    rng = random.Random(seed)
    space, segments = Space(BLOCKS), {}
    told = dict.fromkeys("creates refused grown_ops grown moved copied stuck".split(), 0)
    number = 0

    def size():
        return int(math.exp(rng.uniform(math.log(256), math.log(65536))))  # 1 MiB to 256 MiB

    def place(blocks):
        start = space.take(blocks)
        if start is not None:
            return [[start, blocks]]
        return extents_for(space, blocks, most) if most > 1 else None

    def grow(segment, more):
        told["grown_ops"] += 1
        inside = min(segment["spare"], more)
        segment["spare"] -= inside
        rest = more - inside
        last = segment["extents"][-1]
        if not rest or space.take_at(last[0] + last[1], rest):
            last[1] += rest
            told["grown"] += more
            return
        if len(segment["extents"]) < most:
            new = space.take(rest)
            found = [[new, rest]] if new is not None else extents_for(space, rest, most - len(segment["extents"]))
            if found:
                segment["extents"] += found
                told["grown"] += more
                return
        had = sum(extent[1] for extent in segment["extents"])
        new = space.take(had + rest)
        if new is None:
            segment["spare"] += inside
            told["stuck"] += 1
            return
        for extent in segment["extents"]:
            space.give(*extent)
        segment["extents"] = [[new, had + rest]]
        told["grown"] += more
        told["moved"] += 1
        told["copied"] += had

    for step in range(steps):
        want_less = space.free < BLOCKS * (1 - fill)
        what = rng.random()
        if want_less and segments and what < 0.6 or not want_less and segments and what < 0.1:
            name = rng.choice(list(segments))
            for extent in segments.pop(name)["extents"]:
                space.give(*extent)
        elif what < 0.7 or not segments:
            blocks = size()
            told["creates"] += 1
            found = place(blocks + int(blocks * reserve))
            if found is None:
                told["refused"] += space.free >= blocks
                continue
            segments[number] = {"extents": found, "spare": int(blocks * reserve)}
            number += 1
        else:
            segment = segments[rng.choice(list(segments))]
            blocks = sum(extent[1] for extent in segment["extents"]) - segment["spare"]
            more = max(1, blocks // 4)
            if space.free + segment["spare"] >= more:
                grow(segment, more)
    parts = [len(segment["extents"]) for segment in segments.values()]
    blocks = sum(extent[1] for segment in segments.values() for extent in segment["extents"])
    seams = sum(part - 1 for part in parts)
    return told, len(parts), sum(parts) / len(parts), sum(part > 1 for part in parts) / len(parts), seams * 255 / blocks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40_000)
    args = parser.parse_args()
    print("fill  extents reserve | moved growths  copied per  growths   creates | segments  extents  split  1 MiB requests")
    print("      at most         |               grown block  refused   refused |           each    in >1  across a seam")
    for fill in (0.5, 0.8, 0.9):
        for most, reserve in ((1, 0), (1, 0.5), (1, 1), (2, 0), (4, 0), (8, 0)):
            told, count, each, split, seams = live(fill, most, reserve, args.steps, args.seed)
            ops = max(told["grown_ops"], 1)
            print(
                f"{fill:4.0%}  {most:7} {reserve:7.0%} | {told['moved'] / ops:13.1%} {told['copied'] / max(told['grown'], 1):11.2f}"
                f" {told['stuck'] / ops:9.1%} {told['refused'] / max(told['creates'], 1):9.1%} |"
                f" {count:8} {each:8.2f} {split:6.1%} {seams:14.3%}"
            )


main()

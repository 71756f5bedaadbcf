#!/usr/bin/env python3
"""An independent reader of baio volumes: the Python standard library, and docs/inside/disk-format.md.

It shares no code with crates/storage and is not to be made to agree with it: where the two differ, one of them or the
document is wrong. It never writes.

    reader.py IMAGE...          one JSON object a line and image
    reader.py --folder FOLDER   all *.img in it, in the order of their names

    verdict    "volume", "refused" (a volume, and why not read), "none"
    current    sequence, epoch, healed_epoch, clean, of the superblock that is believed
    copies     what each copy of the superblock is: its sequence, or what is wrong with it
    segments   uid, name, state, start_block, blocks, reserve; sorted by owner and name, as an opening would serve them
    limits     uid, blocks, segments of the quota records
    free       blocks that nobody claims
    problems   kind, place, what, and `crash`: may a power cut or a kill alone have left this?

What the document leaves open, and what this reader does there, stands at `OPEN` below.
"""

import json
import os
import struct
import sys

sys.dont_write_bytecode = True  # Nothing is left beside the source.

from pages import (
    ANY,
    FREE,
    LIVE,
    MOVING,
    NEVER,
    PAGE,
    QUARANTINED,
    QUOTA,
    SEGMENTS,
    STATES,
    TOMBSTONE,
    ZERO,
    Bad,
    Empty,
    Image,
    Inode,
    Newer,
    Refused,
    Superblock,
    TooNew,
    page_crc,
    salvage,
    siphash,
)

# Where the document is silent, this reader
OPEN = """
- decides in memory as an opening to write would: of a bucket in doubt it takes the newest of all four images;
- applies "Claims" in memory: half a rename is one segment, and who loses a block is quarantined;
- scans for copies 2 and 3 if the file is not longer than SCAN_MAX.
""".strip()
SCAN_MAX = 1 << 32


class Device:
    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)
        # The size of a block device is not its file's.
        self.size = self.file.seek(0, os.SEEK_END)

    def page(self, at):
        return os.pread(self.file.fileno(), PAGE, at)

    def close(self):
        self.file.close()


def read_copy(device, at, number):
    page = device.page(at)
    if len(page) < PAGE:
        raise Bad("behind the end")
    found = Superblock(page)
    if found.copy != number:
        raise Bad("it is copy %d" % found.copy)
    return found


def attempt(read, *arguments):
    try:
        return read(*arguments)
    except Bad as bad:
        return bad


def choose(device):
    """The current superblock, and what each of the four copies is."""
    front = [attempt(read_copy, device, at, number) for number, at in enumerate((0, 65536))]
    places = {tuple(c.layout.superblocks_at[2:]) for c in front if isinstance(c, Superblock)}
    if not places and agreed_newer(front) is None:
        places = scan(device)
    best, copies = None, front
    for two, three in sorted(places) or [(None, None)]:
        seen = list(front)
        if two is not None:
            seen += [attempt(read_copy, device, at, number) for number, at in ((2, two), (3, three))]
        newer = agreed_newer(seen)
        if newer is not None:
            raise Refused(newer)
        valid = [c for c in seen if isinstance(c, Superblock)]
        paired = [c for c in valid if sum(o.content == c.content for o in valid) >= 2]
        if paired:
            newest = max(paired, key=lambda c: c.sequence)
            rivals = {c.content for c in paired if c.sequence == newest.sequence}
            if len(rivals) > 1:
                raise Refused("two different pairs of sequence %d" % newest.sequence)
            if best is None or newest.sequence > best.sequence:
                best, copies = newest, seen
        elif best is None:
            copies = seen
    if best is None:
        if any(isinstance(c, Superblock) for c in copies):
            raise Refused("no two copies agree")
        if any(isinstance(c, Newer) or str(c) != "no superblock" for c in copies if str(c) != "behind the end"):
            raise Refused("no copy is valid")
        return None, copies
    return best, copies


def agreed_newer(copies):
    """What two equal copies of a format that is not known say."""
    newer = [c for c in copies if isinstance(c, Newer)]
    for copy in newer:
        if sum(other.content == copy.content for other in newer) >= 2:
            return str(copy)
    return None


def mixed_epoch(current, copies):
    """The newest epoch of copies that are of no one moment; None where a crash leaves them so."""

    def of_volume(copy):
        is_reached = isinstance(copy, Superblock) and max(copy.sequence, copy.epoch) < 2**63
        return is_reached and copy.uuid == current.uuid

    front, rear = ([c for c in part if of_volume(c)] for part in (copies[:2], copies[2:]))
    if not front or not rear:
        return None
    first, second = (max(c.sequence for c in part) for part in (front, rear))
    if first in (second, second + 1):
        return None
    return max(c.epoch for c in front + rear)


def scan(device):
    if device.size > SCAN_MAX:
        return set()
    for at in range(131072, device.size, 65536):
        found = attempt(Superblock, device.page(at)) if at + PAGE <= device.size else None
        if isinstance(found, Superblock) and found.copy < 4 and found.layout.superblocks_at[found.copy] == at:
            return {tuple(found.layout.superblocks_at[2:])}
    return set()


def read_pair(device, superblock, bucket, base):
    """The even and the odd image: an Image, Empty, NEVER, or Bad."""
    pair = []
    for parity in (0, 1):
        page = device.page(base + bucket * 8192 + parity * PAGE)
        if page == ZERO:
            pair.append(NEVER if parity else Empty())
        elif len(page) < PAGE:
            pair.append(Bad("behind the end"))
        else:
            pair.append(attempt(Image, page, superblock, bucket, parity))
    if any(isinstance(i, Image) and i.generation >= 2 for i in pair):
        pair = [Bad("erased") if i is NEVER or isinstance(i, Empty) else i for i in pair]
    is_early = [isinstance(i, Image) and i.epoch > superblock.epoch for i in pair]
    return [TooNew("of epoch %d, which has not begun" % i.epoch) if e else i for i, e in zip(pair, is_early)]


def newest(images):
    valid = [i for i in images if isinstance(i, (Image, Empty))]
    # Of equal ones the first: the table's.
    return max(valid, key=lambda i: i.age()) if valid else None


class Volume:
    def __init__(self, device):
        self.problems = []
        self.device = device
        self.superblock, self.copies = choose(device)
        if self.superblock is None:
            return
        self.layout = self.superblock.layout
        if device.size < self.layout.end:
            raise Refused("it ends at byte %d, the volume at %d" % (device.size, self.layout.end))
        epoch = mixed_epoch(self.superblock, self.copies)
        if epoch is not None:
            # Neither the note of the clean close, nor the snapshot, nor the healed epoch is believed.
            self.superblock.epoch, self.superblock.clean, self.superblock.healed = epoch, 0, 0
            self.superblock.snapshot["epoch"] = 0
        self.is_clean = self.superblock.clean == self.superblock.epoch
        self.judge_copies()
        self.inodes, self.refused, self.used_slots = [], [], {}
        for bucket in range(self.layout.buckets):
            self.read_bucket(bucket)
        self.settle_claims()
        self.judge_names()
        self.judge_snapshot()

    def problem(self, kind, place, what, crash=False):
        self.problems.append({"kind": kind, "place": place, "what": str(what), "crash": crash})

    def judge_copies(self):
        """What differs from the current one. A crash leaves one pair whole, and the front never older than the rear."""
        current, wrong = self.superblock, []
        for number, copy in enumerate(self.copies):
            if not isinstance(copy, Superblock) or copy.content != current.content:
                wrong.append(number)
        sequences = [c.sequence if isinstance(c, Superblock) else None for c in self.copies]
        # The front is torn or ahead while the rear is current, and never behind it.
        stale_front = any(n in wrong and sequences[n] is not None and sequences[n] < current.sequence for n in (0, 1))
        one_pair = all(n < 2 for n in wrong) or all(n >= 2 for n in wrong)
        newer_rear = any(sequences[n] is not None and sequences[n] > current.sequence for n in range(2, len(sequences)))
        crash = one_pair and not newer_rear and not stale_front
        for number in wrong:
            copy = self.copies[number]
            what = "sequence %d" % copy.sequence if isinstance(copy, Superblock) else copy
            self.problem("superblock", "superblock copy %d" % number, what, crash)

    def read_bucket(self, bucket):
        layout, superblock = self.layout, self.superblock
        table = read_pair(self.device, superblock, bucket, layout.table_at)
        mirror = read_pair(self.device, superblock, bucket, layout.mirror_at)
        damaged = any(isinstance(i, Bad) for i in table)
        image = newest(table)
        in_doubt = not self.is_clean and (damaged or image is None or image.epoch >= superblock.healed)
        if damaged or in_doubt:
            for pair in zip(table, mirror):
                early = [i for i in pair if isinstance(i, TooNew)]
                if early and all(isinstance(i, Bad) for i in pair):
                    raise Refused("bucket %d: an image %s" % (bucket, early[0]))
            image = newest(table + mirror)
        if image is None:
            raise Refused("bucket %d: no image is valid" % bucket)
        self.judge_bucket(bucket, table, mirror, image, in_doubt)
        self.used_slots[bucket] = []
        for slot in range(4):
            raw = image.page[64 + slot * 1008 : 64 + (slot + 1) * 1008]
            inode = attempt(lambda: Inode(raw, layout, (bucket, slot)))
            self.used_slots[bucket].append(inode)
            if isinstance(inode, Bad):
                self.refused.append(salvage(raw, layout))
                self.problem("inode", "slot %d of bucket %d" % (slot, bucket), inode)
            elif inode.state != FREE:
                self.inodes.append(inode)

    def judge_bucket(self, bucket, table, mirror, image, in_doubt):
        """Sound: table and mirror both hold the image g, and in the other place g - 1 (zeroes, if g is 1)."""
        best = newest(table + mirror)
        for name, pair in (("table", table), ("mirror", mirror)):
            for parity, found in enumerate(pair):
                place = "bucket %d, %s image of the %s" % (bucket, ("even", "odd")[parity], name)
                if best.generation == 0:
                    sound = not isinstance(found, Bad)
                elif parity == best.generation % 2:
                    sound = isinstance(found, Image) and found.page == best.page
                else:
                    older = found.generation if isinstance(found, (Image, Empty)) else None
                    sound = older == best.generation - 1 or (found is NEVER and best.generation == 0)
                if sound:
                    continue
                kind = "image" if isinstance(found, Bad) else "image-stale"
                # A crash tears or leaves out what was being written; what it wrote over was the older image.
                self.problem(kind, place, found if isinstance(found, Bad) else "not the image that it should be", in_doubt)

    def settle_claims(self):
        served = [i for i in self.inodes if i.state in (LIVE, MOVING)]
        gone = set()
        by_place = {i.at: i for i in served}
        for new in served:
            old = by_place.get(new.renamed_from[:2]) if new.renamed_from else None
            if (
                old is not None
                and old is not new
                and old.generation == new.renamed_from[2]
                and old.uuid == new.uuid
                and (old.start, old.reserve) == (new.start, new.reserve)
                and (old.allocation, old.generation, old.at) < (new.allocation, new.generation, new.at)
            ):
                gone.add(old.at)
                self.problem("rename", old.place(), "the old name of a rename that was not finished", True)
        self.inodes = [i for i in self.inodes if i.at not in gone]
        served = [i for i in served if i.at not in gone]
        owner = {}
        self.losers = set()
        for inode in sorted(served, key=lambda i: (tuple(-n for n in i.allocation), i.at)):
            lost = False
            for start, count in inode.runs():
                for block in range(start, start + count):
                    lost |= owner.setdefault(block, inode) is not inode
            if lost:
                self.losers.add(inode.at)
                self.problem("overlap", inode.place(), "some of its blocks belong to a later allocation")
        taken = set(owner)
        for runs in [i.runs() for i in self.inodes if i.state == QUARANTINED] + self.refused:
            for start, count in runs:
                taken.update(range(start, start + count))
        self.taken = taken
        self.free = self.layout.data_blocks - len(taken)

    def home(self, inode):
        uid, name = inode.key()
        return siphash(self.superblock.seed, struct.pack("<I", uid) + name) % self.layout.buckets

    def judge_names(self):
        """Every inode that answers is reached by a probe, and is the only one of its name."""
        seen = set()
        for inode in self.inodes:
            if inode.state == TOMBSTONE:
                continue
            if inode.key() in seen:
                self.problem("name-twice", inode.place(), "another inode has its name")
            seen.add(inode.key())
            bucket = self.home(inode)
            for _ in range(self.layout.buckets):
                if bucket == inode.at[0]:
                    break
                if any(isinstance(i, Inode) and i.state == FREE for i in self.used_slots[bucket]):
                    self.problem("name-unreachable", inode.place(), "bucket %d on its way has a free slot" % bucket)
                    break
                bucket = (bucket + 1) % self.layout.buckets

    def accounts(self):
        accounts = {}
        for inode in self.inodes:
            if inode.state in SEGMENTS:
                account = accounts.setdefault(inode.uid, [0, 0, ANY, ANY])
                account[0] += inode.reserve if inode.at in self.losers else inode.held()
                account[1] += 1
            elif inode.state == QUOTA:
                accounts.setdefault(inode.uid, [0, 0, ANY, ANY])[2:] = inode.limits
        return {uid: tuple(a) for uid, a in accounts.items() if a != [0, 0, ANY, ANY]}

    def judge_snapshot(self):
        """After a clean close it says what the inodes say."""
        superblock, layout = self.superblock, self.layout
        note = superblock.snapshot
        if not self.is_clean or note["epoch"] != superblock.epoch:
            return
        used, accounts = set(), {}
        try:
            if note["pages"] > layout.bitmap_pages or note["accounts"] > 1500:
                raise Bad("more pages than there is room for")
            for number in range(note["pages"]):
                page = self.snapshot_page(b"BMP0", layout.bitmap_at, number)
                bits = int.from_bytes(page[64:], "little")
                for bit in range(min(32256, layout.data_blocks - number * 32256)):
                    if bits >> bit & 1:
                        used.add(number * 32256 + bit)
            for number in range(-(-note["accounts"] // 100)):
                page = self.snapshot_page(b"ACC0", layout.superblock_2_at + PAGE, number)
                (count,) = struct.unpack_from("<Q", page, 40)
                if count > 100:
                    raise Bad("%d accounts in a page" % count)
                for at in range(count):
                    uid, _, *account = struct.unpack_from("<IIQQQQ", page, 64 + 40 * at)
                    accounts[uid] = tuple(account)
            sums = (len(used), sum(a[0] for a in accounts.values()), sum(a[1] for a in accounts.values()))
            if sums != (note["used"], note["used"], note["segments"]) or len(accounts) != note["accounts"]:
                raise Bad("its sums do not add up")
        except Bad as bad:
            # It is not believed then, and the table is read: the clean note came behind it, so a crash does not do this.
            self.problem("snapshot", "snapshot", bad)
            return
        if used != self.taken:
            self.problem("snapshot", "snapshot", "blocks in use differ: %s" % sorted(used ^ self.taken)[:8])
        if accounts != self.accounts():
            self.problem("snapshot", "snapshot", "accounts differ: %s, %s" % (accounts, self.accounts()))

    def snapshot_page(self, magic, base, number):
        page = self.device.page(base + number * PAGE)
        found, checksum = struct.unpack_from("<4sI", page)
        if found != magic or checksum != page_crc(page, 4) or page[8:24] != self.superblock.uuid:
            raise Bad("page %d of %s is damaged" % (number, magic.decode()))
        if struct.unpack_from("<QQ", page, 24) != (number, self.superblock.epoch):
            raise Bad("page %d of %s is another page, or an old one" % (number, magic.decode()))
        return page

    def segments(self):
        block = self.layout.block_size
        found = []
        for inode in self.inodes:
            if inode.state in SEGMENTS:
                state = "quarantined" if inode.at in self.losers else STATES[inode.state]
                name = inode.name.decode()
                found.append((inode.uid, name, state, inode.start, inode.blocks * block, inode.reserve * block))
        # By owner and the bytes of the name.
        found.sort(key=lambda s: (s[0], s[1].encode()))
        keys = ("uid", "name", "state", "start_block", "size_bytes", "reserve_bytes")
        return [dict(zip(keys, segment)) for segment in found]


def read(path):
    device = Device(path)
    said = {"image": os.path.basename(path)}
    try:
        volume = Volume(device)
        if volume.superblock is None:
            said["verdict"] = "none"
            return said
        current = volume.superblock
        said.update(
            verdict="volume",
            sequence=current.sequence,
            epoch=current.epoch,
            healed_epoch=current.healed,
            clean=volume.is_clean,
            copies=[c.sequence if isinstance(c, Superblock) else str(c) for c in volume.copies],
            segments=volume.segments(),
            limits=sorted([i.uid, *i.limits] for i in volume.inodes if i.state == QUOTA),
            free=volume.free,
            problems=volume.problems,
        )
    except Refused as refused:
        said.update(verdict="refused", why=str(refused))
    finally:
        device.close()
    return said


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--folder":
        folder = arguments[1]
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".img")]
    elif arguments and not arguments[0].startswith("-"):
        paths = arguments
    else:
        sys.exit(__doc__)
    for path in paths:
        print(json.dumps(read(path)))


if __name__ == "__main__":
    main(sys.argv[1:])

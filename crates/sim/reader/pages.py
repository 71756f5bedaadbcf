"""Bytes to values, as docs/inside/disk-format.md has them: checksums, the name hash, superblocks, images, inodes."""

import struct
import unicodedata

PAGE = 4096
ZERO = bytes(PAGE)
ANY = 2**64 - 1
GENERATION_MAX = 2**63 - 1
FREE, LIVE, TOMBSTONE, MOVING, QUARANTINED, QUOTA = 0, 1, 2, 3, 5, 6
STATES = {LIVE: "live", MOVING: "moving", QUARANTINED: "quarantined"}
SEGMENTS = (LIVE, MOVING, QUARANTINED)


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = crc_table()
KNOWN_CRC = {}


def crc32c(data):
    table, crc = CRC, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def page_crc(page, at):
    """Of a page with the checksum field at `at` taken as zero. Many images share most of their pages."""
    key = (page, at)
    if key not in KNOWN_CRC:
        if len(KNOWN_CRC) > 20000:
            KNOWN_CRC.clear()
        KNOWN_CRC[key] = crc32c(page[:at] + bytes(4) + page[at + 4 :])
    return KNOWN_CRC[key]


def siphash(key, data):
    """SipHash-2-4."""
    mask = ANY
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turn(word, by):
        return (word << by | word >> 64 - by) & mask

    def rounds(count):
        for _ in range(count):
            v[0] = v[0] + v[1] & mask
            v[1] = turn(v[1], 13) ^ v[0]
            v[0] = turn(v[0], 32)
            v[2] = v[2] + v[3] & mask
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & mask
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & mask
            v[1] = turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)

    tail = len(data) % 8
    padded = data + bytes(7 - tail) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# The example of the SipHash paper.
assert siphash(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


def round_up(value, unit):
    return -(-value // unit) * unit


class Refused(Exception):
    """A volume that is not read, and why."""


class Bad(Exception):
    """A page or an inode that is not believed, and why."""


class Layout:
    def __init__(self, block_size, segments_max, data_blocks, data_blocks_max):
        if block_size not in (4096, 8192, 16384, 32768, 65536):
            raise Bad("block size %d" % block_size)
        if not 1 <= data_blocks <= data_blocks_max:
            raise Bad("%d data blocks of at most %d" % (data_blocks, data_blocks_max))
        if segments_max < 16:
            raise Bad("room for %d segments" % segments_max)
        self.block_size, self.data_blocks = block_size, data_blocks
        self.buckets = (segments_max + 1) // 2
        self.table_at = 131072
        self.mirror_at = self.table_at + self.buckets * 8192
        self.superblock_2_at = round_up(self.mirror_at + self.buckets * 8192, 65536)
        self.superblock_3_at = self.superblock_2_at + 65536
        self.bitmap_at = self.superblock_3_at + PAGE
        self.bitmap_pages = -(-data_blocks_max // 32256)
        bitmap_end = self.bitmap_at + self.bitmap_pages * PAGE
        aligned = round_up(bitmap_end, 1 << 20)
        if aligned + data_blocks_max * block_size >= 64 << 20:
            self.data_at = aligned
        else:
            self.data_at = round_up(bitmap_end, block_size)
        if self.data_at + data_blocks_max * block_size >= 1 << 63:
            raise Bad("it ends behind byte 2^63")
        self.end = self.data_at + data_blocks * block_size
        self.superblocks_at = [0, 65536, self.superblock_2_at, self.superblock_3_at]


class Newer(Bad):
    """A page of a format that is not known, and whose checksum is right."""

    def __init__(self, what, page):
        super().__init__(what)
        self.content = page[:12] + page[20:]


class TooNew(Bad):
    """An image that is wrong in nothing but its epoch."""


class Superblock:
    def __init__(self, page):
        """Raises Bad unless the page is a valid copy, of whatever number."""
        if page[:8] != b"BAIOVOL\0":
            raise Bad("no superblock")
        version, self.copy, checksum, self.parent = struct.unpack_from("<IIII", page, 8)
        if checksum != page_crc(page, 16):
            raise Bad("checksum")
        if version != 1:
            raise Newer("version %d" % version, page)
        self.compat, self.ro_compat, incompat = struct.unpack_from("<QQQ", page, 24)
        if incompat:
            raise Newer("incompatible features %#x" % incompat, page)
        self.uuid = page[48:64]
        self.sequence, self.epoch, self.healed, self.clean = struct.unpack_from("<QQQQ", page, 64)
        self.seed = page[96:112]
        (block_size,) = struct.unpack_from("<I", page, 112)
        segments_max, buckets, data_blocks, data_blocks_max = struct.unpack_from("<QQQQ", page, 120)
        self.layout = layout = Layout(block_size, segments_max, data_blocks, data_blocks_max)
        stored = struct.unpack_from("<QQQQQQ", page, 152)
        follows = (
            layout.table_at,
            layout.mirror_at,
            layout.superblock_2_at,
            layout.superblock_3_at,
            layout.bitmap_at,
            layout.data_at,
        )
        if stored != follows or buckets != layout.buckets:
            raise Bad("offsets that do not follow from its numbers")
        self.hint, *snapshot = struct.unpack_from("<QQQQQQ", page, 200)
        self.snapshot = dict(zip(("epoch", "pages", "accounts", "used", "segments"), snapshot))
        if self.healed > self.epoch or self.clean > self.epoch or self.hint > data_blocks:
            raise Bad("healed epoch, clean epoch or hint too large")
        # Equal copies differ in copy number and checksum only.
        self.content = page[:12] + page[20:]


class Image:
    def __init__(self, page, superblock, bucket, parity):
        """Raises Bad unless it is an image of this bucket in this place, not all zero."""
        magic, checksum = struct.unpack_from("<4sI", page)
        if magic != b"BKT0":
            raise Bad("no image")
        if checksum != page_crc(page, 4):
            raise Bad("checksum")
        if page[8:24] != superblock.uuid:
            raise Bad("of another volume")
        number, self.epoch, self.generation = struct.unpack_from("<QQQ", page, 24)
        if number != bucket:
            raise Bad("of bucket %d" % number)
        if not 1 <= self.generation <= GENERATION_MAX or self.generation % 2 != parity:
            raise Bad("generation %d in the wrong place" % self.generation)
        self.page = page

    def age(self):
        return self.epoch, self.generation


class Empty:
    """A page of zeroes in the even place: generation 0, four free inodes."""

    epoch = generation = 0
    page = ZERO

    def age(self):
        return 0, 0


NEVER = "never written"


class Inode:
    def __init__(self, raw, layout, at):
        """Raises Bad if it is to be refused; `at` is (bucket, slot)."""
        self.at = at
        (self.state,) = struct.unpack_from("<I", raw, 0)
        self.name = raw[5 : 5 + raw[4]]
        self.uid, self.gid, self.mode, self.generation = struct.unpack_from("<IIIQ", raw, 260)
        self.uuid = raw[280:296]
        self.start, self.blocks, self.reserve, self.zeroed = struct.unpack_from("<QQQQ", raw, 296)
        self.allocation = struct.unpack_from("<QQ", raw, 328)
        from_bucket, from_slot, _, from_generation = struct.unpack_from("<QIIQ", raw, 352)
        self.renamed_from = (from_bucket, from_slot, from_generation) if from_generation else None
        self.target, self.target_blocks, self.done = struct.unpack_from("<QQQ", raw, 376)
        self.grants = struct.unpack_from("<16I", raw, 416)
        self.limits = struct.unpack_from("<QQ", raw, 480)
        self.check(raw, layout)

    def check(self, raw, layout):
        if self.state == FREE:
            if any(raw):
                raise Bad("a free slot that is not all zero")
            return
        if self.state not in (LIVE, TOMBSTONE, MOVING, QUARANTINED, QUOTA):
            raise Bad("state %d" % self.state)
        is_segment = self.state in SEGMENTS
        if any(raw[5 + raw[4] : 260]):
            raise Bad("bytes behind its name")
        if self.state == QUOTA and self.name:
            raise Bad("a quota record with a name")
        if is_segment and not self.name:
            raise Bad("a segment without a name")
        if self.name:
            check_name(self.name)
        if not 1 <= self.generation <= GENERATION_MAX:
            raise Bad("generation %d" % self.generation)
        if self.mode > 0o7777:
            raise Bad("mode %o" % self.mode)
        if not is_segment and (self.blocks or self.reserve):
            raise Bad("blocks without a segment")
        if is_segment:
            if self.start + self.reserve > layout.data_blocks:
                raise Bad("a run that leaves the data area")
            if self.blocks > self.reserve or self.zeroed > self.reserve:
                raise Bad("size or zeroed-to above its reserve")
        if self.renamed_from and not (self.renamed_from[0] < layout.buckets and self.renamed_from[1] < 4):
            raise Bad("renamed from no slot of the volume")
        if self.state == MOVING and not self.target_blocks:
            raise Bad("moving without a target")
        if self.target_blocks:
            if self.state not in (MOVING, QUARANTINED):
                raise Bad("a target without a move")
            if self.target_blocks < self.blocks or self.done > self.blocks:
                raise Bad("a target too short, or more done than there is")
            if self.target + self.target_blocks > layout.data_blocks:
                raise Bad("a target that leaves the data area")
            if self.target < self.start + self.reserve and self.start < self.target + self.target_blocks:
                raise Bad("a target that overlaps its source")
        for word, number in zip(self.grants[::2], self.grants[1::2]):
            kind, rights = word >> 16, word & 0xFFFF
            if kind > 2 or (kind == 0 and (rights or number)) or rights & ~7:
                raise Bad("an unknown grant")

    def runs(self):
        if self.state not in SEGMENTS:
            return []
        runs = [(self.start, self.reserve)]
        if self.target_blocks:
            runs.append((self.target, self.target_blocks))
        return [run for run in runs if run[1]]

    def held(self):
        """What counts for the owner."""
        return self.target_blocks if self.state == MOVING else self.reserve

    def key(self):
        return (self.uid, b"" if self.state == QUOTA else self.name)

    def place(self):
        return "slot %d of bucket %d" % (self.at[1], self.at[0])


def check_name(name):
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("a name that is not UTF-8") from None
    if any(c in "#/" or unicodedata.category(c) == "Cc" for c in text):
        raise Bad("an impossible name")


def salvage(raw, layout):
    """The runs that the bytes of a refused inode name."""
    start, _, reserve = struct.unpack_from("<QQQ", raw, 296)
    target, blocks = struct.unpack_from("<QQ", raw, 376)
    runs = ((start, reserve), (target, blocks))
    return [(at, count) for at, count in runs if count and at + count <= layout.data_blocks]

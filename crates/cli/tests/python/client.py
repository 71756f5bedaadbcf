#!/usr/bin/env python3
"""A client of the broker, written from docs/inside/shm-protocol.md: Python's standard library and nothing else.

    baio format vol.img --size 16M --segments 100
    baio serve vol.img --socket vol.sock &
    python3 client.py vol.sock

`Session` is the client. `main` is a day's work with it: it prints what it sees, and ends with status 0 only if all of it is right.

On order between processors. Python has no atomic operations and no fences. This is right all the same, on x86-64 and on no other
machine (`Session` refuses those): there a processor's loads are acquires and its stores are releases, and an aligned word of 32
bits is written at once. `view[i] = value` on a memoryview of format 'I' is such a store; `struct.pack_into('<I', ...)` is none, as
it writes byte by byte. The fence is a lock that nobody else wants: to take it is a locked instruction, which is a full fence there.
Should some Python have locks of another kind, a wake-up may be missed. So no sleep is longer than `NAP`: after each the doorbell is
rung in any case, and both sides look again. The sleeping flags are stored, not swapped: who stores 0 over the broker's flag rings,
and the client's own flag is looked at with the ring.
"""

import collections
import fcntl
import mmap
import os
import platform
import random
import select
import socket
import struct
import sys
import threading
import time

MESSAGE_MAX = 65536
NAP = 0.1  # seconds
PATIENCE = 60.0  # seconds until an answer is called missing
READ, WRITE, SYNC, CANCEL, CLOSE = range(1, 6)
DIRECT, CACHED = 0, 1
NONE, DATA, FULL = range(3)
# The words of the page for a completion's code.
FAILURES = (
    "done", "the system refused", "not aligned", "the backend cannot do it", "not opened for this mode",
    "memory that a read cannot fill", "an earlier sync failed", "indeterminate", "cancelled", "too many requests",
    "beyond the end", "a write through a handle for reading", "the handle is not valid any more", "not built yet",
    "the broker is ending", "there is no page cache", "the page cache refused it", "its size is not for a request to change",
    "a log is open on it",
)

Ring = collections.namedtuple("Ring", "head tail sleeping cells entries")
Segment = collections.namedtuple("Segment", "name owner_uid owner_gid mode size_bytes reserve_bytes state")
Completion = collections.namedtuple("Completion", "index generation transferred code cache iterations small second large")


class Broken(Exception):
    """The broker did what no correct broker does, or has gone."""


class Failed(Exception):
    """A Failed of the broker: programs look at `code`."""

    def __init__(self, body):
        self.code, self.errno, self.operation, self.object = body.name(), body.u32(), body.name(), body.name()
        self.offset = body.option(body.u64)
        self.what, self.need, self.cure = body.name(), body.option(body.name), body.option(body.name)
        body.end()
        super().__init__(f"{self.operation} {self.object}: {self.what} ({self.code})")


class RequestFailed(Exception):
    """A completion with a code."""

    def __init__(self, completion):
        self.completion, self.code = completion, completion.code
        self.word = FAILURES[self.code] if self.code < len(FAILURES) else f"code {self.code}"
        if self.code in (1, 6):
            self.word += f": {os.strerror(completion.small)}"
        super().__init__(self.word)


class Body:
    """The fields of a message, taken one after the other."""

    def __init__(self, message):
        if len(message) < 8:
            raise Broken("a message without its first eight bytes")
        self.kind, zero, self.id = struct.unpack_from("<HHI", message)
        if zero:
            raise Broken("a reserved byte that is not zero")
        self.bytes, self.at = message, 8

    def take(self, form):
        end = self.at + struct.calcsize(form)
        if end > len(self.bytes):
            raise Broken("a message that ends within a field")
        fields = struct.unpack_from(form, self.bytes, self.at)
        self.at = end
        return fields

    def u16(self):
        return self.take("<H")[0]

    def u32(self):
        return self.take("<I")[0]

    def u64(self):
        return self.take("<Q")[0]

    def bool(self):
        (value,) = self.take("<B")
        if value > 1:
            raise Broken(f"a bool of {value}")
        return value == 1

    def option(self, of):
        return of() if self.bool() else None

    def name(self):
        (value,) = self.take(f"<{self.u16()}s")
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise Broken("a string that is not UTF-8") from error

    def ring(self):
        return Ring(*self.take("<QQQQI"))

    def segment(self):
        return Segment(self.name(), *self.take("<IIIQQ"), self.name())

    def segments(self):
        return [self.segment() for _ in range(self.u32())]

    def opened(self):
        return self.take("<II"), self.bool(), self.segment()

    def end(self):
        if self.at != len(self.bytes):
            raise Broken("bytes behind the last field")


def name(text):
    encoded = text.encode()
    return struct.pack("<H", len(encoded)) + encoded


class Session:
    """One connection: `close` or the end of a `with` ends it."""

    def __init__(self, path, volume="", places=0, arena_bytes=0):
        if platform.machine() not in ("x86_64", "AMD64"):
            raise NotImplementedError("needs x86-64: see the top of this file")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.connect(path)
            hello = struct.pack("<HHQIQ", 1, 1, 0, places, arena_bytes)
            self._send(0x0001, 0, b"baio" + hello + name(volume))
            self._welcomed()
        except BaseException:
            self.socket.close()
            raise
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.fence = threading.Lock()
        self.pushed = self.popped = 0  # our counters: the broker cannot reach these
        self.generation = 0
        self.free = list(range(self.places))
        self.busy = {}  # place: generation
        self.completions = {}  # tag: completion
        self.last_id = 0
        self.answers = collections.defaultdict(list)  # id of a question under way: what came for it
        self.doorbells_sent = self.doorbells_seen = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def _welcomed(self):
        message, fds, _, _ = socket.recv_fds(self.socket, MESSAGE_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        try:
            if not message:
                raise Broken("the broker has gone")
            body = Body(message)
            if body.kind == 0x02FF:
                raise Failed(body)
            if body.kind != 0x0002 or len(fds) != 1:
                raise Broken("no welcome")
            version, _, self.places, self.questions_max, self.uid, length = body.take("<HQIIIQ")
            self.submissions_at, self.completions_at = body.ring(), body.ring()
            self.arena_at, self.arena_bytes = body.take("<QQ")
            self.volume, self.cached, self.block_size = body.name(), body.bool(), body.u32()
            body.end()
            if version != 1:
                raise Broken(f"version {version}")
            for ring, size in (self.submissions_at, 64), (self.completions_at, 32):
                words = ring[:3]
                if any(at % 4 or at + 4 > length for at in words) or ring.cells % 8:
                    raise Broken("words that are not aligned, or outside")
                if ring.entries.bit_count() != 1 or ring.cells + ring.entries * size > length:
                    raise Broken("a ring that is outside, or of no power of two")
            if self.arena_at + self.arena_bytes > length:
                raise Broken("an arena that is outside")
            # Memory that can be cut kills who touches it.
            if os.fstat(fds[0]).st_size != length or not fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise Broken("memory that is shorter than said, or can be cut")
            self.memory = mmap.mmap(fds[0], length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            self.words = memoryview(self.memory)[: length // 4 * 4].cast("I")
            self.arena = memoryview(self.memory)[self.arena_at : self.arena_at + self.arena_bytes]
        finally:
            for fd in fds:
                os.close(fd)

    # The socket.

    def _send(self, kind, id, body):
        try:
            self.socket.send(struct.pack("<HHI", kind, 0, id) + body, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Broken("the broker has gone") from error

    def _ring_doorbell(self):
        try:
            self.socket.send(b"\1", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            self.doorbells_sent += 1
        except BlockingIOError:
            pass  # It has datagrams that it has not read, and looks at the rings with them.
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Broken("the broker has gone") from error

    def _receive(self):
        """Takes one datagram, if one comes within a nap."""
        if not self.poll.poll(NAP * 1000):
            self._ring_doorbell()  # One may have been missed: see the top.
            return
        message = self.socket.recv(MESSAGE_MAX)
        if not message:
            raise Broken("the broker has gone")
        if len(message) == 1:
            self.doorbells_seen += 1
            return
        body = Body(message)
        if body.id not in self.answers:
            raise Broken(f"an answer to {body.id}, which nobody asked")
        self.answers[body.id].append(body)

    def ask(self, kind, body, answered_by, read):
        """Asks a question, and gives what `read` takes from each message of the answer."""
        self.last_id += 1
        id, until = self.last_id, time.monotonic() + PATIENCE
        waiting = self.answers[id]
        self._send(kind, id, body)
        while True:
            while not waiting:
                if time.monotonic() > until:
                    raise Broken("no answer")
                self._receive()
            answer = waiting.pop(0)
            more = answer.kind == 0x0204 and answer.bool()
            if not more:
                del self.answers[id]
            if answer.kind == 0x02FF:
                raise Failed(answer)
            if answer.kind != answered_by:
                raise Broken(f"an answer of kind {answer.kind:#06x}")
            fields = read(answer)
            answer.end()
            yield fields
            if not more:
                return

    def create(self, segment, size_bytes, reserve_bytes, mode=0o600):
        no_operation = bytes(17)
        body = no_operation + struct.pack("<I", self.uid) + name(segment)
        body += struct.pack("<QQIBB", size_bytes, reserve_bytes, mode, 0, 0)
        (made,) = self.ask(0x0101, body, 0x0202, Body.segment)
        return made

    def delete(self, segment):
        no_operation = bytes(17)
        body = no_operation + struct.pack("<I", self.uid) + name(segment)
        (deleted,) = self.ask(0x0102, body, 0x0202, Body.segment)
        return deleted

    def open(self, segment, write=False):
        """Gives a handle and what was opened."""
        body = struct.pack("<I", self.uid) + name(segment) + struct.pack("<B", write)
        ((handle, _, opened),) = self.ask(0x0105, body, 0x0203, Body.opened)
        return handle, opened

    def list(self):
        return [segment for part in self.ask(0x0106, b"", 0x0204, Body.segments) for segment in part]

    # The rings.

    def _push(self, operation, tag, handle=(0, 0), mode=0, durability=0, offset=0, at=0, length=0):
        ring = self.submissions_at
        used = (self.pushed - self.words[ring.head // 4]) % 2**32
        if used > ring.entries:
            raise Broken("a counter that cannot be")
        if used == ring.entries:
            return False
        cell = ring.cells + self.pushed % ring.entries * 64
        head = (operation, mode, durability, int(length > 0), length, *tag, *handle)
        struct.pack_into("<BBBBIIIIIQQQQQ", self.memory, cell, *head, offset, at, 0, 0, 0)
        self.pushed = (self.pushed + 1) % 2**32
        return True

    def publish(self):
        """Shows the broker what was pushed, and wakes it if it sleeps."""
        self.words[self.submissions_at.tail // 4] = self.pushed
        with self.fence:
            pass
        sleeping = self.submissions_at.sleeping // 4
        if self.words[sleeping]:
            self.words[sleeping] = 0
            self._ring_doorbell()

    def begin(self, operation, handle, **fields):
        """Pushes a request, and gives its tag; the broker sees it with the next `publish`."""
        if not self.free:
            raise RuntimeError(f"{self.places} requests are under way")
        self.generation = (self.generation + 1) % 2**32
        tag = (self.free.pop(), self.generation)
        self.busy[tag[0]] = tag[1]
        self._push_patiently(operation, tag, handle=handle, **fields)
        return tag

    def _push_patiently(self, *words, **fields):
        until = time.monotonic() + PATIENCE
        while not self._push(*words, **fields):
            # Full of closes and cancels: the broker takes some first, and tells nobody when it has.
            if time.monotonic() > until:
                raise Broken("a ring that nobody empties")
            self.publish()
            time.sleep(0.001)

    def cancel(self, tag):
        self._push_patiently(CANCEL, tag)
        self.publish()

    def close_handle(self, handle):
        self._push_patiently(CLOSE, (0, 0), handle=handle)
        self.publish()

    def _pop_all(self):
        ring = self.completions_at
        new = (self.words[ring.tail // 4] - self.popped) % 2**32
        if new > ring.entries:
            raise Broken("a counter that cannot be")
        for _ in range(new):
            cell = ring.cells + self.popped % ring.entries * 32
            completion = Completion._make(struct.unpack("<IIIBBHIIQ", self.memory[cell : cell + 32]))
            self.popped = (self.popped + 1) % 2**32
            if self.busy.pop(completion.index, None) != completion.generation:
                raise Broken("a completion of no request")
            self.free.append(completion.index)
            self.completions[completion[:2]] = completion
        if new:
            self.words[ring.head // 4] = self.popped
        return new

    def wait(self, tag):
        """The completion of a request; raises if it failed."""
        sleeping, until = self.completions_at.sleeping // 4, time.monotonic() + PATIENCE
        while tag not in self.completions:
            if self._pop_all():
                continue
            if time.monotonic() > until:
                raise Broken("no completion")
            self.words[sleeping] = 1
            with self.fence:
                pass
            if self.words[self.completions_at.tail // 4] == self.popped:
                self._receive()
            self.words[sleeping] = 0
        completion = self.completions.pop(tag)
        if completion.code:
            raise RequestFailed(completion)
        return completion

    def run(self, operation, handle, **fields):
        tag = self.begin(operation, handle, **fields)
        self.publish()
        return self.wait(tag)


BLOCK, BLOCKS, SEGMENTS = 4096, 64, 100


def refused(session, *words, **fields):
    """The code of a request that must fail, and its completion."""
    try:
        session.run(*words, **fields)
    except RequestFailed as failure:
        return failure
    raise AssertionError("a request that had to fail was done")


def check(is_right, what):
    print("right" if is_right else "WRONG", what, flush=True)
    if not is_right:
        sys.exit(1)


def main(path):
    size = BLOCK * BLOCKS
    with Session(path, places=BLOCKS, arena_bytes=2 * size) as session:
        check(session.places == BLOCKS and session.arena_bytes >= 2 * size, f"welcome to {session.volume}")
        made = session.create("day", size, size)
        check((made.name, made.size_bytes, made.state) == ("day", size, "live"), f"created: {made}")
        try:
            session.create("day", size, size)
            check(False, "a second segment of one name")
        except Failed as failure:
            check(failure.code == "EEXIST" and failure.errno == 17, f"failed: {failure}")
        handle, opened = session.open("day", write=True)
        check(opened == made, f"opened: handle {handle}")

        data = random.Random(1).randbytes(size)
        session.arena[:size] = data
        blocks = [
            session.begin(WRITE, handle, mode=DIRECT, offset=at, at=at, length=BLOCK) for at in range(0, size, BLOCK)
        ]
        rings, slept, until = session.doorbells_sent, False, time.monotonic() + PATIENCE
        while not slept and time.monotonic() < until:  # It falls asleep when it finds nothing to do.
            slept = session.words[session.submissions_at.sleeping // 4] == 1
        session.publish()
        rings = session.doorbells_sent - rings
        check(slept and rings == 1, f"batch: {BLOCKS} writes to a broker that slept, doorbells: {rings}")
        done = [session.wait(tag).small for tag in blocks]
        check(done == [BLOCK] * BLOCKS, f"written: {sum(done)} bytes")
        # Asleep before it asks: the broker has to see the flag, and to take it.
        asleep, seen, until = session.completions_at.sleeping // 4, session.doorbells_seen, time.monotonic() + PATIENCE
        session.words[asleep] = 1
        tag = session.begin(SYNC, handle, durability=FULL)
        session.publish()
        while (session.words[asleep] or session.doorbells_seen == seen) and time.monotonic() < until:
            session._receive()
        check(not session.words[asleep] and session.doorbells_seen > seen, "woken by a doorbell")
        check(session.wait(tag).small == 0, "synced")
        read = session.run(READ, handle, mode=DIRECT, offset=0, at=size, length=size).small
        check(read == size and session.arena[size : 2 * size] == data, f"read back: {read} bytes, the same")

        read = session.run(READ, handle, mode=DIRECT, offset=size, at=0, length=BLOCK).small
        check(read == 0, "read at the end: nothing")
        read = session.run(READ, handle, mode=DIRECT, offset=size - BLOCK, at=0, length=2 * BLOCK).small
        check(read == BLOCK, f"read across the end: {read} bytes")
        failure = refused(session, WRITE, handle, mode=DIRECT, offset=size, at=0, length=BLOCK)
        check(failure.code == 10 and failure.completion.large == size, f"failed: write {failure}, which is {size}")
        failure = refused(session, READ, handle, mode=DIRECT, offset=1, at=0, length=BLOCK)
        check(failure.code == 2 and failure.completion.large == 1, f"failed: {failure} to {failure.completion.small}")

        tag = session.begin(READ, handle, mode=DIRECT, offset=0, at=0, length=BLOCK)
        session.cancel(tag)  # Pushed behind its request, and published with it.
        try:
            ended = FAILURES[session.wait(tag).code]
        except RequestFailed as failure:
            ended = failure.word
        check(ended in ("done", "cancelled"), "cancel: its request was completed, once")
        session.cancel(tag)
        check(session.run(SYNC, handle).code == 0, "cancel of a request that has ended: nothing happens")

        # Pushed behind requests, and published with them.
        tags = [session.begin(READ, handle, mode=DIRECT, at=at, length=BLOCK) for at in range(0, size, BLOCK)]
        session.close_handle(handle)
        done = [session.wait(tag).small for tag in tags]
        check(done == [BLOCK] * BLOCKS, f"close: {BLOCKS} requests before it were done")
        failure = refused(session, READ, handle, mode=DIRECT, offset=0, at=0, length=BLOCK)
        check(failure.code == 12, f"failed: {failure}")

        for number in range(1, SEGMENTS):
            session.create(f"day-{number}", BLOCK, BLOCK)
        names = {segment.name for segment in session.list()}
        check(len(names) == SEGMENTS and {"day", "day-99"} <= names, f"listed: {len(names)} segments")
        for segment in names:
            session.delete(segment)
        check(session.list() == [], "deleted: none is left")
        try:
            session.open("day")
            check(False, "an open of what is deleted")
        except Failed as failure:
            check(failure.code == "ENOENT", f"failed: {failure}")
        check(len(session.free) == BLOCKS, "every place is free again")
        print(f"doorbells: {session.doorbells_sent} sent, {session.doorbells_seen} seen")


if __name__ == "__main__":
    main(sys.argv[1])

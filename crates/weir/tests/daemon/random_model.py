"""Drives a volume through libnbd with random operations and compares everything with a model in memory.

Usage: random_model.py URI SEED OPERATIONS structured|simple
Exit status 0 if server and model agree; otherwise the seed and the last operations are printed.
"""

import collections
import errno
import random
import sys

import nbd

GIB = 1 << 30
CONNECTIONS = 4
# Windows of the volume that are worked on; the model is as sparse as they are. The second and third straddle
# boundaries of extents, the last one ends with the volume.
WINDOW = 4 << 20
STARTS = [0, GIB - WINDOW // 2, 2 * GIB - WINDOW // 2, 2 * GIB + 12345 * 4096, 3 * GIB - WINDOW]


class Model:
    """What every byte of the windows must be."""

    def __init__(self):
        self.windows = [bytearray(WINDOW) for _ in STARTS]

    def slice(self, window, start, length):
        return self.windows[window][start : start + length]

    def store(self, window, start, data):
        self.windows[window][start : start + len(data)] = data


class Driver:
    def __init__(self, uri, seed, structured):
        self.random = random.Random(seed)
        self.model = Model()
        self.log = collections.deque(maxlen=12)
        self.structured = structured
        self.counts = collections.Counter()
        self.connections = [self.connect(uri) for _ in range(CONNECTIONS)]
        self.check_flags()

    def connect(self, uri):
        handle = nbd.NBD()
        handle.set_request_structured_replies(self.structured)
        if self.structured:
            handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        # The server is to be asked even for what libnbd could refuse by itself.
        handle.connect_uri(uri)
        return handle

    def check_flags(self):
        handle = self.connections[0]
        assert handle.get_size() == 3 * GIB, handle.get_size()
        assert handle.can_multi_conn() and handle.can_flush() and handle.can_fua()
        assert handle.can_trim() and handle.can_zero() and handle.can_fast_zero() and handle.can_cache()
        assert handle.get_structured_replies_negotiated() == self.structured
        assert handle.can_df() == self.structured
        assert handle.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION) == self.structured

    def length(self):
        """Lengths of all magnitudes, aligned as often as not."""
        shape = self.random.random()
        if shape < 0.3:
            return 4096 * self.random.randint(1, 64)
        if shape < 0.7:
            return self.random.randint(1, 1 << self.random.randint(0, 17))
        if shape < 0.95:
            return self.random.randint(1, 1 << 20)
        return self.random.randint(1 << 20, 3 << 20)

    def place(self):
        """A window, and a range in it."""
        window = self.random.randrange(len(STARTS))
        length = self.length()
        start = self.random.randint(0, WINDOW - length)
        if self.random.random() < 0.4:
            start = start // 4096 * 4096
        if self.random.random() < 0.1:
            start = WINDOW - length
        if self.random.random() < 0.15 and window in (1, 2) and length < WINDOW // 2:
            # Right across the boundary.
            start = WINDOW // 2 - self.random.randint(0, length)
        return window, start, length

    def note(self, *words):
        self.log.append(" ".join(str(word) for word in words))
        self.counts[words[0]] += 1

    # Operations: each takes what it works on, and answers nothing or fails.

    def write(self, handle, window, start, length):
        data = self.data(length)
        flags = nbd.CMD_FLAG_FUA if self.random.random() < 0.1 else 0
        self.note("write", STARTS[window] + start, length, flags)
        handle.pwrite(data, STARTS[window] + start, flags)
        self.model.store(window, start, data)

    def data(self, length):
        if self.random.random() < 0.1:
            return bytes(length)
        return self.random.randbytes(length)

    def read(self, handle, window, start, length):
        self.note("read", STARTS[window] + start, length)
        self.compare(window, start, bytes(handle.pread(length, STARTS[window] + start)))

    def compare(self, window, start, found):
        expected = self.model.slice(window, start, len(found))
        if found != expected:
            first = next(i for i in range(len(found)) if found[i] != expected[i])
            wrong = sum(1 for a, b in zip(found, expected) if a != b)
            at = STARTS[window] + start + first
            raise AssertionError(
                f"{wrong} of {len(found)} bytes differ, the first at {at} (block {at // 4096}, byte"
                f" {at % 4096}): found {found[first]:#x}, expected {expected[first]:#x}"
            )

    def read_structured(self, handle, window, start, length):
        """Reads through the interface that shows each chunk: they must cover the range exactly once."""
        chunks = []
        flags = nbd.CMD_FLAG_DF if self.structured and self.random.random() < 0.5 else 0
        self.note("read_structured", STARTS[window] + start, length, flags)

        def chunk(data, offset, status, error):
            assert error.value == 0
            kind = "hole" if status == nbd.READ_HOLE else "data"
            chunks.append((offset - STARTS[window] - start, len(data), kind))
            return 0

        found = handle.pread_structured(length, STARTS[window] + start, chunk, flags)
        self.compare(window, start, bytes(found))
        end = 0
        for position, size, _ in sorted(chunks):
            assert position == end and size > 0, f"the chunks overlap or leave a gap: {chunks}"
            end += size
        assert end == length, f"the chunks cover {end} of {length} bytes: {chunks}"
        assert not flags or len(chunks) == 1, f"a read that must not be cut came in pieces: {chunks}"

    def trim(self, handle, window, start, length):
        """Weir gives whole blocks back and zeroes the partial ones at the ends: all read as zeros."""
        self.note("trim", STARTS[window] + start, length)
        handle.trim(length, STARTS[window] + start)
        self.model.store(window, start, bytes(length))

    def zero(self, handle, window, start, length):
        flags = 0
        if self.random.random() < 0.4:
            flags |= nbd.CMD_FLAG_NO_HOLE
        if self.random.random() < 0.3:
            flags |= nbd.CMD_FLAG_FAST_ZERO
        if self.random.random() < 0.1:
            flags |= nbd.CMD_FLAG_FUA
        self.note("zero", STARTS[window] + start, length, flags)
        try:
            handle.zero(length, STARTS[window] + start, flags)
        except nbd.Error as error:
            # Only a request for fast zeroing may be declined, and then nothing may have changed.
            assert flags & nbd.CMD_FLAG_FAST_ZERO and error.errnum == errno.EOPNOTSUPP, error
            self.counts["zero declined"] += 1
            return
        self.model.store(window, start, bytes(length))

    def flush(self, handle, *_):
        self.note("flush")
        handle.flush()

    def cache(self, handle, window, start, length):
        self.note("cache", STARTS[window] + start, length)
        handle.cache(length, STARTS[window] + start)

    def block_status(self, handle, window, start, length):
        if not self.structured:
            return self.read(handle, window, start, length)
        found = []
        flags = nbd.CMD_FLAG_REQ_ONE if self.random.random() < 0.3 else 0
        self.note("block_status", STARTS[window] + start, length, flags)

        def extents(context, offset, entries, error):
            assert context == nbd.CONTEXT_BASE_ALLOCATION and error.value == 0
            assert offset == STARTS[window] + start
            found.extend(zip(entries[::2], entries[1::2]))
            return 0

        handle.block_status(length, STARTS[window] + start, extents, flags)
        self.check_status(window, start, length, found, flags)

    def check_status(self, window, start, length, found, flags):
        assert found, "no extent was described"
        assert all(size > 0 for size, _ in found), found
        if flags:
            assert len(found) == 1 and found[0][0] <= length, (found, length)
        # Only the last one may reach beyond what was asked for.
        assert sum(size for size, _ in found[:-1]) < length, (found, length)
        position = start
        for size, state in found:
            if state & nbd.STATE_ZERO:
                shown = self.model.slice(window, position, min(size, WINDOW - position))
                assert not any(shown), f"{size} bytes at {STARTS[window] + position} are said to be zero"
            position += size

    def out_of_range(self, handle, *_):
        """Beyond the end: refused, and the connection goes on."""
        handle.set_strict_mode(0)
        length = self.random.randint(1, 65536)
        offset = 3 * GIB - length + self.random.randint(1, 65536)
        self.note("out_of_range", offset, length)
        attempts = [
            lambda: handle.pread(length, offset),
            lambda: handle.pwrite(bytes(length), offset),
            lambda: handle.trim(length, offset),
            lambda: handle.zero(length, offset),
        ]
        try:
            self.random.choice(attempts)()
        except nbd.Error as error:
            assert error.errnum in (errno.EINVAL, errno.ENOSPC), error
        else:
            raise AssertionError(f"{length} bytes at {offset} were not refused")
        finally:
            handle.set_strict_mode(nbd.STRICT_MASK)

    def batch(self):
        """Several connections with operations in flight that do not overlap, then everything is read."""
        window = self.random.randrange(len(STARTS))
        flying, position = [], self.random.randint(0, 5000)
        while len(flying) < 24:
            length = min(self.length(), 300000)
            if position + length > WINDOW:
                break
            flying.append(self.launch(window, position, length))
            # Neighbours often share a block, and must not harm each other in it.
            position += length + (0 if self.random.random() < 0.7 else self.random.randint(1, 9000))
        self.note("batch", STARTS[window], len(flying))
        for handle, cookie, finish in flying:
            while not handle.aio_command_completed(cookie):
                assert handle.poll(30000) == 1, "an operation was not answered"
            finish()
        self.compare(window, 0, bytes(self.connections[0].pread(WINDOW, STARTS[window])))

    def launch(self, window, start, length):
        handle = self.random.choice(self.connections)
        offset, shape = STARTS[window] + start, self.random.random()
        if shape < 0.5:
            data = self.data(length)
            flags = nbd.CMD_FLAG_FUA if self.random.random() < 0.1 else 0
            cookie = handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), offset, flags=flags)
            return handle, cookie, lambda: self.model.store(window, start, data)
        if shape < 0.7:
            flags = nbd.CMD_FLAG_NO_HOLE if self.random.random() < 0.5 else 0
            cookie = handle.aio_zero(length, offset, flags=flags)
            return handle, cookie, lambda: self.model.store(window, start, bytes(length))
        if shape < 0.75:
            return handle, handle.aio_flush(), lambda: None
        buffer = nbd.Buffer(length)
        if self.structured and shape < 0.85:
            chunk = lambda data, offset, status, error: 0
            cookie = handle.aio_pread_structured(buffer, offset, chunk, flags=nbd.CMD_FLAG_DF)
        else:
            cookie = handle.aio_pread(buffer, offset)
        return handle, cookie, lambda: self.compare(window, start, bytes(buffer.to_bytearray()))

    def step(self):
        if self.random.random() < 0.04:
            return self.batch()
        operations = [self.write, self.read, self.read_structured, self.trim, self.zero, self.flush]
        operations += [self.cache, self.block_status, self.out_of_range]
        weights = [28, 20, 12, 8, 12, 4, 2, 10, 2]
        operation = self.random.choices(operations, weights)[0]
        operation(self.random.choice(self.connections), *self.place())

    def check_everything(self):
        for window, start in enumerate(STARTS):
            handle = self.random.choice(self.connections)
            self.compare(window, 0, bytes(handle.pread(WINDOW, start)))

    def run(self, operations):
        for number in range(operations):
            try:
                self.step()
            except BaseException:
                print(f"operation {number}; the last ones were:", *self.log, sep="\n  ", file=sys.stderr)
                raise
        self.check_everything()
        for handle in self.connections:
            handle.shutdown()


def main():
    uri, seed, operations, replies = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    print(f"WEIR_SEED={seed} {replies} replies", flush=True)
    print(f"WEIR_SEED={seed} {replies} replies", file=sys.stderr, flush=True)
    driver = Driver(uri, seed, replies == "structured")
    driver.run(operations)
    print(", ".join(f"{count} {name}" for name, count in sorted(driver.counts.items())))


main()

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One file of the index: a mapped hash table and the facts in its sidecar. */
final class Segment {
    private static final int HEADER_BYTES = 64;
    private static final int SLOT_BYTES = 24;
    private static final int TAKEN_AT = 16;
    private static final int NONE = -1;

    final Path path;
    final long seed;
    final long byteSum;
    final int buckets;
    final FileChannel channel;
    final MappedByteBuffer map;
    /** The number of the key to look up, for each bucket. */
    final int[] numbers;

    Segment(Path path) throws IOException {
        this.path = path;
        String sidecar = Files.readString(Path.of(path + ".json"));
        seed = Long.parseUnsignedLong(field(sidecar, "seed"));
        byteSum = Long.parseLong(field(sidecar, "byte_sum"));
        long sizeBytes = Long.parseLong(field(sidecar, "size_bytes"));
        channel = FileChannel.open(path, StandardOpenOption.READ);
        if (!field(sidecar, "fill").equals("index") || channel.size() != sizeBytes) {
            throw new IOException(path + " is not a complete index: make it with `pcgen --fill index`");
        }
        buckets = Math.toIntExact(sizeBytes / Key.BUCKET_BYTES);
        map = channel.map(FileChannel.MapMode.READ_ONLY, 0, sizeBytes);
        map.order(ByteOrder.LITTLE_ENDIAN);
        numbers = new int[buckets];
        Arrays.fill(numbers, NONE);
        long entries = Key.entries(buckets);
        choose(0, entries, false);
        choose(entries, 4 * entries, true);
    }

    private static String field(String sidecar, String name) throws IOException {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*\"?([a-z0-9]+)\"?").matcher(sidecar);
        if (!found.find()) {
            throw new IOException("a sidecar has no " + name);
        }
        return found.group(1);
    }

    /** Chooses a key for each bucket without reading the file. */
    private void choose(long first, long end, boolean isAbsent) throws IOException {
        int missing = 0;
        for (int bucket = 0; bucket < buckets; bucket++) {
            missing += Key.asksForAbsent(seed, bucket) == isAbsent ? 1 : 0;
        }
        for (long number = first; number < end && missing > 0; number++) {
            int bucket = Key.of(seed, number).bucket(buckets);
            if (numbers[bucket] == NONE && Key.asksForAbsent(seed, bucket) == isAbsent) {
                numbers[bucket] = Math.toIntExact(number);
                missing--;
            }
        }
        if (missing > 0) {
            throw new IOException("a bucket of " + path + " has no key");
        }
    }

    /** Returns the offset of the key's slot, or -1 if the key is absent. */
    int find(Key key) {
        int home = key.bucket(buckets);
        int first = key.slot();
        for (int step = 0; step < buckets; step++) {
            int bucketAt = (home + step) % buckets * Key.BUCKET_BYTES;
            for (int turn = 0; turn < Key.SLOTS; turn++) {
                int slot = (first + turn) % Key.SLOTS;
                if ((map.get(bucketAt + TAKEN_AT + slot / 8) & 1 << slot % 8) == 0) {
                    return -1;
                }
                int at = bucketAt + HEADER_BYTES + slot * SLOT_BYTES;
                if (map.getLong(at) == key.high() && map.getLong(at + 8) == key.low()) {
                    return at;
                }
            }
        }
        return -1;
    }

    long valueAt(int slotAt) {
        return map.getLong(slotAt + 16);
    }

    /** Reads the file from front to back through its channel; returns the sum of its bytes. */
    long read(ByteBuffer buffer, Deadline deadline, Result result) throws IOException {
        long sum = 0;
        long at = 0;
        while (at < channel.size() && !deadline.hasPassed()) {
            buffer.clear();
            int got = channel.read(buffer, at);
            if (got <= 0) {
                throw new IOException(path + " ended early");
            }
            sum += Sum.of(buffer.flip());
            at += got;
        }
        result.loadedBytes += at;
        result.loadStopped |= at < channel.size();
        return sum;
    }
}

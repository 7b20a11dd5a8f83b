import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Sums of bytes, eight at a time within one word, so that adding is faster than reading. */
final class Sum {
    private static final long BYTES = 0x00ff00ff00ff00ffL;
    private static final long PAIRS = 0x0000ffff0000ffffL;

    private Sum() {}

    static long of(ByteBuffer bytes) {
        ByteBuffer words = bytes.order(ByteOrder.LITTLE_ENDIAN);
        long sum = 0;
        int at = words.position();
        for (; at + 8 <= words.limit(); at += 8) {
            long word = words.getLong(at);
            long pairs = (word & BYTES) + (word >>> 8 & BYTES);
            long quads = (pairs & PAIRS) + (pairs >>> 16 & PAIRS);
            sum += (quads & 0xffff_ffffL) + (quads >>> 32);
        }
        for (; at < words.limit(); at++) {
            sum += words.get(at) & 0xff;
        }
        return sum;
    }
}

/**
 * A key of an index file: sixteen bytes that look like a UUID of version 4. The same function of seed and number as in
 * workloads/contract/src/index.rs, whose tests hold the figures that the test of this program compares with.
 */
record Key(long high, long low) {
    static final int BUCKET_BYTES = 4096;
    static final int SLOTS = 168;

    private static final long GOLDEN_GAMMA = 0x9e3779b97f4a7c15L;

    /** The key of that number in the file of that seed. */
    static Key of(long seed, long number) {
        long drawn = mix(mix(seed) + number * GOLDEN_GAMMA);
        return new Key(drawn & ~0xf000L | 0x4000L, mix(drawn ^ GOLDEN_GAMMA) & ~(0b11L << 62) | (0b10L << 62));
    }

    /** What is stored under it. */
    long value() {
        return mix(high ^ Long.rotateLeft(low, 32));
    }

    /** The bucket at which the search for it begins. */
    int bucket(int buckets) {
        return (int) highHalf(hash(), buckets);
    }

    /** The slot at which the search for it begins. */
    int slot() {
        return (int) ((hash() & 0xffff_ffffL) * SLOTS >>> 32);
    }

    private long hash() {
        return mix(high ^ mix(low));
    }

    /** Scrambles a word: the finaliser of SplitMix64. */
    static long mix(long word) {
        word = (word ^ (word >>> 30)) * 0xbf58476d1ce4e5b9L;
        word = (word ^ (word >>> 27)) * 0x94d049bb133111ebL;
        return word ^ (word >>> 31);
    }

    /** The high half of an unsigned product; the bound is not negative. (Java 17 knows the signed one only.) */
    static long highHalf(long word, long bound) {
        return Math.multiplyHigh(word, bound) + ((word >> 63) & bound);
    }

    /** How many keys a file of so many buckets holds. */
    static long entries(long buckets) {
        return buckets * SLOTS * 7 / 10;
    }

    /** One bucket in four is asked about a key that is not there. */
    static boolean asksForAbsent(long seed, int bucket) {
        return Long.remainderUnsigned(mix(seed ^ ((bucket + 1L) * GOLDEN_GAMMA)), 4) == 0;
    }
}

/**
 * A key of an index file: sixteen bytes in the format of a version 4 UUID. It is the same function
 * of seed and number as in workloads/contract/src/index.rs, whose tests have the expected values.
 */
record Key(long high, long low) {
    static final int BUCKET_BYTES = 4096;
    static final int SLOTS = 168;

    private static final long GOLDEN_GAMMA = 0x9e3779b97f4a7c15L;

    /** Returns the key with this number in the file with this seed. */
    static Key of(long seed, long number) {
        long drawn = mix(mix(seed) + number * GOLDEN_GAMMA);
        return new Key(drawn & ~0xf000L | 0x4000L, mix(drawn ^ GOLDEN_GAMMA) & ~(0b11L << 62) | (0b10L << 62));
    }

    /** Returns the value stored under the key. */
    long value() {
        return mix(high ^ Long.rotateLeft(low, 32));
    }

    /** Returns the bucket at which a search for the key begins. */
    int bucket(int buckets) {
        return (int) highHalf(hash(), buckets);
    }

    /** Returns the slot at which a search for the key begins. */
    int slot() {
        return (int) ((hash() & 0xffff_ffffL) * SLOTS >>> 32);
    }

    private long hash() {
        return mix(high ^ mix(low));
    }

    /** Hashes a word with the finaliser of SplitMix64. */
    static long mix(long word) {
        word = (word ^ (word >>> 30)) * 0xbf58476d1ce4e5b9L;
        word = (word ^ (word >>> 27)) * 0x94d049bb133111ebL;
        return word ^ (word >>> 31);
    }

    /** Returns the high half of an unsigned product, which Java 17 lacks; bound is not negative. */
    static long highHalf(long word, long bound) {
        return Math.multiplyHigh(word, bound) + ((word >> 63) & bound);
    }

    /** Returns the number of keys in a file with this many buckets. */
    static long entries(long buckets) {
        return buckets * SLOTS * 7 / 10;
    }

    /** Returns whether the lookup for a bucket uses an absent key, as one in four does. */
    static boolean asksForAbsent(long seed, int bucket) {
        return Long.remainderUnsigned(mix(seed ^ ((bucket + 1L) * GOLDEN_GAMMA)), 4) == 0;
    }
}

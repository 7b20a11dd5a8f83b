import java.util.SplittableRandom;

/**
 * Generated documents: words of a vocabulary, the frequent ones first, and noise that cannot be
 * compressed. Each document is a function of the seed and its number.
 */
final class Text {
    static final int WORDS = 20;
    static final int VOCABULARY = 20_000;
    static final int NOISE_BYTES = 16_384;

    private final long seed;

    Text(long seed) {
        this.seed = seed;
    }

    /** Returns the ranks of a document's words in order. Rank r is about r times rarer than rank 1. */
    int[] ranks(int document) {
        SplittableRandom drawn = random(document, 1);
        int[] ranks = new int[WORDS];
        for (int at = 0; at < WORDS; at++) {
            ranks[at] = (int) Math.pow(VOCABULARY, drawn.nextDouble());
        }
        return ranks;
    }

    /** Returns the bytes that are stored with a document. */
    byte[] noise(int document) {
        SplittableRandom drawn = random(document, 2);
        byte[] noise = new byte[NOISE_BYTES];
        for (int at = 0; at < NOISE_BYTES; at += Long.BYTES) {
            long bits = drawn.nextLong();
            for (int of = 0; of < Long.BYTES; of++) {
                noise[at + of] = (byte) (bits >>> 8 * of);
            }
        }
        return noise;
    }

    SplittableRandom random(long number, int purpose) {
        return new SplittableRandom(seed * 0x9e3779b97f4a7c15L ^ number * 31 + purpose);
    }

    static String word(int rank) {
        return "w" + Integer.toString(rank, Character.MAX_RADIX);
    }
}

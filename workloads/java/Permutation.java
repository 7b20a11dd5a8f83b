/** A random permutation of 0..count in constant memory: a Feistel network with cycle walking. */
final class Permutation {
    private final long count;
    private final long rows;
    private final long columns;
    private final long[] keys = new long[4];

    Permutation(long count, long seed) {
        this.count = count;
        rows = (long) Math.sqrt((double) count) + 1;
        columns = Math.max(1, (count + rows - 1) / rows);
        for (int round = 0; round < keys.length; round++) {
            keys[round] = Key.mix(Key.mix(seed) ^ (round + 1));
        }
    }

    long at(long index) {
        long place = shuffled(index);
        while (place >= count) {
            place = shuffled(place);
        }
        return place;
    }

    private long shuffled(long place) {
        long row = place / columns;
        long column = place % columns;
        for (int round = 0; round < keys.length; round += 2) {
            row = (row + Key.highHalf(Key.mix(column ^ keys[round]), rows)) % rows;
            column = (column + Key.highHalf(Key.mix(row ^ keys[round + 1]), columns)) % columns;
        }
        return row * columns + column;
    }
}

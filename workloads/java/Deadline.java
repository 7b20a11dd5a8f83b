/** The time at which work stops, if any. */
final class Deadline {
    private final boolean isSet;
    private final long atNanos;

    Deadline(Double seconds) {
        isSet = seconds != null;
        atNanos = System.nanoTime() + (isSet ? (long) (seconds * 1e9) : 0);
    }

    boolean hasPassed() {
        return isSet && System.nanoTime() - atNanos >= 0;
    }
}

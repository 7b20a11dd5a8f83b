import java.util.Arrays;
import java.util.Locale;

/** The results of one run, and its output lines, as those of pcindex (workloads/README.md). */
final class Result {
    final Arguments arguments;
    final long sizeBytes;
    final long lookups;

    long loadedBytes;
    boolean loadStopped;
    long wrongFiles;
    long loadAsked;
    long asked;
    long found;
    long wrong;
    long checksum;
    long loadNanos;
    long lookupNanos;
    long nanos;
    long majorFaults;
    long minorFaults;
    double openSeconds;
    long[] latencyNanos = new long[0];

    Result(Arguments arguments, long sizeBytes, long lookups) {
        this.arguments = arguments;
        this.sizeBytes = sizeBytes;
        this.lookups = lookups;
    }

    boolean isReady() {
        return !loadStopped && asked == lookups;
    }

    boolean isRight() {
        return wrong == 0 && (!arguments.expectsSidecars || wrongFiles == 0);
    }

    /** Returns the elapsed share of the estimated total time; null if it cannot be estimated. */
    Double coveredFraction() {
        if (isReady()) {
            return 1.0;
        }
        if (loadStopped) {
            return loadedBytes > 0 ? (double) loadedBytes / sizeBytes : null;
        }
        double answered = (double) asked / lookups;
        return asked > 0 ? (loadNanos + lookupNanos) / (loadNanos + lookupNanos / answered) : null;
    }

    String sample() {
        return object(
                "type", "\"sample\"", "iteration", 0, "seconds", nanos / 1e9, "bytes", bytes(),
                "blocks", loadAsked + asked, "covered_fraction", coveredFraction(), "checksum", text(checksum),
                "major_faults", majorFaults, "minor_faults", minorFaults);
    }

    String end() {
        String thread = object(
                "seconds", nanos / 1e9, "blocks", loadAsked + asked,
                "major_faults", majorFaults, "minor_faults", minorFaults);
        String answers = object(
                "found", found, "absent", loadAsked + asked - found, "wrong", wrong,
                "wrong_files", arguments.expectsSidecars ? wrongFiles : null);
        return object(
                "type", "\"end\"", "seconds", nanos / 1e9, "bytes", bytes(), "blocks", loadAsked + asked,
                "distinct_bytes", Math.max(loadedBytes, asked * Key.BUCKET_BYTES),
                "covered_fraction", coveredFraction(), "checksum", text(checksum), "checksum_ok", isRight(),
                "threads", "[" + thread + "]", "setup", object("open_seconds", openSeconds),
                "response", response(),
                "index", object("files", arguments.files.size(), "buckets", sizeBytes / Key.BUCKET_BYTES),
                "answers", answers, "lookup_latency_us", latency(),
                "java", text(System.getProperty("java.vm.version")));
    }

    private String response() {
        boolean loads = !arguments.load.equals("none");
        return object(
                "load_seconds", loads && !loadStopped ? loadNanos / 1e9 : null,
                "lookup_seconds", lookups > 0 && isReady() ? lookupNanos / 1e9 : null,
                "ready_seconds", isReady() ? nanos / 1e9 : null,
                "lookups_per_second", asked > 0 ? asked / (lookupNanos / 1e9) : null,
                "lookup_p99_us", percentileUs(99));
    }

    private String latency() {
        return object(
                "count", latencyNanos.length, "p50", percentileUs(50), "p90", percentileUs(90),
                "p99", percentileUs(99), "max", percentileUs(100));
    }

    private Double percentileUs(int percent) {
        if (latencyNanos.length == 0) {
            return null;
        }
        long[] sorted = latencyNanos.clone();
        Arrays.sort(sorted);
        return sorted[(int) (((long) sorted.length * percent + 99) / 100) - 1] / 1e3;
    }

    private long bytes() {
        return loadedBytes + asked * Key.BUCKET_BYTES;
    }

    /** Returns a JSON object of alternating names and values (JSON text, numbers or null). */
    private static String object(Object... parts) {
        StringBuilder text = new StringBuilder("{");
        for (int at = 0; at < parts.length; at += 2) {
            text.append(at == 0 ? "\"" : ",\"").append(parts[at]).append("\":").append(shown(parts[at + 1]));
        }
        return text.append('}').toString();
    }

    private static String shown(Object value) {
        return value instanceof Double number ? String.format(Locale.ROOT, "%.9f", number) : String.valueOf(value);
    }

    private static String text(Object value) {
        String shown = value instanceof Long sum ? Long.toUnsignedString(sum) : String.valueOf(value);
        return "\"" + shown.replaceAll("[^0-9A-Za-z.+_-]", "_") + "\"";
    }
}

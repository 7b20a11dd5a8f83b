import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The port of pcindex to Java, with the same files, answers and output lines. */
final class PcIndex {
    private static final int CLOCK_EVERY = 8;

    private final Arguments arguments;
    private final List<Segment> segments = new ArrayList<>();
    private final long[] firstBuckets;
    private final Result result;
    private final ByteBuffer buffer;

    public static void main(String[] words) {
        int status = 1;
        try {
            status = run(Arrays.asList(words));
        } catch (Arguments.BadArguments bad) {
            System.err.println("pcindex-java: " + bad.getMessage());
            status = 2;
        } catch (IOException | InternalError failed) { // Java turns SIGBUS into InternalError
            System.err.println("pcindex-java: " + failed);
        } catch (OutOfMemoryError scarce) {
            System.err.println("pcindex-java: not enough memory: " + scarce.getMessage());
            status = 77;
        }
        System.exit(status);
    }

    private static int run(List<String> words) throws IOException {
        if (words.contains("--help")) {
            System.out.println(Arguments.HELP);
            return 0;
        }
        PcIndex index = new PcIndex(new Arguments(words));
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in));
        if (index.arguments.handshake && !waitForGo(stdin)) {
            return 0;
        }
        Result result = index.start();
        System.out.println(result.sample());
        System.out.println(result.end());
        System.out.flush();
        while (index.arguments.handshake && stdin.read() >= 0) {} // until stdin closes
        if (!result.isRight()) {
            throw new IOException(result.wrong + " answers and " + result.wrongFiles + " files were wrong");
        }
        return 0;
    }

    private static boolean waitForGo(BufferedReader stdin) throws IOException {
        System.out.println("{\"type\":\"ready\",\"protocol\":1,\"pid\":" + ProcessHandle.current().pid() + "}");
        System.out.flush();
        String word = stdin.readLine();
        if (word != null && !word.equals("go")) {
            throw new IOException("expected the line \"go\" on stdin, found \"" + word + "\"");
        }
        return word != null;
    }

    private PcIndex(Arguments arguments) throws IOException {
        this.arguments = arguments;
        long started = System.nanoTime();
        firstBuckets = new long[arguments.files.size() + 1];
        for (Path path : arguments.files) {
            Segment segment = new Segment(path);
            segments.add(segment);
            firstBuckets[segments.size()] = firstBuckets[segments.size() - 1] + segment.buckets;
        }
        long lookups = arguments.lookups == null ? buckets() : arguments.lookups;
        if (lookups > buckets()) {
            throw new Arguments.BadArguments("--lookups " + lookups + ": there are only " + buckets() + " buckets");
        }
        result = new Result(arguments, buckets() * Key.BUCKET_BYTES, lookups);
        buffer = ByteBuffer.allocateDirect(arguments.blockBytes);
        result.openSeconds = (System.nanoTime() - started) / 1e9;
    }

    private long buckets() {
        return firstBuckets[firstBuckets.length - 1];
    }

    private Result start() throws IOException {
        long[] before = faults();
        long started = System.nanoTime();
        Deadline deadline = new Deadline(arguments.maxSeconds);
        load(deadline);
        result.loadNanos = System.nanoTime() - started;
        if (!result.loadStopped) {
            long lookedUp = System.nanoTime();
            result.asked = lookUp(2, result.lookups, deadline);
            result.lookupNanos = System.nanoTime() - lookedUp;
        }
        result.nanos = System.nanoTime() - started;
        long[] after = faults();
        result.minorFaults = after[0] - before[0];
        result.majorFaults = after[1] - before[1];
        return result;
    }

    private void load(Deadline deadline) throws IOException {
        if (arguments.load.equals("lazy")) {
            result.loadAsked = lookUp(1, buckets(), deadline);
            result.loadedBytes = result.loadAsked * Key.BUCKET_BYTES;
            result.loadStopped = result.loadAsked < buckets();
            result.latencyNanos = new long[0];
        }
        for (Segment segment : arguments.load.equals("sequential") ? segments : List.<Segment>of()) {
            long sum = segment.read(buffer, deadline, result);
            result.wrongFiles += !result.loadStopped && sum != segment.byteSum ? 1 : 0;
        }
        for (Segment segment : arguments.load.equals("load") ? segments : List.<Segment>of()) {
            result.loadStopped |= deadline.hasPassed();
            if (!result.loadStopped) {
                segment.map.load();
                result.loadedBytes += (long) segment.buckets * Key.BUCKET_BYTES;
            }
        }
    }

    /** Looks up the first keys of a round's random order; returns how many there was time for. */
    private long lookUp(long round, long count, Deadline deadline) {
        Permutation order = new Permutation(buckets(), Key.mix(arguments.seed ^ Key.mix(round)));
        long[] timed = new long[arguments.timeEvery == 0 ? 0 : Math.toIntExact(2 * count / arguments.timeEvery + 16)];
        int timedCount = 0;
        long position = 0;
        for (; position < count; position++) {
            if (position % CLOCK_EVERY == 0 && deadline.hasPassed()) {
                break;
            }
            long bucket = order.at(position);
            // Irregular distances, as in pcindex, but without state.
            boolean isTimed =
                    timedCount < timed.length && Long.remainderUnsigned(Key.mix(position), arguments.timeEvery) == 0;
            long started = isTimed ? System.nanoTime() : 0;
            lookUpBucket(bucket);
            if (isTimed) {
                timed[timedCount++] = System.nanoTime() - started;
            }
        }
        result.latencyNanos = Arrays.copyOf(timed, timedCount);
        return position;
    }

    private void lookUpBucket(long bucket) {
        int place = Arrays.binarySearch(firstBuckets, bucket);
        Segment segment = segments.get(place >= 0 ? place : -place - 2);
        int number = segment.numbers[(int) (bucket - firstBuckets[place >= 0 ? place : -place - 2])];
        Key key = Key.of(segment.seed, number);
        int slotAt = segment.find(key);
        boolean isExpected = number < Key.entries(segment.buckets);
        if (slotAt >= 0) {
            long value = segment.valueAt(slotAt);
            result.found++;
            result.checksum += value;
            result.wrong += isExpected && value == key.value() ? 0 : 1;
        } else {
            result.wrong += isExpected ? 1 : 0;
        }
    }

    /** Returns minor and major faults of all threads of the process, from proc_pid_stat(5). */
    private static long[] faults() throws IOException {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return new long[] {Long.parseLong(fields[7]), Long.parseLong(fields[9])};
    }
}

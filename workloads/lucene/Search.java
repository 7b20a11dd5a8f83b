import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.lucene.document.Document;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.StoredFields;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.search.TopScoreDocCollectorManager;
import org.apache.lucene.store.Directory;

/** One start of the search: the index is opened, then each question is asked and its hits fetched. */
final class Search {
    private static final int HITS = 10;

    private final Text text;
    private final List<Question> questions;
    private final double maxSeconds;
    private final long[] latencyNanos;

    long wrong;
    private int asked;
    private long found;
    private long fetchedBytes;
    private long openNanos;
    private long nanos;
    private long[] faults;

    Search(Text text, List<Question> questions, double maxSeconds) {
        this.text = text;
        this.questions = questions;
        this.maxSeconds = maxSeconds;
        this.latencyNanos = new long[questions.size()];
    }

    void run(Directory directory) throws IOException {
        long[] before = faults();
        long started = System.nanoTime();
        try (DirectoryReader reader = DirectoryReader.open(directory)) {
            openNanos = System.nanoTime() - started;
            IndexSearcher searcher = new IndexSearcher(reader);
            searcher.setQueryCache(null); // each answer comes from the index
            StoredFields stored = reader.storedFields();
            for (Question question : questions) {
                long began = System.nanoTime();
                if ((began - started) / 1e9 >= maxSeconds) {
                    break;
                }
                ask(searcher, stored, question);
                latencyNanos[asked++] = System.nanoTime() - began;
            }
        }
        nanos = System.nanoTime() - started;
        long[] after = faults();
        faults = new long[] {after[0] - before[0], after[1] - before[1]};
    }

    private void ask(IndexSearcher searcher, StoredFields stored, Question question) throws IOException {
        TopDocs top = searcher.search(
                question.query(), new TopScoreDocCollectorManager(HITS, null, Integer.MAX_VALUE));
        found += top.totalHits.value;
        boolean isRight = top.totalHits.value == question.expected;
        for (ScoreDoc hit : top.scoreDocs) {
            Document document = stored.document(hit.doc);
            int number = document.getField("number").numericValue().intValue();
            byte[] noise = document.getBinaryValue("noise").bytes;
            fetchedBytes += Text.NOISE_BYTES;
            isRight &= question.matches(text.ranks(number)) && Arrays.equals(noise, text.noise(number));
        }
        wrong += isRight ? 0 : 1;
    }

    String sample() {
        return String.format(
                Locale.ROOT,
                "{\"type\":\"sample\",\"iteration\":0,\"seconds\":%.9f,\"bytes\":%d,\"blocks\":%d,"
                        + "\"covered_fraction\":%.6f,\"checksum\":\"%d\",\"major_faults\":%d,\"minor_faults\":%d}",
                nanos / 1e9, fetchedBytes, asked, covered(), found, faults[1], faults[0]);
    }

    String end(String directory) {
        boolean isWhole = asked == questions.size();
        String response = String.format(
                Locale.ROOT,
                "{\"open_seconds\":%.9f,\"first_answer_seconds\":%s,\"ready_seconds\":%s,\"questions_per_second\":%s,"
                        + "\"question_p50_us\":%s,\"question_p99_us\":%s}",
                openNanos / 1e9, asked > 0 ? shown((openNanos + latencyNanos[0]) / 1e9) : "null",
                isWhole ? shown(nanos / 1e9) : "null", asked > 0 ? shown(asked / ((nanos - openNanos) / 1e9)) : "null",
                percentileUs(50), percentileUs(99));
        return String.format(
                Locale.ROOT,
                "{\"type\":\"end\",\"seconds\":%.9f,\"bytes\":%d,\"blocks\":%d,\"distinct_bytes\":%d,"
                        + "\"covered_fraction\":%.6f,\"checksum\":\"%d\",\"checksum_ok\":%s,\"threads\":[],"
                        + "\"setup\":{},\"response\":%s,\"directory\":\"%s\",\"lucene\":\"%s\",\"java\":\"%s\"}",
                nanos / 1e9, fetchedBytes, asked, fetchedBytes, covered(), found, wrong == 0, response, directory,
                org.apache.lucene.util.Version.LATEST, System.getProperty("java.vm.version"));
    }

    private double covered() {
        return (double) asked / questions.size();
    }

    private String percentileUs(int percent) {
        if (asked == 0) {
            return "null";
        }
        long[] sorted = Arrays.copyOf(latencyNanos, asked);
        Arrays.sort(sorted);
        return shown(sorted[(int) (((long) asked * percent + 99) / 100) - 1] / 1e3);
    }

    private static String shown(double value) {
        return String.format(Locale.ROOT, "%.9f", value);
    }

    /** Returns minor and major faults of all threads of the process, from proc_pid_stat(5). */
    private static long[] faults() throws IOException {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return new long[] {Long.parseLong(fields[7]), Long.parseLong(fields[9])};
    }
}

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** The command line: that of pcindex, as far as Java supports it. */
final class Arguments {
    static final String HELP = """
            Loads an index of mapped hash tables, looks up its start-up set, and reports the times

              --files FILE...            the index, made by `pcgen --fill index`, with a sidecar for each file
              --load lazy                look up every bucket once, in random order (default)
              --load sequential          read each file from front to back through a FileChannel
              --load load                call MappedByteBuffer.load()
              --load none                load nothing
              --lookups N|all            number of keys of the start-up set to look up after loading
              --seed N                   seed of the random orders
              --block-bytes N            bytes per read (1048576)
              --time-every N             time one in N lookups; 0 times none (8)
              --max-seconds S            stop after this time; load() of one file is not interrupted
              --expect-sidecars          compare checksums with the sidecars
              --no-handshake             start without waiting for `go`, and exit at the end

            Exit codes: 0 done, 1 failed or wrong answer, 2 bad arguments, 77 not possible on this host.""";

    final List<Path> files = new ArrayList<>();
    String load = "lazy";
    Long lookups;
    long seed = 1;
    int blockBytes = 1 << 20;
    long timeEvery = 8;
    Double maxSeconds;
    boolean expectsSidecars;
    boolean handshake = true;

    Arguments(List<String> words) {
        Iterator<String> rest = words.iterator();
        String word = rest.hasNext() ? rest.next() : null;
        while (word != null) {
            word = take(word, rest);
        }
        require(!files.isEmpty(), "--files is missing");
        boolean isKnown = List.of("lazy", "sequential", "load", "none").contains(load);
        require(isKnown, "--load must be lazy, sequential, load or none, not " + load);
        require(blockBytes >= 4096 && timeEvery >= 0, "--block-bytes must be at least 4096, --time-every at least 0");
        require(maxSeconds == null || maxSeconds >= 0, "--max-seconds must not be negative");
        require(lookups == null || lookups >= 0, "--lookups must not be negative");
    }

    /** Applies one option and returns the next word, or null at the end. */
    private String take(String option, Iterator<String> rest) {
        switch (option) {
            case "--files" -> {
                return takeFiles(rest);
            }
            case "--expect-sidecars" -> expectsSidecars = true;
            case "--no-handshake" -> handshake = false;
            default -> {
                require(rest.hasNext(), "unknown option, or an option without its value: " + option);
                takeValue(option, rest.next());
            }
        }
        return rest.hasNext() ? rest.next() : null;
    }

    private String takeFiles(Iterator<String> rest) {
        while (rest.hasNext()) {
            String word = rest.next();
            if (word.startsWith("--")) {
                return word;
            }
            files.add(Path.of(word));
        }
        return null;
    }

    private void takeValue(String option, String value) {
        try {
            switch (option) {
                case "--load" -> load = value;
                case "--lookups" -> lookups = value.equals("all") ? null : Long.valueOf(value);
                case "--seed" -> seed = Long.parseUnsignedLong(value);
                case "--block-bytes" -> blockBytes = Integer.parseInt(value);
                case "--time-every" -> timeEvery = Long.parseLong(value);
                case "--max-seconds" -> maxSeconds = Double.valueOf(value);
                default -> throw new BadArguments("unknown option: " + option);
            }
        } catch (NumberFormatException wrong) {
            throw new BadArguments(value + " is not a valid value of " + option);
        }
    }

    private static void require(boolean condition, String message) {
        if (!condition) {
            throw new BadArguments(message);
        }
    }

    /** Reported in one sentence, with exit code 2. */
    static final class BadArguments extends RuntimeException {
        private static final long serialVersionUID = 1;

        BadArguments(String sentence) {
            super(sentence + " (see `pcindex-java --help`)");
        }
    }
}

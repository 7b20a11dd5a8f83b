import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** The command line, the same as that of pcindex as far as Java can do what it says. */
final class Arguments {
    static final String HELP = """
            Loads an index of mapped hash tables, looks its start-up set up, and reports how long that took

              --files FILE...            the index, made by `pcgen --fill index`, each file with its sidecar beside it
              --load lazy                every bucket is looked up once, in a random order (default)
              --load sequential          each file is read from front to back through a FileChannel
              --load load                MappedByteBuffer.load()
              --load none                nothing is loaded
              --lookups N|all            how many keys of the start-up set are looked up after loading
              --seed N                   the same seed gives the same random orders
              --block-bytes N            read in pieces of so many bytes (1048576)
              --time-every N             time one in N lookups; 0 times none (8)
              --max-seconds S            stop after so long; load() of one file is not interrupted
              --expect-sidecars          what is read must add up to what the sidecars say
              --no-handshake             start at once and leave at once

            Exit codes: 0 done, 1 failed or wrong answer, 2 bad arguments, 77 cannot on this host.""";

    final List<Path> files = new ArrayList<>();
    String load = "lazy";
    Long lookups;
    long seed = 1;
    int blockBytes = 1 << 20;
    long timeEvery = 8;
    Double maxSeconds;
    boolean expectsSidecars;
    boolean speaks = true;

    Arguments(List<String> words) {
        Iterator<String> rest = words.iterator();
        String word = rest.hasNext() ? rest.next() : null;
        while (word != null) {
            word = take(word, rest);
        }
        require(!files.isEmpty(), "--files is missing");
        require(List.of("lazy", "sequential", "load", "none").contains(load), "no such --load: " + load);
        require(blockBytes >= 4096 && timeEvery >= 0, "--block-bytes is at least 4096, --time-every at least 0");
        require(maxSeconds == null || maxSeconds >= 0, "--max-seconds is negative");
        require(lookups == null || lookups >= 0, "--lookups is negative");
    }

    /** Takes one option and gives the next word, or null at the end. */
    private String take(String option, Iterator<String> rest) {
        switch (option) {
            case "--files" -> {
                return takeFiles(rest);
            }
            case "--expect-sidecars" -> expectsSidecars = true;
            case "--no-handshake" -> speaks = false;
            default -> {
                require(rest.hasNext(), "an unknown option, or one without its value: " + option);
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
                default -> throw new BadArguments("an unknown option: " + option);
            }
        } catch (NumberFormatException wrong) {
            throw new BadArguments(value + " is no value of " + option);
        }
    }

    private static void require(boolean isSo, String otherwise) {
        if (!isSo) {
            throw new BadArguments(otherwise);
        }
    }

    /** Told in one sentence, with exit code 2. */
    static final class BadArguments extends RuntimeException {
        private static final long serialVersionUID = 1;

        BadArguments(String sentence) {
            super(sentence + " (see `pcindex-java --help`)");
        }
    }
}

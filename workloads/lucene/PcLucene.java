import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FilterDirectory;
import org.apache.lucene.store.IOContext;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.store.MMapDirectory;
import org.apache.lucene.store.NIOFSDirectory;

/** Opens an index of Apache Lucene at `go`, asks its questions, and compares the answers. */
final class PcLucene {
    private static final String HELP = """
            Opens a search index of Apache Lucene and asks generated questions

              --index DIRECTORY      made before by --make
              --directory normal     MMapDirectory as it is (default)
              --directory preload    MMapDirectory.setPreload: load each file when it is opened
              --directory random     MADV_RANDOM for each file (IOContext.RANDOM); needs Java 21
              --directory pread      NIOFSDirectory: read with pread(2)
              --max-seconds S        stop asking after this time
              --make DIRECTORY DOCUMENTS QUESTIONS SEED
              --no-handshake         start without waiting for `go`, and exit at the end

            Exit codes: 0 done, 1 failed or wrong answer, 2 bad arguments, 77 not possible on this host.""";

    private final Map<String, String> options = new TreeMap<>(Map.of("--directory", "normal", "--max-seconds", "3600"));
    private boolean handshake = true;

    public static void main(String[] words) {
        int status = 1;
        try {
            status = words.length == 5 && words[0].equals("--make") ? make(words) : new PcLucene(words).run();
        } catch (IllegalArgumentException bad) {
            System.err.println("pclucene-java: " + bad.getMessage() + " (see `pclucene-java --help`)");
            status = 2;
        } catch (UnsupportedOperationException missing) {
            System.err.println("pclucene-java: " + missing.getMessage());
            status = 77;
        } catch (IOException | InternalError failed) { // Java turns SIGBUS into InternalError
            System.err.println("pclucene-java: " + failed);
        }
        System.exit(status);
    }

    private static int make(String[] words) throws IOException {
        long seed = Long.parseLong(words[4]);
        Maker.make(Path.of(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]), seed);
        return 0;
    }

    private PcLucene(String[] words) {
        Iterator<String> rest = Arrays.asList(words).iterator();
        while (rest.hasNext()) {
            String option = rest.next();
            if (option.equals("--no-handshake")) {
                handshake = false;
            } else if (option.equals("--help")) {
                options.put(option, "");
            } else if (List.of("--index", "--directory", "--max-seconds").contains(option) && rest.hasNext()) {
                options.put(option, rest.next());
            } else {
                throw new IllegalArgumentException("unknown option, or an option without its value: " + option);
            }
        }
    }

    private int run() throws IOException {
        if (options.containsKey("--help")) {
            System.out.println(HELP);
            return 0;
        }
        if (!options.containsKey("--index")) {
            throw new IllegalArgumentException("--index is missing");
        }
        Path folder = Path.of(options.get("--index"));
        List<Question> questions = Question.read(folder.resolve("questions"));
        long seed = Long.parseLong(Files.readString(folder.resolve("seed")).strip());
        double maxSeconds = Double.parseDouble(options.get("--max-seconds"));
        BufferedReader stdin = new BufferedReader(new InputStreamReader(System.in));
        try (Directory directory = directory(folder.resolve("index"))) {
            if (handshake && !waitForGo(stdin)) {
                return 0;
            }
            Search search = new Search(new Text(seed), questions, maxSeconds);
            search.run(directory);
            System.out.println(search.sample());
            System.out.println(search.end(options.get("--directory")));
            System.out.flush();
            while (handshake && stdin.read() >= 0) {} // until stdin closes
            if (search.wrong > 0) {
                throw new IOException(search.wrong + " answers were wrong");
            }
        }
        return 0;
    }

    private Directory directory(Path index) throws IOException {
        String name = options.get("--directory");
        if (name.equals("pread")) {
            return new NIOFSDirectory(index);
        }
        MMapDirectory mapped = new MMapDirectory(index);
        if (name.equals("preload")) {
            mapped.setPreload(MMapDirectory.ALL_FILES);
        } else if (name.equals("random")) {
            if (!MMapDirectory.supportsMadvise()) {
                throw new UnsupportedOperationException("this version of Java does not let Lucene call madvise");
            }
            return new Random(mapped);
        } else if (!name.equals("normal")) {
            throw new IllegalArgumentException("--directory must be normal, preload, random or pread, not " + name);
        }
        return mapped;
    }

    /** Opens each file with MADV_RANDOM, as Lucene 10 did by default. */
    private static final class Random extends FilterDirectory {
        Random(Directory mapped) {
            super(mapped);
        }

        @Override
        public IndexInput openInput(String name, IOContext context) throws IOException {
            return super.openInput(name, context.context == IOContext.Context.READ ? IOContext.RANDOM : context);
        }
    }

    private static boolean waitForGo(BufferedReader stdin) throws IOException {
        System.out.println(String.format(Locale.ROOT, "{\"type\":\"ready\",\"protocol\":1,\"pid\":%d}", ProcessHandle.current().pid()));
        System.out.flush();
        String word = stdin.readLine();
        if (word != null && !word.equals("go")) {
            throw new IOException("expected the line \"go\" on stdin, found \"" + word + "\"");
        }
        return word != null;
    }
}

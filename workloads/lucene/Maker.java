import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.store.MMapDirectory;

/** Makes an index of generated documents, and questions with their answers, which it counts itself. */
final class Maker {
    private static final double WRITER_MIB = 32;

    private Maker() {}

    static void make(Path folder, int documents, int questions, long seed) throws IOException {
        Text text = new Text(seed);
        List<Question> asked = Question.choose(text, documents, questions);
        Map<Integer, List<Question>> byFirst = new HashMap<>();
        for (Question one : asked) {
            byFirst.computeIfAbsent(one.first, rank -> new ArrayList<>()).add(one);
        }
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer()).setRAMBufferSizeMB(WRITER_MIB);
        config.setUseCompoundFile(false);
        try (MMapDirectory directory = new MMapDirectory(folder.resolve("index"));
                IndexWriter writer = new IndexWriter(directory, config)) {
            for (int number = 0; number < documents; number++) {
                int[] ranks = text.ranks(number);
                writer.addDocument(document(text, number, ranks));
                count(byFirst, ranks);
            }
        }
        Question.write(folder.resolve("questions"), asked);
        Files.writeString(folder.resolve("seed"), seed + "\n");
    }

    private static void count(Map<Integer, List<Question>> byFirst, int[] ranks) {
        for (int rank : Arrays.stream(ranks).distinct().toArray()) {
            for (Question one : byFirst.getOrDefault(rank, List.of())) {
                one.expected += one.matches(ranks) ? 1 : 0;
            }
        }
    }

    private static Document document(Text text, int number, int[] ranks) {
        StringBuilder body = new StringBuilder();
        for (int rank : ranks) {
            body.append(Text.word(rank)).append(' ');
        }
        Document document = new Document();
        document.add(new TextField(Question.FIELD, body.toString(), Field.Store.NO));
        document.add(new StoredField("number", number));
        document.add(new StoredField("noise", text.noise(number)));
        return document;
    }
}

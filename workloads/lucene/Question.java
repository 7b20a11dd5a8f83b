import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;

/** A query for one word, or for two words in succession, and the number of documents that match. */
final class Question {
    static final String FIELD = "body";
    private static final int RAREST = 10_000;
    private static final int MOST_FREQUENT = 200;

    final int first;
    /** The second word of a phrase, 0 for a query of one word. */
    final int second;

    long expected;

    private Question(int first, int second) {
        this.first = first;
        this.second = second;
    }

    /** Returns questions in turn for a word of medium frequency and for a phrase of some document. */
    static List<Question> choose(Text text, int documents, int count) {
        SplittableRandom drawn = text.random(0, 3);
        List<Question> questions = new ArrayList<>();
        while (questions.size() < count) {
            int[] ranks = text.ranks(drawn.nextInt(documents));
            int at = drawn.nextInt(Text.WORDS - 1);
            boolean isPhrase = questions.size() % 2 == 1;
            boolean fits = ranks[at] >= MOST_FREQUENT && ranks[at] <= RAREST;
            if (isPhrase || fits) {
                questions.add(new Question(ranks[at], isPhrase ? ranks[at + 1] : 0));
            }
        }
        return questions;
    }

    boolean matches(int[] ranks) {
        for (int at = 0; at < ranks.length; at++) {
            boolean isNext = second == 0 || at + 1 < ranks.length && ranks[at + 1] == second;
            if (ranks[at] == first && isNext) {
                return true;
            }
        }
        return false;
    }

    Query query() {
        Term one = new Term(FIELD, Text.word(first));
        return second == 0 ? new TermQuery(one) : new PhraseQuery(FIELD, one.text(), Text.word(second));
    }

    static void write(Path file, List<Question> questions) throws IOException {
        StringBuilder lines = new StringBuilder();
        for (Question one : questions) {
            lines.append(one.first).append(' ').append(one.second).append(' ').append(one.expected).append('\n');
        }
        Files.writeString(file, lines);
    }

    static List<Question> read(Path file) throws IOException {
        List<Question> questions = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split(" ");
            Question one = new Question(Integer.parseInt(words[0]), Integer.parseInt(words[1]));
            one.expected = Long.parseLong(words[2]);
            questions.add(one);
        }
        return questions;
    }
}

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of the Java clients: BOOTSTRAP. Commands come on the input, what became of them goes to the output;
 * ../../test_transactions.py is the other end, README.md has the words. Calls is what the API's generations differ in.
 */
final class Transactions {
    static final int PARTITIONS = 2;

    public static void main(String[] arguments) {
        String jar = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        say("{\"client\": \"java\", \"version\": \"%s\"}", jar.replaceAll(".*kafka-clients-(.*)\\.jar", "$1"));
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            Map<String, String> told = new HashMap<>();
            for (int index = 2; index < words.length; index++) {
                String[] pair = words[index].split("=", 2);
                told.put(pair[0], pair[1]);
            }
            try {
                if (words[0].equals("copy")) {
                    new Copier(arguments[0], told).start();
                    continue;
                } else if (words[0].equals("open")) {
                    producers.put(words[1], opened(arguments[0], told.get("id"), told.get("timeout")));
                } else {
                    obey(producers.get(words[1]), words[0], told);
                }
                say("{\"event\": \"done\"}");
            } catch (Throwable error) {
                say("{\"event\": \"error\", \"text\": \"%s\"}", text(error));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static KafkaProducer<String, String> opened(String bootstrap, String id, String timeoutMs) {
        Map<String, Object> settings = new HashMap<>(near(bootstrap));
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("max.block.ms", "20000");
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    /** How a broker is found again soon; clients that do not know one of the settings pass over it. */
    static Map<String, Object> near(String bootstrap) {
        return Map.of(
                "bootstrap.servers", bootstrap,
                "retry.backoff.ms", "20",
                "retry.backoff.max.ms", "50",
                "reconnect.backoff.ms", "10",
                "reconnect.backoff.max.ms", "50");
    }

    private static void obey(KafkaProducer<String, String> producer, String word, Map<String, String> told)
            throws Exception {
        switch (word) {
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close();
            case "send" -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (String value : told.get("values").split(",")) {
                    sent.add(producer.send(new ProducerRecord<>(told.get("topic"), 0, null, value)));
                }
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
            case "offset" -> {
                TopicPartition place = new TopicPartition(told.get("topic"), 0);
                var offset = new OffsetAndMetadata(Long.parseLong(told.get("at")));
                Calls.sendOffsets(producer, Map.of(place, offset), told.get("group"));
            }
            default -> throw new IllegalArgumentException(word);
        }
    }

    static String text(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString().replaceAll("[\"\\\\\\p{Cntrl}]+", " ");
    }

    static synchronized void say(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
        System.out.flush();
    }
}

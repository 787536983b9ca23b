import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logins of the Java clients. Cases come on the input, one a line, with tabs between its fields: name, topic, seconds,
 * token, settings as NAME=VALUE. They are done some at a time, and what became of each goes to the output;
 * ../test_security.py is the other end, README.md has the words. Tokens is what the API's generations differ in.
 */
final class Security {
    private static final int AT_ONCE = 8;
    private static final long PAUSE_MS = 50; // it logs in again with a request, and late: a session is nearly over
    private static final String MS_MAX = "10000";

    public static void main(String[] arguments) throws InterruptedException {
        String jar = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        say("{\"client\": \"java\", \"version\": \"%s\"}", jar.replaceAll(".*kafka-clients-(.*)\\.jar", "$1"));
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split("\t");
            pool.submit(() -> tell(fields));
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        Runtime.getRuntime().halt(0);
    }

    private static void tell(String[] fields) {
        long start = System.nanoTime();
        String kind = "";
        String text = "";
        try {
            produce(fields);
        } catch (Throwable error) {
            Throwable cause = error;
            while ((cause instanceof ExecutionException || cause.getClass().getName().endsWith(".KafkaException"))
                    && cause.getCause() != null) {
                cause = cause.getCause();
            }
            kind = cause.getClass().getSimpleName();
            text = String.valueOf(cause.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]+", " ");
        }
        long ms = (System.nanoTime() - start) / 1_000_000;
        String form = "{\"case\": \"%s\", \"error\": \"%s\", \"text\": \"%s\", \"ms\": %d}";
        say(form, fields[0], kind, text.substring(0, Math.min(300, text.length())), ms);
    }

    private static void produce(String[] fields) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "max.block.ms", MS_MAX,
                "request.timeout.ms", "8000",
                "delivery.timeout.ms", MS_MAX,
                "retries", "20", // that is what the newer ones have, and more
                "retry.backoff.ms", "50",
                "reconnect.backoff.ms", "20",
                "reconnect.backoff.max.ms", "200"));
        for (int index = 4; index < fields.length; index++) {
            String[] pair = fields[index].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        if (!fields[3].isEmpty()) {
            Tokens.add(settings, fields[3]);
        }
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            producer.send(new ProducerRecord<>(fields[1], 0, null, fields[0])).get();
            long end = System.nanoTime() + (long) (Double.parseDouble(fields[2]) * 1e9);
            while (System.nanoTime() < end) {
                Thread.sleep(PAUSE_MS);
                producer.send(new ProducerRecord<>(fields[1], 0, null, fields[0])).get();
            }
        } finally {
            Thread closing = new Thread(producer::close); // which may wait for somebody who is not there
            closing.setDaemon(true);
            closing.start();
        }
    }

    private static synchronized void say(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
        System.out.flush();
    }
}

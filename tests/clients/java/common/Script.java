import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;
import org.apache.kafka.clients.producer.KafkaProducer;

/**
 * The script of work for the Java clients: BOOTSTRAP PREFIX BASE_MS STEPS FOREIGN_TOPIC. Steps, records and output are
 * those of ../../python/script.py; the class Generation, one per API generation, is the client.
 */
final class Script {
    static final int LARGE_BYTES = 900 * 1024;
    static final long SETTLE_MS_MAX = 15_000;
    static final long SCRIPT_MS_MAX = 60_000;
    static final int[] HOLES = {0, 19, 22, 61, 79, 98}; // in a topic that was compacted

    final Client client;
    final String prefix;
    final long baseMs;
    final List<String> steps;
    final String foreignTopic;

    Script(Client client, String prefix, long baseMs, List<String> steps, String foreignTopic) {
        this.client = client;
        this.prefix = prefix;
        this.baseMs = baseMs;
        this.steps = steps;
        this.foreignTopic = foreignTopic;
    }

    static final class Difference extends Exception {
        Difference(String message) {
            super(message);
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> steps = List.of(arguments[3].split(","));
        haltWhenStuck();
        try (Client client = new Generation(arguments[0])) {
            String jar = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
            String version = jar.replaceAll(".*kafka-clients-(.*)\\.jar", "$1"); // no class says it in all versions
            System.out.printf("{\"client\": \"java\", \"version\": \"%s\"}%n", version);
            Script script = new Script(client, arguments[1], Long.parseLong(arguments[2]), steps, arguments[4]);
            for (String step : steps) {
                long start = System.nanoTime();
                try {
                    int records = script.run(step);
                    long ms = (System.nanoTime() - start) / 1_000_000;
                    System.out.printf("{\"step\": \"%s\", \"records\": %d, \"ms\": %d}%n", step, records, ms);
                } catch (Exception error) {
                    System.err.println("step " + step + ": " + error);
                    if (!(error instanceof Difference)) {
                        error.printStackTrace();
                    }
                    System.out.flush();
                    Runtime.getRuntime().halt(1); // a client that waits for a broker must not hold up the message
                }
            }
        }
        System.exit(0);
    }

    /** The oldest consumers wait for ever for what they miss; say what they wait for. */
    static void haltWhenStuck() {
        Thread main = Thread.currentThread();
        Thread watch =
                new Thread(
                        () -> {
                            try {
                                Thread.sleep(SCRIPT_MS_MAX);
                            } catch (InterruptedException never) {
                                return;
                            }
                            System.err.println("still waiting after " + SCRIPT_MS_MAX + " ms:");
                            for (StackTraceElement frame : main.getStackTrace()) {
                                System.err.println("  at " + frame);
                            }
                            System.out.flush();
                            Runtime.getRuntime().halt(1);
                        });
        watch.setDaemon(true);
        watch.start();
    }

    int run(String step) throws Exception {
        return switch (step) {
            case "create" -> create();
            case "describe" -> describe();
            case "configs" -> configs();
            case "partitions" -> partitions();
            case "acks" -> acks();
            case "nulls" -> nulls();
            case "headers" -> headers();
            case "null headers" -> nullHeaders();
            case "large" -> large();
            case "offsets" -> offsets();
            case "timestamps" -> writeAndRead(topic("time"), timed());
            case "by time" -> byTime();
            case "idempotent" -> idempotent();
            case "foreign" -> foreign();
            case "gaps" -> gaps(foreignTopic);
            case "gaps zstd" -> gaps(foreignTopic + "-zstd");
            case "holes" -> holes();
            case "committed" -> committed();
            case "end" -> end();
            case "delete" -> delete();
            default -> codec(step);
        };
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] sampleValue(String what, int index) {
        byte[] start = bytes(what + " " + index + " ");
        byte[] value = Arrays.copyOf(start, start.length + index % 64);
        for (int j = 0; j < index % 64; j++) {
            value[start.length + j] = (byte) (index * 7 + j * 13);
        }
        return value;
    }

    static List<Record> samples(String what, int count) {
        List<Record> made = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            made.add(new Record(bytes("key-" + index), sampleValue(what, index)));
        }
        return made;
    }

    static byte[] largeValue(int seed) {
        byte[] value = new byte[LARGE_BYTES];
        for (int j = 0; j < value.length; j++) {
            value[j] = (byte) (j * 31 + (j >> 8) * 17 + seed);
        }
        return value;
    }

    static void expect(String what, Object got, Object wanted) throws Difference {
        if (!Objects.deepEquals(got, wanted)) {
            throw new Difference(what + ": got " + shorten(got) + ", wanted " + shorten(wanted));
        }
    }

    static String shorten(Object value) {
        String text = value instanceof byte[] raw ? quote(raw) : String.valueOf(value);
        return text.length() <= 300 ? text : text.substring(0, 200) + "... (" + text.length() + " characters)";
    }

    static String quote(byte[] raw) {
        StringBuilder text = new StringBuilder("\"");
        for (byte one : raw) {
            text.append(one >= ' ' && one <= '~' ? String.valueOf((char) one) : String.format("\\x%02x", one & 255));
        }
        return text.append('"').toString();
    }

    static List<Long> range(long first, int count) {
        List<Long> numbers = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            numbers.add(first + index);
        }
        return numbers;
    }

    String topic(String name) {
        return prefix + "-" + name;
    }

    void write(String topic, int partition, List<Record> records, long first, String codec, int acks, boolean idempotent)
            throws Exception {
        List<Long> offsets = client.produce(topic, partition, records, codec, acks, idempotent);
        if (offsets != null) {
            expect(topic + "-" + partition + ": acknowledged offsets", offsets, range(first, records.size()));
        }
    }

    void read(String topic, int partition, List<Record> records, long first) throws Exception {
        List<Record> got = client.consume(topic, partition, first, records.size());
        List<Long> offsets = new ArrayList<>();
        got.forEach(record -> offsets.add(record.offset()));
        expect(topic + "-" + partition + ": offsets read", offsets, range(first, records.size()));
        for (int index = 0; index < records.size(); index++) {
            Record wanted = records.get(index);
            Record record = got.get(index);
            String place = topic + "-" + partition + ": offset " + record.offset();
            expect(place + ": key", record.key(), wanted.key());
            expect(place + ": value", record.value(), wanted.value());
            if (steps.contains("headers")) {
                expectHeaders(place, record.headers(), wanted.headers());
            }
            if (steps.contains("timestamps") && wanted.timestamp() != null) {
                expect(place + ": timestamp", record.timestamp(), wanted.timestamp());
            }
        }
    }

    static void expectHeaders(String place, List<Record.Header> got, List<Record.Header> wanted) throws Difference {
        expect(place + ": count of headers", got.size(), wanted.size());
        for (int index = 0; index < got.size(); index++) {
            expect(place + ": header " + index + ": name", got.get(index).key(), wanted.get(index).key());
            expect(place + ": header " + index + ": value", got.get(index).value(), wanted.get(index).value());
        }
    }

    int writeAndRead(String topic, List<Record> records) throws Exception {
        return writeAndRead(topic, 0, records, "none", false);
    }

    int writeAndRead(String topic, int partition, List<Record> records, String codec, boolean idempotent)
            throws Exception {
        write(topic, partition, records, 0, codec, -1, idempotent);
        read(topic, partition, records, 0);
        return records.size();
    }

    int create() throws Exception {
        client.create(topic("made"), 3, Map.of("retention.ms", "86400000"));
        return 0;
    }

    int describe() throws Exception {
        boolean made = steps.contains("create");
        String topic = topic(made ? "made" : "none");
        List<Integer> wanted = made ? List.of(0, 1, 2) : List.of(0);
        // A broker may tell of a new topic a moment after it has created it.
        long deadline = System.currentTimeMillis() + SETTLE_MS_MAX;
        List<Integer> got = new ArrayList<>(client.describe(topic));
        while (got.size() != wanted.size() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
            got = new ArrayList<>(client.describe(topic));
        }
        got.sort(null);
        expect("partitions of " + topic, got, wanted);
        return 0;
    }

    int configs() throws Exception {
        expect("retention.ms", client.configs(topic("made")).get("retention.ms"), "86400000");
        return 0;
    }

    int partitions() throws Exception {
        int count = 0;
        for (int partition = 0; partition < 3; partition++) {
            count += writeAndRead(topic("made"), partition, samples("partition " + partition, 5), "none", false);
        }
        return count;
    }

    int codec(String step) throws Exception {
        if (!step.startsWith("codec ")) {
            throw new Difference("no such step");
        }
        String codec = step.substring("codec ".length());
        return writeAndRead(topic(codec), 0, samples(codec, 100), codec, false);
    }

    int acks() throws Exception {
        String topic = topic("acks");
        List<Record> records = samples("acks", 30);
        // Nobody acknowledges the first ten: read them before the next are sent over another connection.
        client.produce(topic, 0, records.subList(0, 10), "none", 0, false);
        read(topic, 0, records.subList(0, 10), 0);
        write(topic, 0, records.subList(10, 20), 10, "none", 1, false);
        write(topic, 0, records.subList(20, 30), 20, "none", -1, false);
        read(topic, 0, records, 0);
        return records.size();
    }

    int nulls() throws Exception {
        return writeAndRead(
                topic("nulls"),
                List.of(new Record(null, bytes("v")), new Record(bytes("k"), null), new Record(bytes(""), bytes(""))));
    }

    static Record.Header header(String key, String value) {
        return new Record.Header(key, value == null ? null : bytes(value));
    }

    int headers() throws Exception {
        byte[] all = new byte[256];
        for (int index = 0; index < 256; index++) {
            all[index] = (byte) index;
        }
        return writeAndRead(
                topic("headers"),
                List.of(
                        new Record(bytes("k0"), bytes("none")),
                        new Record(bytes("k1"), bytes("text")).withHeaders(header("h1", "first"), header("h1", "second")),
                        new Record(bytes("k2"), bytes("order"))
                                .withHeaders(header("z", "1"), header("a", "2"), new Record.Header("z", all)),
                        new Record(bytes("k3"), bytes("empty")).withHeaders(header("empty", ""), header("n\u00e4me", "x"))));
    }

    int nullHeaders() throws Exception {
        Record record = new Record(bytes("k"), bytes("v")).withHeaders(header("null", null), header("empty", ""));
        return writeAndRead(topic("null-headers"), List.of(record));
    }

    int large() throws Exception {
        List<Record> small = samples("large", 2);
        return writeAndRead(
                topic("large"),
                List.of(
                        small.get(0),
                        new Record(bytes("large"), largeValue(0)),
                        small.get(1),
                        new Record(bytes("large"), largeValue(1))));
    }

    int offsets() throws Exception {
        expect("earliest and end offset", client.offsets(topic("none"), 0), List.of(0L, 100L));
        return 0;
    }

    List<Record> timed() {
        List<Record> made = new ArrayList<>();
        for (Record record : samples("timestamps", 10)) {
            made.add(record.withTimestamp(baseMs + 1000L * made.size()));
        }
        return made;
    }

    int byTime() throws Exception {
        String topic = topic("time");
        Long[][] cases = {{0L, 0L}, {2500L, 3L}, {3000L, 3L}, {9000L, 9L}, {9001L, null}};
        for (Long[] one : cases) {
            expect(topic + ": offset at " + one[0] + " ms", client.offsetAt(topic, 0, baseMs + one[0]), one[1]);
        }
        read(topic, 0, timed().subList(3, 10), 3);
        return 7;
    }

    int idempotent() throws Exception {
        String topic = topic("idempotent");
        int count = writeAndRead(topic, 0, samples("idempotent", 100), "none", true);
        expect("earliest and end offset", client.offsets(topic, 0), List.of(0L, 100L));
        return count;
    }

    int foreign() throws Exception {
        List<Record> records = new ArrayList<>();
        for (Record record : samples("foreign", 80)) {
            int index = records.size();
            records.add(record.withHeaders(header("index", "" + index)).withTimestamp(baseMs + index));
        }
        read(foreignTopic, 0, records, 0);
        return records.size();
    }

    /** Returns the record of a topic that was compacted which is at an offset. */
    static Record cleaned(int offset) {
        return new Record(bytes("key-" + offset), sampleValue("cleaned", offset), List.of(), null, (long) offset);
    }

    /** What compaction has left of a topic of 120 records, the last of which are gone. */
    static List<Record> left() {
        return IntStream.range(0, 120)
                .filter(at -> at % 3 == 0 && (at >= 20 && at < 60 || at >= 80 && at < 100))
                .mapToObj(Script::cleaned)
                .toList();
    }

    static int match(String topic, List<Record> got, List<Record> wanted) throws Difference {
        expect(topic + ": offsets read", got.stream().map(Record::offset).toList(), wanted.stream().map(Record::offset).toList());
        for (int index = 0; index < wanted.size(); index++) {
            expect(topic + ": key at " + got.get(index).offset(), got.get(index).key(), wanted.get(index).key());
            expect(topic + ": value at " + got.get(index).offset(), got.get(index).value(), wanted.get(index).value());
        }
        return wanted.size();
    }

    int gaps(String topic) throws Exception {
        return match(topic, client.consume(topic, 0, 0, left().size()), left());
    }

    int holes() throws Exception {
        for (int hole : HOLES) {
            List<Record> wanted = left().stream().filter(record -> record.offset() >= hole).limit(1).toList();
            match(foreignTopic + " from " + hole, client.consume(foreignTopic, 0, hole, 1).subList(0, 1), wanted);
        }
        return HOLES.length;
    }

    /** Twelve transactions: ten offsets each, the last one a marker, every other one aborted. */
    int committed() throws Exception {
        List<Record> wanted =
                IntStream.range(0, 120).filter(at -> at / 10 % 2 == 0 && at % 10 != 9).mapToObj(Script::cleaned).toList();
        String topic = foreignTopic + "-txn";
        return match(topic, client.readCommitted(topic, 0).records(), wanted);
    }

    /** What is behind the last record, an empty batch or an aborted transaction, is behind the consumer too. */
    int end() throws Exception {
        Client.Whole whole = client.readCommitted(foreignTopic, 0);
        expect("position at an empty batch", whole.position(), 120L);
        long position = client.readCommitted(foreignTopic + "-txn", 0).position();
        expect("position behind an aborted transaction", position, 120L);
        return match(foreignTopic, whole.records(), left());
    }

    int delete() throws Exception {
        String topic = topic("made");
        long deadline = System.currentTimeMillis() + SETTLE_MS_MAX;
        client.delete(topic);
        while (client.topics().contains(topic)) {
            if (System.currentTimeMillis() > deadline) {
                throw new Difference(topic + ": still listed " + SETTLE_MS_MAX + " ms after its deletion");
            }
            Thread.sleep(50);
        }
        return 0;
    }
}

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member and its thread, which polls and does in between what it is told; Calls is what the API's generations differ in. */
final class Member extends Thread implements ConsumerRebalanceListener {
    static final int PARTITIONS = 4;
    static final Map<String, String> ASSIGNORS = Map.of(
            "range", "RangeAssignor",
            "roundrobin", "RoundRobinAssignor",
            "sticky", "StickyAssignor",
            "cooperative", "CooperativeStickyAssignor");

    private final String name;
    private final String topic;
    private final Map<String, Object> settings = new HashMap<>();
    private final Queue<Members.Command> commands = new ConcurrentLinkedQueue<>();

    Member(String bootstrap, String name, Map<String, String> told) {
        this.name = name;
        topic = told.get("topic");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", told.get("group"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        if (told.containsKey("instance")) {
            settings.put("group.instance.id", told.get("instance"));
        }
        if (told.get("protocol").equals("consumer")) {
            settings.put("group.protocol", "consumer"); // the broker sets the two times
            settings.put("group.remote.assignor", told.get("assignor"));
        } else {
            String assignor = "org.apache.kafka.clients.consumer." + ASSIGNORS.get(told.get("assignor"));
            settings.put("partition.assignment.strategy", assignor);
            settings.put("session.timeout.ms", told.get("session"));
            settings.put("heartbeat.interval.ms", "300");
        }
        setDaemon(true);
    }

    void tell(Members.Command command) {
        commands.add(command);
    }

    @Override
    public void run() {
        KafkaConsumer<String, String> consumer = null;
        try {
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
            boolean stays = true;
            while (stays) {
                for (ConsumerRecord<String, String> one : Calls.poll(consumer, 50)) {
                    say("record", "\"partition\": %d, \"offset\": %d, \"value\": \"%s\"", one.partition(), one.offset(), one.value());
                }
                for (Members.Command command = commands.poll(); command != null; command = commands.poll()) {
                    obey(consumer, command);
                    stays &= !command.word().equals("leave");
                }
            }
        } catch (Throwable error) {
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text));
            say("error", "\"text\": \"%s\"", text.toString().replaceAll("[\"\\\\\\p{Cntrl}]+", " "));
        }
    }

    private void obey(KafkaConsumer<String, String> consumer, Members.Command command) {
        switch (command.word()) {
            case "commit" -> consumer.commitSync(wanted(command.offsets()));
            case "seek" -> command.offsets().forEach((partition, offset) -> consumer.seek(place(partition), offset));
            case "leave" -> consumer.close();
            case "committed" -> {
                sayCommitted(consumer);
                return;
            }
            default -> throw new IllegalArgumentException(command.word());
        }
        say("done", "\"of\": \"%s\"", command.word());
    }

    private Map<TopicPartition, OffsetAndMetadata> wanted(Map<Integer, Long> offsets) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        offsets.forEach((partition, offset) -> found.put(place(partition), new OffsetAndMetadata(offset)));
        return found;
    }

    private void sayCommitted(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> all = new HashSet<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            all.add(place(partition));
        }
        Map<Integer, Long> found = new TreeMap<>();
        Calls.committed(consumer, all).forEach((place, offset) -> {
            if (offset != null) {
                found.put(place.partition(), offset.offset());
            }
        });
        List<String> pairs = new ArrayList<>();
        found.forEach((partition, offset) -> pairs.add("\"" + partition + "\": " + offset));
        say("committed", "\"offsets\": {%s}", String.join(", ", pairs));
    }

    private TopicPartition place(int partition) {
        return new TopicPartition(topic, partition);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        say("assigned", "\"partitions\": [%s]", numbers(places));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        say("revoked", "\"partitions\": [%s]", numbers(places));
    }

    private static String numbers(Collection<TopicPartition> places) {
        List<String> found = new ArrayList<>();
        for (TopicPartition place : places) {
            found.add(Integer.toString(place.partition()));
        }
        return String.join(", ", found);
    }

    private void say(String event, String format, Object... values) {
        Members.say("{\"member\": \"%s\", \"event\": \"%s\", %s}", name, event, String.format(format, values));
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Copies a topic, each poll in a transaction that also commits how far it has read, until the program ends. Every third
 * transaction is aborted, and its records read again; after an error it begins anew, with a new producer and consumer.
 */
final class Copier extends Thread {
    private final String bootstrap;
    private final Map<String, String> told;
    private int transactions = 0;

    Copier(String bootstrap, Map<String, String> told) {
        this.bootstrap = bootstrap;
        this.told = told;
        setDaemon(true);
    }

    @Override
    public void run() {
        Map<String, Object> settings = new HashMap<>(Transactions.near(bootstrap));
        settings.put("group.id", told.get("group"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("max.poll.records", "20");
        settings.put("heartbeat.interval.ms", "300");
        while (true) {
            KafkaProducer<String, String> producer = null;
            try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                producer = Transactions.opened(bootstrap, told.get("id"), "20000");
                consumer.subscribe(List.of(told.get("from")));
                while (true) {
                    ConsumerRecords<String, String> found = Calls.poll(consumer, 100);
                    if (!found.isEmpty()) {
                        copy(found, producer, consumer);
                    }
                }
            } catch (Throwable error) {
                Transactions.say("{\"event\": \"again\", \"text\": \"%s\"}", Transactions.text(error));
            } finally {
                if (producer != null) {
                    producer.close();
                }
            }
        }
    }

    private void copy(
            ConsumerRecords<String, String> found,
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer) {
        boolean commits = ++transactions % 3 != 2;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> one : found) {
            producer.send(new ProducerRecord<>(told.get("to"), one.partition(), null, one.value()));
            offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        Calls.sendOffsets(producer, offsets, told.get("group"), consumer);
        producer.flush(); // an abort would keep back what has not been sent yet
        if (commits) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
            for (TopicPartition place : new ArrayList<>(offsets.keySet())) {
                OffsetAndMetadata committed = Calls.committed(consumer, place);
                consumer.seek(place, committed == null ? 0 : committed.offset());
            }
        }
        Transactions.say("{\"event\": \"%s\", \"records\": %d}", commits ? "committed" : "aborted", found.count());
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** 0.9: the first consumer of its own; no timestamps. */
final class Generation implements Client {
    private final String bootstrap;
    private final KafkaConsumer<byte[], byte[]> consumer;

    Generation(String bootstrap) {
        this.bootstrap = bootstrap;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("group.id", "unused"); // it looks for the coordinator even if it is told its partitions
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Override
    public void close() {
        consumer.close();
    }

    @Override
    public List<Long> produce(
            String topic, int partition, List<Record> records, String codec, int acks, boolean idempotent)
            throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", acks == -1 ? "all" : Integer.toString(acks));
        settings.put("linger.ms", "5");
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Record record : records) {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, record.key(), record.value())));
            }
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get(Record.READ_MS_MAX, TimeUnit.MILLISECONDS).offset());
            }
        }
        return acks == 0 ? null : offsets;
    }

    @Override
    public List<Record> consume(String topic, int partition, long firstOffset, int count) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        consumer.assign(List.of(place));
        if (firstOffset == 0) {
            consumer.seekToBeginning(place);
        } else {
            consumer.seek(place, firstOffset);
        }
        List<Record> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new Script.Difference(place + ": " + found.size() + " of " + count + " records");
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                found.add(new Record(record.key(), record.value(), List.of(), null, record.offset()));
            }
        }
        return found;
    }

    @Override
    public List<Integer> describe(String topic) {
        List<Integer> found = new ArrayList<>();
        for (PartitionInfo partition : consumer.partitionsFor(topic)) {
            found.add(partition.partition());
        }
        return found;
    }

    @Override
    public List<Long> offsets(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        consumer.assign(List.of(place));
        consumer.seekToBeginning(place);
        long earliest = consumer.position(place);
        consumer.seekToEnd(place);
        return List.of(earliest, consumer.position(place));
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** 0.9 and newer: what KafkaProducer and KafkaConsumer can do in every release; what differs is a generation's. */
abstract class NewConsumer implements Client {
    protected final String bootstrap;
    protected final KafkaConsumer<byte[], byte[]> consumer;

    NewConsumer(String bootstrap) {
        this.bootstrap = bootstrap;
        consumer = newConsumer(Map.of("auto.offset.reset", "none"));
    }

    protected KafkaConsumer<byte[], byte[]> newConsumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Asks for records, for so long at most. */
    protected abstract ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms);

    protected abstract void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place);

    protected abstract ProducerRecord<byte[], byte[]> toKafka(String topic, int partition, Record record);

    protected abstract Record fromKafka(ConsumerRecord<byte[], byte[]> record);

    protected void addProducerSettings(Map<String, Object> settings, boolean idempotent) {}

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
        addProducerSettings(settings, idempotent);
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (Record record : records) {
                sent.add(producer.send(toKafka(topic, partition, record)));
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
            seekToBeginning(consumer, place);
        } else {
            consumer.seek(place, firstOffset);
        }
        List<Record> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new Script.Difference(place + ": " + found.size() + " of " + count + " records");
            }
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer, 500)) {
                found.add(fromKafka(record));
            }
        }
        return found;
    }

    @Override
    public List<Integer> describe(String topic) throws Exception {
        List<Integer> found = new ArrayList<>();
        for (PartitionInfo partition : consumer.partitionsFor(topic)) {
            found.add(partition.partition());
        }
        return found;
    }
}

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** 2.0 to 3.0: what is described has no topic ids yet. */
final class Generation implements Client {
    private final String bootstrap;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final AdminClient admin;

    Generation(String bootstrap) {
        this.bootstrap = bootstrap;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", "100");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        admin = AdminClient.create(Map.of("bootstrap.servers", bootstrap));
    }

    @Override
    public void close() {
        consumer.close();
        admin.close();
    }

    @Override
    public List<Long> produce(
            String topic, int partition, List<Record> records, String codec, int acks, boolean idempotent)
            throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("acks", acks == -1 ? "all" : Integer.toString(acks));
        settings.put("enable.idempotence", Boolean.toString(idempotent));
        settings.put("linger.ms", "5");
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
            consumer.seekToBeginning(List.of(place));
        } else {
            consumer.seek(place, firstOffset);
        }
        List<Record> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new Script.Difference(place + ": " + found.size() + " of " + count + " records");
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                found.add(fromKafka(record));
            }
        }
        return found;
    }

    @Override
    public Whole readCommitted(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("fetch.max.wait.ms", "100");
        List<Record> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> reader =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            long end = reader.endOffsets(List.of(place)).get(place);
            long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
            while (reader.position(place) < end && System.currentTimeMillis() < deadline) {
                reader.poll(Duration.ofMillis(100)).forEach(record -> found.add(fromKafka(record)));
            }
            deadline = System.currentTimeMillis() + Record.STAY_MS;
            while (System.currentTimeMillis() < deadline) {
                reader.poll(Duration.ofMillis(100)).forEach(record -> found.add(fromKafka(record)));
            }
            return new Whole(found, reader.position(place));
        }
    }

    @Override
    public List<Long> offsets(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        return List.of(
                consumer.beginningOffsets(List.of(place)).get(place), consumer.endOffsets(List.of(place)).get(place));
    }

    @Override
    public Long offsetAt(String topic, int partition, long timestamp) {
        TopicPartition place = new TopicPartition(topic, partition);
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, timestamp)).get(place);
        return found == null ? null : found.offset();
    }

    @Override
    public void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(configs);
        admin.createTopics(List.of(wanted)).all().get(Record.READ_MS_MAX, TimeUnit.MILLISECONDS);
    }

    @Override
    public List<Integer> describe(String topic) throws Exception {
        List<Integer> found = new ArrayList<>();
        try {
            for (TopicPartitionInfo partition : admin.describeTopics(List.of(topic)).values().get(topic).get().partitions()) {
                found.add(partition.partition());
            }
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                throw error;
            }
        }
        return found;
    }

    @Override
    public Map<String, String> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    @Override
    public void delete(String topic) throws Exception {
        admin.deleteTopics(List.of(topic)).all().get(Record.READ_MS_MAX, TimeUnit.MILLISECONDS);
    }

    @Override
    public Set<String> topics() throws Exception {
        return admin.listTopics().names().get();
    }

    static ProducerRecord<byte[], byte[]> toKafka(String topic, int partition, Record record) {
        List<Header> headers = new ArrayList<>();
        for (Record.Header header : record.headers()) {
            headers.add(new RecordHeader(header.key(), header.value()));
        }
        return new ProducerRecord<>(topic, partition, record.timestamp(), record.key(), record.value(), headers);
    }

    static Record fromKafka(ConsumerRecord<byte[], byte[]> record) {
        List<Record.Header> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(new Record.Header(header.key(), header.value()));
        }
        return new Record(record.key(), record.value(), headers, record.timestamp(), record.offset());
    }
}

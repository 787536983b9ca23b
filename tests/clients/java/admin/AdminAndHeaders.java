import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** 0.11 and newer: headers, idempotence, transactions to be read, and the admin client. */
abstract class AdminAndHeaders extends Times {
    private final AdminClient admin;

    AdminAndHeaders(String bootstrap) {
        super(bootstrap);
        admin = AdminClient.create(Map.of("bootstrap.servers", bootstrap));
    }

    protected abstract TopicDescription describe(AdminClient admin, String topic) throws Exception;

    @Override
    public void close() {
        super.close();
        admin.close();
    }

    @Override
    protected void addProducerSettings(Map<String, Object> settings, boolean idempotent) {
        settings.put("enable.idempotence", Boolean.toString(idempotent));
    }

    @Override
    public Whole readCommitted(String topic, int partition) {
        TopicPartition place = new TopicPartition(topic, partition);
        List<Record> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> reader = newConsumer(Map.of("isolation.level", "read_committed"))) {
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            long end = reader.endOffsets(List.of(place)).get(place);
            long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
            while (reader.position(place) < end && System.currentTimeMillis() < deadline) {
                poll(reader, 100).forEach(record -> found.add(fromKafka(record)));
            }
            deadline = System.currentTimeMillis() + Record.STAY_MS;
            while (System.currentTimeMillis() < deadline) {
                poll(reader, 100).forEach(record -> found.add(fromKafka(record)));
            }
            return new Whole(found, reader.position(place));
        }
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
            for (TopicPartitionInfo partition : describe(admin, topic).partitions()) {
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

    @Override
    protected ProducerRecord<byte[], byte[]> toKafka(String topic, int partition, Record record) {
        List<Header> headers = new ArrayList<>();
        for (Record.Header header : record.headers()) {
            headers.add(new RecordHeader(header.key(), header.value()));
        }
        return new ProducerRecord<>(topic, partition, record.timestamp(), record.key(), record.value(), headers);
    }

    @Override
    protected Record fromKafka(ConsumerRecord<byte[], byte[]> record) {
        List<Record.Header> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(new Record.Header(header.key(), header.value()));
        }
        return new Record(record.key(), record.value(), headers, record.timestamp(), record.offset());
    }
}

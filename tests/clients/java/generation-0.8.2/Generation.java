import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import kafka.api.FetchRequestBuilder;
import kafka.api.OffsetRequest;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** 0.8.2: the first of the new producers, and the SimpleConsumer of the Scala client. */
final class Generation implements Client {
    private static final int FETCH_BYTES = 2_000_000;
    private final String bootstrap;
    private final SimpleConsumer consumer;

    Generation(String bootstrap) {
        this.bootstrap = bootstrap;
        int colon = bootstrap.lastIndexOf(':');
        int port = Integer.parseInt(bootstrap.substring(colon + 1));
        consumer = new SimpleConsumer(bootstrap.substring(0, colon), port, Record.READ_MS_MAX, 1 << 20, "script");
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
        List<Record> found = new ArrayList<>();
        long next = firstOffset == 0 ? offset(topic, partition, OffsetRequest.EarliestTime()) : firstOffset;
        long deadline = System.currentTimeMillis() + Record.READ_MS_MAX;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new Script.Difference(topic + ": " + found.size() + " of " + count + " records");
            }
            FetchResponse answer =
                    consumer.fetch(
                            new FetchRequestBuilder()
                                    .clientId("script")
                                    .addFetch(topic, partition, next, FETCH_BYTES)
                                    .maxWait(100)
                                    .minBytes(1)
                                    .build());
            if (answer.hasError()) {
                throw new Script.Difference(topic + ": error " + answer.errorCode(topic, partition));
            }
            for (MessageAndOffset one : answer.messageSet(topic, partition)) {
                if (one.offset() >= next) { // a compressed batch is answered whole
                    found.add(toRecord(one));
                    next = one.nextOffset();
                }
            }
        }
        return found;
    }

    private static Record toRecord(MessageAndOffset one) throws Script.Difference {
        if (!one.message().isValid()) {
            throw new Script.Difference("offset " + one.offset() + ": checksum");
        }
        return new Record(bytes(one.message().key()), bytes(one.message().payload()), List.of(), null, one.offset());
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.get(copy);
        return copy;
    }

    @Override
    public List<Long> offsets(String topic, int partition) throws Exception {
        return List.of(
                offset(topic, partition, OffsetRequest.EarliestTime()),
                offset(topic, partition, OffsetRequest.LatestTime()));
    }

    private long offset(String topic, int partition, long time) throws Exception {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> wanted = new HashMap<>();
        wanted.put(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1));
        OffsetResponse answer = consumer.getOffsetsBefore(new kafka.javaapi.OffsetRequest(wanted, (short) 0, "script"));
        if (answer.hasError()) {
            throw new Script.Difference(topic + ": error " + answer.errorCode(topic, partition));
        }
        return answer.offsets(topic, partition)[0];
    }

    @Override
    public List<Integer> describe(String topic) {
        List<Integer> found = new ArrayList<>();
        for (TopicMetadata one : consumer.send(new TopicMetadataRequest(List.of(topic))).topicsMetadata()) {
            for (PartitionMetadata partition : one.partitionsMetadata()) {
                found.add(partition.partitionId());
            }
        }
        return found;
    }
}

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

/** 0.10.1 and newer: where a partition begins and ends, and lookups by time. */
abstract class Times extends NewConsumer {
    Times(String bootstrap) {
        super(bootstrap);
    }

    @Override
    protected void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place) {
        consumer.seekToBeginning(List.of(place));
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
}

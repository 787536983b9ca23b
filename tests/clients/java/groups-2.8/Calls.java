import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** 2.4 and newer. */
final class Calls {
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    static Map<TopicPartition, OffsetAndMetadata> committed(
            KafkaConsumer<String, String> consumer, Set<TopicPartition> places) {
        return consumer.committed(places);
    }
}

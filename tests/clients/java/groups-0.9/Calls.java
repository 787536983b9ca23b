import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** 0.9 to 2.3. */
final class Calls {
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long ms) {
        return consumer.poll(ms);
    }

    static Map<TopicPartition, OffsetAndMetadata> committed(
            KafkaConsumer<String, String> consumer, Set<TopicPartition> places) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (TopicPartition place : places) {
            found.put(place, consumer.committed(place));
        }
        return found;
    }
}

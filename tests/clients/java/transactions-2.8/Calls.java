import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** 2.5 and newer: who commits offsets of a group says which member it is, and of which generation. */
final class Calls {
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition place) {
        return consumer.committed(Set.of(place)).get(place);
    }

    static void sendOffsets(
            KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group) {
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
    }

    static void sendOffsets(
            KafkaProducer<String, String> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            String group,
            KafkaConsumer<String, String> member) {
        producer.sendOffsetsToTransaction(offsets, member.groupMetadata());
    }
}

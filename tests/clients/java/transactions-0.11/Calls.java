import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** 0.11 to 2.4: the broker hears of a group's name, and nothing of its members. */
final class Calls {
    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long ms) {
        return consumer.poll(ms);
    }

    static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition place) {
        return consumer.committed(place);
    }

    static void sendOffsets(
            KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }

    static void sendOffsets(
            KafkaProducer<String, String> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            String group,
            KafkaConsumer<String, String> member) {
        producer.sendOffsetsToTransaction(offsets, group);
    }
}

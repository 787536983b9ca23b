import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** 0.9: the first consumer of its own; no timestamps. */
final class Generation extends NewConsumer {
    Generation(String bootstrap) {
        super(bootstrap);
    }

    @Override
    protected KafkaConsumer<byte[], byte[]> newConsumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("group.id", "unused"); // it looks for the coordinator even if it is told its partitions
        return super.newConsumer(settings);
    }

    @Override
    protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(ms);
    }

    @Override
    protected void seekToBeginning(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place) {
        consumer.seekToBeginning(place);
    }

    @Override
    protected ProducerRecord<byte[], byte[]> toKafka(String topic, int partition, Record record) {
        return new ProducerRecord<>(topic, partition, record.key(), record.value());
    }

    @Override
    protected Record fromKafka(ConsumerRecord<byte[], byte[]> record) {
        return new Record(record.key(), record.value(), List.of(), null, record.offset());
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

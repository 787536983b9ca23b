import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** 0.10.1 and 0.10.2: timestamps and lookups by time have come; no headers, no admin client. */
final class Generation extends Times {
    Generation(String bootstrap) {
        super(bootstrap);
    }

    @Override
    protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(ms);
    }

    @Override
    protected ProducerRecord<byte[], byte[]> toKafka(String topic, int partition, Record record) {
        return new ProducerRecord<>(topic, partition, record.timestamp(), record.key(), record.value());
    }

    @Override
    protected Record fromKafka(ConsumerRecord<byte[], byte[]> record) {
        return new Record(record.key(), record.value(), List.of(), record.timestamp(), record.offset());
    }
}

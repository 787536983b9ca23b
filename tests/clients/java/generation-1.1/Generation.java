import java.util.List;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** 0.11 to 1.1: poll takes a number. */
final class Generation extends AdminAndHeaders {
    Generation(String bootstrap) {
        super(bootstrap);
    }

    @Override
    protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(ms);
    }

    @Override
    protected TopicDescription describe(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).values().get(topic).get();
    }
}

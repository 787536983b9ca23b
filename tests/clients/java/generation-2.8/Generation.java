import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** 2.0 to 3.0: what is described has no topic ids yet. */
final class Generation extends AdminAndHeaders {
    Generation(String bootstrap) {
        super(bootstrap);
    }

    @Override
    protected ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, int ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    @Override
    protected TopicDescription describe(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).values().get(topic).get();
    }
}

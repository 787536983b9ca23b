import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** 3.1 and newer, 4.x among them. */
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
        return admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get();
    }
}

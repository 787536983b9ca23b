import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client as ../turmoil.py wants it: BOOTSTRAP TOPIC; see Process there for what is said. */
class Turmoil {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1];
        KafkaProducer<String, String> producer = null;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("send")) {
                if (producer == null) {
                    producer = new KafkaProducer<>(settings(bootstrap), new StringSerializer(), new StringSerializer());
                }
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 1; i < words.length; i += 2) {
                    sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(words[i]), null, words[i + 1])));
                }
                for (int i = 1; i < words.length; i += 2) {
                    System.out.println("ack " + words[i] + " " + words[i + 1] + " " + sent.get(i / 2).get().offset());
                }
            } else {
                read(bootstrap, topic, words);
            }
            System.out.println("done");
        }
        if (producer != null) {
            producer.close();
        }
    }

    static Map<String, Object> settings(String bootstrap) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "50");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "50");
        return settings;
    }

    static void read(String bootstrap, String topic, String[] words) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            long missing = 0;
            for (int i = 1; i < words.length; i += 2) {
                partitions.add(new TopicPartition(topic, Integer.parseInt(words[i])));
                missing += Long.parseLong(words[i + 1]);
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (missing > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println("got " + record.partition() + " " + record.offset() + " " + record.value());
                    missing--;
                }
            }
        }
    }
}

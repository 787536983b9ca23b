package shop;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads orders, writes a bill for each: bill and offset in one transaction, so that each order is billed once. */
public final class BillingService implements Runnable {
    public static final String GROUP = "billing";
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;

    public BillingService(String bootstrapServers) {
        Properties reading = new Properties();
        reading.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        reading.put(ConsumerConfig.GROUP_ID_CONFIG, GROUP);
        reading.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        reading.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        reading.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
        Properties writing = new Properties();
        writing.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        writing.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "billing-1");
        producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
    }

    /** Works until {@link #stop()}. */
    @Override
    public void run() {
        try (consumer; producer) {
            producer.initTransactions();
            consumer.subscribe(List.of("orders"));
            while (true) {
                bill(consumer.poll(Duration.ofSeconds(1)));
            }
        } catch (WakeupException stopped) {
            // That is how run() ends.
        }
    }

    private void bill(Iterable<ConsumerRecord<String, String>> orders) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> order : orders) {
            if (offsets.isEmpty()) {
                producer.beginTransaction();
            }
            long cents = Math.round(Double.parseDouble(order.value()) * 100);
            producer.send(new ProducerRecord<>("bills", order.key(), cents + " cents"));
            TopicPartition partition = new TopicPartition(order.topic(), order.partition());
            offsets.put(partition, new OffsetAndMetadata(order.offset() + 1));
        }
        if (!offsets.isEmpty()) {
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    /** Ends {@link #run()}, from any thread. */
    public void stop() {
        consumer.wakeup();
    }

    public static void main(String[] arguments) {
        BillingService service = new BillingService(arguments[0]);
        Runtime.getRuntime().addShutdownHook(new Thread(service::stop));
        service.run();
    }
}

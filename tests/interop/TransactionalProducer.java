// Begins to write a transaction, as the first argument's broker allows; prints what became of it.

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionalProducer {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", "java");
        settings.put("max.block.ms", "30000");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            long begun = System.nanoTime();
            try {
                producer.initTransactions();
                System.out.println("begun");
            } catch (RuntimeException refused) {
                System.out.println(refused.getClass().getSimpleName() + ": " + refused.getMessage());
            }
            System.out.println((System.nanoTime() - begun) / 1_000_000 + " ms");
        }
    }
}

package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class BillingServiceTest {
    /** The first commit of a transaction is carried out and its answer lost: the service has to find that out. */
    @RegisterExtension
    Minibroker kafka =
            new Minibroker("--topic", "orders", "--topic", "bills", "--fault", "api=EndTxn,close=after,times=1");

    private BillingService service;
    private Thread thread;

    private void start() {
        service = new BillingService(kafka.bootstrapServers());
        thread = new Thread(service);
        thread.start();
    }

    @AfterEach
    void stop() throws InterruptedException {
        service.stop();
        thread.join();
    }

    @Test
    void eachOrderIsBilledOnceThoughAnAnswerIsLost() throws IOException, InterruptedException {
        order("1", "9.99");
        start();
        assertEquals(List.of("1: 999 cents"), bills(1));
        order("2", "20");
        assertEquals(List.of("1: 999 cents", "2: 2000 cents"), bills(2));
        String faults = get("/faults");
        assertTrue(faults.contains("\"strikes\": 1"), faults);
    }

    @Test
    void aServiceThatComesBackGoesOnWhereItWas() throws InterruptedException {
        order("1", "1");
        start();
        bills(1);
        stop();
        order("2", "2");
        start();
        assertEquals(List.of("1: 100 cents", "2: 200 cents"), bills(2));
    }

    private void order(String id, String price) {
        Map<String, Object> settings = Map.of("bootstrap.servers", kafka.bootstrapServers());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", id, price));
        }
    }

    /** What the broker answers by HTTP, on the same port. */
    private String get(String path) throws IOException, InterruptedException {
        var asked = HttpRequest.newBuilder(URI.create("http://" + kafka.bootstrapServers() + path)).build();
        return HttpClient.newHttpClient().send(asked, BodyHandlers.ofString()).body();
    }

    /** All bills from the beginning, once there are so many. */
    private List<String> bills(int count) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", kafka.bootstrapServers(),
                "group.id", "test",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "isolation.level", "read_committed");
        List<String> found = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("bills"));
            while (found.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(bill -> found.add(bill.key() + ": " + bill.value()));
            }
        }
        return found;
    }
}

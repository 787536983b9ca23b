package shop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A JUnit extension: a Kafka broker for each test, on memory and a free port.
 *
 * <pre>{@code @RegisterExtension Minibroker kafka = new Minibroker("--topic", "orders:3");}</pre>
 *
 * The program is `minibroker` of the PATH, or what the variable MINIBROKER names. It ends with the test, and with this
 * JVM in any case, also if that is killed: its input ends then.
 */
public final class Minibroker implements BeforeEachCallback, AfterEachCallback {
    private final List<String> command = new ArrayList<>();
    private Process process;
    private String bootstrapServers;

    public Minibroker(String... options) {
        command.add(Optional.ofNullable(System.getenv("MINIBROKER")).orElse("minibroker"));
        command.addAll(List.of("serve", "--port", "0", "--memory", "--quiet", "--until-stdin-ends"));
        command.addAll(List.of(options));
    }

    public String bootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public void beforeEach(ExtensionContext context) throws IOException {
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        bootstrapServers = process.inputReader().readLine(); // printed when it answers, and not before
        if (bootstrapServers == null) {
            throw new IOException(String.join(" ", command) + " has ended; what it says stands above");
        }
    }

    @Override
    public void afterEach(ExtensionContext context) throws IOException, InterruptedException {
        process.getOutputStream().close();
        if (!process.waitFor(30, TimeUnit.SECONDS)) {
            process.destroyForcibly();
        }
    }
}

// A worker of Connect, distributed: the file with its settings, and one with those of a connector that it is to have,
// if there is none yet. It ends when it is killed; what the connector cannot be made for is printed.

import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.errors.AlreadyExistsException;
import org.apache.kafka.connect.runtime.Herder.Created;
import org.apache.kafka.connect.runtime.distributed.DistributedHerder;
import org.apache.kafka.connect.runtime.distributed.RebalanceNeededException;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo;
import org.apache.kafka.connect.util.FutureCallback;

public class ConnectWorker {
    public static void main(String[] arguments) throws Exception {
        var connect = new ConnectDistributed().startConnect(read(arguments[0]));
        Map<String, String> connector = read(arguments[1]);
        while (!isMade(connect.herder(), connector)) {}
        connect.awaitStop();
    }

    static boolean isMade(DistributedHerder herder, Map<String, String> connector) throws Exception {
        FutureCallback<Created<ConnectorInfo>> done = new FutureCallback<>();
        herder.putConnectorConfig(connector.get("name"), connector, false, done);
        try {
            done.get();
            return true;
        } catch (ExecutionException refused) {
            Throwable cause = refused.getCause();
            if (cause instanceof RebalanceNeededException) {
                return false; // its group is about to change: as a client of its HTTP port would, it asks again
            }
            if (!(cause instanceof AlreadyExistsException)) {
                cause.printStackTrace();
            }
            return true;
        }
    }

    static Map<String, String> read(String path) throws IOException {
        Properties found = new Properties();
        try (Reader reader = new FileReader(path)) {
            found.load(reader);
        }
        Map<String, String> settings = new HashMap<>();
        found.forEach((name, value) -> settings.put((String) name, (String) value));
        return settings;
    }
}

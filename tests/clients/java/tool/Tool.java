import java.util.Scanner;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Kafka's own kafka-consumer-groups, many commands in one process, which says its version first: a line of arguments
 * in, what the tool prints out, then a line that says that it is done. An end of the process is a command line that the tool does not understand.
 */
final class Tool {
    static final String DONE = "-- done --";

    public static void main(String[] ignored) {
        System.out.println(AppInfoParser.getVersion());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            ConsumerGroupCommand.main(lines.nextLine().split(" "));
            System.out.println("\n" + DONE); // some releases leave the last line open
            System.out.flush();
        }
    }
}

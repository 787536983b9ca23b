import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.KafkaProducer;

/**
 * The members of groups for the Java clients: BOOTSTRAP. Commands come on the input, events go to the output;
 * ../../python/group_script.py is the other end, README.md has the words.
 */
final class Members {
    public static void main(String[] arguments) {
        String jar = KafkaProducer.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        String version = jar.replaceAll(".*kafka-clients-(.*)\\.jar", "$1"); // no class says it in all versions
        say("{\"client\": \"java\", \"version\": \"%s\"}", version);
        Map<String, Member> members = new HashMap<>();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            Map<String, String> settings = new HashMap<>();
            for (int index = 2; index < words.length; index++) {
                String[] pair = words[index].split("=", 2);
                settings.put(pair[0], pair[1]);
            }
            if (words[0].equals("join")) {
                Member member = new Member(arguments[0], words[1], settings);
                members.put(words[1], member);
                member.start();
            } else {
                members.get(words[1]).tell(new Command(words[0], offsets(settings)));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    record Command(String word, Map<Integer, Long> offsets) {}

    static Map<Integer, Long> offsets(Map<String, String> settings) {
        Map<Integer, Long> found = new TreeMap<>();
        String text = settings.getOrDefault("at", settings.getOrDefault("to", ""));
        for (String place : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] pair = place.split(":");
            found.put(Integer.valueOf(pair[0]), Long.valueOf(pair[1]));
        }
        return found;
    }

    static synchronized void say(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
        System.out.flush();
    }
}

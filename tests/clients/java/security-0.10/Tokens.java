import java.util.Map;

/** Before 2.0 there is no OAUTHBEARER. */
final class Tokens {
    static void add(Map<String, Object> settings, String token) {
        throw new UnsupportedOperationException("OAUTHBEARER");
    }
}

import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** The token of a case, which stands among the options of its JAAS line. */
public final class Tokens implements AuthenticateCallbackHandler {
    private static final long HOUR_MS = 3_600_000;
    private String text;

    static void add(Map<String, Object> settings, String token) {
        settings.put("sasl.mechanism", "OAUTHBEARER");
        settings.put(
                "sasl.jaas.config",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required token=\"" + token
                        + "\";");
        settings.put("sasl.login.callback.handler.class", "Tokens");
    }

    @Override
    public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {
        text = (String) entries.get(0).getOptions().get("token");
    }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback one : callbacks) {
            if (one instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) one).token(new Token(text));
            }
        }
    }

    @Override
    public void close() {}

    /** Good for an hour, as far as the client knows: the broker is to say what it is. */
    private static final class Token implements OAuthBearerToken {
        private final String text;
        private final long start = System.currentTimeMillis();

        Token(String text) {
            this.text = text;
        }

        @Override
        public String value() {
            return text;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return start + HOUR_MS;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return start;
        }
    }
}

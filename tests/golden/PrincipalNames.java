/* Made principal-names.jsonl: java -cp "JARS OF kafka-clients 4.4.0" PrincipalNames.java > principal-names.jsonl

Names of certificates as X500Principal.getName() prints them, and what SslPrincipalMapper makes of some.
*/
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.*;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class PrincipalNames {
  static byte[] der(int tag, byte[]... parts) {
    ByteArrayOutputStream body = new ByteArrayOutputStream(), whole = new ByteArrayOutputStream();
    for (byte[] part : parts) body.writeBytes(part);
    whole.write(tag);
    if (body.size() > 255) { whole.write(0x82); whole.write(body.size() >> 8); }
    else if (body.size() > 127) whole.write(0x81);
    whole.write(body.size());
    whole.writeBytes(body.toByteArray());
    return whole.toByteArray();
  }
  static byte[] oid(String dotted) {
    String[] words = dotted.split("\\.");
    ByteArrayOutputStream body = new ByteArrayOutputStream();
    body.write(Integer.parseInt(words[0]) * 40 + Integer.parseInt(words[1]));
    for (int i = 2; i < words.length; i++) {
      long value = Long.parseLong(words[i]);
      Deque<Integer> bytes = new ArrayDeque<>();
      bytes.push((int) (value & 0x7f));
      while ((value >>= 7) > 0) bytes.push((int) (value & 0x7f) | 0x80);
      for (int each : bytes) body.write(each);
    }
    return der(6, body.toByteArray());
  }
  static byte[] pair(String oid, int tag, byte[] value) { return der(0x30, oid(oid), der(tag, value)); }
  static byte[] utf8(String oid, String value) { return pair(oid, 12, value.getBytes(StandardCharsets.UTF_8)); }
  static byte[] one(byte[]... pairs) { return der(0x31, pairs); }
  static byte[] name(byte[]... parts) { return der(0x30, parts); }

  static final String CN = "2.5.4.3", C = "2.5.4.6", L = "2.5.4.7", ST = "2.5.4.8", STREET = "2.5.4.9", O = "2.5.4.10",
      OU = "2.5.4.11", UID = "0.9.2342.19200300.100.1.1", DC = "0.9.2342.19200300.100.1.25";

  static void names() {
    byte[] latin = "Zürich".getBytes(StandardCharsets.ISO_8859_1);
    for (byte[] name : new byte[][] {
        name(),
        name(one(utf8(CN, "alice"))),
        name(one(utf8(C, "DE")), one(utf8(ST, "Bayern")), one(utf8(L, "Ulm")), one(utf8(STREET, "Gasse 1")),
            one(utf8(O, "Acme, Inc.")), one(utf8(OU, "dev")), one(utf8(DC, "example")), one(utf8(UID, "a1")), one(utf8(CN, "alice"))),
        name(one(pair(C, 19, "DE".getBytes())), one(pair(DC, 22, "example".getBytes()))),
        name(one(utf8(CN, "a"), utf8(OU, "b")), one(utf8(O, "c"))),
        name(one(utf8(CN, "a+b=c,d;e<f>g\"h\\i#j"))),
        name(one(utf8(CN, "#alice"))),
        name(one(utf8(CN, " a b "))),
        name(one(utf8(CN, "  "))),
        name(one(utf8(CN, "\r a"))),
        name(one(utf8(CN, ""))),
        name(one(utf8(CN, "nul\0byte"))),
        name(one(utf8(CN, "tab\tline\nend"))),
        name(one(utf8(CN, "Zürich Größe 東京 \uD83D\uDE00"))),
        name(one(pair(CN, 20, latin))),
        name(one(pair(CN, 30, "Zürich".getBytes(StandardCharsets.UTF_16BE)))),
        name(one(pair(CN, 28, new byte[] {0, 0, 0, 65, 0, 0, 0, 66}))),
        name(one(pair(CN, 18, "123".getBytes()))),
        name(one(pair(CN, 4, "abc".getBytes()))),
        name(one(pair("1.2.840.113549.1.9.1", 22, "a@b.c".getBytes())), one(utf8(CN, "mail"))),
        name(one(utf8("2.5.4.5", "77")), one(utf8("2.5.4.4", "Doe")), one(utf8("2.5.4.12", "Dr")), one(utf8("1.3.6.1.4.1.311.60.2.1.3", "DE"))),
        name(one(utf8(CN, "x".repeat(300)))),
    }) System.out.println("{\"name\":" + q(HexFormat.of().formatHex(name)) + ",\"text\":" + q(new X500Principal(name).getName()) + "}");
  }

  static void rules() {
    String alice = "CN=Alice,OU=Dev,O=Acme,C=DE";
    String[] names = {alice, "CN=kafka1.example.com,OU=SRE", "OU=x", "", "CN=a/b,OU=c", "CN=a\\,b"};
    for (String rules : new String[] {
        "DEFAULT", "", "RULE:^CN=(.*?),OU=.*$/$1/", "RULE:^CN=(.*?),OU=.*$/$1/L", "RULE:^CN=(.*?),OU=.*$/$1/U,DEFAULT",
        "RULE:^CN=(.*?),OU=Dev,.*$/$1@dev/L,RULE:^CN=(.*?),OU=(.*?)$/$2-$1/,DEFAULT",
        "RULE:^CN=([^.]*)\\..*,OU=SRE$/$1/ , DEFAULT", "  DEFAULT  ", "DEFAULT,RULE:.*/never/", "RULE:.*/x/", "RULE:a/b/,",
        "RULE:^CN=(.*),OU=(.*)$/$1$2$3/", "RULE:^CN=(.*?),(.*)$/$12/", "RULE:^CN=(.*?),(.*)$/$0/", "RULE:^CN=(.*?),(.*)$/\\$1/",
        "RULE:^CN=(.*?),(.*)$/a\\/b$1/", "RULE:^CN=a\\/b,(.*)$/slash/", "RULE:CN=(.*?),(.*)/$01/", "RULE:/empty/",
        "RULE:^CN=((?:[a-z]|[A-Z])+).*$/$1/L,DEFAULT", "RULE:(CN|OU)=(\\w+).*/$2-$1/U", "RULE:^(?i)cn=(.*?),.*$/$1/",
        "RULE:^CN=(?<who>.*?),.*$/$1/", "RULE:.*?/e/", "RULE:CN=Alice.*\\z/z/", "RULE:^CN=\\p{Alpha}+.*$/p/",
        "RULE:^CN=(.*)$/$1/X", "RULE:^CN=(.*)$/$1", "RULE:^CN=(.*)$", "nonsense", "DEFAULT/L", "RULE:^CN=(.*$/$1/", "RULE:.*/$/",
        "RULE:CN=.*/$1/", "RULE:.*/a\\/", "RULE:^CN=(.*?),OU=(.*?)$/$1/L/DEFAULT", "DEFAULT DEFAULT", ",", ",,DEFAULT", "default",
    }) {
      SslPrincipalMapper mapper;
      try { mapper = SslPrincipalMapper.fromRules(rules); }
      catch (Exception e) { System.out.println("{\"rules\":" + q(rules) + ",\"refused\":" + q(e.getClass().getSimpleName()) + "}"); continue; }
      for (String name : names) {
        String found, none = "null";
        try { found = q(mapper.getName(name)); }
        catch (SslPrincipalMapper.NoMatchingRule e) { found = "null"; }
        catch (Exception e) { found = "null"; none = q(e.getClass().getSimpleName()); }
        System.out.println("{\"rules\":" + q(rules) + ",\"of\":" + q(name) + ",\"is\":" + found + ",\"failed\":" + none + "}");
      }
    }
  }

  static String q(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') quoted.append('\\').append(c);
      else if (c < 32 || c > 126) quoted.append(String.format("\\u%04x", (int) c));
      else quoted.append(c);
    }
    return quoted.append('"').toString();
  }

  public static void main(String[] arguments) { names(); rules(); }
}

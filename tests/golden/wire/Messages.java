// Made wire/requests and wire/responses: every version of every message that the classes of one release have, in three
// variants, one per line. tests/interop/golden_messages.py runs it and says which release's line is taken:
//   python -m tests.interop.golden_messages

import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

public class Messages {
    static final String LONG_TEXT = "é€😀" + "x".repeat(130);
    static final byte[][] RECORDS = { // by format: one record, key and value
        HexFormat.of().parseHex("0000000000000000000000162356c1370000000000036b65790000000576616c7565"),
        HexFormat.of().parseHex("00000000000000000000001efa8f80f5010000000174876e8000000000036b65790000000576616c7565"),
        HexFormat.of().parseHex("0000000000000000000000400000000002c65781af00000000000000000174876e80000000"
            + "0174876e8000ffffffffffffffffffffffffffff000000011c000000066b65790a76616c756500"),
    };

    final int apiKey;
    final int version;
    final String variant; // full: every field, arrays of 2; null: what may be null is, no tagged fields; extreme: limits
    final StringBuilder fields = new StringBuilder();
    int count; // of values so far: every value is its place

    Messages(int apiKey, int version, String variant) {
        this.apiKey = apiKey;
        this.version = version;
        this.variant = variant;
    }

    public static void main(String[] arguments) throws Exception {
        boolean isRequest = arguments[1].equals("requests");
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (ApiMessageType type : ApiMessageType.values()) {
            Schema[] schemas = isRequest ? type.requestSchemas() : type.responseSchemas();
            for (int version = 0; version < schemas.length; version++)
                for (String variant : schemas[version] == null ? new String[0] : new String[] {"full", "null", "extreme"})
                    out.println(line(type, isRequest, schemas[version], (short) version, variant, arguments[0]));
        }
        out.flush();
    }

    static String line(
        ApiMessageType type, boolean isRequest, Schema schema, short version, String variant, String release
    ) throws Exception {
        Message message = isRequest ? type.newRequest() : type.newResponse();
        Messages values = new Messages(type.apiKey(), version, variant);
        values.fill(message, schema);
        short headerVersion = isRequest ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        Message header = isRequest
            ? new RequestHeaderData().setRequestApiKey(type.apiKey()).setRequestApiVersion(version)
                .setCorrelationId(1234567).setClientId("client-1")
            : new ResponseHeaderData().setCorrelationId(1234567);
        String name = message.getClass().getSimpleName().replaceAll("Data$", "");
        return "{\"name\":\"" + name + "\",\"kind\":\"" + (isRequest ? "request" : "response") + "\",\"apiKey\":"
            + type.apiKey() + ",\"version\":" + version + ",\"variant\":\"" + variant + "\",\"headerVersion\":"
            + headerVersion + ",\"header\":\"" + hex(header, headerVersion) + "\",\"hex\":\"" + hex(message, version)
            + "\",\"fields\":" + values.fields + ",\"release\":\"" + release + "\"}";
    }

    static String hex(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }

    // Set the fields of a struct in the order of the wire, tagged ones last, and write them down.
    void fill(Object struct, Schema schema) throws Exception {
        fields.append('{');
        boolean isFirst = true;
        for (BoundField bound : schema.fields()) {
            Map<Integer, Field> group = Map.of(0, bound.def);
            if (bound.def.type instanceof TaggedFields)
                group = variant.equals("null") ? Map.of() : tagged((TaggedFields) bound.def.type);
            for (Field field : group.values()) {
                Method setter = setter(struct.getClass(), field.name);
                String name = setter.getName().substring(3, 4).toLowerCase() + setter.getName().substring(4);
                fields.append(isFirst ? "\"" : ",\"").append(name).append("\":");
                isFirst = false;
                boolean isNull = variant.equals("null") && mayBeNull(field, struct, name);
                Object value = isNull ? plain(null) : value(field.type, setter.getGenericParameterTypes()[0]);
                setter.invoke(struct, value);
            }
        }
        fields.append('}');
    }

    // The type of records says of all that they may, that of a struct says it since 4.1 only.
    static boolean mayBeNull(Field field, Object struct, String name) throws Exception {
        return field.type.isNullable() && !field.name.equals("unaligned_records")
            || field.type instanceof Schema && struct.getClass().getMethod(name).invoke(struct) == null;
    }

    // 3.9 shows them to nobody.
    @SuppressWarnings("unchecked")
    static Map<Integer, Field> tagged(TaggedFields type) throws Exception {
        java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
        fields.setAccessible(true);
        return new TreeMap<>((Map<Integer, Field>) fields.get(type));
    }

    static Method setter(Class<?> owner, String field) {
        String name = "set" + field.replace("_", "");
        return Arrays.stream(owner.getMethods())
            .filter(each -> each.getName().equalsIgnoreCase(name) && each.getParameterCount() == 1)
            .findFirst().orElseThrow(() -> new IllegalStateException(owner + " has no " + name));
    }

    Object value(org.apache.kafka.common.protocol.types.Type type, Type java) throws Exception {
        if (type.isArray())
            return array(type.arrayElementType().get(), java);
        if (type instanceof Schema) {
            Object struct = ((Class<?>) java).getConstructor().newInstance();
            fill(struct, (Schema) type);
            return struct;
        }
        return scalar(type.toString().replaceAll("^(COMPACT_)?(NULLABLE_)?", ""), java);
    }

    Object array(org.apache.kafka.common.protocol.types.Type element, Type java) throws Exception {
        Class<?> raw = (Class<?>) (java instanceof ParameterizedType ? ((ParameterizedType) java).getRawType() : java);
        Type of = java instanceof ParameterizedType ? ((ParameterizedType) java).getActualTypeArguments()[0]
            : ((ParameterizedType) raw.getGenericSuperclass()).getActualTypeArguments()[0];
        @SuppressWarnings("unchecked")
        Collection<Object> values = (Collection<Object>) (raw.isInterface() ? new java.util.ArrayList<>()
            : raw.getConstructor().newInstance());
        int length = variant.equals("full") ? 2 : 1;
        if (variant.equals("extreme") && !(element instanceof Schema) && count % 2 == 1)
            length = 0;
        fields.append('[');
        for (int index = 0; index < length; index++) {
            fields.append(index == 0 ? "" : ",");
            values.add(value(element, of));
        }
        fields.append(']');
        return values;
    }

    Object scalar(String type, Type java) throws Exception {
        count++;
        boolean isExtreme = variant.equals("extreme");
        boolean isOdd = count % 2 == 1;
        switch (type) {
            case "BOOLEAN":
                return plain(!isExtreme || isOdd);
            case "INT8":
                return plain(isExtreme ? isOdd ? Byte.MIN_VALUE : Byte.MAX_VALUE : (byte) (count % 100 + 1));
            case "INT16":
                return plain(isExtreme ? isOdd ? Short.MIN_VALUE : Short.MAX_VALUE : (short) (300 + count));
            case "UINT16":
                return plain(isExtreme ? isOdd ? 0 : 65535 : 40_000 + count);
            case "INT32":
                return plain(isExtreme ? isOdd ? Integer.MIN_VALUE : Integer.MAX_VALUE : 70_000 + count);
            case "INT64":
                return plain(isExtreme ? isOdd ? Long.MIN_VALUE : Long.MAX_VALUE : 5_000_000_000L + count);
            case "FLOAT64":
                double number = isExtreme ? isOdd ? -0.5 : Double.MAX_VALUE : count + 0.25;
                fields.append(String.valueOf(number).replace("E", "e+"));
                return number;
            case "STRING":
                return quoted(isExtreme ? isOdd ? LONG_TEXT : "" : "s" + count);
            case "UUID":
                byte[] id = new byte[16];
                for (int index = 0; index < 16; index++)
                    id[index] = (byte) (isExtreme ? isOdd ? -1 : 0 : count + index);
                ByteBuffer halves = ByteBuffer.wrap(id);
                fields.append('"').append(Base64.getUrlEncoder().withoutPadding().encodeToString(id)).append('"');
                return new Uuid(halves.getLong(), halves.getLong());
            case "BYTES":
                byte[] bytes = isExtreme ? new byte[isOdd ? 256 : 0] : new byte[] {(byte) count, -1, 0};
                for (int index = 0; isExtreme && index < bytes.length; index++)
                    bytes[index] = (byte) index;
                return encoded(bytes, java == byte[].class ? bytes : ByteBuffer.wrap(bytes));
            case "RECORDS":
                int oldest = apiKey == 0 ? 3 : apiKey == 1 ? 4 : 0; // version of Produce, Fetch, with format 2
                byte[] records = RECORDS[isExtreme || version >= oldest ? 2 : version >= 2 ? 1 : 0];
                Class<?> readable = Class.forName(((Class<?>) java).getPackageName() + ".MemoryRecords"); // 4.4 has moved it
                return encoded(records, readable.getMethod("readableRecords", ByteBuffer.class)
                    .invoke(null, ByteBuffer.wrap(records)));
            default:
                throw new IllegalStateException("what is " + type + "?");
        }
    }

    Object plain(Object value) {
        fields.append(value);
        return value;
    }

    Object quoted(String text) {
        fields.append('"').append(text).append('"');
        return text;
    }

    Object encoded(byte[] bytes, Object value) {
        fields.append('"').append(Base64.getEncoder().encodeToString(bytes)).append('"');
        return value;
    }
}

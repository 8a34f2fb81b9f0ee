import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/** Kafka's clients, asked by lines of JSON: {"op", "on": number of the object, ...}. */
public class Client {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LIMIT = 60;
    private final List<AutoCloseable> made = new ArrayList<>();
    private final String address;

    Client(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        var client = new Client(arguments[0]);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null;) {
            var reply = new HashMap<String, Object>();
            try {
                reply.put("value", client.answer(JSON.readTree(line)));
            } catch (Exception error) {
                reply.put("error", name(error));
            }
            out.println(JSON.writeValueAsString(reply));
        }
        System.exit(0);
    }

    private static String name(Throwable error) {
        boolean wraps = error instanceof ExecutionException && error.getCause() != null;
        return (wraps ? error.getCause() : error).getClass().getSimpleName();
    }

    private Object answer(JsonNode asked) throws Exception {
        String op = asked.get("op").asText();
        switch (op) {
            case "producer": return keep(new KafkaProducer<>(config(asked), new StringSerializer(), new StringSerializer()));
            case "consumer": return keep(new KafkaConsumer<>(config(asked), new StringDeserializer(), new StringDeserializer()));
            case "admin": return keep(Admin.create(config(asked)));
        }
        AutoCloseable on = made.get(asked.get("on").asInt());
        if (op.equals("close")) {
            on.close();
            return null;
        }
        if (on instanceof KafkaProducer<?, ?>)
            return produce(op, asked, (KafkaProducer<String, String>) on);
        if (on instanceof KafkaConsumer<?, ?>)
            return consume(op, asked, (KafkaConsumer<String, String>) on);
        return administer(op, asked, (Admin) on);
    }

    private int keep(AutoCloseable object) {
        made.add(object);
        return made.size() - 1;
    }

    private Map<String, Object> config(JsonNode asked) {
        var found = new HashMap<String, Object>(Map.of("bootstrap.servers", address));
        asked.get("config").fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    private static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    private static TopicPartition place(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), asked.get("partition").asInt());
    }

    private Object produce(String op, JsonNode asked, KafkaProducer<String, String> producer) throws Exception {
        switch (op) {
            case "send": {
                var futures = new ArrayList<Future<RecordMetadata>>();
                for (JsonNode each : asked.get("records")) {
                    var headers = new ArrayList<Header>();
                    for (JsonNode header : each.get(2))
                        headers.add(new RecordHeader(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8)));
                    Long timestamp = each.get(3).isNull() ? null : each.get(3).asLong();
                    futures.add(producer.send(new ProducerRecord<>(asked.get("topic").asText(), each.get(4).asInt(), timestamp, text(each.get(1)), text(each.get(0)), headers)));
                }
                producer.flush();
                var found = new ArrayList<Object>();
                for (var future : futures) {
                    try {
                        found.add(future.get(LIMIT, TimeUnit.SECONDS).offset());
                    } catch (ExecutionException error) {
                        found.add("error: " + name(error));
                    }
                }
                return found;
            }
            case "init": producer.initTransactions(); return null;
            case "begin": producer.beginTransaction(); return null;
            case "send_offset": {
                var group = new ConsumerGroupMetadata(asked.get("group").asText());
                producer.sendOffsetsToTransaction(Map.of(place(asked), new OffsetAndMetadata(asked.get("offset").asLong())), group);
                return null;
            }
            case "commit": producer.commitTransaction(); return null;
            case "abort": producer.abortTransaction(); return null;
        }
        throw new IllegalArgumentException(op);
    }

    private Object consume(String op, JsonNode asked, KafkaConsumer<String, String> consumer) throws Exception {
        switch (op) {
            case "subscribe": consumer.subscribe(List.of(asked.get("topic").asText())); return null;
            case "assign": {
                consumer.assign(List.of(place(asked)));
                consumer.seek(place(asked), asked.get("offset").asLong());
                return null;
            }
            case "poll": {
                var rows = new ArrayList<Object>();
                for (var each : consumer.poll(Duration.ofMillis(asked.get("milliseconds").asLong()))) {
                    var headers = new ArrayList<List<String>>();
                    for (Header header : each.headers())
                        headers.add(List.of(header.key(), new String(header.value(), StandardCharsets.UTF_8)));
                    rows.add(Arrays.asList(each.partition(), each.offset(), each.timestamp(), each.key(), each.value(), headers));
                }
                return rows;
            }
            case "assignment": return consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
            case "commit": consumer.commitSync(); return null;
            case "committed": {
                var found = consumer.committed(Set.of(place(asked))).get(place(asked));
                return found == null ? null : found.offset();
            }
            case "bounds": {
                var places = List.of(place(asked));
                return List.of(consumer.beginningOffsets(places).get(places.get(0)), consumer.endOffsets(places).get(places.get(0)));
            }
            case "offset_at": {
                var found = consumer.offsetsForTimes(Map.of(place(asked), asked.get("timestamp").asLong())).get(place(asked));
                return found == null ? null : found.offset();
            }
        }
        throw new IllegalArgumentException(op);
    }

    private Object administer(String op, JsonNode asked, Admin admin) throws Exception {
        String topic = asked.has("topic") ? asked.get("topic").asText() : "";
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (op) {
            case "create": {
                var options = new HashMap<String, String>();
                asked.get("options").fields().forEachRemaining(each -> options.put(each.getKey(), each.getValue().asText()));
                var wanted = new NewTopic(topic, asked.get("partitions").asInt(), (short) asked.get("replicas").asInt());
                return admin.createTopics(List.of(wanted.configs(options))).all().get(LIMIT, TimeUnit.SECONDS);
            }
            case "delete": return admin.deleteTopics(List.of(topic)).all().get(LIMIT, TimeUnit.SECONDS);
            case "extend": {
                var wanted = Map.of(topic, NewPartitions.increaseTo(asked.get("partitions").asInt()));
                return admin.createPartitions(wanted).all().get(LIMIT, TimeUnit.SECONDS);
            }
            case "alter": {
                var entry = new ConfigEntry(asked.get("option").asText(), asked.get("value").asText());
                var change = List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
                Map<ConfigResource, Collection<AlterConfigOp>> all = Map.of(resource, change);
                return admin.incrementalAlterConfigs(all).all().get(LIMIT, TimeUnit.SECONDS);
            }
            case "describe": {
                var config = admin.describeConfigs(List.of(resource)).all().get(LIMIT, TimeUnit.SECONDS).get(resource);
                var found = new HashMap<String, String>();
                for (JsonNode each : asked.get("options"))
                    found.put(each.asText(), config.get(each.asText()).value());
                return found;
            }
            case "topics": return new TreeSet<>(admin.listTopics().names().get(LIMIT, TimeUnit.SECONDS));
        }
        throw new IllegalArgumentException(op);
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;

import static java.nio.charset.StandardCharsets.UTF_8;

/** Runs Kafka's dump tool once for each line of its input, a JSON array of arguments; a JSON object of what came of it. */
public final class Recorder {
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] none) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        Exit.setExitProcedure((code, message) -> {
            throw new Ended(code);
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> arguments = new ArrayList<>();
            for (JsonNode argument : json.readTree(line)) {
                arguments.add(argument.asText());
            }
            answers.println(json.writeValueAsString(run(json.createObjectNode(), arguments)));
        }
    }

    private static ObjectNode run(ObjectNode answer, List<String> arguments) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, UTF_8));
        System.setErr(new PrintStream(err, true, UTF_8));
        int code = 0;
        String died = null;
        try {
            DumpLogSegments.main(arguments.toArray(new String[0]));
        } catch (Ended end) {
            code = end.code;
        } catch (Throwable error) { // Java prints it and ends with status 1
            code = 1;
            died = error.getClass().getName();
        }
        System.out.flush();
        System.err.flush();
        return answer.put("out", out.toString(UTF_8)).put("err", err.toString(UTF_8)).put("code", code).put("died", died);
    }
}

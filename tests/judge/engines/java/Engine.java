// The Java engine behind the judge's protocol: JSON requests, one to a line, on stdin; JSON answers on stdout.
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

public final class Engine {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err); // Whatever the engine prints must not end up between the answers.
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", run(mapper.readTree(line)));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(mapper.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static Object run(JsonNode request) throws Exception {
        switch (request.get("verb").asText()) {
            case "binary_rows":
                return Vectors.binaryRows(request);
            case "buckets":
                return Vectors.buckets(request);
            case "murmur":
                return Vectors.murmur(request);
            case "roaring64":
                return Vectors.roaring64(request);
            case "same_roaring64":
                return Vectors.sameRoaring64(request);
            case "partition_paths":
                return Vectors.partitionPaths(request);
            case "bounds":
                return Vectors.bounds(request);
            case "read":
                return Reading.read(request);
            case "changes":
                return Reading.changes(request);
            case "files":
                return Reading.files(request);
            case "describe":
                return Reading.describe(request);
            case "write":
                return Writing.write(request);
            case "steps":
                return Writing.steps(request);
            default:
                throw new IllegalArgumentException("no such verb: " + request.get("verb"));
        }
    }
}

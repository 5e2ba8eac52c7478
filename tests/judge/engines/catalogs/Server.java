// Paimon's own REST catalog over a folder, on a port that it says; it ends when its input does.
import java.util.Map;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

public final class Server {
    public static void main(String[] args) throws Exception {
        ConfigResponse config = new ConfigResponse(Map.of("prefix", "paimon"), Map.of());
        RESTCatalogServer server = new RESTCatalogServer(args[0], new BearTokenAuthProvider(args[1]), config, "main");
        server.start();
        System.out.println(server.getUrl());
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }
}

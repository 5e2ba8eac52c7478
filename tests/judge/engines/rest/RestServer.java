import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NamespaceNotEmptyException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NoSuchViewException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.Endpoint;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.CreateViewRequest;
import org.apache.iceberg.rest.requests.RegisterTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * Iceberg's own REST catalog (CatalogHandlers over InMemoryCatalog, with local files) on a port: addresses -> handlers, nothing else.
 *
 * <p>Arguments: warehouse, credential. A token is "token-" and a number; each is good for `uses` requests. Every request
 * needs one. What the environment variable LOSE_ANSWERS says (n) makes every n-th commit lose its answer: 502, once done.
 */
public final class RestServer {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int USES = 50;
  private static final InMemoryCatalog CATALOG = new InMemoryCatalog();
  private static String credential;
  private static final Map<String, Integer> used = new HashMap<>();
  private static int commits;

  public static void main(String[] arguments) throws Exception {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(PropertyNamingStrategies.KebabCaseStrategy.INSTANCE);
    RESTSerializers.registerAll(JSON);
    credential = arguments[1];
    CATALOG.initialize("lake", Map.of("warehouse", arguments[0]));
    Field files = InMemoryCatalog.class.getDeclaredField("io"); // In memory too, unless it is told otherwise.
    files.setAccessible(true);
    files.set(CATALOG, new HadoopFileIO(new Configuration()));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.createContext("/", RestServer::answer);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    System.out.println("http://127.0.0.1:" + server.getAddress().getPort() + "/catalog");
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  private static void answer(HttpExchange exchange) throws IOException {
    try {
      byte[] body = exchange.getRequestBody().readAllBytes();
      Object told = authorized(exchange, body);
      boolean isCommit = told != null && exchange.getRequestMethod().equals("POST") && told.toString().contains("LoadTable");
      String every = System.getenv("LOSE_ANSWERS");
      if (isCommit && every != null && ++commits % Integer.parseInt(every) == 0) {
        send(exchange, 502, ErrorResponse.builder().responseCode(502).withType("BadGateway").withMessage("lost").build());
      } else {
        send(exchange, told == null ? 204 : 200, told);
      }
    } catch (RuntimeException error) {
      int status = status(error);
      ErrorResponse told =
          ErrorResponse.builder()
              .responseCode(status)
              .withType(error.getClass().getSimpleName())
              .withMessage(String.valueOf(error.getMessage()))
              .build();
      send(exchange, status, told);
    }
  }

  private static synchronized Object authorized(HttpExchange exchange, byte[] body) {
    String path = exchange.getRequestURI().getRawPath();
    if (path.equals("/catalog/v1/oauth/tokens")) {
      String form = URLDecoder.decode(new String(body, StandardCharsets.UTF_8), StandardCharsets.UTF_8);
      String[] parts = credential.split(":");
      if (!form.contains("client_id=" + parts[0]) || !form.contains("client_secret=" + parts[1])) {
        throw new SecurityException("wrong credential");
      }
      String token = "token-" + used.size();
      used.put("Bearer " + token, 0);
      return Map.of("access_token", token, "token_type", "bearer");
    }
    String token = exchange.getRequestHeaders().getFirst("Authorization");
    if (!used.containsKey(token) || used.merge(token, 1, Integer::sum) > USES) {
      throw new SecurityException("the token ran out");
    }
    return route(exchange.getRequestMethod(), path, exchange.getRequestURI().getQuery(), body);
  }

  private static Object route(String method, String path, String query, byte[] body) {
    if (path.equals("/catalog/v1/config")) {
      if (query == null || !query.equals("warehouse=main")) {
        throw new IllegalArgumentException("no such warehouse: " + query);
      }
      return ConfigResponse.builder()
          .withOverride("prefix", "a b")
          .withDefault("x", "y")
          .withEndpoints(List.of(Endpoint.V1_LIST_TABLES, Endpoint.V1_LIST_VIEWS))
          .build();
    }
    if (!path.startsWith("/catalog/v1/a%20b/")) {
      throw new IllegalArgumentException("no such prefix: " + path);
    }
    String[] parts = path.substring("/catalog/v1/a%20b/".length()).split("/");
    Map<String, String> asked = new HashMap<>();
    if (query != null) {
      for (String pair : query.split("&")) {
        asked.put(pair.split("=")[0], pair.split("=", 2)[1]);
      }
    }
    String pages = asked.getOrDefault("pageToken", "");
    switch (method + " " + parts[0] + " " + parts.length) {
      case "GET namespaces 1":
        Namespace parent = asked.containsKey("parent") ? levels(asked.get("parent")) : Namespace.empty();
        return CatalogHandlers.listNamespaces(CATALOG, parent, pages, "2");
      case "POST namespaces 1":
        return CatalogHandlers.createNamespace(CATALOG, read(body, CreateNamespaceRequest.class));
      case "GET namespaces 2":
        return CatalogHandlers.loadNamespace(CATALOG, levels(decoded(parts[1])));
      case "POST tables 2":
        CatalogHandlers.renameTable(CATALOG, read(body, RenameTableRequest.class));
        return null;
      case "POST views 2":
        CatalogHandlers.renameView(CATALOG, read(body, RenameTableRequest.class));
        return null;
      default:
    }
    Namespace namespace = levels(decoded(parts[1]));
    if (method.equals("POST") && parts[2].equals("register")) {
      return CatalogHandlers.registerTable(CATALOG, namespace, read(body, RegisterTableRequest.class));
    }
    if (parts[2].equals("views")) {
      return views(method, namespace, parts, pages, body);
    }
    if (parts.length == 3) {
      if (method.equals("GET")) {
        return CatalogHandlers.listTables(CATALOG, namespace, pages, "2");
      }
      CreateTableRequest wanted = read(body, CreateTableRequest.class);
      return wanted.stageCreate()
          ? CatalogHandlers.stageTableCreate(CATALOG, namespace, wanted)
          : CatalogHandlers.createTable(CATALOG, namespace, wanted);
    }
    TableIdentifier table = TableIdentifier.of(namespace, decoded(parts[3]));
    switch (method) {
      case "GET":
        return CatalogHandlers.loadTable(CATALOG, table);
      case "POST":
        return CatalogHandlers.updateTable(CATALOG, table, read(body, UpdateTableRequest.class));
      case "DELETE":
        CatalogHandlers.dropTable(CATALOG, table);
        return null;
      default:
        throw new IllegalArgumentException(method + " " + path);
    }
  }

  private static Object views(String method, Namespace namespace, String[] parts, String pages, byte[] body) {
    if (parts.length == 3) {
      return method.equals("GET")
          ? CatalogHandlers.listViews(CATALOG, namespace, pages, "2")
          : CatalogHandlers.createView(CATALOG, namespace, read(body, CreateViewRequest.class));
    }
    TableIdentifier view = TableIdentifier.of(namespace, decoded(parts[3]));
    switch (method) {
      case "GET":
        return CatalogHandlers.loadView(CATALOG, view);
      case "POST":
        return CatalogHandlers.updateView(CATALOG, view, read(body, UpdateTableRequest.class));
      default:
        CatalogHandlers.dropView(CATALOG, view);
        return null;
    }
  }

  private static Namespace levels(String text) {
    return Namespace.of(text.split("\u001f"));
  }

  private static String decoded(String text) {
    return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
  }

  private static <T> T read(byte[] body, Class<T> type) {
    try {
      return JSON.readValue(body, type);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static int status(RuntimeException error) {
    if (error instanceof SecurityException) {
      return 401;
    }
    if (error instanceof NoSuchTableException
        || error instanceof NoSuchViewException
        || error instanceof NoSuchNamespaceException) {
      return 404;
    }
    if (error instanceof AlreadyExistsException
        || error instanceof CommitFailedException
        || error instanceof NamespaceNotEmptyException) {
      return 409;
    }
    if (error instanceof IllegalArgumentException
        || error instanceof ValidationException
        || error instanceof UncheckedIOException) {
      return 400;
    }
    return 500;
  }

  private static void send(HttpExchange exchange, int status, Object told) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    if (told != null) {
      JSON.writeValue(out, told);
    }
    byte[] bytes = out.toByteArray();
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
    if (bytes.length > 0) {
      exchange.getResponseBody().write(bytes);
    }
    exchange.close();
  }
}

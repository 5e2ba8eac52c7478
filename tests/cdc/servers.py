"""A MariaDB server out of `make mariadb`, or of the machine, and a MySQL server out of `make mysql`, each in a folder of its own."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pymysql

ROOT = Path(__file__).parent.parent.parent / ".judge"
LOGS_ALL = ("--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL")
DURABLE = (
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
)  # Else a server that is killed lacks what its log has.
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_USERS = """
set @auth_root_socket=NULL;
set @skip_auth_anonymous=1;
set @current_hostname='localhost';
set @all_privileges='{"access":18446744073709551615}';
"""


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """A server process over `folder`; a subclass knows its program and how a folder is filled."""

    lasting = ()  # Options of every start.

    def __init__(self, folder, id=1):
        self.id, self.port = id, _free_port()
        self.folder, self.socket, self._process = folder, f"{folder}/sock", None
        own = self.root / "usr/share/mysql"
        self._share = own if own.exists() else Path("/usr/share/mysql")
        self._options = [
            *self.program(),
            "--no-defaults",
            f"--datadir={folder}/data",
            f"--tmpdir={folder}/temporary",  # A server that starts deletes the temporary tables of others in its folder.
            f"--lc-messages-dir={self._share}",
            f"--character-sets-dir={self._share}/charsets",
            f"--plugin-dir={folder}",
            "--innodb-buffer-pool-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            "--user=root",
        ]
        self._environment = dict(os.environ)
        Path(folder, "temporary").mkdir()
        self._fill()

    @property
    def url(self):
        return f"mysql://root@localhost?unix_socket={self.socket}"

    def start(self, *options):
        with open(f"{self.folder}/messages", "a") as messages:
            self._process = subprocess.Popen(
                [
                    *self._options,
                    *self.lasting,
                    f"--socket={self.socket}",
                    "--bind-address=127.0.0.1",
                    f"--port={self.port}",
                    f"--server-id={self.id}",
                    *(options or LOGS_ALL),
                ],
                env=self._environment,
                stdout=messages,
                stderr=messages,
            )
        for _ in range(600):
            try:
                return self.connect().close()
            except pymysql.OperationalError:
                assert self._process.poll() is None, Path(f"{self.folder}/messages").read_text()[-2000:]
                time.sleep(0.1)
        raise AssertionError(f"{type(self).__name__} did not start within a minute")

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def crash(self, *options):
        """Kills the server and starts it again; what it committed is there, as `DURABLE` makes sure."""
        self._process.kill()
        self.stop()
        self.start(*options)

    def connect(self, **settings):
        how = {
            "unix_socket": self.socket,
            "user": "root",
            "autocommit": True,
            "charset": "utf8mb4",
            "ssl_disabled": True,
        }
        return pymysql.connect(**how, **settings)

    def _run(self, *options, script=None):
        subprocess.run(
            [*self._options, *options], input=script, text=True, env=self._environment, check=True, capture_output=True
        )


class MariaDb(Server):
    root = ROOT / "mariadb"
    replicates = ("--log-slave-updates",)
    gtids, identity = "SELECT @@gtid_binlog_pos", "SELECT @@server_id"
    stop_replica, start_replica = "STOP SLAVE", "START SLAVE"

    @classmethod
    def program(cls):
        own = cls.root / "usr/sbin/mariadbd"
        found = str(own) if own.exists() else shutil.which("mariadbd")
        return found and [found]

    def _fill(self):
        Path(self.folder, "data").mkdir()
        self._options.append("--innodb-log-file-size=8M")
        self._environment["LD_LIBRARY_PATH"] = f"{self.root / _LIBRARIES}:{self.root / 'lib/x86_64-linux-gnu'}"
        scripts = ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"]
        script = "create database if not exists mysql;\nuse mysql;" + _USERS
        self._run("--bootstrap", script=script + "\n".join((self._share / script).read_text() for script in scripts))

    def follow(self, first, start):
        """Statements that make this server, which has what `first` had at `start`, a replica of it."""
        return (
            f"SET GLOBAL gtid_slave_pos = '{start}'",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {first.port}, master_user = 'replica', master_password = 'x', "
            "master_use_gtid = slave_pos",
        )

    def waits(self, gtids):
        return f"SELECT MASTER_GTID_WAIT('{gtids}', 60)"


class MySql(Server):
    """Packages of a newer Debian with the libraries that they were built for."""

    root = ROOT / "mysql"
    replicates = ("--log-replica-updates",)
    gtids, identity = "SELECT REPLACE(@@gtid_executed, '\n', '')", "SELECT @@server_uuid"
    stop_replica, start_replica = "STOP REPLICA", "START REPLICA"
    lasting = (
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--mysqlx=OFF",
        "--secure-file-priv=",
        "--performance-schema=OFF",
    )

    @classmethod
    def program(cls):
        own = cls.root / "usr/sbin/mysqld"
        if own.exists():
            return [
                str(cls.root / "usr/lib64/ld-linux-x86-64.so.2"),
                "--library-path",
                str(cls.root / _LIBRARIES),
                str(own),
            ]
        found = shutil.which("mysqld")
        return found and [found]

    def _fill(self):
        self._options.append("--innodb-redo-log-capacity=8M")
        self._run("--initialize-insecure")

    def follow(self, first, start):
        return (
            "RESET BINARY LOGS AND GTIDS",
            f"SET GLOBAL gtid_purged = '{start}'",
            f"CHANGE REPLICATION SOURCE TO source_host = '127.0.0.1', source_port = {first.port}, source_user = 'replica', "
            "source_password = 'x', source_auto_position = 1, get_source_public_key = 1",
        )

    def waits(self, gtids):
        return f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)"


SERVER = {"mariadb": MariaDb, "mysql": MySql}[os.environ.get("LAKEFORMAT_CDC_SERVER", "mariadb")]

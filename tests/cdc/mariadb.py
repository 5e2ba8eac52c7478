"""A MariaDB server out of `make mariadb`, or of the machine, in a folder of its own."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pymysql

ROOT = Path(__file__).parent.parent.parent / ".judge" / "mariadb"
LOGS_ALL = ("--log-bin=mysql-bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL")
_USERS = """
set @auth_root_socket=NULL;
set @skip_auth_anonymous=1;
set @current_hostname='localhost';
set @all_privileges='{"access":18446744073709551615}';
"""


def program():
    """mariadbd, or None where there is none."""
    own = ROOT / "usr/sbin/mariadbd"
    return str(own) if own.exists() else shutil.which("mariadbd")


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class MariaDb:
    def __init__(self, folder, id=1):
        self.id, self.port = id, _free_port()
        self.folder, self.socket, self._process = folder, f"{folder}/sock", None
        share = ROOT / "usr/share/mysql"
        self._share = share if share.exists() else Path("/usr/share/mysql")
        self._options = [
            program(),
            "--no-defaults",
            f"--datadir={folder}",
            f"--lc-messages-dir={self._share}",
            f"--character-sets-dir={self._share}/charsets",
            f"--plugin-dir={folder}",
            "--innodb-buffer-pool-size=16M",
            "--innodb-log-file-size=8M",
            "--innodb-flush-log-at-trx-commit=0",
            "--user=root",
        ]
        libraries = ROOT / "usr/lib/x86_64-linux-gnu"
        self._environment = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{ROOT / 'lib/x86_64-linux-gnu'}"}
        scripts = ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"]
        script = "create database if not exists mysql;\nuse mysql;" + _USERS
        script += "\n".join((self._share / each).read_text() for each in scripts)
        subprocess.run(
            [*self._options, "--bootstrap"],
            input=script,
            text=True,
            env=self._environment,
            check=True,
            capture_output=True,
        )

    @property
    def url(self):
        return f"mysql://root@localhost?unix_socket={self.socket}"

    def start(self, *options):
        with open(f"{self.folder}/messages", "a") as messages:
            self._process = subprocess.Popen(
                [
                    *self._options,
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
        raise AssertionError("MariaDB did not start within a minute")

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def connect(self, **settings):
        return pymysql.connect(unix_socket=self.socket, user="root", autocommit=True, charset="utf8mb4", **settings)

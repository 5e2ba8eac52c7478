"""Runs one seed of the turmoil after another: `python -m tests.cdc postgres iceberg MINUTES [SEED]`. Ends with 1 if one of them failed."""

import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager

from tests.cdc import servers
from tests.cdc.turmoil import OnMySql, OnPostgres, Turmoil
from tests.conftest import MEMORY, running_postgres

EVENTS = ["kill", "kill", "kill", "cut", "cut", "cuts", "restart", "crash"]


@contextmanager
def _on_postgres():
    with running_postgres() as server:

        def restart(mode):
            command = [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-m", mode, "stop"]
            subprocess.run(command, user=server.system_user, check=True, stdout=subprocess.DEVNULL)
            server.start()

        yield lambda number: OnPostgres(server.get_uri(), server.pgdata, restart)


@contextmanager
def _on_mysql(kind):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        server = kind(folder)
        server.start(*servers.LOGS_ALL, *servers.DURABLE)
        try:
            yield lambda number: OnMySql(server, f"s{number}_")
        finally:
            server.stop()


def main(server, format, minutes, seed=None):
    end, total, failed = time.monotonic() + 60 * float(minutes), Counter(), []
    seed = int(seed or time.time() % 1_000_000)
    kinds = {"mariadb": servers.MariaDb, "mysql": servers.MySql}
    with _on_postgres() if server == "postgres" else _on_mysql(kinds[server]) as side:
        while time.monotonic() < end:
            draw = random.Random(seed)
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                world = Turmoil(side(seed), format, folder, seed)
                try:
                    for _ in range(4):
                        world.round(40, draw.sample(EVENTS, draw.randint(1, 4)))
                except Exception:
                    failed.append(seed)
                    traceback.print_exc()
                finally:
                    world.close()
            total += world.events
            errors = sum((writer.errors for writer in world.writers), Counter())
            print(f"seed {seed}: {dict(world.events)}; refused: {errors.most_common(3)}", flush=True)
            seed += 1
    print(f"{server} {format}: {dict(total)}; seeds that failed: {failed}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

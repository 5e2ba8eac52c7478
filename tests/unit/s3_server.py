"""S3 on this machine for tests: moto's server, with the conditional put made one step as S3's is."""

import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.unit.serving import Serving

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class S3Server(Serving):
    """Serves on a free port while in a `with`. `alter` may change or answer a request before moto sees it."""

    def __init__(self, alter: Callable[[Wsgi], Wsgi] = lambda inner: inner) -> None:
        moto = DomainDispatcherApplication(create_backend_app)
        one_at_a_time = threading.Lock()

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            # moto looks whether the key exists and then puts: two steps, between which another thread may put.
            with one_at_a_time:
                return list(moto(environ, start_response))

        super().__init__(make_server("127.0.0.1", 0, alter(app), threaded=True, request_handler=_Quiet))
        self.options = {
            "aws_endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "aws_region": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "max_retries": "2",
        }

    def new_bucket(self) -> str:
        """A new bucket's URI."""
        name = f"bucket-{uuid.uuid4()}"
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def client(self) -> Any:
        """Amazon's own client for this server."""
        return boto3.client(
            "s3",
            endpoint_url=self.options["aws_endpoint"],
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass

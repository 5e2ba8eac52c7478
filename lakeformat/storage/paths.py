"""Names inside a store: which are allowed, and which URIs are below a root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from lakeformat.errors import InvalidInput

# The files by which a folder inside another is known as a table of either format.
_OF_TABLE = re.compile(r"(?P<folder>.+/)(schema/schema-\d+|metadata/(v\d+|\d+-[^/]+)(\.gz)?\.metadata\.json(\.gz)?)")
_TO_LOOK_AT = ("//", "/.", "\0")  # A path without these has no part that is refused.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def is_absolute(path: str) -> bool:
    """Whether `path` is a URI or an absolute local path, and so does not depend on a store's root."""
    return path.startswith("/") or scheme_of(path) is not None


def scheme_of(uri: str) -> str | None:
    """The scheme of a URI in lower case; None for a plain path, also for one with a colon in it (`dt=12:30/x`)."""
    match = _SCHEME.match(uri) if ":" in uri else None
    if match and uri[match.end() : match.end() + 1] == "/":
        return match.group()[:-1].lower()
    return None


def inside(root: str, path: str) -> str:
    """`path` as a checked relative name: no `..`, no empty part, no slash at either end. "" is the root itself."""
    if path[:1] not in ("", "/", ".") and path[-1] != "/" and not any(part in path for part in _TO_LOOK_AT):
        return path
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    for part in parts:
        if part in ("", ".", "..") or "\0" in part:
            raise InvalidInput(
                f"{path!r} is not a name inside {root}: {'an empty part' if not part else repr(part)} is not allowed; "
                "give the path relative to the root, parts separated by one slash"
            )
    return "/".join(parts)


def plainly_below(folder: str, uri: str) -> str | None:
    """The rest of a path or URI that begins with this folder's and has no part to look at; None if it may still be
    below."""
    at = uri.find(f"{folder}/") if uri.startswith(("/", "file:")) else -1
    rest = uri[at + len(folder) + 1 :] if at >= 0 and uri[:at] in ("", "file:", "file://") else ""
    if rest[:1] in ("", "/", ".") or rest[-1] == "/" or any(part in rest for part in _TO_LOOK_AT):
        return None
    return rest


def local_folder(uri: str) -> str:
    """The absolute local path that a plain path or a `file:` URI names, without a slash at the end ("/" becomes "").

    A URI is taken literally, as Hadoop and the formats' Java engines do: `%20` stays three characters.
    """
    path = uri
    if scheme_of(uri) == "file":
        rest = uri[len("file:") :]
        if rest.startswith("//"):
            host, slash, path = rest[2:].partition("/")
            if host not in ("", "localhost"):
                raise InvalidInput(f"{uri}: the host {host!r} cannot be in a file URI; write file:///path")
            path = slash + path
        else:
            path = rest
    elif path.startswith("~"):
        path = os.path.expanduser(path)
    if not path or "\0" in path:
        raise InvalidInput(f"{uri!r} names no folder; give a path or a URI such as file:///data/warehouse")
    folder = os.path.abspath(path)
    return "/" + folder.strip("/") if folder.strip("/") else ""


def bucket_and_key(uri: str) -> tuple[str, str]:
    """A URI as its store (`s3://bucket`) and the key inside it, both literal, no slash at either end of the key."""
    scheme, _, rest = uri.partition(":")
    bucket, _, key = rest[2:].partition("/")
    if not rest.startswith("//") or not bucket:
        raise InvalidInput(f"{uri}: no bucket; write {scheme}://bucket/path")
    return f"{scheme.lower()}://{bucket}", inside(uri, key.strip("/"))


def name_node_and_path(uri: str) -> tuple[str, str]:
    """An `hdfs:` URI as its name node (`hdfs://host:port`; `hdfs://` is the default one of Hadoop's configuration) and
    the path inside it, literal, without slashes at its ends. Raises `InvalidInput`."""
    rest = uri.partition(":")[2]
    node, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    port = node.partition(":")[2]
    if "@" in node or (":" in node and not (port.isascii() and port.isdigit())):
        raise InvalidInput(f"{uri}: {node!r} is no name node; write hdfs://host:port/path, and the user as an option")
    return f"hdfs://{node}", inside(uri, path.strip("/"))


def family(scheme: str | None) -> str | None:
    """One name for the schemes of a service: `s3a` is `s3`."""
    families = {"s3a": "s3", "s3n": "s3", "adl": "az", "abfs": "az", "abfss": "az", "azure": "az", "https": "http"}
    return families.get(scheme or "", scheme)


def relative(root: str, path: str) -> str | None:
    """An absolute `path` as a name inside the folder `root`, whatever spelling of the scheme each has. "" is the root
    itself; None if it is not inside."""
    if path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    schemes = [scheme_of(address) for address in (root, path)]
    if all(scheme in (None, "file") for scheme in schemes):
        folder, name = local_folder(root), local_folder(path)
    else:
        folder, name = (
            f"{family(scheme)}{address[len(scheme or '') :]}".rstrip("/")
            for scheme, address in zip(schemes, (root, path), strict=True)
        )
    return name[len(folder) + 1 :] if f"{name}/".startswith(f"{folder}/") else None


def tables_below(names: Iterable[str]) -> tuple[str, ...]:
    """The folders of tables inside another's folder, each with a slash at its end, found by the names of files."""
    matches = map(_OF_TABLE.fullmatch, (name for name in names if "/schema/" in name or ".metadata.json" in name))
    return tuple(sorted({match["folder"] for match in matches if match}))

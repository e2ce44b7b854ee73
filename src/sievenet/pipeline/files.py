"""Small files of a store, wherever it is: local, HDFS, or what else Spark can write to.

Everything goes through Hadoop's file systems, so a path means the same to the driver as to Spark's own readers and
writers.  Small files only: manifests, plans, states, reports.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from sievenet.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FileStatus", "Files", "absolute"]


def absolute(path: str) -> str:
    """A path that means the same to Spark, whose working folder may be another."""
    return path if "://" in path or path.startswith(("/", "file:", "hdfs:")) else str(Path.cwd() / path)


class FileStatus(NamedTuple):
    """A file: its full path, size in bytes, and when it was changed, in ms since 1970."""

    path: str
    length: int
    modified: int


class Files:
    """The file system of a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        jsc: Any = spark.sparkContext._jsc
        self._conf = jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        from py4j.protocol import Py4JJavaError

        try:
            where = self._jvm.org.apache.hadoop.fs.Path(absolute(path))
            return where.getFileSystem(self._conf), where
        except Py4JJavaError as error:
            raise InvalidInput(f"Not a path that Spark can use: {_cause(error)}", where=path) from error

    def full(self, path: str) -> str:
        """The path with its file system."""
        fs, where = self._at(path)
        return str(fs.makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        fs, where = self._at(path)
        return bool(fs.exists(where))

    def find(self, path: str) -> list[FileStatus]:
        """The files that a path means: itself, all below it if it is a folder, or all that fit its wildcards.

        Hidden ones (names that begin with a dot or an underscore) are left out, as Spark does.
        """
        fs, where = self._at(path)
        statuses = fs.globStatus(where)
        found: list[FileStatus] = []
        waiting = list(statuses) if statuses is not None else []
        while waiting:
            status = waiting.pop()
            name = str(status.getPath().getName())
            if name.startswith(("_", ".")) and "=" not in name:
                continue
            if status.isDirectory():
                waiting += list(fs.listStatus(status.getPath()))
            else:
                found.append(
                    FileStatus(
                        str(status.getPath().toString()), int(status.getLen()), int(status.getModificationTime())
                    )
                )
        return sorted(found)

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder."""
        fs, where = self._at(path)
        if not fs.exists(where):
            return []
        return sorted(str(s.getPath().getName()) for s in fs.listStatus(where) if s.isDirectory())

    def read(self, path: str) -> bytes:
        """A small file."""
        from py4j.protocol import Py4JJavaError

        if path.startswith("file:/"):
            # Much quicker than to pass the bytes through Java.
            try:
                return Path(unquote(urlsplit(path).path)).read_bytes()
            except OSError as error:
                raise Unavailable(f"Cannot read {path}: {error.strerror}") from error
        fs, where = self._at(path)
        try:
            stream = fs.open(where)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise Unavailable(f"Cannot read {path}: {_cause(error)}") from error

    def head(self, path: str, size: int) -> bytes:
        """The first bytes of a file; none if it cannot be read, which is said by whoever reads all of it."""
        from py4j.protocol import Py4JJavaError

        fs, where = self._at(path)
        io = self._jvm.org.apache.commons.io
        try:
            stream = fs.open(where)
            try:
                return bytes(io.IOUtils.toByteArray(io.input.BoundedInputStream(stream, size)))
            finally:
                stream.close()
        except Py4JJavaError:
            return b""

    def write(self, path: str, data: bytes) -> None:
        """Put a small file in place, all of it or nothing."""
        from py4j.protocol import Py4JJavaError

        fs, where = self._at(path)
        staged = self._jvm.org.apache.hadoop.fs.Path(where.getParent(), f".{where.getName()}.{uuid.uuid4().hex}")
        try:
            fs.mkdirs(where.getParent())
            stream = fs.create(staged, True)
            try:
                stream.write(data)
            finally:
                stream.close()
            self._replace(staged, where)
        except Py4JJavaError as error:
            fs.delete(staged, False)
            raise Unavailable(f"Cannot write {path}: {_cause(error)}") from error

    def _replace(self, source: Any, target: Any) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(target.toUri(), self._conf)
        context.rename(source, target, options)

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all in it; fine if there is none."""
        fs, where = self._at(path)
        fs.delete(where, True)


def _cause(error: Any) -> str:
    """What Java said, in a line."""
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString()).splitlines()[0][:300]

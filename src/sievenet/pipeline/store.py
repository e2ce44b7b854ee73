"""The store: the one place where the pipeline's tables are read and written.

    ROOT/events/CATEGORY/_run=ID/_slot=2026-05-14T09/…parquet     checked events, by time
    ROOT/quarantine/CATEGORY/_run=ID/…parquet                     bad rows with their reasons
    ROOT/manifests/CATEGORY/ID.json                               what run ID read and wrote
    ROOT/schemas/CATEGORY.json                                    the schema that all of it has

A run writes into folders of its own and becomes visible by its manifest, which appears all at once.  Readers read the
runs that have one.  So whatever happens to a run (a full disk, a killed process), it has either happened or not; what a
dead run left behind is removed by the next one.  A file that a manifest names is not read again.

One ingest per category at a time: runs of others would be taken for dead ones.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from sievenet.content import Schema
from sievenet.errors import InvalidInput, SchemaError
from sievenet.pipeline.files import Files, FileStatus, absolute
from sievenet.pipeline.tables import event_ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SLOTS", "BadFile", "Manifest", "Store"]

#: How finely events lie by time: names of slots, as Spark formats them.
SLOTS: Final = {"hour": "yyyy-MM-dd'T'HH", "day": "yyyy-MM-dd", "month": "yyyy-MM", "year": "yyyy"}


class BadFile(msgspec.Struct, frozen=True):
    """A file that could not be read as a whole, and why."""

    path: str
    reason: str


class Manifest(msgspec.Struct, frozen=True):
    """What one run read and wrote."""

    run: str
    #: Files read: path, bytes, time of change in ms.
    files: tuple[tuple[str, int, int], ...]
    events: int
    quarantined: int
    #: How many rows were bad for which reason (the text up to what came).
    reasons: dict[str, int] = {}
    bad_files: tuple[BadFile, ...] = ()
    #: The times of the first and the last event, in µs since 1970.
    span: tuple[int, int] | None = None

    @property
    def between(self) -> str:
        """The times between which events are, for people."""
        if self.span is None:
            return ""
        first, last = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t // 1_000_000)) for t in self.span)
        return f"{first} to {last} UTC"


class Store:
    """A pipeline's tables under one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.files = Files(spark)
        self.root = absolute(root).rstrip("/")

    # -- schemas --------------------------------------------------------------------------------

    def schema(self, category: str) -> Schema:
        """The schema of a category's events."""
        path = f"{self.root}/schemas/{category}.json"
        if not self.files.exists(path):
            known = [f.path.rsplit("/", 1)[-1].removesuffix(".json") for f in self.files.find(f"{self.root}/schemas")]
            raise SchemaError(expected=f"one of {', '.join(known) or 'none yet'}", got=category, where=self.root)
        return msgspec.json.decode(self.files.read(path), type=Schema)

    def categories(self) -> list[str]:
        """The categories that there are, by name."""
        return sorted(f.path.rsplit("/", 1)[-1].removesuffix(".json") for f in self.files.find(f"{self.root}/schemas"))

    def drop(self, category: str) -> int:
        """Remove everything of a category; returns how many runs there were.

        Manifests go first: what is interrupted leaves runs that did not happen, which the next ingest removes.
        """
        self.schema(category)
        runs = len(self.manifests(category))
        for path in (
            f"manifests/{category}",
            f"events/{category}",
            f"quarantine/{category}",
            f"schemas/{category}.json",
        ):
            if self.files.exists(f"{self.root}/{path}"):
                self.files.delete(f"{self.root}/{path}")
        return runs

    def keep_schema(self, schema: Schema) -> None:
        """Remember a schema; another one under the same name is refused."""
        path = f"{self.root}/schemas/{schema.name}.json"
        if self.files.exists(path) and (known := self.schema(schema.name)) != schema:
            raise SchemaError(
                f"The store has events of {known.name} version {known.version}, got version {schema.version} "
                "or another content; ingest it into another store, or remove what is there (pipeline store drop)",
                where=self.root,
            )
        self.files.write(path, msgspec.json.encode(schema))

    # -- runs -----------------------------------------------------------------------------------

    def manifests(self, category: str) -> list[Manifest]:
        """The runs that happened."""
        found = self.files.find(f"{self.root}/manifests/{category}")
        return [msgspec.json.decode(self.files.read(f.path), type=Manifest) for f in found]

    def unread(self, category: str, found: list[FileStatus]) -> list[FileStatus]:
        """The files that no run has read yet."""
        read = {file for manifest in self.manifests(category) for file in manifest.files}
        return [f for f in found if tuple(f) not in read]

    def remove_dead(self, category: str) -> int:
        """Remove what dead runs left behind."""
        alive = {f"_run={m.run}" for m in self.manifests(category)}
        dead = 0
        for table in ("events", "quarantine"):
            folder = f"{self.root}/{table}/{category}"
            for name in self.files.folders(folder):
                if name not in alive:
                    self.files.delete(f"{folder}/{name}")
                    dead += 1
        return dead

    def remove_run(self, category: str, run: str) -> None:
        """Remove what a run has written, if it did not happen."""
        for table in ("events", "quarantine"):
            folder = f"{self.root}/{table}/{category}/_run={run}"
            if self.files.exists(folder):
                self.files.delete(folder)

    def write_events(self, events: DataFrame, category: str, run: str, by: str) -> None:
        """A run's events, by slots of time."""
        from pyspark.sql import functions as f

        if by not in SLOTS:
            raise InvalidInput(expected=f"one of {', '.join(SLOTS)}", got=by, where="by")
        slot = f.date_format(f.timestamp_micros("_time"), SLOTS[by])
        target = f"{self.root}/events/{category}/_run={run}"
        events.withColumn("_slot", slot).write.mode("overwrite").partitionBy("_slot").parquet(target)

    def write_quarantine(self, rows: DataFrame, category: str, run: str) -> None:
        """A run's bad rows."""
        rows.write.mode("overwrite").parquet(f"{self.root}/quarantine/{category}/_run={run}")

    def commit(self, category: str, manifest: Manifest) -> None:
        """Let a run have happened."""
        self.files.write(f"{self.root}/manifests/{category}/{manifest.run}.json", msgspec.json.encode(manifest))

    # -- reading --------------------------------------------------------------------------------

    def events(self, category: str) -> DataFrame:
        """All events of a category: its attributes, `_time`, `_publisher`."""
        schema = self.schema(category)
        base = f"{self.root}/events/{category}"
        runs = [m.run for m in self.manifests(category) if m.events]
        if not runs:
            return self.spark.createDataFrame([], event_ddl(schema))
        reader = self.spark.read.schema(f"{event_ddl(schema)}, _run string, _slot string")
        rows = reader.option("basePath", base).parquet(*(f"{base}/_run={run}" for run in runs))
        return rows.select(*(quoted(name) for name in schema.positions), "_time", "_publisher")

    def quarantine(self, category: str) -> DataFrame:
        """All bad rows of a category: `source`, `reason`, `row`."""
        from sievenet.pipeline.tables import QUARANTINE

        base = f"{self.root}/quarantine/{category}"
        runs = [m.run for m in self.manifests(category) if m.quarantined]
        if not runs:
            return self.spark.createDataFrame([], QUARANTINE)
        return self.spark.read.schema(QUARANTINE).parquet(*(f"{base}/_run={run}" for run in runs))

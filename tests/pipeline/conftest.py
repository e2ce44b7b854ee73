"""One Spark session for all tests of the pipeline: small, quick to start, stopped at the end."""

import os

import pyarrow as pa
import pytest

from sievenet.pipeline.session import spark_session
from sievenet.pipeline.tables import arrow_of, event_ddl

#: Compiling less pays for tests; figures are not taken here.
QUICK = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark():
    # One session does not pay for an archive.
    os.environ.setdefault("SIEVENET_SPARK_ARCHIVE", "off")
    with spark_session("local[2]", settings=QUICK) as session:
        yield session


@pytest.fixture
def events_table(spark):
    """An `EventBatch` as a table of events in three partitions."""

    def table(batch, times=None, publishers=""):
        rows = pa.Table.from_batches([arrow_of(batch, times, publishers)])
        frame = spark.createDataFrame(rows) if len(batch) else spark.createDataFrame([], event_ddl(batch.schema))
        return frame.repartition(3)

    return table

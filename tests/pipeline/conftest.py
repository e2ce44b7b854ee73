"""What tests of the pipeline share beside the session."""

import pyarrow as pa
import pytest

from sievenet.pipeline.tables import arrow_of, event_ddl


@pytest.fixture
def events_table(spark):
    """An `EventBatch` as a table of events in three partitions."""

    def table(batch, times=None, publishers=""):
        rows = pa.Table.from_batches([arrow_of(batch, times, publishers)])
        frame = spark.createDataFrame(rows) if len(batch) else spark.createDataFrame([], event_ddl(batch.schema))
        return frame.repartition(3)

    return table

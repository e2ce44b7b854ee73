"""A node with a tap keeps a sample of what it publishes."""

import sievenet
from sievenet.tap import read_segment
from tests.fabric.harness import SCHEMA, fabric, reading, run


def test_what_is_published_is_sampled(tmp_path):
    said = [reading(x=i) for i in range(300)]

    async def main():
        async with (
            fabric() as daemon,
            sievenet.connect(daemon.url, name="p", tap=tmp_path, tap_factor=1) as node,
        ):
            await node.advertise(SCHEMA)
            await node.publish(said[0])
            await node.publish_many(said[1:])

    run(main())
    (path,) = tmp_path.glob("*.tap")
    segment = read_segment(path.read_bytes())
    assert (segment.publisher, segment.factor, segment.schema) == ("p", 1, SCHEMA)
    assert [event.values for part in segment.parts for event in part.batch] == [event.values for event in said]

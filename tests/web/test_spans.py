"""An event's way for OpenTelemetry, sent to something that listens as a collector does."""

import asyncio
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import sievenet
from sievenet.errors import Unavailable
from sievenet.web.spans import export, steps_of
from tests.web.harness import READING, run, served


class Collector(BaseHTTPRequestHandler):
    spans: ClassVar[list] = []

    def do_POST(self):
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    Collector.spans = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_spans_are_the_switches_and_clients_of_the_way(collector):
    async def test():
        async with (
            served() as (daemon, _, http),
            sievenet.connect(daemon.url, name="wants", host="h3") as node,
            sievenet.connect(daemon.url, name="gets", host="h2") as other,
            sievenet.connect(daemon.url, name="p", host="h1") as publisher,
        ):
            await node.subscribe("reading: x < 10")
            await other.subscribe("reading: x < 10 and y < 0.1")
            await publisher.advertise(READING)
            async with http.get("/explain", params={"event": "reading: x=5, y=0.05, kind=hot"}) as response:
                found = await response.json()
            steps = steps_of(found)
            assert [step.name for step in steps if step.name.startswith("switch")] == [
                "switch s1",
                "switch s2",
                "switch s3",
            ]
            trace = export(found, collector)
            spans = {span.span_id: span for span in Collector.spans}
            assert {span.trace_id.hex() for span in spans.values()} == {trace}
            names = {span.name: spans.get(span.parent_span_id) for span in spans.values()}
            assert names[found["event"]] is None
            assert names["switch s1"].name == found["event"]
            assert names["switch s3"].name == "switch s2"
            assert names["client wants"].name == "switch s3"
            assert len(spans) == len(steps) + 1
            # By the command line too.
            command = [sys.executable, "-m", "sievenet", "trace", found["event"], "--url", daemon.url, "--otlp"]
            process = await asyncio.create_subprocess_exec(*command, collector, stderr=subprocess.PIPE)
            assert b"trace " in (await process.communicate())[1]
            assert process.returncode == 0
            assert len(Collector.spans) == 2 * len(spans)

    run(test())


def test_a_collector_that_is_not_there_is_told():
    found = {"event": "e", "from": "h1", "codes": [], "hops": [], "delivered": [], "false_positives": []}
    with pytest.raises(Unavailable, match="No collector"):
        export(found, "http://127.0.0.1:9/v1/traces", timeout=0.5)

"""Small awkward files, each with what it should come to: events, bad lines, or an error."""

import bz2
import codecs
import gzip
import lzma
from typing import NamedTuple

from sievenet.content import Attribute, Schema
from sievenet.workload.trace import Pairs, Reading

SCHEMA = Schema(
    "trade",
    (
        Attribute("symbol", "str"),
        Attribute("price", "float", lo=0, hi=1000),
        Attribute("volume", "int", lo=0, hi=10_000),
        Attribute("ok", "bool"),
    ),
)
IBM, GE = ("IBM", 420.5, 100, True), ("GE", 7.0, 12, False)
BOTH = (IBM, GE)
PLAIN = "symbol,price,volume,ok\nIBM,420.5,100,true\nGE,7,12,false\n"
OBJECTS = (
    '{"symbol": "IBM", "price": 420.5, "volume": 100, "ok": true}\n'
    '{"symbol": "GE", "price": 7, "volume": 12.0, "ok": false}\n'
)


class Awkward(NamedTuple):
    name: str
    data: bytes
    events: tuple = BOTH
    #: Lines or rows that are set aside.
    bad: int = 0
    reading: Reading = Reading()
    #: Part of the error, if the whole file is none.
    error: str = ""


def semicolons(text: str) -> str:
    return text.replace(",", ";")


FILES = [
    Awkward("plain.csv", PLAIN.encode()),
    Awkward("crlf.csv", PLAIN.replace("\n", "\r\n").encode()),
    Awkward("no-newline.csv", PLAIN.rstrip().encode()),
    Awkward("bom.csv", codecs.BOM_UTF8 + PLAIN.encode()),
    Awkward("utf16.csv", PLAIN.encode("utf-16")),
    Awkward("utf16-be.csv", codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be")),
    Awkward("utf16-no-mark.csv", PLAIN.encode("utf-16-le")),
    Awkward("latin.csv", PLAIN.replace("GE", "GÉ").encode("latin-1"), (IBM, ("GÉ", 7.0, 12, False))),
    Awkward("packed.csv.gz", gzip.compress(PLAIN.encode())),
    Awkward("packed-by-another-name.csv", gzip.compress(PLAIN.encode())),
    Awkward("packed.csv.bz2", bz2.compress(PLAIN.encode())),
    Awkward("packed-xz.csv", lzma.compress(PLAIN.encode())),
    Awkward("semicolons.csv", semicolons(PLAIN).encode()),
    Awkward("tabs.csv", PLAIN.replace(",", "\t").encode()),
    Awkward("bars.csv", PLAIN.replace(",", "|").encode()),
    Awkward("spaces.csv", PLAIN.replace(",", " , ").encode()),
    Awkward("quoted.csv", b'"symbol","price","volume","ok"\n"IBM","420.5","100","true"\n"GE","7","12","false"\n'),
    Awkward(
        "quoted-separators.csv",
        b'symbol,price,volume,ok\n"I,B;M",420.5,100,true\n"G""E",7,12,false\n',
        (("I,B;M", 420.5, 100, True), ('G"E', 7.0, 12, False)),
    ),
    Awkward("blank-lines.csv", PLAIN.replace("\n", "\n\n").encode()),
    Awkward("more-columns.csv", b"day,symbol,price,volume,ok,note\n1,IBM,420.5,100,true,x\n2,GE,7,12,false,y\n"),
    Awkward("short-row.csv", (PLAIN + "HP,1\n").encode(), bad=1),
    Awkward("long-row.csv", (semicolons(PLAIN) + "HP;1;2;true;3\n").encode(), bad=1),
    Awkward("beyond-the-domain.csv", (semicolons(PLAIN) + "HP;7000;1;true\n;1;1;true\nHP;x;1;true\n").encode(), bad=3),
    Awkward("whole-numbers.csv", semicolons(PLAIN).replace("100", "100.0").replace(";12;", ";12.00;").encode()),
    Awkward("yes-and-no.csv", semicolons(PLAIN).replace("true", "Yes").replace("false", "n").encode()),
    Awkward("objects.jsonl", OBJECTS.encode()),
    Awkward("array.json", f"[{','.join(OBJECTS.splitlines())}]".encode()),
    Awkward("objects-bom.jsonl", codecs.BOM_UTF8 + OBJECTS.encode()),
    Awkward("torn.jsonl", codecs.BOM_UTF8 + (OBJECTS + '{"symbol": "HP", \n[1]\n').encode(), bad=2),
    Awkward(
        "no-header.csv", PLAIN.split("\n", 1)[1].encode(), reading=Reading(columns=("symbol", "price", "volume", "ok"))
    ),
    Awkward(
        "other-names.csv",
        PLAIN.replace("symbol", "Ticker Symbol").replace("price", "px").encode(),
        reading=Reading(rename={"Ticker Symbol": "symbol", "px": "price"}),
    ),
    Awkward("carets.csv", PLAIN.replace(",", "^").encode(), reading=Reading(separator="^")),
    Awkward(
        "nested.jsonl",
        OBJECTS.replace('"price": 420.5', '"quote": {"price": 420.5}')
        .replace('"price": 7', '"quote": {"price": 7}')
        .encode(),
        reading=Reading(rename={"quote_price": "price"}),
    ),
    Awkward(
        "senml.json",
        b'[{"bt": 1, "e": [{"n": "symbol", "sv": "IBM"}, {"n": "price", "v": 420.5}, {"n": "volume", "v": 100},'
        b' {"n": "ok", "bv": true}]}, {"bt": 2, "e": [{"n": "symbol", "sv": "GE"}, {"n": "price", "v": 7},'
        b' {"n": "volume", "v": 12}, {"n": "ok", "bv": false}]}]',
        reading=Reading(pairs=Pairs()),
    ),
    Awkward("header-only.csv", b"symbol;price;volume;ok\n", ()),
    Awkward("cut-off.csv.gz", gzip.compress(PLAIN.encode())[:-12], (), error="whole compressed file"),
    Awkward("bytes.csv", b"symbol\0\xff\xfe\0\0\x80;price\n" * 9, (), error="Expected text"),
    Awkward("zstd.csv", b"\x28\xb5\x2f\xfd" + bytes(range(200)), (), error="zstd"),
]

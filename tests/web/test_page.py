"""The page in a real browser: it loads, numbers move, an event's way is lit, a plan is applied, strangers stay out."""

import io
import itertools
import json
import random
import re
import urllib.request
from urllib.parse import quote

import pytest
from PIL import Image

from sievenet.access.login import load_login
from sievenet.network import parse_topology
from sievenet.web.snapshot import delta
from tests.access.harness import folder
from tests.web.browser import browser
from tests.web.test_curl import start, stop

pytestmark = pytest.mark.slow
EVENT = "stock: symbol=MSFT, price=28, volume=300"


def asked(url, path):
    with urllib.request.urlopen(f"{url}{path}", timeout=20) as response:
        return json.load(response)


def shoot(page, request, name):
    """Write a picture for the documents, if that is asked for (--screenshots FOLDER)."""
    where = request.config.getoption("--screenshots")
    if where is not None:
        picture = Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
        picture.quantize(256).save(f"{where}/{name}.png", optimize=True)


def lit(page, kind):
    return {each.get_attribute("data-name") for each in page.all(f".node.{kind}.lit")}


def test_the_page_shows_the_network_follows_an_event_and_applies_a_plan(request):
    process, url = start("--sample", "stock", "--tune", "suggest", "--caches", "1", "--matchers", "1")
    try:
        with browser() as page:
            page.driver.get(f"{url}/")
            # Numbers move.
            page.until(lambda: float(page.find("#tile-published .value").get_attribute("data-value")) > 100)
            before = page.text("#switches")
            page.until(lambda: int(page.find("body").get_attribute("data-looks")) >= 5)
            assert page.text("#switches") != before
            assert page.text("#state-text") == "live"
            assert len(page.all(".node.switch")) == 10
            assert {each.get_attribute("data-name") for each in page.all(".node.client")} >= {"market", "watcher-1"}
            page.until(lambda: float(page.find("#tile-unnecessary .value").get_attribute("data-value")) > 0.5)
            widths = page.run(
                "return [...document.querySelectorAll('.link')].map(e => parseFloat(e.style.strokeWidth))"
            )
            assert max(widths) > 4 > min(widths)

            # An event's way, as the daemon says it.
            page.find("#event").send_keys(EVENT)
            page.find("#trace button.primary").click()
            found = asked(url, f"/explain?event={quote(EVENT)}")
            page.until(lambda: lit(page, "switch"))
            assert lit(page, "switch") == {hop["switch"] for hop in found["hops"]}
            got = {each.get_attribute("data-name") for each in page.all(".node.client.got")}
            assert got == {each["client"] for each in found["delivered"] if each["reached"]}
            assert len(page.all(".link.lit")) >= len(found["hops"])
            for each in found["not_wanted"][:3]:
                assert each["subscription"] in page.text("#verdict")
            assert page.find(".node.client.source").get_attribute("data-name") == "market"

            # What only some networks have is there when it is.
            page.until(lambda: "assigned" in page.text("#section-caches"))
            page.until(lambda: "subspaces" in page.text("#section-matchers"))
            assert not page.all("#section-partitions")

            # A switch by the keyboard, a client by the mouse.
            page.run("document.querySelector('[data-key=\"switch s5\"]').focus()")
            page.driver.switch_to.active_element.send_keys("\ue007")
            flows = asked(url, "/flows/s5")["flows"]
            page.until(lambda: len(page.all("#details tbody tr")) == len(flows))
            assert "symbol in" in page.text("#details")
            page.run("document.querySelector('[data-key=\"client watcher-1\"]').dispatchEvent(new Event('click'))")
            page.until(lambda: "Subscriptions (6)" in page.text("#details"))
            page.theme("light")
            shoot(page, request, "page-light")
            page.theme("dark")
            shoot(page, request, "page-dark")
            page.find("#clear").click()
            assert not page.all("#canvas .lit")

            # What the network finds itself is told, and offered.
            assert page.text("#tuning").startswith("tuning: ")
            # An operator applies a plan: false positives fall, and the page says so.
            page.find("#plans option[value=builtin]").click()
            page.find("#plans button").click()
            page.until(lambda: "epoch 2 in use" in page.text("#plans .result"))
            page.until(lambda: "epoch 2" in page.text("#plans .chips"))
            page.until(lambda: float(page.find("#tile-unnecessary .value").get_attribute("data-value")) < 0.3)
            page.until(lambda: re.search(r"epoch 2; unnecessary at hosts \d+ % → \d", page.text("#changes")))
            shoot(page, request, "page-plan")

            # A telephone: nothing is wider than the window but what scrolls by itself.
            page.resize(390, 844, mobile=True)
            page.theme("light")
            assert page.run("return document.documentElement.scrollWidth") <= 390
            shoot(page, request, "page-phone")

            assert page.complaints() == []
            foreign = [each for each in page.requests() if not each.startswith((f"{url}/", "data:", "chrome:"))]
            assert not foreign
            assert f"{url}/live" in page.requests()
    finally:
        stop(process)


def test_who_is_not_known_sees_nothing_and_an_observer_changes_nothing(tmp_path):
    access = folder(tmp_path)
    process, url = start("--schema", "stock", "--access", str(access.path))
    assert url.startswith("https://")
    try:
        with browser() as page:

            def sign_in(token):
                page.until(lambda: page.find("#token").is_displayed())
                page.find("#token").clear()
                page.find("#token").send_keys(token)
                page.find("#sign-form button.primary").click()

            page.driver.get(f"{url}/")
            sign_in("olga.wrong")
            page.until(lambda: "does not count here" in page.text("#sign-error"))
            assert not page.all(".node")
            assert not any(each.endswith("/live") for each in page.requests())
            sign_in(load_login(access.login("eye")).token)
            page.until(lambda: page.all(".node.switch"))
            assert page.text("#who") == "eye (observer)"
            page.until(lambda: page.all("#plans .plan"))
            assert not page.all("#plans form")
            page.find("#event").send_keys(EVENT)
            page.find("#origin").send_keys("h1")
            page.find("#trace button.primary").click()
            page.until(lambda: "Expected an operator" in page.text("#verdict"))
            page.find("#sign").click()
            sign_in(load_login(access.login("olga")).token)
            page.until(lambda: page.text("#who") == "olga (operator)")
            page.until(lambda: page.all("#plans form"))
            page.find("#plans button").click()
            page.until(lambda: "epoch 2 in use" in page.text("#plans .result"))
            # The cookie is not for scripts.
            assert page.run("return document.cookie") == ""
    finally:
        stop(process)


def test_what_the_page_computes_is_right():
    """Merge patches as Python makes them; pictures of many shapes in which no two nodes lie on each other."""
    rng = random.Random(3)

    def tree(depth):
        if depth == 0 or rng.random() < 0.3:
            return rng.choice([0, 1, True, "a", [1], 2.5])
        return {rng.choice("abcd"): tree(depth - 1) for _ in range(rng.randrange(4))}

    pairs = [({"r": tree(3)}, {"r": tree(3)}) for _ in range(300)]
    process, url = start("--topology", "line,switches=2", "--schema", "plane")
    try:
        with browser() as page:
            page.driver.get(f"{url}/")
            page.driver.set_script_timeout(60)
            got = page.driver.execute_async_script(
                "const [pairs, done] = arguments;"
                "import('/static/live.js').then(m => done(pairs.map(([b, d]) => m.merged(b, d))))",
                [[before, delta(before, after)] for before, after in pairs],
            )
            assert got == [after for _, after in pairs]
            shapes = (
                "line,switches=7",
                "ring,switches=8",
                "fattree,k=4",
                "star,arms=5",
                "random,switches=20",
                "testbed",
            )
            for shape in shapes:
                assert not _overlapping(page, shape), shape
    finally:
        stop(process)


def _overlapping(page, shape):
    """Pairs of nodes whose boxes lie on each other, as the page would draw a network."""
    net = parse_topology(shape)
    home = {host: net.attachment(host).switch for host in net.hosts}
    links = [[link.a, link.b] for link in net.links]
    at = page.driver.execute_async_script(
        "const [s, h, l, home, done] = arguments;"
        "import('/static/layout.js').then(m => done(Object.fromEntries(m.layout(s, h, l, home))))",
        list(net.switches),
        list(net.hosts),
        links,
        home,
    )
    half = {name: (38, 19) if name in net.switches else (14, 14) for name in at}
    assert set(at) == {*net.switches, *net.hosts}
    return [
        (a, b)
        for a, b in itertools.combinations(at, 2)
        if abs(at[a]["x"] - at[b]["x"]) < half[a][0] + half[b][0]
        and abs(at[a]["y"] - at[b]["y"]) < half[a][1] + half[b][1]
    ]

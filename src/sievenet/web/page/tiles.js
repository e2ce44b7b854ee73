// Figures with their last minutes.

import { el, percent, seconds, short, svg } from "./dom.js";

const POINTS = 90;

const TILES = [
  { id: "published", label: "Published", unit: "/s", of: (s, r) => r.published },
  { id: "delivered", label: "Delivered", unit: "/s", of: (s, r) => r.delivered },
  {
    id: "unnecessary",
    label: "Unnecessary at hosts",
    of: (s, r) => r.per_host,
    text: percent,
    tone: (v, r) => (r.received < 1 ? "" : v > 0.4 ? "bad" : v > 0.1 ? "warn" : "good"),
    top: 1,
  },
  { id: "latency", label: "Latency p50, p99", of: (s) => s.traffic.latency_p50, text: seconds, more: (s) => seconds(s.traffic.latency_p99) },
  { id: "carried", label: "Packets on links", unit: "/s", of: (s, r) => r.transmissions },
  {
    id: "flows",
    label: "Flows",
    of: (s) => Object.values(s.switches).reduce((sum, each) => sum + each.flows, 0),
    more: (s) => {
      const full = Object.values(s.switches).filter((each) => each.capacity);
      return full.length ? `fullest ${percent(Math.max(...full.map((each) => each.flows / each.capacity)))}` : "";
    },
  },
  { id: "dropped", label: "Dropped", of: (s) => s.traffic.dropped, tone: (v, r) => (r.dropped > 0 ? "bad" : "") },
];

export class Tiles {
  constructor(root) {
    this.tiles = TILES.map((tile) => {
      const value = el("p", { class: "value" }, "–");
      const line = svg("path", { class: "spark" });
      const area = svg("path", { class: "area" });
      const chart = svg("svg", { viewBox: `0 0 ${POINTS - 1} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
      const box = el("div", { class: "tile", id: `tile-${tile.id}` }, el("p", { class: "label" }, tile.label), value, chart);
      root.append(box);
      return { ...tile, box, value, line, area, points: [] };
    });
  }

  show(state, rates) {
    for (const tile of this.tiles) {
      const found = tile.of(state, rates);
      const text = (tile.text ?? short)(found);
      tile.value.replaceChildren(text);
      if (tile.unit) tile.value.append(el("small", {}, tile.unit));
      const more = tile.more?.(state);
      if (more) tile.value.append(el("small", {}, ` · ${more}`));
      tile.box.dataset.tone = tile.tone?.(found ?? 0, rates) ?? "";
      tile.value.dataset.value = found ?? "";
      if (!rates.known) continue;
      tile.points.push(found ?? 0);
      if (tile.points.length > POINTS) tile.points.shift();
      this.chart(tile);
    }
  }

  chart(tile) {
    const top = tile.top ?? Math.max(1e-9, ...tile.points) * 1.1;
    const first = POINTS - tile.points.length;
    const path = tile.points.map((value, i) => `${i ? "L" : "M"}${first + i} ${(19 - 18 * Math.min(1, value / top)).toFixed(2)}`).join("");
    tile.line.setAttribute("d", path);
    tile.area.setAttribute("d", path ? `${path}L${POINTS - 1} 20L${first} 20Z` : "");
  }
}

// Details of what was chosen: a switch's table in words, a client's subscriptions, a host's clients.

import { ask, byId, el, percent, seconds, short } from "./dom.js";

const AGAIN = 3000;

export class Panel {
  constructor(state) {
    this.state = state;
    this.title = byId("details-title");
    this.body = byId("details-body");
    this.kind = null;
    setInterval(() => {
      if (this.kind === "switch" && !document.hidden) this.load(true);
    }, AGAIN);
  }

  choose(kind, name) {
    this.kind = kind;
    this.name = name;
    this.title.textContent = `${kind[0].toUpperCase()}${kind.slice(1)} ${name}`;
    this.body.replaceChildren(el("p", { class: "hint" }, "…"));
    this.load();
  }

  async load(again = false) {
    const { kind, name } = this;
    try {
      const found = await { switch: switchView, client: clientView, host: hostView }[kind](name, this.state());
      if (this.kind === kind && this.name === name) {
        const scrolled = this.body.querySelector(".scroll")?.scrollTop ?? 0;
        this.body.replaceChildren(...found);
        const box = this.body.querySelector(".scroll");
        if (again && box) box.scrollTop = scrolled;
      }
    } catch (error) {
      if (this.kind === kind && this.name === name) this.body.replaceChildren(el("p", { class: "error" }, error.message));
    }
  }
}

async function switchView(name) {
  const found = await ask(`/flows/${encodeURIComponent(name)}`);
  const rows = found.flows.map((flow) =>
    el(
      "tr",
      {},
      el("td", {}, el("strong", {}, flow.category), ` ${plain(flow.content, flow.category)}`),
      el("td", {}, flow.ports.map((port) => port.peer).join(", ") || "nobody"),
      el("td", { class: "number" }, short(flow.packets)),
    ),
  );
  const parts = [];
  if (found.capacity) {
    const part = found.flows.length / found.capacity;
    parts.push(el("p", { class: "hint" }, `${found.flows.length} of ${found.capacity} flows (${percent(part)})`));
    const fill = el("span");
    fill.style.width = `${Math.min(100, 100 * part)}%`;
    parts.push(el("div", { class: "meter", "data-full": part > 0.9 }, fill));
  } else {
    parts.push(el("p", { class: "hint" }, `${found.flows.length} flows, table without a known bound`));
  }
  parts.push(el("p", { class: "hint" }, `${short(found.unmatched)} packets matched no flow and were dropped`));
  if (rows.length) {
    const head = el("tr", {}, el("th", {}, "what is forwarded"), el("th", {}, "to"), el("th", { class: "number" }, "packets"));
    parts.push(el("div", { class: "scroll flows", tabindex: 0, role: "region", "aria-label": "flow table" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
  } else {
    parts.push(el("p", {}, "The table is empty: nobody beyond this switch wants anything."));
  }
  return parts;
}

function plain(content, category) {
  const text = content.startsWith(`${category}:`) ? content.slice(category.length + 1).trim() : content;
  return text || "everything";
}

async function clientView(name, state) {
  const found = (await ask(`/clients/${encodeURIComponent(name)}`)).clients[0];
  const counts = state?.clients[name];
  const parts = [el("p", { class: "hint" }, `at ${found.host}, ${found.connected ? "connected" : `away, kept for ${seconds(found.lease_left)}`}`)];
  if (counts) {
    const chips = [`${short(counts.published)} published`, `${short(counts.delivered)} delivered`, `${short(counts.false_positives)} unnecessary`, `${short(counts.dropped)} dropped`];
    parts.push(el("p", { class: "chips" }, ...chips.map((text) => el("span", { class: "chip" }, text))));
  }
  for (const [key, title] of [["subscriptions", "Subscriptions"], ["advertisements", "Advertisements"]]) {
    parts.push(el("h3", {}, `${title} (${found[key].length + found[`more_${key}`]})`));
    if (!found[key].length) parts.push(el("p", { class: "hint" }, "none"));
    else parts.push(el("ul", { class: "mono" }, ...found[key].map((text) => el("li", {}, text))));
    if (found[`more_${key}`]) parts.push(el("p", { class: "hint" }, `… and ${found[`more_${key}`]} more`));
  }
  return parts;
}

async function hostView(name, state) {
  const host = state?.hosts[name.split(" ")[0]];
  if (!host) return [el("p", {}, "This host is not there any more.")];
  const list = host.clients.map((client) => el("li", {}, client));
  return [
    el("p", { class: "hint" }, `at switch ${host.switch}`),
    el("h3", {}, `Clients (${host.clients.length})`),
    list.length ? el("ul", { class: "mono" }, ...list) : el("p", { class: "hint" }, "none"),
  ];
}

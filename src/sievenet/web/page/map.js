// The picture of the network: switches with their load and fill, links with what they carry, hosts and clients.

import { layout } from "./layout.js";
import { natural, short, svg } from "./dom.js";

const MOST_CLIENTS = 3;
const MANY = 80;

export class NetworkMap {
  /** `choose(kind, name)` is called when somebody wants to know more about a switch, host or client. */
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.choose = choose;
    this.shape = "";
    this.links = new Map();
    this.nodes = new Map();
    this.between = new Map();
    this.chosen = null;
    this.lit = null;
  }

  show(state, rates) {
    const shape = JSON.stringify([
      Object.keys(state.switches),
      Object.entries(state.hosts).map(([name, host]) => [name, host.switch, host.clients]),
      Object.keys(state.links),
    ]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.draw(state);
    }
    this.update(state, rates);
  }

  draw(state) {
    const focused = document.activeElement?.dataset?.key;
    const switches = Object.keys(state.switches).sort(natural);
    const few = switches.length <= MANY;
    const hosts = few ? Object.keys(state.hosts).sort(natural) : [];
    this.home = Object.fromEntries(Object.values(state.hosts).map((host) => [host.name, host.switch]));
    this.clientHome = {};
    const shown = Object.entries(state.links).filter(([, link]) => few || !(link.a in this.home || link.b in this.home));
    const at = layout(switches, hosts, shown.map(([, link]) => [link.a, link.b]), this.home);
    const clients = this.placeClients(state, hosts, at);

    const points = [...at.values(), ...clients.map((each) => each.at)];
    const [left, right] = [Math.min(...points.map((p) => p.x)) - 62, Math.max(...points.map((p) => p.x)) + 62];
    const [top, bottom] = [Math.min(...points.map((p) => p.y)) - 30, Math.max(...points.map((p) => p.y)) + 26];
    const picture = svg("svg", { viewBox: `${left} ${top} ${right - left} ${bottom - top}`, role: "presentation" });

    this.links.clear();
    this.between.clear();
    for (const [id, link] of shown) {
      const [a, b] = [at.get(link.a), at.get(link.b)];
      if (!a || !b) continue;
      const ends = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
      const line = svg("line", { ...ends, class: "link" }, svg("title"));
      picture.append(line, svg("line", { ...ends, class: "pulse" }));
      this.links.set(id, line);
      this.between.set(pair(link.a, link.b), line);
    }
    this.nodes.clear();
    for (const name of switches) picture.append(this.switchNode(name, at.get(name), few));
    for (const name of hosts) picture.append(this.hostNode(name, at.get(name)));
    for (const each of clients) picture.append(this.clientNode(each));
    this.canvas.replaceChildren(picture);
    if (focused) this.nodes.get(focused)?.focus();
    if (this.chosen) this.mark(...this.chosen);
    if (this.lit) this.light(this.lit);
  }

  placeClients(state, hosts, at) {
    const found = [];
    for (const host of hosts) {
      const p = at.get(host);
      const home = at.get(this.home[host]);
      // Away from the switch: down in rows, outwards elsewhere.
      const down = p.y >= home.y - 1 ? 1 : -1;
      const names = state.hosts[host].clients;
      names.forEach((name) => (this.clientHome[name] = host));
      names.slice(0, MOST_CLIENTS).forEach((name, i) => {
        found.push({ name, at: { x: p.x, y: p.y + down * (32 + 23 * i) } });
      });
      if (names.length > MOST_CLIENTS) {
        found.push({ more: names.length - MOST_CLIENTS, host, at: { x: p.x, y: p.y + down * (32 + 23 * MOST_CLIENTS) } });
      }
    }
    return found;
  }

  node(kind, name, p, ...children) {
    const pick = () => this.choose(kind, name);
    const node = svg(
      "g",
      {
        class: `node ${kind}`,
        transform: `translate(${p.x} ${p.y})`,
        tabindex: 0,
        role: "button",
        "data-key": `${kind} ${name}`,
        "data-name": name,
        onclick: pick,
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            pick();
          }
        },
      },
      ...children,
    );
    this.nodes.set(`${kind} ${name}`, node);
    return node;
  }

  switchNode(name, p, few) {
    const wide = few ? 76 : 30;
    return this.node(
      "switch",
      name,
      p,
      svg("rect", { class: "box", x: -wide / 2, y: -19, width: wide, height: 38, rx: 8 }),
      svg("rect", { class: "heat", x: -wide / 2, y: -19, width: wide, height: 38, rx: 8 }),
      svg("text", { y: -7 }, name),
      few ? svg("text", { class: "sub", y: 5.5 }) : null,
      svg("rect", { class: "gauge-back", x: -wide / 2 + 7, y: 12, width: wide - 14, height: 3, rx: 1.5 }),
      svg("rect", { class: "gauge", x: -wide / 2 + 7, y: 12, width: 0, height: 3, rx: 1.5, "data-wide": wide - 14 }),
    );
  }

  hostNode(name, p) {
    return this.node("host", name, p, svg("circle", { class: "box", r: 14 }), svg("text", { class: "sub" }, name));
  }

  clientNode(each) {
    if (each.more) {
      const node = this.node("host", `${each.host} more`, each.at, svg("rect", { class: "box", x: -30, y: -9, width: 60, height: 18, rx: 9 }), svg("text", { class: "sub" }, `+${each.more} more`));
      node.addEventListener("click", () => this.choose("host", each.host));
      return node;
    }
    const text = each.name.length > 15 ? `${each.name.slice(0, 14)}…` : each.name;
    const wide = Math.max(46, 7 * text.length + 18);
    return this.node(
      "client",
      each.name,
      each.at,
      svg("rect", { class: "box", x: -wide / 2, y: -10, width: wide, height: 20, rx: 10 }),
      svg("text", {}, text),
    );
  }

  update(state, rates) {
    const busiest = Math.max(10, ...Object.values(rates.links));
    for (const [id, line] of this.links) {
      const link = state.links[id];
      const rate = rates.links[id] ?? 0;
      const part = rate > 0 ? Math.log1p(rate) / Math.log1p(busiest) : 0;
      line.classList.toggle("down", !link.up);
      line.style.strokeWidth = (2 + 6 * part).toFixed(1);
      line.style.stroke = rate > 0.5 ? `color-mix(in oklab, var(--busy) ${Math.round(25 + 75 * part)}%, var(--link))` : "";
      line.querySelector("title").textContent = `${link.a} – ${link.b}: ${link.up ? `${short(rate)} packets/s` : "down"}`;
    }
    const hottest = Math.max(10, ...Object.values(rates.switches));
    for (const [name, each] of Object.entries(state.switches)) {
      const node = this.nodes.get(`switch ${name}`);
      if (!node) continue;
      const rate = rates.switches[name] ?? 0;
      node.classList.toggle("down", !each.up);
      node.querySelector(".heat").style.opacity = (0.42 * (Math.log1p(rate) / Math.log1p(hottest))).toFixed(2);
      const full = each.capacity ? Math.min(1, each.flows / each.capacity) : 0;
      const gauge = node.querySelector(".gauge");
      node.querySelector(".gauge-back").style.display = each.capacity ? "" : "none";
      gauge.setAttribute("width", (full * gauge.dataset.wide).toFixed(1));
      const flows = each.capacity ? `${short(each.flows)}/${short(each.capacity)}` : `${short(each.flows)} flows`;
      const sub = node.querySelector(".sub");
      if (sub) sub.textContent = each.up ? flows : "down";
      const said = each.up ? `${each.flows} flows${each.capacity ? ` of ${each.capacity}` : ""}, ${short(rate)} packets per second` : "down";
      node.setAttribute("aria-label", `switch ${name}, ${said}`);
    }
    for (const [key, node] of this.nodes) {
      const [kind, name] = key.split(" ");
      if (kind === "client") {
        const client = state.clients[name];
        if (client) node.setAttribute("aria-label", `client ${name}, ${client.subscriptions} subscriptions, ${client.advertisements} advertisements`);
      } else if (kind === "host") {
        node.setAttribute("aria-label", `host ${name}`);
      }
    }
  }

  mark(kind, name) {
    this.chosen = [kind, name];
    for (const [key, node] of this.nodes) node.classList.toggle("chosen", key === `${kind} ${name}`);
  }

  /** Light an event's way, switch by switch. */
  light(found) {
    this.dark();
    this.lit = found;
    const glow = (element, depth) => {
      if (!element) return;
      element.style.transitionDelay = `${depth * 220}ms`;
      element.classList.add("lit");
    };
    const origin = found.from.split(" at ");
    this.nodes.get(`client ${origin[0]}`)?.classList.add("source");
    const start = origin[1] ?? origin[0];
    if (found.hops.length) {
      glow(this.between.get(pair(start, found.hops[0].switch)), 0);
      glow(this.nodes.get(`host ${start}`), 0);
    }
    for (const hop of found.hops) {
      glow(this.nodes.get(`switch ${hop.switch}`), hop.depth + 0.5);
      for (const out of hop.out) {
        if (!out.to || out.stopped) continue;
        const host = this.clientHome[out.to];
        glow(this.between.get(pair(hop.switch, host ?? out.to)), hop.depth + 1);
        if (host) glow(this.nodes.get(`host ${host}`), hop.depth + 1.5);
      }
    }
    for (const each of found.delivered) if (each.reached) this.nodes.get(`client ${each.client}`)?.classList.add("got");
    for (const name of found.false_positives) this.nodes.get(`client ${name}`)?.classList.add("unwanted");
  }

  dark() {
    this.lit = null;
    for (const element of this.canvas.querySelectorAll(".lit, .got, .unwanted, .source")) {
      element.style.transitionDelay = "";
      element.classList.remove("lit", "got", "unwanted", "source");
    }
  }
}

const pair = (a, b) => [a, b].sort().join("|");

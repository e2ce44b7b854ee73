// Tables: clients, switches, and whatever else the network has (partitions, matchers, caches …).

import { byId, el, natural, percent, seconds, short } from "./dom.js";

const MOST = 200;

/** Fill a table; cells are texts, numbers, or elements. */
function fill(table, heads, rows) {
  const cell = (kind, value, head) => el(kind, { class: head.number ? "number" : null, scope: kind === "th" ? "col" : null }, value);
  table.replaceChildren(
    el("thead", {}, el("tr", {}, ...heads.map((head) => cell("th", head.text, head)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((value, i) => cell("td", value, heads[i]))))),
  );
}

const words = (text) => ({ text });
const number = (text) => ({ text, number: true });

export class Tables {
  constructor(choose) {
    this.choose = choose;
    this.sections = new Map();
  }

  show(state, rates) {
    // Whoever is at a button in a table keeps it.
    if (!document.activeElement?.closest("#clients")) this.clients(state);
    if (!document.activeElement?.closest("#switches")) this.switches(state, rates);
    for (const name of ["partitions", "configurators", "matchers", "caches"]) this.section(name, state[name]);
  }

  button(kind, name) {
    return el("button", { type: "button", onclick: () => this.choose(kind, name) }, name);
  }

  clients(state) {
    const names = Object.keys(state.clients).sort(natural);
    byId("clients-count").textContent = `${names.length + (state.more_clients ?? 0)} in all${names.length > MOST ? `, ${MOST} shown` : ""}`;
    fill(
      byId("clients"),
      [words("client"), words("host"), number("subscriptions"), number("advertisements"), number("published"), number("delivered"), number("unnecessary"), number("dropped"), number("p50"), number("p99")],
      names.slice(0, MOST).map((name) => {
        const each = state.clients[name];
        const came = each.delivered + each.false_positives;
        return [
          this.button("client", name),
          `${each.host}${each.connected ? "" : " (away)"}`,
          short(each.subscriptions),
          short(each.advertisements),
          short(each.published),
          short(each.delivered),
          came ? percent(each.false_positives / came) : "–",
          short(each.dropped),
          seconds(each.latency_p50),
          seconds(each.latency_p99),
        ];
      }),
    );
  }

  switches(state, rates) {
    fill(
      byId("switches"),
      [words("switch"), words("state"), number("flows"), number("capacity"), number("packets/s"), number("unmatched")],
      Object.keys(state.switches).sort(natural).slice(0, MOST).map((name) => {
        const each = state.switches[name];
        return [this.button("switch", name), each.up ? "up" : "down", short(each.flows), each.capacity ? short(each.capacity) : "–", short(rates.switches[name]), short(each.unmatched)];
      }),
    );
  }

  /** A table of its own for what only some networks have. */
  section(name, rows) {
    let found = this.sections.get(name);
    if (!rows || !Object.keys(rows).length) {
      found?.box.remove();
      this.sections.delete(name);
      return;
    }
    if (!found) {
      const table = el("table");
      const title = name[0].toUpperCase() + name.slice(1);
      const box = el("section", { class: "card", id: `section-${name}`, "aria-label": title }, el("div", { class: "head" }, el("h2", {}, title)), el("div", { class: "scroll" }, table));
      found = { box, table };
      this.sections.set(name, found);
      byId("sections").append(box);
    }
    const values = Object.values(rows);
    const keys = [...new Set(values.flatMap((row) => Object.keys(row)))].slice(0, 12);
    const numeric = keys.map((key) => values.every((row) => typeof (row[key] ?? 0) === "number"));
    const shown = (value) => (value === undefined ? "–" : typeof value === "number" ? short(value) : typeof value === "string" ? value : JSON.stringify(value));
    fill(found.table, keys.map((key, i) => ({ text: key.replaceAll("_", " "), number: numeric[i] })), values.slice(0, MOST).map((row) => keys.map((key) => shown(row[key]))));
  }
}

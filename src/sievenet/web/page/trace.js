// An event's way: asked for, lit on the map, and told in words.

import { ask, byId, el, natural } from "./dom.js";

export class Trace {
  constructor(map) {
    this.map = map;
    this.form = byId("trace");
    this.verdict = byId("verdict");
    this.clear = byId("clear");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.follow();
    });
    this.clear.addEventListener("click", () => {
      this.map.dark();
      this.verdict.replaceChildren();
      this.clear.hidden = true;
    });
    this.known = "";
  }

  /** Hosts and clients to begin at, and an example of each category. */
  async show(state) {
    const origins = [...Object.keys(state.hosts), ...Object.keys(state.clients)].sort(natural);
    const names = Object.values(state.categories).map((each) => each.name);
    const known = JSON.stringify([origins, names]);
    if (known === this.known) return;
    this.known = known;
    const select = byId("origin");
    const before = select.value;
    select.replaceChildren(el("option", { value: "" }, "whoever advertises it"), ...origins.map((name) => el("option", { value: name }, name)));
    select.value = origins.includes(before) ? before : "";
    try {
      const schemas = await ask("/schemas");
      byId("examples").replaceChildren(...schemas.map((schema) => el("option", { value: example(schema) })));
      const input = byId("event");
      if (schemas.length && !input.dataset.touched) input.placeholder = example(schemas[0]);
    } catch {
      // Examples are a help, no more.
    }
  }

  async follow() {
    const input = byId("event");
    const query = new URLSearchParams({ event: input.value, from: byId("origin").value });
    this.verdict.replaceChildren(el("p", { class: "hint" }, "…"));
    try {
      const found = await ask(`/explain?${query}`);
      this.map.light(found);
      this.clear.hidden = false;
      this.verdict.replaceChildren(...this.words(found));
    } catch (error) {
      this.map.dark();
      this.verdict.replaceChildren(el("p", { class: "error" }, error.message));
    }
  }

  words(found) {
    const switches = new Set(found.hops.map((hop) => hop.switch)).size;
    const way = found.codes.length
      ? `From ${found.from} it passes ${switches} ${switches === 1 ? "switch" : "switches"}: ${[...new Set(found.hops.map((hop) => hop.switch))].join(" → ")}.`
      : `From ${found.from} it is not sent: no filter can want it.`;
    const parts = [el("p", { id: "way" }, way)];
    parts.push(
      list(
        `${found.delivered.length} ${found.delivered.length === 1 ? "client gets" : "clients get"} it`,
        found.delivered.map((each) => el("li", { class: "yes" }, el("strong", {}, each.client), `: ${each.subscriptions.join("; ")}`, each.reached ? "" : " (its own event: given to it without the network)")),
      ),
    );
    if (found.false_positives.length) {
      parts.push(list("receive it and filter it out (false positives)", found.false_positives.map((name) => el("li", { class: "false" }, name))));
    }
    if (found.not_wanted.length) {
      const rows = found.not_wanted.map((each) =>
        el("li", { class: "no" }, el("details", {}, el("summary", {}, el("strong", {}, each.client), ` does not want it: ${each.subscription}`), el("pre", {}, each.why))),
      );
      const more = found.not_shown ? ` (${found.not_shown} more are not shown)` : "";
      parts.push(list(`${rows.length} subscriptions do not match${more}`, rows));
    }
    return parts;
  }
}

function list(title, rows) {
  return el("div", {}, el("strong", {}, title), el("ul", { tabindex: rows.length > 6 ? 0 : null }, ...rows));
}

function example(schema) {
  const values = schema.attributes.map((attribute) => {
    if (attribute.values) return `${attribute.name}=${attribute.values[Math.floor(attribute.values.length / 2)]}`;
    if (attribute.type === "bool") return `${attribute.name}=true`;
    if (attribute.type === "str") return `${attribute.name}="text"`;
    const middle = ((attribute.lo ?? 0) + (attribute.hi ?? 100)) / 2;
    return `${attribute.name}=${attribute.type === "int" ? Math.floor(middle) : middle}`;
  });
  return `${schema.name}: ${values.join(", ")}`;
}

// Index plans: what each category has now, how a change goes on, and for operators a way to change it.

import { ask, byId, el, me, operator, percent, seconds } from "./dom.js";

export class Plans {
  constructor() {
    this.root = byId("plans");
    this.cards = new Map();
  }

  show(state) {
    const tuning = byId("tuning");
    tuning.hidden = !state.tuning?.line;
    tuning.textContent = state.tuning?.line ?? "";
    const names = Object.keys(state.categories);
    for (const [key, card] of this.cards) {
      if (!names.includes(key)) {
        card.box.remove();
        this.cards.delete(key);
      }
    }
    if (!names.length && !this.cards.size) this.root.replaceChildren(el("p", { class: "hint" }, "No categories yet."));
    for (const key of names) this.update(key, state.categories[key], state.control.transitions?.[state.categories[key].name], (state.tuning?.suggested ?? []).includes(state.categories[key].name));
  }

  /** Offer the plan that the network has found itself, while there is one. */
  suggest(form, suggested) {
    const kind = form?.elements.kind;
    const offered = kind?.querySelector("[value=suggested]");
    if (kind && suggested && !offered) kind.prepend(el("option", { value: "suggested" }, "found by the network itself"));
    if (offered && !suggested) offered.remove();
  }

  update(key, category, stage, suggested) {
    let card = this.cards.get(key);
    if (!card) {
      if (!this.cards.size) this.root.replaceChildren();
      const chips = el("p", { class: "chips" });
      const result = el("p", { class: "result", role: "status" });
      const box = el("div", { class: "plan", "data-category": category.name }, el("strong", {}, category.name), chips, result);
      card = { box, chips, result, form: null };
      this.cards.set(key, card);
      this.root.append(box);
    }
    const texts = [`${category.kind} plan`, `${category.bits} bits`, `epoch ${category.epoch}`, many(category.subscriptions, "subscription"), many(category.advertisements, "advertisement")];
    if (category.version > 1) texts.unshift(`version ${category.version}`);
    card.chips.replaceChildren(...texts.map((text) => el("span", { class: "chip" }, text)));
    if (stage) card.chips.append(el("span", { class: "chip on" }, `changing: ${stage}`));
    if (operator() && !card.form) card.box.append((card.form = this.form(category, card)));
    this.suggest(card.form, suggested);
    if (!operator() && card.form) {
      card.form.remove();
      card.form = null;
    }
  }

  form(category, card) {
    const form = byId("plan-form").content.firstElementChild.cloneNode(true);
    const { kind, bits, file } = form.elements;
    if (me.plans.includes(category.name)) kind.append(el("option", { value: "builtin" }, "made for the sample market"));
    kind.append(el("option", { value: "regular" }, "regular"), el("option", { value: "file" }, "from a file (JSON)"));
    bits.value = category.bits;
    const fit = () => {
      form.querySelector(".bits").hidden = kind.value !== "regular";
      form.querySelector(".file").hidden = kind.value !== "file";
    };
    kind.addEventListener("change", fit);
    fit();
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      card.result.className = "result";
      card.result.textContent = "changing over, no event is lost …";
      try {
        const path = `/plans/${encodeURIComponent(category.name)}`;
        let done;
        if (kind.value === "file") {
          if (!file.files.length) throw new Error("choose a file first");
          done = await ask(path, { method: "POST", body: await file.files[0].text() });
        } else {
          const queries = { builtin: `builtin=${category.name}`, regular: `regular=${bits.value}`, suggested: "suggested=1" };
          done = await ask(`${path}?${queries[kind.value]}`, { method: "POST" });
        }
        const took = Object.values(done.stages ?? {}).reduce((sum, each) => sum + each, 0);
        card.result.textContent = `epoch ${done.epoch} in use after ${seconds(took)}`;
      } catch (error) {
        card.result.className = "result error";
        card.result.textContent = error.message;
      } finally {
        button.disabled = false;
      }
    });
    return form;
  }
}

const many = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** What happened, newest first. */
export class Changes {
  constructor() {
    this.root = byId("changes");
    this.told = 0;
    this.rate = null;
    this.pending = [];
  }

  show(state, rates, before) {
    if (rates.known) this.rate = rates.per_host;
    for (const each of [...this.pending]) {
      if (state.traffic.uptime >= each.due) {
        each.item.append(` → ${percent(rates.per_host)}`);
        this.pending.splice(this.pending.indexOf(each), 1);
      }
    }
    if (!before) return;
    for (const [key, category] of Object.entries(state.categories)) {
      const old = before.categories[key];
      if (!old) this.tell(`category ${category.name} version ${category.version} is new`);
      else if (old.epoch !== category.epoch) {
        const item = this.tell(`${category.name}: plan ${old.kind} ${old.bits} bits → ${category.kind} ${category.bits} bits, epoch ${category.epoch}; unnecessary at hosts ${percent(this.rate ?? 0)}`);
        // Rates are over a few looks: by then they are those of the new plan alone.
        this.pending.push({ item, due: state.traffic.uptime + 10 });
      }
    }
    const differ = (table, text) => {
      for (const key of Object.keys(state[table])) if (!(key in before[table])) this.tell(text(key, true));
      for (const key of Object.keys(before[table])) if (!(key in state[table])) this.tell(text(key, false));
    };
    differ("clients", (name, came) => `client ${name} has ${came ? "joined" : "left"}`);
    for (const [name, each] of Object.entries(state.switches)) {
      if (before.switches[name] && before.switches[name].up !== each.up) this.tell(`switch ${name} is ${each.up ? "up" : "down"}`);
    }
    for (const [id, each] of Object.entries(state.links)) {
      if (before.links[id] && before.links[id].up !== each.up) this.tell(`link ${each.a} – ${each.b} is ${each.up ? "up" : "down"}`);
    }
  }

  tell(text) {
    if (!this.told++) this.root.replaceChildren();
    const now = new Date();
    const words = el("span", {}, text);
    const item = el("li", {}, el("time", { datetime: now.toISOString() }, now.toLocaleTimeString([], { hour12: false })), words);
    this.root.prepend(item);
    while (this.root.children.length > 60) this.root.lastElementChild.remove();
    return words;
  }
}

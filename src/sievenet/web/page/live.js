// The live view: a snapshot, then merge patches (RFC 7396), and rates between looks.

/** A merge patch applied; what is not touched stays the same object. */
export function merged(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const found = target !== null && typeof target === "object" && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete found[key];
    else found[key] = merged(found[key], value);
  }
  return found;
}

const COUNTS = ["published", "received", "delivered", "false_positives", "duplicates", "dropped", "transmissions"];
/** Looks over which a rate is taken: clients report about once a second, by clocks of their own. */
const OVER = 4;

/** Packets that a link has carried; those of a host are counted at the ports of its clients. */
function carried(state, link) {
  const host = state.hosts[link.a] ?? state.hosts[link.b];
  if (!host) return link.forth + link.back;
  return host.clients.reduce((sum, name) => sum + (state.clients[name]?.in ?? 0) + (state.clients[name]?.out ?? 0), 0);
}

export class Live {
  /** `show(state, rates, before)` is called for every look; `tell(state)` when the connection comes or goes. */
  constructor(show, tell) {
    this.show = show;
    this.tell = tell;
    this.state = null;
    this.looks = [];
    this.source = null;
  }

  start() {
    this.stop();
    this.tell("waiting");
    const source = (this.source = new EventSource("/live"));
    source.addEventListener("snapshot", (event) => {
      this.looks = [];
      this.state = null;
      this.take(JSON.parse(event.data));
      this.tell("live");
    });
    source.onmessage = (event) => {
      if (this.state) this.take(merged(this.state, JSON.parse(event.data)));
    };
    // What was missed cannot be merged: begin anew.
    source.addEventListener("missed", () => this.start());
    source.addEventListener("end", () => this.tell("lost"));
    source.onerror = () => this.tell(source.readyState === EventSource.CLOSED ? "lost" : "waiting");
  }

  stop() {
    this.source?.close();
    this.source = null;
  }

  take(state) {
    const before = this.state;
    this.state = state;
    const links = {};
    for (const [id, link] of Object.entries(state.links)) links[id] = carried(state, link);
    const packets = {};
    for (const [name, each] of Object.entries(state.switches)) packets[name] = each.packets;
    this.looks.push({ at: state.traffic.uptime, traffic: state.traffic, links, packets });
    if (this.looks.length > OVER + 1) this.looks.shift();
    this.show(state, this.rates(), before);
  }

  rates() {
    const last = this.looks[this.looks.length - 1];
    const first = this.looks[0];
    const passed = last.at - first.at;
    const rates = { known: passed > 0, links: {}, switches: {} };
    const per = (now, then) => (passed > 0 ? Math.max(0, (now - (then ?? 0)) / passed) : 0);
    for (const name of COUNTS) rates[name] = per(last.traffic[name] ?? 0, first.traffic[name]);
    for (const [id, count] of Object.entries(last.links)) rates.links[id] = id in first.links ? per(count, first.links[id]) : 0;
    for (const [id, count] of Object.entries(last.packets)) rates.switches[id] = per(count, first.packets[id] ?? count);
    const came = rates.received;
    rates.per_host = came > 0 ? (rates.false_positives + rates.duplicates) / came : 0;
    return rates;
  }
}

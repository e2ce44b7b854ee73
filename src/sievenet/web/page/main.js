// The page: what comes from the live view goes to each part.

import { byId, me, seconds } from "./dom.js";
import { Live } from "./live.js";
import { NetworkMap } from "./map.js";
import { Panel } from "./panel.js";
import { Changes, Plans } from "./plans.js";
import { SignIn } from "./signin.js";
import { Tables } from "./tables.js";
import { Tiles } from "./tiles.js";
import { Trace } from "./trace.js";

const STATES = { live: "live", waiting: "connecting", lost: "disconnected" };

function main() {
  theme();
  const panel = new Panel(() => live.state);
  const choose = (kind, name) => {
    map.mark(kind, name);
    panel.choose(kind, name);
  };
  const map = new NetworkMap(byId("canvas"), choose);
  const tiles = new Tiles(byId("tiles"));
  const trace = new Trace(map);
  const plans = new Plans();
  const changes = new Changes();
  const tables = new Tables(choose);
  const live = new Live(
    (state, rates, before) => {
      byId("about").textContent = `${state.about.topology} · ${Object.keys(state.switches).length} switches · ${Object.keys(state.hosts).length} hosts · up ${seconds(state.traffic.uptime)} · version ${state.about.version}`;
      tiles.show(state, rates);
      map.show(state, rates);
      trace.show(state);
      plans.show(state);
      changes.show(state, rates, before);
      tables.show(state, rates);
      document.body.dataset.looks = String(Number(document.body.dataset.looks ?? 0) + 1);
    },
    (state) => {
      byId("state").dataset.state = state;
      byId("state-text").textContent = STATES[state];
    },
  );
  const signIn = new SignIn(() => {
    if (me.role === null) live.stop();
    else live.start();
    if (live.state) plans.show(live.state);
  });
  signIn.look().catch(() => {
    byId("state").dataset.state = "lost";
    byId("state-text").textContent = "the server does not answer";
    setTimeout(() => location.reload(), 5000);
  });
  // Nobody looks at a hidden page.
  document.addEventListener("visibilitychange", () => {
    if (me.role === null) return;
    if (document.hidden) live.stop();
    else live.start();
  });
}

function theme() {
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
  });
}

main();

// Where switches and hosts stand in the picture.
//
// If every link joins neighbouring levels (the level of a switch is its distance to the nearest one with hosts), as in
// trees, Clos networks and fat trees, levels become rows. Otherwise distances in the picture follow distances in the
// network: stress, lowered by stochastic gradient descent (Zheng, Pawar, Goodman 2018), seeded, so that the same network
// looks the same each time.

const ROW = 104;
/** Room that a host needs beside others; less where there are many, or the picture would be too small to read. */
const column = (hosts) => (hosts.length > 10 ? 88 : 118);
/** Room that a switch and a host need around them where they stand freely. */
const SWITCH = { x: 48, y: 27 };
const HOST = { x: 34, y: 34 };

/** Positions by name: {x, y}. `switches` and `hosts` are names, `links` pairs of names, `home` a host's switch. */
export function layout(switches, hosts, links, home) {
  const near = new Map([...switches, ...hosts].map((name) => [name, []]));
  for (const [a, b] of links) {
    near.get(a)?.push(b);
    near.get(b)?.push(a);
  }
  const inner = links.filter(([a, b]) => !(a in home) && !(b in home));
  const levels = levelsOf(switches, hosts, near, home);
  const rows = Math.max(0, ...levels.values());
  const layered = rows > 0 && inner.every(([a, b]) => Math.abs(levels.get(a) - levels.get(b)) === 1);
  return layered ? inRows(switches, hosts, near, home, levels, rows) : byStress(switches, hosts, near);
}

function levelsOf(switches, hosts, near, home) {
  const levels = new Map();
  let edge = [...new Set(hosts.map((host) => home[host]))];
  for (const name of edge) levels.set(name, 0);
  for (let level = 1; edge.length; level++) {
    const next = [];
    for (const name of edge)
      for (const other of near.get(name) ?? [])
        if (!(other in home) && !levels.has(other)) {
          levels.set(other, level);
          next.push(other);
        }
    edge = next;
  }
  for (const name of switches) if (!levels.has(name)) levels.set(name, 0);
  return levels;
}

function inRows(switches, hosts, near, home, levels, rows) {
  const at = new Map();
  const COLUMN = column(hosts);
  const byRow = Array.from({ length: rows + 1 }, (_, row) => switches.filter((name) => levels.get(name) === row));
  const under = new Map(switches.map((name) => [name, hosts.filter((host) => home[host] === name)]));
  // The lowest row has room for its hosts; the rows above stand over the middle of those below.
  let x = 0;
  for (const name of byRow[0]) {
    const own = under.get(name);
    const width = Math.max(1, own.length) * COLUMN;
    at.set(name, { x: x + width / 2, y: (rows + 0) * ROW });
    own.forEach((host, i) => at.set(host, { x: x + (i + 0.5) * COLUMN, y: (rows + 0.82) * ROW }));
    x += width;
  }
  const total = x;
  for (let row = 1; row <= rows; row++) {
    const middle = (name) => {
      const below = near.get(name).filter((other) => levels.get(other) === row - 1 && at.has(other));
      return below.length ? below.reduce((sum, other) => sum + at.get(other).x, 0) / below.length : total / 2;
    };
    const order = byRow[row].map((name) => [middle(name), name]).sort((a, b) => a[0] - b[0]);
    const gap = total / order.length;
    order.forEach(([, name], i) => at.set(name, { x: (i + 0.5) * gap, y: (rows - row) * ROW }));
  }
  return at;
}

function byStress(switches, hosts, near) {
  const names = [...switches, ...hosts];
  const count = names.length;
  const index = new Map(names.map((name, i) => [name, i]));
  const random = seeded(7);
  const at = names.map(() => ({ x: random(), y: random() }));
  const pairs = [];
  names.forEach((name, i) => {
    const distance = new Map([[name, 0]]);
    let edge = [name];
    while (edge.length) {
      const next = [];
      for (const each of edge)
        for (const other of near.get(each) ?? [])
          if (!distance.has(other)) {
            distance.set(other, distance.get(each) + 1);
            next.push(other);
          }
      edge = next;
    }
    for (const [other, d] of distance) if (index.get(other) > i) pairs.push([i, index.get(other), d]);
  });
  const steps = count > 300 ? 12 : 40;
  const longest = Math.max(1, ...pairs.map((pair) => pair[2]));
  for (let step = 0; step < steps; step++) {
    const rate = longest * longest * Math.exp((-step / (steps - 1)) * Math.log((longest * longest) / 0.05));
    shuffle(pairs, random);
    for (const [i, j, d] of pairs) {
      const mu = Math.min(1, rate / (d * d));
      const dx = at[i].x - at[j].x;
      const dy = at[i].y - at[j].y;
      const length = Math.hypot(dx, dy) || 1e-6;
      const move = (mu * (length - d)) / (2 * length);
      at[i].x -= move * dx;
      at[i].y -= move * dy;
      at[j].x += move * dx;
      at[j].y += move * dy;
    }
  }
  lieDown(at);
  const placed = at.map((p) => ({ x: p.x * 92, y: p.y * 92 }));
  apart(placed, (i) => (i < switches.length ? SWITCH : HOST));
  return new Map(names.map((name, i) => [name, placed[i]]));
}

/** Push nodes apart that lie on each other, each pair along the side where that is least. */
function apart(at, size) {
  for (let round = 0; round < 200; round++) {
    let moved = false;
    for (let i = 0; i < at.length; i++) {
      for (let j = i + 1; j < at.length; j++) {
        const [a, b] = [size(i), size(j)];
        const dx = at[j].x - at[i].x;
        const dy = at[j].y - at[i].y;
        const overX = a.x + b.x - Math.abs(dx);
        const overY = a.y + b.y - Math.abs(dy);
        if (overX <= 0 || overY <= 0) continue;
        moved = true;
        const key = overX < overY ? "x" : "y";
        const push = (Math.min(overX, overY) / 2 + 0.5) * ((key === "x" ? dx : dy) < 0 ? -1 : 1);
        at[i][key] -= push;
        at[j][key] += push;
      }
    }
    if (!moved) return;
  }
}

/** Turn the picture so that its longer side lies. */
function lieDown(at) {
  const mean = (key) => at.reduce((sum, p) => sum + p[key], 0) / at.length;
  const cx = mean("x");
  const cy = mean("y");
  let xx = 0;
  let xy = 0;
  let yy = 0;
  for (const p of at) {
    xx += (p.x - cx) ** 2;
    xy += (p.x - cx) * (p.y - cy);
    yy += (p.y - cy) ** 2;
  }
  const angle = 0.5 * Math.atan2(2 * xy, xx - yy);
  const cos = Math.cos(-angle);
  const sin = Math.sin(-angle);
  for (const p of at) {
    const x = p.x - cx;
    const y = p.y - cy;
    p.x = x * cos - y * sin;
    p.y = x * sin + y * cos;
  }
}

function shuffle(items, random) {
  for (let i = items.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [items[i], items[j]] = [items[j], items[i]];
  }
}

function seeded(state) {
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

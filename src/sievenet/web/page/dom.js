// Small helpers: elements, numbers, requests. Text goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element of HTML with attributes and children (texts or elements). */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An element of SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A number for people: 1234567 → 1.23 M. */
export function short(value) {
  if (value === undefined || value === null || !isFinite(value)) return "–";
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(value) >= size) return `${(value / (unit === " k" ? 1e3 : size)).toPrecision(3)}${unit}`;
  }
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

/** Seconds for people. */
export function seconds(value) {
  if (value === undefined || value === null) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(1)} ms`;
  if (value < 120) return `${value.toFixed(1)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${(value / 3600).toFixed(1)} h`;
}

export const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

/** Names in the order that people expect: s2 before s10. */
export const natural = new Intl.Collator("en", { numeric: true }).compare;

/** Who the server says we are; set by `signin.js`. */
export const me = { name: "", role: null, members: false, csrf: "", plans: [], every: 1 };

export const operator = () => me.role === "operator";

/** A request; resolves to what the server says, throws an Error with its message. */
export async function ask(path, { method = "GET", body, type = "application/json" } = {}) {
  const headers = {};
  if (me.csrf && method !== "GET") headers["X-CSRF-Token"] = me.csrf;
  if (body !== undefined) headers["Content-Type"] = type;
  let response;
  try {
    response = await fetch(path, { method, body, headers, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Error("the server does not answer");
  }
  const said = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(said.error?.message ?? `the server says ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return said;
}

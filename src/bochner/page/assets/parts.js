// Elements, numbers and arrays. Data become text nodes and properties, never markup.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
// A name that is read from right to left leaves the numbers after it in their place.
const apart = (name) => element("bdi", {}, name);
const quotedApart = (sentence) => sentence.split(/('[^']*'|"[^"]*")/).map((part, k) => (k % 2 ? apart(part) : part));
function table(id, heads, lines) {
  const cell = (value, k) => (k ? element("td", {}, value) : element("th", {scope: "row"}, value));
  const rows = lines.map((line) => element("tr", {}, ...line.map(cell)));
  const head = element("tr", {}, ...heads.map((name) => element("th", {scope: "col"}, name)));
  $(id).replaceChildren(...(heads.length ? [element("thead", {}, head)] : []), element("tbody", {}, ...rows));
}

const TYPES = {float32: Float32Array, float64: Float64Array, uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array};
async function unpack(packed) {
  const text = atob(packed.body);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const codes = new TYPES[packed.dtype](await new Response(stream).arrayBuffer());
  const width = packed.shape[1] ?? 1;
  if (packed.low === undefined) return {codes, width, exact: packed.dtype === "float64", at: (i, j) => codes[i * width + j]};
  const {low, step} = packed;
  const missing = packed.dtype === "uint8" ? 255 : 65535;
  const one = low.length === 1;
  const same = step.length === 1;
  const at = (i, j) => {
    const code = codes[i * width + j];
    return code === missing ? NaN : low[one ? 0 : j] + step[same ? 0 : j] * code;
  };
  return {codes, width, at};
}

function number(value) {
  if (value === null || Number.isNaN(value)) return "missing";
  if (typeof value !== "number") return text(value);
  if (Math.abs(value) >= 1000 && Math.abs(value) < 1e21) return value.toLocaleString("en", {maximumFractionDigits: 0}).replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
// Values of columns are rounded to so many steps of their range: what is less than one is 0.
const CODES = 65532;
function ofColumn(view, c) {
  const step = (view.high[c] - view.low[c]) / CODES;
  return (value) => number(Math.abs(value) < step ? 0 : value);
}
function text(value) {
  if (value === null || value === undefined) return "none";
  if (value === true || value === false) return value ? "yes" : "no";
  if (typeof value === "number") return number(value);
  if (Array.isArray(value)) return value.map(text).join(", ") || "none";
  if (typeof value !== "object") return String(value);
  return Object.entries(value).map(([key, part]) => `${key}: ${text(part)}`).join(", ") || "none";
}
// Dates and times are milliseconds since 1970.
function dateText(kind, value) {
  const whole = new Date(value).toISOString();
  return kind === "date" ? whole.slice(0, 10) : whole.slice(0, 19).replace("T", " ");
}
function written(label, value) {
  if (label.dates && Number.isFinite(value)) return dateText(label.dates, value);
  return Number.isInteger(value) ? String(value).replace("-", "−") : number(value);
}
const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : null);
const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// A cell of a csv file. Text that a spreadsheet would run as a formula gets an apostrophe before it.
function cell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r;]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
function save(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function extremes(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
// Round numbers between two ends: multiples of 1, 2 or 5 times a power of ten; two at least, for one says no scale.
function ticks(low, high, most) {
  const rough = Math.abs(high - low) / most;
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
  const first = Math.ceil(Math.min(low, high) / step);
  const last = Math.floor(Math.max(low, high) / step);
  if (last <= first && most < 16) return ticks(low, high, 2 * most);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({length: last - first + 1}, (_, k) => {
    const value = (first + k) * step;
    const fixed = {minimumFractionDigits: digits, maximumFractionDigits: digits};
    return [value, Math.abs(value) >= 1e6 || digits > 6 ? value.toPrecision(3).replaceAll("-", "−") : value.toLocaleString("en", fixed).replace("-", "−")];
  });
}

// Colours are those of the style sheet, light, dark or printed.
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
const hex = (parts) => `#${parts.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
const classColours = () => Array.from({length: 10}, (_, k) => colour(`--class-${k}`));
const ramp = () => colour("--ramp").split(" ");
function mix(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  return stops[i].map((part, k) => part + (at - i) * (stops[i + 1][k] - part));
}

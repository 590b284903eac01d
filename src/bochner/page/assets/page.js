// The page: what is shown, what is chosen, and the controls. It asks nothing of any network.
const read = (id) => JSON.parse($(id).textContent);
const about = read("about");
const content = read("content");
const figures = read("figures");
const ELLIPSES = 200;
const ROW = -1;
const MOST_FOUND = 8;
const N = content.rows;
const D = content.dims;
const state = {dims: content.planes[0].dims, layout: null, legend: [], cross: [0, 0], crossed: null, hovered: null, kept: null, chosen: [], mask: null, colouring: null};
let z, std, labels, views, map;
let layouts = [];

const axisName = (d) => (d === ROW ? "row" : `latent dimension ${d}`);
const nameOf = (i) => (content.names ? content.names[i] : `row ${i}`);
const latents = (i) => state.dims.map((d) => (d === ROW ? i : z.at(i, d)));
const say = (sentence) => { $("live").textContent = sentence; };
function planeOf() {
  const [a, b] = state.dims;
  return content.planes.findIndex(({dims}) => dims[0] === Math.min(a, b) && dims[1] === Math.max(a, b));
}
function labelOf(label, i) {
  const value = label.values.at(i, 0);
  if (label.classes === null) return written(label, value);
  return value < 0 ? "none" : label.classes[value];
}
async function unpackAll() {
  // before a chart is drawn: paper waits for none
  for (const spec of figures.kernels) spec.values = await unpack(spec.values);
  [z, std] = await Promise.all([unpack(content.z), unpack(content.std)]);
  labels = await Promise.all(content.labels.map(async (label) => ({...label, values: await unpack(label.values)})));
  layouts = await Promise.all(content.layouts.map(async (layout) => ({...layout, values: await unpack(layout.values)})));
  views = await Promise.all(content.views.map(async (view) => ({
    ...view,
    data: view.data && await unpack(view.data),
    decoded: view.decoded && await Promise.all(view.decoded.map(unpack)),
    planes: await Promise.all(view.planes.map((pair) => Promise.all(pair.map(unpack)))),
  })));
}

// -- the map ---------------------------------------------------------------------------------------
function coordinates() {
  if (state.layout === null) return (i) => latents(i);
  const {values} = layouts[state.layout];
  return (i) => [values.at(i, 0), values.at(i, 1)];
}
function place() {
  const at = coordinates();
  map.x = new Float32Array(N);
  map.y = new Float32Array(N);
  for (let i = 0; i < N; i++) [map.x[i], map.y[i]] = at(i);
  const layout = state.layout === null ? null : layouts[state.layout].name;
  map.labels = layout === null ? state.dims.map(axisName) : [`${layout} 1`, `${layout} 2`];
  for (const id of ["dim-x-label", "dim-y-label"]) $(id).hidden = D < 3 || layout !== null;
  $("shade-label").hidden = $("ellipses-label").hidden = layout !== null;
  recolour();
  ellipses();
  shade();
  all();
  setCross((map.range[0] + map.range[1]) / 2, (map.range[2] + map.range[3]) / 2);
  mark(state.kept ?? state.hovered);
}
function planeExtent() {
  const plane = state.layout === null ? content.planes[planeOf()] : null;
  return plane ? (plane.dims[0] === state.dims[0] ? [0, 1] : [1, 0]).flatMap((k) => [plane.low[k], plane.high[k]]) : null;
}
function extent() {
  const plane = planeExtent();
  // the ellipses of few rows are all drawn, and may reach far beyond the rows
  const drawn = map.ellipses.length === N ? map.ellipses : [];
  return ["x", "y"].flatMap((axis, k) => {
    const [low, high] = extremes(map[axis]);
    // a plane may end where its rows do, whose marks are seen whole
    const margin = (plane ? 0.02 : 0.08) * (high - low || 1);
    const ends = plane ? plane.slice(2 * k, 2 * k + 2) : [];
    return extremes([...ends, low - margin, high + margin, ...drawn.flatMap((one) => [one[axis] - 1.05 * one[`r${axis}`], one[axis] + 1.05 * one[`r${axis}`]])]);
  });
}
const all = () => map.show(extent(), state.dims[0] !== ROW || state.layout !== null);
function ellipse(i) {
  const across = state.dims[0] === ROW ? 0.2 : std.at(i, state.dims[0]);
  return {x: map.x[i], y: map.y[i], rx: state.layout === null ? across : 0, ry: state.layout === null ? std.at(i, state.dims[1]) : 0};
}
function ellipses() {
  const shown = $("show-ellipses").checked && state.layout === null;
  const last = Math.min(ELLIPSES, N);
  const some = Array.from({length: shown ? last : 0}, (_, k) => Math.round(k * (N - 1) / Math.max(last - 1, 1)));
  map.ellipses = some.map(ellipse);
  map.redraw();
}
// Standard deviations: of a view whose columns have one unit, and of single columns.
function shadings() {
  return views.flatMap((view) => {
    const width = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
    const group = `View ${view.name}`;
    const whole = Array.from({length: width}, (_, c) => c);
    const all = view.one_unit ? [[group, `standard deviation of ${view.name}`, view, whole]] : [];
    return [...all, ...view.columns.map((name, c) => [group, `standard deviation of ${name}`, view, [c]])];
  });
}
function shade() {
  const chosen = $("shade-by").value;
  const index = planeOf();
  map.shade = null;
  map.redraw();
  $("shade-legend").replaceChildren();
  if (chosen === "" || index < 0 || state.layout !== null) return;
  const plane = content.planes[index];
  const [, name, view, columns] = shadings()[Number(chosen)];
  const {at} = view.planes[index][1];
  const turned = plane.dims[0] !== state.dims[0];
  const [n, m] = turned ? [...plane.sides].reverse() : plane.sides;
  const values = Float64Array.from({length: n * m}, (_, k) => {
    const place = turned ? (k % n) * m + Math.floor(k / n) : k;
    return Math.sqrt(columns.reduce((sum, c) => sum + at(place, c) ** 2, 0) / columns.length);
  });
  const [low, high] = extremes(values);
  const [paper, quiet] = ["--paper", "--quiet"].map((tone) => rgb(colour(tone)));
  const stops = [paper, mix([paper, quiet], 0.6)];
  const canvas = element("canvas", {width: n, height: m});
  const context = canvas.getContext("2d");
  const image = context.createImageData(n, m);
  values.forEach((value, k) => {
    const up = m - 1 - Math.floor(k / n);
    image.data.set([...mix(stops, (value - low) / (high - low || 1)), 255], 4 * (up * n + k % n));
  });
  context.putImageData(image, 0, 0);
  map.shade = {canvas, extent: planeExtent(), name, stops: stops.map(hex), ends: [number(low), number(high)]};
  $("shade-legend").replaceChildren(element("span", {}, apart(name), ": "), ...scale(map.shade.stops, map.shade.ends), "· hatched: not decoded");
}

// -- colours and legend ----------------------------------------------------------------------------
function rootMeanSquare(i) {
  let sum = 0;
  for (let d = 0; d < D; d++) sum += std.at(i, d) ** 2;
  return Math.sqrt(sum / D);
}
function mean(source, i, width) {
  let sum = 0;
  let known = 0;
  for (let c = 0; c < width; c++) {
    const value = source(i, c);
    if (Number.isNaN(value)) continue;
    sum += value;
    known++;
  }
  return known ? sum / known : NaN;
}
function colourings() {
  const options = labels.map((label) => ["Labels", label.name, {...label, at: (i) => label.values.at(i, 0), missing: "none"}]);
  options.push(["Rows", "one colour", {classes: null, at: null}]);
  options.push(["Rows", "standard deviation of the latents", {classes: null, at: rootMeanSquare}]);
  for (let d = 0; d < D; d++) options.push(["Rows", `latent dimension ${d}`, {classes: null, at: (i) => z.at(i, d)}]);
  for (const view of views) {
    const found = sourceOf(view);
    if (!found) continue;
    const at = (i, c) => (i % found.every ? NaN : found.at(i, c));
    const group = view.data ? `View ${view.name}` : `View ${view.name}, decoded`;
    const width = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
    if (view.one_unit && width > 1) options.push([group, `mean of ${view.name}`, {classes: null, at: (i) => mean(at, i, width)}]);
    view.columns.forEach((name, c) => {
      const classes = view.labels?.[c] ?? null;
      const of = classes ? (i) => codeOf(at(i, c), classes) : (i) => at(i, c);
      options.push([group, name, {classes, at: of, missing: "missing"}]);
    });
  }
  return options;
}
const STEPS = 128;
function recolour() {
  const {classes, at} = state.colouring;
  const values = Float64Array.from({length: N}, (_, i) => (at ? at(i) : 0));
  const missing = rgb(colour("--missing"));
  map.codes = new Uint8Array(N);
  map.markers = null;
  if (classes) {
    const tones = classColours();
    map.palette = [...tones.map(rgb), missing];
    for (let i = 0; i < N; i++) map.codes[i] = values[i] < 0 ? tones.length : values[i] % tones.length;
    if (classes.length > tones.length) map.markers = Uint8Array.from(values, (value) => markOf(Math.max(value, 0)));
    classLegend(values);
  } else if (at) {
    // one infinite value leaves the other rows their colours
    const [low, high] = extremes(values.filter(Number.isFinite));
    const stops = ramp().map(rgb);
    map.palette = [...Array.from({length: STEPS}, (_, k) => mix(stops, k / (STEPS - 1))), missing];
    const step = (value) => Math.round(Math.min(Math.max((value - low) / (high - low || 1), 0), 1) * (STEPS - 1));
    for (let i = 0; i < N; i++) map.codes[i] = Number.isNaN(values[i]) ? STEPS : step(values[i]);
    const ends = low <= high ? [low, high].map((value) => written(state.colouring, value)) : ["missing", "missing"];
    $("legend").replaceChildren(...scale(ramp(), ends));
  } else {
    map.palette = [rgb(colour("--class-0"))];
    $("legend").replaceChildren();
  }
  map.redraw();
}
// The marks of the map, as paths in a square of 12.
const MARKS = [
  "M11 6A5 5 0 1 1 1 6A5 5 0 1 1 11 6z", "M1 1H11V11H1z", "M6 1 11 11H1z", "M6 0 12 6 6 12 0 6z", "M6 11 11 1H1z",
];
const markOf = (k) => Math.floor(k / 10) % MARKS.length;
// The classes of the colouring, and what has none where some rows do.
function legendClasses(values) {
  const {classes, missing} = state.colouring;
  const entries = classes.map((name, k) => ({name, k, tone: `class-${k % 10}`, mark: MARKS[markOf(k)]}));
  return values.some((value) => value < 0) ? [...entries, {name: missing, k: -1, tone: "missing", mark: MARKS[0]}] : entries;
}
function classLegend(values) {
  const rows = new Map();
  values.forEach((value, i) => {
    if (!rows.has(value)) rows.set(value, []);
    rows.get(value).push(i);
  });
  state.legend = legendClasses(values);
  $("legend").replaceChildren(...state.legend.map(({name, k, tone, mark}) => {
    const found = rows.get(k) ?? [];
    const sign = shape("svg", {viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true"}, shape("path", {d: mark, class: `area ${tone}`}));
    const button = element("button", {type: "button", title: `Select ${count(found.length, "row")} of ${name}`}, sign, element("span", {className: "name"}, name));
    button.addEventListener("click", () => choose(found));
    return button;
  }));
}
// A bar of colours between its ends.
function scale(tones, [low, high]) {
  const bar = element("i", {className: "ramp"});
  bar.style.background = `linear-gradient(to right, ${tones.join(", ")})`;
  return [element("span", {className: "numbers"}, low), bar, element("span", {className: "numbers"}, high)];
}

// -- pointing, choosing, searching -----------------------------------------------------------------
function mark(i) {
  map.mark = i === null ? null : ellipse(i);
  map.drawOver();
}
function setCross(px, py, row = null) {
  state.cross = map.cross = [px, py];
  state.crossed = row;
  map.drawOver();
  showPlace();
}
const crossRow = (i) => setCross(map.x[i], map.y[i], i);
function keep(i) {
  state.kept = state.hovered = i;
  mark(i);
  if (i !== null) showRow(i);
}
function leave() {
  if (state.hovered === state.kept) return;
  state.hovered = state.kept;
  mark(state.kept);
  if (state.kept !== null) showRow(state.kept);
}
function point(px, py) {
  const {row, pixels} = map.nearest(px, py);
  if (pixels > 14) leave();
  else if (row !== state.hovered) {
    state.hovered = row;
    mark(row);
    showRow(row);
  }
}
function tap(px, py) {
  const {row, pixels} = map.nearest(px, py);
  const hit = pixels <= 10;
  keep(hit ? row : null);
  if (hit) crossRow(row);
  else setCross(px, py);
}
function choose(rows) {
  state.chosen = rows;
  state.mask = rows.length ? new Uint8Array(N) : null;
  for (const i of rows) state.mask[i] = 1;
  map.mask = state.mask;
  map.redraw();
  $("export").disabled = $("clear").disabled = rows.length === 0;
  $("export").textContent = rows.length ? `Export ${count(rows.length, "row")} (csv)` : "Export rows";
  say(`${count(rows.length, "row")} selected`);
  showSelection();
}
function goTo(i) {
  keep(i);
  const [left, right, bottom, top] = map.range;
  const [px, py] = [map.x[i], map.y[i]];
  if (px < left || px > right || py < bottom || py > top) all();
  crossRow(i);
  say(`kept: ${spoken(i)}`);
}
function matches() {
  const wanted = $("search").value.trim().toLowerCase();
  if (!wanted) return [];
  const found = [];
  for (let i = 0; i < N; i++) if (nameOf(i).toLowerCase().includes(wanted)) found.push(i);
  // the name itself comes before longer ones
  const first = found.findIndex((i) => nameOf(i).toLowerCase() === wanted || String(i) === wanted);
  if (first > 0) found.unshift(...found.splice(first, 1));
  return found;
}
function search() {
  const found = matches();
  const button = (label, action) => {
    const made = element("button", {type: "button"}, element("span", {className: "name"}, label));
    made.addEventListener("click", action);
    return made;
  };
  const buttons = found.slice(0, MOST_FOUND).map((i) => button(nameOf(i), () => goTo(i)));
  if (found.length > 1) buttons.push(button(`Select all ${count(found.length, "row")}`, () => choose([...found].sort((a, b) => a - b))));
  const none = $("search").value.trim() && !found.length ? ["No row has such a name."] : [];
  $("found").replaceChildren(...buttons, ...none);
}
const spoken = (i) => [nameOf(i), ...labels.map((label) => `${label.name} ${labelOf(label, i)}`)].join(", ");

// -- files -----------------------------------------------------------------------------------------
function csv() {
  const each = (suffix) => Array.from({length: D}, (_, d) => `z${d}${suffix}`);
  const head = ["row", ...(content.names ? ["name"] : []), ...each(""), ...each("_std"), ...labels.map((label) => label.name)];
  const exact = (label, i) => {
    const value = label.values.at(i, 0);
    if (label.classes !== null) return value < 0 ? "" : label.classes[value];
    if (label.dates) return Number.isNaN(value) ? "" : dateText(label.dates, value);
    return label.values.exact || Number.isInteger(value) ? value : Number(value.toPrecision(7));
  };
  const lines = [...state.chosen].sort((a, b) => a - b).map((i) => {
    const numbers = [z, std].flatMap((array) => Array.from({length: D}, (_, d) => Number(array.at(i, d).toPrecision(7))));
    return [i, ...(content.names ? [content.names[i]] : []), ...numbers, ...labels.map((label) => exact(label, i))];
  });
  return [head, ...lines].map((parts) => parts.map(cell).join(",")).join("\r\n") + "\r\n";
}
const exportRows = () => save(new Blob([csv()], {type: "text/csv"}), "rows.csv");

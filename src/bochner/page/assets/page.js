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
const state = {dims: content.planes[0].dims, layout: null, cross: [0, 0], hovered: null, kept: null, chosen: [], mask: null, colouring: null};
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
  if (label.classes === null) return number(value);
  return value < 0 ? "none" : label.classes[value];
}
async function unpackAll() {
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
function extent() {
  const plane = state.layout === null ? content.planes[planeOf()] : null;
  if (plane) return (plane.dims[0] === state.dims[0] ? [0, 1] : [1, 0]).flatMap((k) => [plane.low[k], plane.high[k]]);
  return [map.x, map.y].flatMap((values) => {
    const [low, high] = extremes(values);
    const margin = 0.08 * (high - low || 1);
    return [low - margin, high + margin];
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
function shade() {
  const chosen = $("shade-by").value;
  const index = planeOf();
  map.shade = null;
  map.redraw();
  if (chosen === "" || index < 0 || state.layout !== null) return;
  const plane = content.planes[index];
  const {at, width} = views[Number(chosen)].planes[index][1];
  const n = plane.side;
  const turned = plane.dims[0] !== state.dims[0];
  const values = Float64Array.from({length: n * n}, (_, k) => {
    const row = turned ? (k % n) * n + Math.floor(k / n) : k;
    let sum = 0;
    for (let c = 0; c < width; c++) sum += at(row, c) ** 2;
    return Math.sqrt(sum / width);
  });
  const [low, high] = extremes(values);
  const stops = ["--paper", "--quiet"].map((name) => rgb(colour(name)));
  const canvas = element("canvas", {width: n, height: n});
  const context = canvas.getContext("2d");
  const image = context.createImageData(n, n);
  values.forEach((value, k) => {
    const up = n - 1 - Math.floor(k / n);
    image.data.set([...mix(stops, 0.6 * (value - low) / (high - low || 1)), 255], 4 * (up * n + k % n));
  });
  context.putImageData(image, 0, 0);
  map.shade = {canvas, extent: extent()};
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
  const options = labels.map((label) => ["Labels", label.name, {classes: label.classes, at: (i) => label.values.at(i, 0)}]);
  options.push(["Rows", "one colour", {classes: null, at: null}]);
  options.push(["Rows", "standard deviation of the latents", {classes: null, at: rootMeanSquare}]);
  for (let d = 0; d < D; d++) options.push(["Rows", `latent dimension ${d}`, {classes: null, at: (i) => z.at(i, d)}]);
  for (const view of views) {
    const found = sourceOf(view);
    if (!found) continue;
    const at = (i, c) => (i % found.every ? NaN : found.at(i, c));
    const group = view.data ? `View ${view.name}` : `View ${view.name}, decoded`;
    const width = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
    options.push([group, `mean of ${view.name}`, {classes: null, at: (i) => mean(at, i, width)}]);
    view.columns.forEach((name, c) => options.push([group, name, {classes: null, at: (i) => at(i, c)}]));
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
    if (classes.length > tones.length) map.markers = Uint8Array.from(values, (value) => Math.floor(Math.max(value, 0) / tones.length) % INSIDE.length);
    classLegend(classes, values);
  } else if (at) {
    const [low, high] = extremes(values);
    const stops = ramp().map(rgb);
    map.palette = [...Array.from({length: STEPS}, (_, k) => mix(stops, k / (STEPS - 1))), missing];
    for (let i = 0; i < N; i++)
      map.codes[i] = Number.isNaN(values[i]) ? STEPS : Math.round((values[i] - low) / (high - low || 1) * (STEPS - 1));
    const bar = element("span", {className: "ramp"});
    const kept = low <= high ? [number(low), number(high)] : ["missing", "missing"];
    $("legend").replaceChildren(element("span", {className: "numbers"}, kept[0]), bar, element("span", {className: "numbers"}, kept[1]));
  } else {
    map.palette = [rgb(colour("--class-0"))];
    $("legend").replaceChildren();
  }
  map.redraw();
}
const MARKS = [
  ["circle", {cx: 6, cy: 6, r: 5}],
  ["rect", {x: 1, y: 1, width: 10, height: 10}],
  ["path", {d: "M6 1 11 11H1z"}],
  ["path", {d: "M6 0 12 6 6 12 0 6z"}],
  ["path", {d: "M6 11 11 1H1z"}],
];
function classLegend(classes, values) {
  const rows = classes.map(() => []);
  values.forEach((value, i) => { if (value >= 0) rows[value].push(i); });
  $("legend").replaceChildren(...classes.map((name, k) => {
    const [tag, attributes] = MARKS[Math.floor(k / 10) % MARKS.length];
    const sign = shape("svg", {width: 12, height: 12, "aria-hidden": "true"}, shape(tag, {...attributes, class: `area class-${k % 10}`}));
    const button = element("button", {type: "button", title: `Select ${count(rows[k].length, "row")} of ${name}`}, sign, element("span", {className: "name"}, name));
    button.addEventListener("click", () => choose(rows[k]));
    return button;
  }));
}

// -- pointing, choosing, searching -----------------------------------------------------------------
function mark(i) {
  map.mark = i === null ? null : ellipse(i);
  map.drawOver();
}
function setCross(px, py) {
  state.cross = map.cross = [px, py];
  map.drawOver();
  showPlace();
}
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
  setCross(...(hit ? [map.x[row], map.y[row]] : [px, py]));
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
  setCross(px, py);
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
    return Number(value.toPrecision(7));
  };
  const lines = [...state.chosen].sort((a, b) => a - b).map((i) => {
    const numbers = [z, std].flatMap((array) => Array.from({length: D}, (_, d) => Number(array.at(i, d).toPrecision(7))));
    return [i, ...(content.names ? [content.names[i]] : []), ...numbers, ...labels.map((label) => exact(label, i))];
  });
  return [head, ...lines].map((parts) => parts.map(cell).join(",")).join("\r\n") + "\r\n";
}
const exportRows = () => save(new Blob([csv()], {type: "text/csv"}), "rows.csv");

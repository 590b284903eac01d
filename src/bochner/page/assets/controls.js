// The controls, the picture, paper, and the start.
const PICTURE_SCALE = 2;
const LEGEND_LINE = 20;

// The map as it is on the screen, its legend below.
function pictureOfMap() {
  const {clientWidth: width, clientHeight: height} = map.target;
  const entries = [...legendEntries(), ...shadeEntries()];
  const measure = element("canvas").getContext("2d");
  measure.font = "12px system-ui, sans-serif";
  let x = MARGIN.left;
  let y = height + LEGEND_LINE;
  const placed = entries.map((entry) => {
    const wide = measure.measureText(entry.label).width + 34;
    if (x + wide > width && x > MARGIN.left) [x, y] = [MARGIN.left, y + LEGEND_LINE];
    x += wide;
    return {...entry, x: x - wide, y};
  });
  const canvas = element("canvas", {width: width * PICTURE_SCALE, height: (entries.length ? y + 12 : height) * PICTURE_SCALE});
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, canvas.width, canvas.height);
  map.paint(context, PICTURE_SCALE);
  context.font = measure.font;
  context.textAlign = "left";
  for (const {label, tone, mark, outlined, x: left, y: line} of placed) {
    const path = new Path2D();
    path.addPath(new Path2D(mark), new DOMMatrix([1, 0, 0, 1, left, line - 10]));
    context.fillStyle = tone;
    context.fill(path);
    context.strokeStyle = colour("--edge");
    if (outlined) context.stroke(path);
    context.fillStyle = colour("--ink");
    context.fillText(label, left + 17, line);
  }
  return canvas;
}
// What the shading means: its ends, outlined, as one has the colour of the paper.
function shadeEntries() {
  if (!map.shade) return [];
  const {name, stops, ends} = map.shade;
  return ends.map((end, k) => ({label: k ? end : `\u2068${name}\u2069: ${end}`, tone: stops[k], mark: MARKS[1], outlined: true}));
}
function legendEntries() {
  const {classes, at} = state.colouring;
  if (classes) return state.legend.map(({name, tone, mark}) => ({label: name, tone: colour(`--${tone}`), mark}));
  if (!at) return [];
  const shown = $("legend").querySelectorAll(".numbers");
  const stops = ramp();
  return stops.map((tone, k) => ({tone, mark: MARKS[1], label: k === 0 ? shown[0].textContent : k === stops.length - 1 ? shown[1].textContent : ""}));
}
const exportPicture = () => pictureOfMap().toBlob((blob) => save(blob, "map.png"));

function useTool(name) {
  map.tool = name;
  map.target.dataset.tool = name;
  for (const tool of ["pan", "lasso"]) $(`tool-${tool}`).setAttribute("aria-pressed", String(tool === name));
}
const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
function moveCross([dx, dy], far) {
  const step = far ? 0.1 : 0.02;
  const [left, right, bottom, top] = map.range;
  const [px, py] = state.cross;
  setCross(px + dx * step * (right - left), py + dy * step * (top - bottom));
  const near = map.nearest(...state.cross).row;
  say(`${map.labels[0]} ${number(state.cross[0])}, ${map.labels[1]} ${number(state.cross[1])}; nearest: ${spoken(near)}`);
}
function nextRow(step) {
  const from = state.kept ?? (step > 0 ? -1 : 0);
  keep((from + step + N) % N);
  crossRow(state.kept);
  say(spoken(state.kept));
}
function keepNearest() {
  keep(map.nearest(...state.cross).row);
  say(`kept: ${spoken(state.kept)}`);
}
const KEYS = {
  n: () => nextRow(1), p: () => nextRow(-1), Enter: keepNearest,
  "+": () => map.zoom(0.7), "=": () => map.zoom(0.7), "-": () => map.zoom(1 / 0.7), 0: () => all(), Escape: () => choose([]),
};
function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (Object.hasOwn(ARROWS, name)) moveCross(ARROWS[name], event.shiftKey);
  else if (Object.hasOwn(KEYS, name)) KEYS[name]();
  else return;
  event.preventDefault();
}

function fill(select, options) {
  const groups = new Map();
  for (const [group, name, value] of options) {
    if (!groups.has(group)) groups.set(group, element("optgroup", {label: group}));
    groups.get(group).append(new Option(name, value));
  }
  select.replaceChildren(...[...groups].flatMap(([name, group]) => (name && groups.size > 1 ? group : [...group.children])));
}
function dimensions() {
  ["dim-x", "dim-y"].forEach((id, k) => {
    fill($(id), Array.from({length: D}, (_, d) => ["", String(d), d]));
    $(id).value = state.dims[k];
    $(id).addEventListener("change", () => {
      const chosen = [Number($("dim-x").value), Number($("dim-y").value)];
      if (chosen[0] === chosen[1]) chosen[1 - k] = state.dims[k];
      state.dims = chosen;
      [$("dim-x").value, $("dim-y").value] = chosen;
      place();
    });
  });
}
function controls() {
  const options = colourings();
  fill($("colour-by"), options.map(([group, name], k) => [group, name, k]));
  state.colouring = options[0][2];
  $("colour-by").addEventListener("change", (event) => {
    state.colouring = options[event.target.value][2];
    recolour();
  });
  $("layout-label").hidden = !layouts.length;
  fill($("layout"), [["", "latent dimensions", ""], ...layouts.map((layout, k) => ["", layout.name, k])]);
  $("layout").addEventListener("change", (event) => {
    state.layout = event.target.value === "" ? null : Number(event.target.value);
    place();
  });
  fill($("shade-by"), [["", "nothing", ""], ...shadings().map(([group, name], k) => [group, name, k])]);
  $("shade-by").addEventListener("change", shade);
  $("show-ellipses").addEventListener("change", ellipses);
  dimensions();
  const clicks = {
    "tool-pan": () => useTool("pan"), "tool-lasso": () => useTool("lasso"), "zoom-in": () => map.zoom(0.7),
    "zoom-out": () => map.zoom(1 / 0.7), "zoom-all": all, clear: () => choose([]), export: exportRows, picture: exportPicture,
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener("click", action);
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const [first] = matches();
    if (first !== undefined) goTo(first);
  });
  $("map").addEventListener("keydown", key);
}

// -- figures, themes, paper ------------------------------------------------------------------------
const waiting = new Map();
function later() {
  waiting.set($("bound"), figures.bound);
  for (const id of ["chains", "kernels", "spectra", "calibration"])
    for (const spec of figures[id]) {
      const target = element("div", {role: "img", "aria-label": spec.alt});
      $(id).append(target);
      waiting.set(target, spec);
    }
  const observer = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) if (isIntersecting && !target.firstChild) chart(waiting.get(target), target);
  }, {rootMargin: "400px"});
  for (const target of waiting.keys()) observer.observe(target);
}
function repaint() {
  recolour();
  shade();
  map.draw();
  showPlace();
  if (state.kept !== null) showRow(state.kept);
  showSelection();
}
// A canvas whose pixels are read back does not reach paper: a copy does.
function paperMap(on) {
  for (const old of document.querySelectorAll(".paper")) old.remove();
  if (!on || !map.hasRoom()) return;
  const picture = pictureOfMap();
  const copy = element("canvas", {className: "paper", width: picture.width, height: picture.height});
  copy.getContext("2d").drawImage(picture, 0, 0);
  $("map").after(copy);
}
function print(on) {
  document.documentElement.toggleAttribute("data-print", on);
  if (on) for (const [target, spec] of waiting) if (!target.firstChild) chart(spec, target);
  repaint();
  paperMap(on);
}
async function start() {
  tables();
  await unpackAll();
  performance.mark("bochner:unpacked");
  map = new LatentMap($("map"), {point, tap, leave, choose});
  controls();
  place();
  map.draw();
  later();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  window.bochnerPage = {
    toScreen: (i) => map.toScreen(map.x[i], map.y[i]), cross: () => state.cross, range: () => map.range, chosen: () => state.chosen, choose,
  };
  performance.mark("bochner:ready");
  document.documentElement.dataset.ready = "yes";
}
function failed(error) {
  $("failure").hidden = false;
  $("failure").textContent = `The page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`;
  console.error(error);
}
// The text is painted first.
requestAnimationFrame(() => setTimeout(() => start().catch(failed), 0));

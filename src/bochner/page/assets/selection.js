// A selection: which labels and columns differ between its rows and the others.
const MOST_DIFFERING = 15;

// Mean, variance and count of every column, of the rows in the selection and of the others; missing entries are left out.
function moments(source, width, rows, middle) {
  const sums = [0, 1].map(() => ({n: new Float64Array(width), sum: new Float64Array(width), square: new Float64Array(width)}));
  for (const i of rows) {
    const part = sums[state.mask[i]];
    for (let c = 0; c < width; c++) {
      const value = source(i, c) - middle[c];
      if (!Number.isFinite(value)) continue;
      part.n[c]++;
      part.sum[c] += value;
      part.square[c] += value * value;
    }
  }
  return sums.map(({n, sum, square}) => ({
    n,
    mean: sum.map((value, c) => middle[c] + value / n[c]),
    variance: square.map((value, c) => Math.max((value - sum[c] ** 2 / n[c]) / (n[c] - 1), 0)),
  }));
}
// Cohen's d, the difference of the means in pooled standard deviations, and its standard error (Hedges and Olkin, 1985).
function effect(others, chosen, c) {
  const [n0, n1] = [others.n[c], chosen.n[c]];
  if (n0 < 2 || n1 < 2) return {d: NaN, se: NaN};
  const pooled = Math.sqrt(((n0 - 1) * others.variance[c] + (n1 - 1) * chosen.variance[c]) / (n0 + n1 - 2));
  const difference = chosen.mean[c] - others.mean[c];
  if (pooled < 1e-12 * (Math.abs(chosen.mean[c]) + Math.abs(others.mean[c])) || pooled === 0) return {d: NaN, se: NaN};
  const d = difference / pooled;
  return {d, se: Math.sqrt((n0 + n1) / (n0 * n1) + d * d / (2 * (n0 + n1)))};
}
function sourceOf(view) {
  if (view.data) return {at: (i, c) => view.data.at(i / content.every, c), every: content.every, decoded: false};
  if (view.decoded) return {at: (i, c) => view.decoded[0].at(i, c), every: 1, decoded: true};
  return null;
}
// Sums of squares lose digits far from zero.
function middleOf({codes}) {
  const [low, high] = extremes(codes.filter(Number.isFinite));
  return low <= high ? 0.5 * (low + high) : 0;
}
const evenly = (step) => Array.from({length: Math.ceil(N / step)}, (_, k) => k * step);
const codeOf = (value, classes) => (Number.isNaN(value) ? -1 : Math.min(Math.max(Math.round(value), 0), classes.length - 1));

// Everything that is a class: labels of the rows, and columns of categories.
function classed() {
  const found = labels.filter((label) => label.classes !== null)
    .map((label) => ({name: label.name, classes: label.classes, at: (i) => label.values.at(i, 0), every: 1, missing: "none"}));
  for (const view of views) {
    const source = sourceOf(view);
    if (!source || !view.labels) continue;
    view.columns.forEach((column, c) => {
      const classes = view.labels[c];
      const name = source.decoded ? `${column}, decoded` : column;
      if (classes) found.push({name, classes, at: (i) => codeOf(source.at(i, c), classes), every: source.every, missing: "missing"});
    });
  }
  return found;
}
// Columns of numbers: what is observed has effect sizes, what is decoded only means, as it has no noise.
function differences() {
  const rows = [];
  const decoded = [];
  const add = (view, name, [others, chosen], c, said) => {
    const {d, se} = effect(others, chosen, c);
    if (!Number.isNaN(d)) rows.push({view, name, d, se, chosen: said(chosen.mean[c]), others: said(others.mean[c])});
  };
  for (const label of labels.filter((one) => one.classes === null))
    add("labels", label.name, moments((i) => label.values.at(i, 0), 1, evenly(1), [middleOf(label.values)]), 0, (value) => written(label, value));
  const images = [];
  for (const view of views) {
    const source = sourceOf(view);
    if (!source) continue;
    const width = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
    const middle = Array.from({length: width}, (_, c) => 0.5 * (view.low[view.shape ? 0 : c] + view.high[view.shape ? 0 : c]));
    const found = moments(source.at, width, evenly(source.every), middle);
    if (view.shape) images.push([view, found, source.decoded]);
    else view.columns.forEach((name, c) => {
      if (view.labels?.[c]) return;
      if (!source.decoded) add(view.name, name, found, c, ofColumn(view, c));
      else {
        const [others, chosen] = found.map(({mean}) => mean[c]);
        decoded.push({view: view.name, name, chosen, others, share: Math.abs(chosen - others) / (view.high[c] - view.low[c] || 1)});
      }
    });
  }
  rows.sort((a, b) => Math.abs(b.d) - Math.abs(a.d));
  decoded.sort((a, b) => b.share - a.share);
  return {rows, decoded, images};
}
// How often each class comes up among the selected rows and the others, and the sum of what differs.
function shares({classes, at, every, missing}) {
  const counts = [0, 1].map(() => new Float64Array(classes.length + 1));
  for (const i of evenly(every)) {
    const code = at(i);
    counts[state.mask[i]][code < 0 ? classes.length : code]++;
  }
  const [others, chosen] = counts.map((part) => part.reduce((sum, value) => sum + value, 0));
  const written = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "none");
  const found = [...classes, missing].map((name, k) => ({name, inside: counts[1][k], outside: counts[0][k]}));
  const lines = found.filter(({inside}) => inside > 0).sort((a, b) => b.inside - a.inside).slice(0, MOST_DIFFERING)
    .map(({name, inside, outside}) => [name, inside.toLocaleString("en"), written(inside, chosen), written(outside, others)]);
  const apart = found.reduce((sum, {inside, outside}) => sum + Math.abs(inside / (chosen || 1) - outside / (others || 1)), 0);
  return {lines, apart};
}
function selectionText(n, {rows, decoded, images}) {
  const parts = [`${count(n, "row")} of ${N.toLocaleString("en")}.`];
  if (content.every > 1 && views.some((view) => view.data)) parts.push(`Columns: ${ordinal(content.every)} row.`);
  if (rows.length || images.some((image) => !image[2]))
    parts.push("Effect sizes are Cohen's d, the difference of the means in pooled standard deviations, ± its standard error.");
  if (views.some((view) => sourceOf(view)?.decoded))
    parts.push("This page holds no data of the rows: columns are as the model decodes them. These values have no noise, so that they have no effect sizes.");
  parts.push("All of this describes the selection; rows that were selected by eye are no test.");
  return parts.join(" ");
}
function showSelection() {
  const n = state.chosen.length;
  $("selection-section").hidden = n === 0;
  if (!n) return;
  const found = differences();
  const {rows, decoded, images} = found;
  $("selection-text").textContent = selectionText(n, found);
  const most = Math.max(...rows.map((row) => Math.abs(row.d)), 1e-9);
  table("selection-columns", rows.length ? ["column", "view", "selected", "others", "effect size", "difference"] : [],
    rows.slice(0, MOST_DIFFERING).map((row) => {
      const bar = element("span", {className: "effect", "aria-hidden": "true"}, element("i", {className: row.d < 0 ? "less" : "more"}));
      bar.firstChild.style.width = `${50 * Math.abs(row.d) / most}%`;
      return [row.name, row.view, row.chosen, row.others, `${number(row.d)} ± ${number(row.se)}`, bar];
    }));
  table("selection-decoded", decoded.length ? ["column, decoded", "view", "selected", "others"] : [],
    decoded.slice(0, MOST_DIFFERING).map((row) => [row.name, row.view, number(row.chosen), number(row.others)]));
  showShares();
  showImages(images);
}
function showShares() {
  const found = classed().filter(({classes}) => classes.length > 1).map((one) => ({...one, ...shares(one)})).sort((a, b) => b.apart - a.apart).slice(0, MOST_DIFFERING);
  $("selection-labels").replaceChildren(...found.map(({name}, k) => {
    const id = `selection-label-${k}`;
    return element("div", {className: "scroll", tabIndex: 0, role: "group", "aria-label": name}, element("table", {id}));
  }));
  found.forEach(({name, lines}, k) => table(`selection-label-${k}`, [name, "rows", "of selected", "of others"], lines));
}
function showImages(images) {
  $("selection-images").replaceChildren(...images.flatMap(([view, [others, chosen], decoded]) => {
    const [low, high] = [view.low[0], view.high[0]];
    const said = decoded ? ", decoded" : "";
    const box = element("div", {className: "pictures"},
      picture(view, chosen.mean, `mean of selected${said}`, low, high), picture(view, others.mean, `mean of others${said}`, low, high));
    if (!decoded) {
      const d = Float64Array.from(chosen.mean, (_, c) => effect(others, chosen, c).d || 0);
      const reach = Math.max(...extremes(d).map(Math.abs), 1e-9);
      box.append(picture(view, d, `effect size, ${number(-reach)} to ${number(reach)}`, -reach, reach));
    }
    return [element("p", {className: "quiet name"}, view.name), box];
  }));
}

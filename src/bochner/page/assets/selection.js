// A selection: which labels and columns differ between its rows and the others.
const MOST_DIFFERING = 15;

// Mean, variance and count of every column, of the rows in the selection and of the others; missing entries are left out.
function moments(source, width, rows, middle) {
  const sums = [0, 1].map(() => ({n: new Float64Array(width), sum: new Float64Array(width), square: new Float64Array(width)}));
  for (const i of rows) {
    const part = sums[state.mask[i]];
    for (let c = 0; c < width; c++) {
      const value = source(i, c) - middle[c];
      if (Number.isNaN(value)) continue;
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
  if (view.data) return {at: (i, c) => view.data.at(i / content.every, c), every: content.every};
  if (view.decoded) return {at: (i, c) => view.decoded[0].at(i, c), every: 1};
  return null;
}
function differences() {
  const rows = [];
  const add = (view, name, [others, chosen], c) => {
    const {d, se} = effect(others, chosen, c);
    if (!Number.isNaN(d)) rows.push({view, name, d, se, chosen: chosen.mean[c], others: others.mean[c]});
  };
  const evenly = (step) => Array.from({length: Math.ceil(N / step)}, (_, k) => k * step);
  for (const label of labels.filter((one) => one.classes === null))
    add("labels", label.name, moments((i) => label.values.at(i, 0), 1, evenly(1), [0]), 0);
  const images = [];
  for (const view of views) {
    const source = sourceOf(view);
    if (!source) continue;
    const width = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
    const middle = Array.from({length: width}, (_, c) => 0.5 * (view.low[view.shape ? 0 : c] + view.high[view.shape ? 0 : c]));
    const found = moments(source.at, width, evenly(source.every), middle);
    if (view.shape) images.push([view, found]);
    else view.columns.forEach((name, c) => add(view.name, name, found, c));
  }
  rows.sort((a, b) => Math.abs(b.d) - Math.abs(a.d));
  return {rows, images};
}
function shares(label) {
  const counts = [0, 1].map(() => new Float64Array(label.classes.length + 1));
  for (let i = 0; i < N; i++) {
    const value = label.values.at(i, 0);
    counts[state.mask[i]][value < 0 ? label.classes.length : value]++;
  }
  const [others, chosen] = [N - state.chosen.length, state.chosen.length];
  const share = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "none");
  return [...label.classes, "none"]
    .map((name, k) => [name, counts[1][k], counts[0][k]])
    .filter(([, inside]) => inside > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, MOST_DIFFERING)
    .map(([name, inside, outside]) => [name, inside.toLocaleString("en"), share(inside, chosen), share(outside, others)]);
}
function showSelection() {
  const n = state.chosen.length;
  $("selection-section").hidden = n === 0;
  if (!n) return;
  const classed = labels.filter((label) => label.classes !== null);
  const {rows, images} = differences();
  const every = content.every > 1 && views.some((view) => view.data) ? ` Columns: ${ordinal(content.every)} row.` : "";
  $("selection-text").textContent = `${count(n, "row")} of ${N.toLocaleString("en")}.${every} `
    + "Effect sizes are Cohen's d, the difference of the means in pooled standard deviations, ± its standard error. "
    + "They describe this selection; rows that were selected by eye are no test.";
  const most = Math.max(...rows.map((row) => Math.abs(row.d)), 1e-9);
  table("selection-columns", rows.length ? ["column", "view", "selected", "others", "effect size", "difference"] : [],
    rows.slice(0, MOST_DIFFERING).map((row) => {
      const bar = element("span", {className: "effect", "aria-hidden": "true"}, element("i", {className: row.d < 0 ? "less" : "more"}));
      bar.firstChild.style.width = `${50 * Math.abs(row.d) / most}%`;
      return [row.name, row.view, number(row.chosen), number(row.others), `${number(row.d)} ± ${number(row.se)}`, bar];
    }));
  $("selection-labels").replaceChildren(...classed.map((label, k) => {
    const id = `selection-label-${k}`;
    return element("div", {className: "scroll", tabIndex: 0, role: "group", "aria-label": label.name}, element("table", {id}));
  }));
  classed.forEach((label, k) => table(`selection-label-${k}`, [label.name, "rows", "of selected", "of others"], shares(label)));
  $("selection-images").replaceChildren(...images.flatMap(([view, [others, chosen]]) => {
    const [low, high] = [view.low[0], view.high[0]];
    const d = Float64Array.from(chosen.mean, (_, c) => effect(others, chosen, c).d || 0);
    const reach = Math.max(...extremes(d).map(Math.abs), 1e-9);
    const box = element("div", {className: "pictures"},
      picture(view, chosen.mean, "mean of selected", low, high), picture(view, others.mean, "mean of others", low, high),
      picture(view, d, `effect size, ${number(-reach)} to ${number(reach)}`, -reach, reach));
    return [element("p", {className: "quiet name"}, view.name), box];
  }));
}

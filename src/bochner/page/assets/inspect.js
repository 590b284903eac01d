// One row or one place: its data beside what the model decodes there, as pictures or bars.
const PLACES = {mean: "decoded", std: "standard deviation"};

// Between the places of the decoded grid values are interpolated.
function corners(px, py) {
  const index = planeOf();
  if (index < 0) return null;
  const plane = content.planes[index];
  const at = plane.dims[0] === state.dims[0] ? [px, py] : [py, px];
  let outside = false;
  const [u, v] = at.map((value, k) => {
    const share = (value - plane.low[k]) / (plane.high[k] - plane.low[k]);
    outside ||= share < -0.001 || share > 1.001;
    return Math.min(Math.max(share, 0), 1) * (plane.sides[k] - 1);
  });
  const [i, j] = [Math.floor(u), Math.floor(v)];
  const [a, b] = [u - i, v - j];
  const [n, m] = plane.sides;
  const at2 = (di, dj) => Math.min(j + dj, m - 1) * n + Math.min(i + di, n - 1);
  const cells = [[at2(0, 0), (1 - a) * (1 - b)], [at2(1, 0), a * (1 - b)], [at2(0, 1), (1 - a) * b], [at2(1, 1), a * b]];
  return {index, outside, cells};
}
function decodedAt(view, place) {
  if (place === null) return null;
  const [mean, std] = view.planes[place.index];
  const out = {mean: new Float64Array(mean.width), std: new Float64Array(mean.width)};
  // between two categories lies no third one
  const cells = view.likelihood === "categorical" ? [[place.cells.reduce((a, b) => (b[1] > a[1] ? b : a))[0], 1]] : place.cells;
  for (const [at, share] of cells)
    for (let c = 0; c < mean.width; c++) {
      out.mean[c] += share * mean.at(at, c);
      out.std[c] += share * std.at(at, c);
    }
  return out;
}
const line = (array, i) => Float64Array.from({length: array.width}, (_, c) => array.at(i, c));
function decodedRow(view, i) {
  if (!view.decoded) return decodedAt(view, corners(...latents(i)));
  return {mean: line(view.decoded[0], i), std: line(view.decoded[1], i)};
}
function dataOf(view, i) {
  return view.data && i % content.every === 0 ? line(view.data, i / content.every) : null;
}

// -- pictures and bars -----------------------------------------------------------------------------
function picture(view, values, caption, low, high) {
  const [height, width] = view.shape;
  const canvas = element("canvas", {width, height, role: "img", "aria-label": `${view.name}: ${caption}, ${height} by ${width} pixels`});
  const [paper, ink, gone] = ["--paper", "--ink", "--accent"].map((name) => rgb(colour(name)));
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  values.forEach((value, k) => {
    const share = Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
    for (let c = 0; c < 3; c++)
      image.data[4 * k + c] = Number.isNaN(value) ? 0.5 * (gone[c] + paper[c]) : paper[c] + share * (ink[c] - paper[c]);
    image.data[4 * k + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  return element("figure", {}, canvas, element("figcaption", {}, caption));
}
function picturesOf(view, data, made) {
  const [low, high] = [view.low[0], view.high[0]];
  const box = element("div", {className: "pictures"});
  if (data) box.append(picture(view, data, data.some(Number.isNaN) ? "data (blue: missing)" : "data", low, high));
  if (!made) return box;
  box.append(picture(view, made.mean, PLACES.mean, low, high));
  const [least, most] = extremes(made.std);
  const flat = most - least <= 0.02 * most;
  if (flat) box.append(element("p", {className: "quiet"}, `${PLACES.std} of a pixel ${number(most)}`));
  else box.append(picture(view, made.std, `${PLACES.std}, ${number(least)} to ${number(most)}`, least, most));
  return box;
}
function piece(name, left, width = null) {
  const made = element("i", {className: name});
  made.style.left = `${left}%`;
  if (width !== null) made.style.width = `${width}%`;
  return made;
}
// What a decoded number of a column of labels says: a category and its probability (a standard
// deviation is the root of that of any other), the probability of the likelier of two, a grade.
function labelled(view, labels, mean, std) {
  const nearest = labels[Math.min(Math.max(Math.round(mean), 0), labels.length - 1)];
  const of = (share) => [apart(nearest), ` (${Math.round(100 * share)} %)`];
  if (view.likelihood === "categorical") return of(1 - std * std);
  return labels.length === 2 ? of(Math.max(mean, 1 - mean)) : [apart(nearest)];
}
function barsOf(view, data, made) {
  const box = element("div", {className: "bars", tabIndex: 0, role: "group", "aria-label": `Columns of ${view.name}`});
  view.columns.forEach((name, c) => {
    const width = view.high[c] - view.low[c] || 1;
    const share = (value) => 100 * Math.min(Math.max((value - view.low[c]) / width, 0), 1);
    const track = element("span", {className: "track", "aria-hidden": "true"});
    const labels = view.labels?.[c];
    let words = [];
    if (made && labels) {
      track.append(piece("made", share(made.mean[c])));
      words = labelled(view, labels, made.mean[c], made.std[c]);
    } else if (made) {
      const left = share(made.mean[c] - made.std[c]);
      track.append(piece("band", left, share(made.mean[c] + made.std[c]) - left), piece("made", share(made.mean[c])));
      words = [`${ofColumn(view, c)(made.mean[c])} ± ${number(made.std[c])}`];
    }
    if (data) {
      if (!Number.isNaN(data[c])) track.append(piece("data", share(data[c])));
      if (!Number.isNaN(data[c])) words = [labels ? labels[codeOf(data[c], labels)] : ofColumn(view, c)(data[c])];
      else words = words.length ? ["missing, decoded ", ...words] : ["missing"];
    }
    box.append(element("span", {className: "name", title: name}, name), track, element("span", {className: "numbers"}, ...words));
  });
  return box;
}
function show(target, heading, dataOfView, madeOfView) {
  const parts = [...heading];
  for (const view of views) {
    const data = dataOfView(view);
    const made = madeOfView(view);
    const more = view.shape || view.columns.length === view.width ? "" : `: ${view.columns.length} of ${view.width} columns, those that vary most`;
    parts.push(element("p", {className: "quiet name"}, `${view.name}${more}`));
    if (!data && !made) parts.push("Nothing to show in this plane.");
    else parts.push(view.shape ? picturesOf(view, data, made) : barsOf(view, data, made));
  }
  if (views.some((view) => !view.shape)) parts.push(element("p", {className: "quiet key"},
    ...(views.some((view) => view.data) ? [element("i", {className: "data"}), "data  "] : []), element("i", {className: "made"}),
    "decoded, band: one standard deviation; from the least to the largest value of a column"));
  $(target).replaceChildren(...parts);
}
function showRow(i) {
  const first = element("p", {}, element("b", {className: "name"}, nameOf(i)), i === state.kept ? " (kept)" : "");
  for (const label of labels) first.append(" · ", element("span", {className: "name"}, label.name), ": ", element("b", {className: "name"}, labelOf(label, i)));
  const place = Array.from({length: D}, (_, d) => `${number(z.at(i, d))} ± ${number(std.at(i, d))}`).join("; ");
  const heading = [first, element("p", {className: "quiet numbers"}, `at ${place}`)];
  if (content.every > 1 && i % content.every)
    heading.push(element("p", {className: "quiet"}, `This page holds the data of ${ordinal(content.every)} row.`));
  show("row", heading, (view) => dataOf(view, i), (view) => decodedRow(view, i));
}
function showPlace() {
  if (state.layout !== null) {
    const words = "The places of a supplied layout are not places of the latent space: choose the layout of latent dimensions to decode them.";
    $("place").replaceChildren(element("p", {className: "quiet"}, words));
    return;
  }
  const [px, py] = state.cross;
  const place = corners(px, py);
  // with two dimensions a row's place is that of the cross, and its decoding needs no interpolation
  const row = D <= 2 ? state.crossed : null;
  const rest = D > 2 ? "; the other dimensions at their mean" : "";
  const beyond = place?.outside ? " Outside of the decoded plane: its nearest place is shown." : "";
  const at = row === null ? [] : ["The place of ", apart(nameOf(row)), ": "];
  const average = about.covariates.length ? " Decoded for the average of the covariates." : "";
  const words = `${axisName(state.dims[0])} = ${number(px)}, ${axisName(state.dims[1])} = ${number(py)}${rest}.${average}${beyond}`;
  show("place", [element("p", {className: "quiet numbers"}, ...at, words)], () => null, (view) => (row === null ? decodedAt(view, place) : decodedRow(view, row)));
}
const ordinal = (k) => (k === 1 ? "every" : k === 2 ? "every second" : k === 3 ? "every third" : `every ${k}-th`);

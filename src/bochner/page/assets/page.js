// The report page: unpacks what it carries, draws with the library it carries, asks nothing of any network.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const read = (id) => JSON.parse($(id).textContent);
  const about = read("about"), content = read("content"), figures = read("figures");
  // Petroff's ten colours, told apart with every kind of colour vision; then another marker.
  const COLOURS = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"];
  const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle"];
  const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"];
  const ELLIPSES = 200, ROW = -1;
  const N = content.rows, D = content.dims;

  // -- numbers and text --------------------------------------------------------------------------------------
  const TYPES = {float32: Float32Array, uint8: Uint8Array, uint16: Uint16Array, int32: Int32Array};
  async function unpack(packed) {
    const text = atob(packed.body), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const codes = new TYPES[packed.dtype](await new Response(stream).arrayBuffer());
    const width = packed.shape[1] ?? 1;
    if (packed.low === undefined) return {codes, width, at: (i, j) => codes[i * width + j]};
    const {low, step} = packed, missing = packed.dtype === "uint8" ? 255 : 65535;
    const one = low.length === 1, same = step.length === 1;
    const at = (i, j) => {
      const code = codes[i * width + j];
      return code === missing ? NaN : low[one ? 0 : j] + step[same ? 0 : j] * code;
    };
    return {codes, width, at};
  }
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  function number(value) {
    if (value === null || Number.isNaN(value)) return "missing";
    const size = Math.abs(value);
    if (size >= 1000) return value.toLocaleString("en", {maximumFractionDigits: 0});
    return String(Number(value.toPrecision(3)));
  }
  function text(value) {
    if (value === null) return "none";
    if (value === true || value === false) return value ? "yes" : "no";
    if (typeof value === "number") return number(value);
    if (Array.isArray(value)) return value.map(text).join(", ") || "none";
    if (typeof value === "object") return Object.entries(value).map(([key, own]) => `${key}: ${text(own)}`).join(", ") || "none";
    return String(value);
  }

  // -- state ---------------------------------------------------------------------------------------------------
  let z, std, labels, plot, glyphs = {}, views = [];
  let dims = content.planes[0].dims, x, y, cross = null, hovered = null, kept = null, chosen = [], colouring;
  const axis = (d) => (d === ROW ? "row" : `latent dimension ${d}`);
  const nameOf = (i) => (content.names ? content.names[i] : `row ${i}`);
  const plane = () => content.planes.findIndex((own) => own.dims[0] === Math.min(...dims) && own.dims[1] === Math.max(...dims));

  async function unpackAll() {
    [z, std] = await Promise.all([unpack(content.z), unpack(content.std)]);
    labels = await Promise.all(content.labels.map(async (own) => ({...own, values: await unpack(own.values)})));
    views = await Promise.all(content.views.map(async (own) => ({
      ...own,
      data: own.data && await unpack(own.data),
      decoded: own.decoded && await Promise.all(own.decoded.map(unpack)),
      planes: await Promise.all(own.planes.map((pair) => Promise.all(pair.map(unpack)))),
    })));
  }

  // -- decoding: between the places of the grid values are interpolated ------------------------------------------
  function corners(px, py) {
    const index = plane();
    if (index < 0) return null;
    const own = content.planes[index], turned = own.dims[0] !== dims[0];
    const at = turned ? [py, px] : [px, py];
    let outside = false;
    const [u, v] = at.map((value, k) => {
      const place = (value - own.low[k]) / (own.high[k] - own.low[k]) * (own.side - 1);
      outside ||= place < -0.02 || place > own.side - 0.98;
      return Math.min(Math.max(place, 0), own.side - 1);
    });
    const i = Math.min(Math.floor(u), own.side - 2), j = Math.min(Math.floor(v), own.side - 2), a = u - i, b = v - j;
    const cell = (di, dj) => (j + dj) * own.side + i + di;
    return {index, outside, cells: [[cell(0, 0), (1 - a) * (1 - b)], [cell(1, 0), a * (1 - b)], [cell(0, 1), (1 - a) * b], [cell(1, 1), a * b]]};
  }
  function decodedAt(view, place) {
    if (place === null) return null;
    const [mean, deviation] = view.planes[place.index], width = mean.width;
    const out = {mean: new Float64Array(width), std: new Float64Array(width)};
    for (const [cell, share] of place.cells)
      for (let c = 0; c < width; c++) {
        out.mean[c] += share * mean.at(cell, c);
        out.std[c] += share * deviation.at(cell, c);
      }
    return out;
  }
  function decodedRow(view, i) {
    if (!view.decoded) return decodedAt(view, corners(x[i], y[i]));
    const line = (own) => Float64Array.from({length: own.width}, (_, c) => own.at(i, c));
    return {mean: line(view.decoded[0]), std: line(view.decoded[1])};
  }
  function dataOf(view, i) {
    if (!view.data || i % content.every) return null;
    return Float64Array.from({length: view.data.width}, (_, c) => view.data.at(i / content.every, c));
  }

  // -- pictures of one row or place --------------------------------------------------------------------------------
  function colourOf(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  function paint(canvas, values, [height, width], low, high) {
    canvas.width = width;
    canvas.height = height;
    const paper = rgb(colourOf("--paper")), ink = rgb(colourOf("--ink")), gone = rgb(colourOf("--accent"));
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    values.forEach((value, k) => {
      const share = Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
      for (let c = 0; c < 3; c++) image.data[4 * k + c] = Number.isNaN(value) ? 0.5 * (gone[c] + paper[c]) : paper[c] + share * (ink[c] - paper[c]);
      image.data[4 * k + 3] = 255;
    });
    context.putImageData(image, 0, 0);
  }
  const spread = (values) => [Math.min(...values), Math.max(...values)];
  function picturesOf(view, data, made) {
    const box = document.createElement("div");
    box.className = "pictures";
    const add = (values, caption, low, high) => {
      const figure = document.createElement("figure"), canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${view.name}: ${caption}, ${view.shape.join(" by ")} pixels`);
      paint(canvas, values, view.shape, low, high);
      figure.append(canvas, Object.assign(document.createElement("figcaption"), {textContent: caption}));
      box.append(figure);
    };
    if (data) add(data, data.some(Number.isNaN) ? "data (blue: missing)" : "data", view.low[0], view.high[0]);
    if (made) {
      add(made.mean, "decoded", view.low[0], view.high[0]);
      const [least, most] = spread(made.std);
      if (most - least > 0.02 * most) add(made.std, `deviation, ${number(least)} to ${number(most)}`, least, most);
      else box.append(Object.assign(document.createElement("figcaption"), {textContent: `deviation of a pixel ± ${number(most)}`}));
    }
    return box;
  }
  function barsOf(view, data, made) {
    const box = document.createElement("div");
    box.className = "bars";
    const share = (value, c) => 100 * Math.min(Math.max((value - view.low[c]) / (view.high[c] - view.low[c] || 1), 0), 1);
    box.innerHTML = view.columns.map((name, c) => {
      let track = "", said = "";
      if (made) {
        const left = share(made.mean[c] - made.std[c], c), right = share(made.mean[c] + made.std[c], c);
        track += `<i class="band" style="left:${left}%;width:${right - left}%"></i><i class="made" style="left:${share(made.mean[c], c)}%"></i>`;
        said = `${number(made.mean[c])} ± ${number(made.std[c])}`;
      }
      if (data) {
        if (!Number.isNaN(data[c])) track += `<i class="data" style="left:${share(data[c], c)}%"></i>`;
        said = number(data[c]);
      }
      return `<span class="name" title="${escaped(name)}">${escaped(name)}</span><span class="track" aria-hidden="true">${track}</span><span class="numbers">${said}</span>`;
    }).join("");
    return box;
  }
  function show(target, heading, dataOfView, madeOfView) {
    const box = document.createElement("div");
    box.innerHTML = heading;
    let bars = false;
    for (const view of views) {
      const data = dataOfView(view), made = madeOfView(view);
      const more = view.shape || view.columns.length === view.width ? "" : `: ${view.columns.length} of ${view.width} columns, those that vary most`;
      box.append(Object.assign(document.createElement("div"), {className: "quiet", textContent: `${view.name}${more}`}));
      if (!data && !made) box.append("Nothing to show in this plane.");
      else box.append(view.shape ? picturesOf(view, data, made) : barsOf(view, data, made));
      bars ||= !view.shape;
    }
    if (bars) box.insertAdjacentHTML("beforeend", '<p class="quiet key"><i class="data"></i>data &ensp; <i class="made"></i>decoded, band: one deviation; from a column\'s least to its largest value</p>');
    $(target).replaceChildren(box);
  }
  function showRow(i) {
    const own = labels.map((label) => `${escaped(label.name)}: <b>${escaped(labelOf(label, i))}</b>`);
    const place = Array.from({length: D}, (_, d) => `${number(z.at(i, d))} ± ${number(std.at(i, d))}`).join("; ");
    const without = content.every > 1 && i % content.every ? `<p class="quiet">This page holds the data of every ${content.every}th row.</p>` : "";
    const pinned = i === kept ? " (kept)" : "";
    const heading = `<p><b>${escaped(nameOf(i))}</b>${pinned} ${own.length ? `· ${own.join(" · ")}` : ""}</p><p class="quiet numbers">at ${place}</p>${without}`;
    show("row", heading, (view) => dataOf(view, i), (view) => decodedRow(view, i));
  }
  function showPlace() {
    const place = corners(...cross);
    const rest = D > 2 ? "; the other dimensions at their mean" : "";
    const beyond = place?.outside ? " Outside of the decoded plane: its nearest place is shown." : "";
    const heading = `<p class="quiet numbers">${axis(dims[0])} = ${number(cross[0])}, ${axis(dims[1])} = ${number(cross[1])}${rest}.${beyond}</p>`;
    show("place", heading, () => null, (view) => decodedAt(view, place));
  }
  function labelOf(label, i) {
    const value = label.values.at(i, 0);
    if (label.classes === null) return number(value);
    return value < 0 ? "none" : label.classes[value];
  }

  // -- the map -------------------------------------------------------------------------------------------------------
  function ellipse(rows) {
    const across = dims[0] === ROW ? () => 0.4 : (i) => 2 * std.at(i, dims[0]);
    return {x: rows.map((i) => x[i]), y: rows.map((i) => y[i]), width: rows.map(across), height: rows.map((i) => 2 * std.at(i, dims[1]))};
  }
  function place() {
    x = Float64Array.from({length: N}, (_, i) => (dims[0] === ROW ? i : z.at(i, dims[0])));
    y = Float64Array.from({length: N}, (_, i) => z.at(i, dims[1]));
    for (const [side, d] of [["below", dims[0]], ["left", dims[1]]]) plot[side][0].axis_label = axis(d);
    recolour();
    showDeviations();
    shade();
    all();
    cross = [plot.x_range.start, plot.x_range.end, plot.y_range.start, plot.y_range.end];
    setCross((cross[0] + cross[1]) / 2, (cross[2] + cross[3]) / 2);
    mark(kept ?? hovered);
  }
  function extent() {
    const own = content.planes[plane()];
    if (own) {
      const k = own.dims[0] === dims[0] ? [0, 1] : [1, 0];
      return k.flatMap((j) => [own.low[j], own.high[j]]);
    }
    return [x, y].flatMap((values) => {
      const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      return [low - 0.08 * (high - low), high + 0.08 * (high - low)];
    });
  }
  function all() {
    let [left, right, bottom, top] = extent();
    // The prior is as wide in every direction: one scale for both axes, unless one is much longer.
    const scale = (right - left) / plot.inner_width / ((top - bottom) / plot.inner_height);
    if (dims[0] !== ROW && scale > 0.25 && scale < 4) {
      const wider = 0.5 * (right - left) * Math.max(1 / scale - 1, 0), higher = 0.5 * (top - bottom) * Math.max(scale - 1, 0);
      [left, right, bottom, top] = [left - wider, right + wider, bottom - higher, top + higher];
    }
    setRanges(left, right, bottom, top);
  }
  function setRanges(left, right, bottom, top) {
    Object.assign(plot.x_range, {start: left, end: right});
    Object.assign(plot.y_range, {start: bottom, end: top});
  }
  function zoom(factor) {
    const {x_range: a, y_range: b} = plot, [cx, cy] = [(a.start + a.end) / 2, (b.start + b.end) / 2];
    setRanges(cx + (a.start - cx) * factor, cx + (a.end - cx) * factor, cy + (b.start - cy) * factor, cy + (b.end - cy) * factor);
  }
  const every = (count) => Array.from({length: Math.min(count, N)}, (_, k) => Math.round(k * (N - 1) / Math.max(Math.min(count, N) - 1, 1)));
  function showDeviations() {
    glyphs.deviations.data_source.data = ellipse($("show-deviations").checked ? every(ELLIPSES) : []);
  }
  function shade() {
    const value = $("shade-by").value, index = plane(), renderer = glyphs.shade;
    if (value === "" || index < 0) {
      renderer.data_source.data = {image: [], x: [], y: [], dw: [], dh: []};
      return;
    }
    const own = content.planes[index], deviation = views[Number(value)].planes[index][1], n = own.side;
    const turned = own.dims[0] !== dims[0], pixels = new Float32Array(n * n);
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let c = 0; c < deviation.width; c++) sum += deviation.at(j * n + i, c) ** 2;
        pixels[turned ? i * n + j : j * n + i] = Math.sqrt(sum / deviation.width);
      }
    const [left, right, bottom, top] = extent(), low = Math.min(...pixels), high = Math.max(...pixels);
    const [paper, ink] = [rgb(colourOf("--paper")), rgb(colourOf("--quiet"))];
    renderer.glyph.color_mapper.setv({palette: blend([paper, ink], 40, 0.75), low, high: high > low ? high : low + 1});
    const NDArray = Bokeh.require("core/util/ndarray").ndarray;
    renderer.data_source.data = {image: [NDArray(pixels, {shape: [n, n]})], x: [left], y: [bottom], dw: [right - left], dh: [top - bottom]};
  }
  function blend(stops, count, reach = 1) {
    return Array.from({length: count}, (_, k) => {
      const at = k / (count - 1) * (stops.length - 1) * reach, i = Math.min(Math.floor(at), stops.length - 2);
      const mixed = stops[i].map((c, j) => Math.round(c + (at - i) * (stops[i + 1][j] - c)));
      return `#${mixed.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
    });
  }

  function colourings() {
    const options = labels.map((label, k) => ["Labels", label.name, {classes: label.classes, at: (i) => label.values.at(i, 0), key: `label ${k}`}]);
    options.push(["Rows", "one colour", {classes: null, at: null}]);
    options.push(["Rows", "posterior deviation", {classes: null, at: (i) => Math.sqrt(Array.from({length: D}, (_, d) => std.at(i, d) ** 2).reduce((a, b) => a + b) / D)}]);
    for (let d = 0; d < D; d++) options.push(["Rows", `latent dimension ${d}`, {classes: null, at: (i) => z.at(i, d)}]);
    for (const view of views) {
      const source = view.data ? (i, c) => (i % content.every ? NaN : view.data.at(i / content.every, c)) : view.decoded && ((i, c) => view.decoded[0].at(i, c));
      if (!source) continue;
      const group = view.data ? `View ${view.name}` : `View ${view.name}, decoded`;
      const wide = view.shape ? view.shape[0] * view.shape[1] : view.columns.length;
      options.push([group, `mean of ${view.name}`, {classes: null, at: (i) => mean(source, i, wide)}]);
      view.columns.forEach((name, c) => options.push([group, name, {classes: null, at: (i) => source(i, c)}]));
    }
    return options;
  }
  function mean(source, i, count) {
    let sum = 0, seen = 0;
    for (let c = 0; c < count; c++) {
      const value = source(i, c);
      if (!Number.isNaN(value)) { sum += value; seen++; }
    }
    return seen ? sum / seen : NaN;
  }
  function recolour() {
    const {classes, at} = colouring, mapper = glyphs.points.glyph.fill_color.transform;
    const values = Float64Array.from({length: N}, (_, i) => (at ? at(i) : 0));
    let markers = Array(N).fill("circle"), colours = values;
    if (classes) {
      if (classes.length > COLOURS.length) markers = Array.from(values, (v) => MARKERS[Math.floor(Math.max(v, 0) / COLOURS.length) % MARKERS.length]);
      colours = values.map((v) => (v < 0 ? NaN : v % COLOURS.length));
      mapper.setv({palette: COLOURS, low: -0.5, high: COLOURS.length - 0.5, nan_color: colourOf("--line")});
      classLegend(classes, values);
    } else if (at) {
      const seen = values.filter((v) => !Number.isNaN(v)), low = seen.reduce((a, b) => Math.min(a, b), Infinity), high = seen.reduce((a, b) => Math.max(a, b), -Infinity);
      mapper.setv({palette: blend(VIRIDIS.map(rgb), 128), low, high: high > low ? high : low + 1, nan_color: colourOf("--line")});
      $("legend").innerHTML = `<span class="numbers">${number(low)}</span><span class="ramp" style="background:linear-gradient(90deg,${VIRIDIS.join(",")})"></span><span class="numbers">${number(high)}</span>`;
    } else {
      mapper.setv({palette: [COLOURS[0]], low: 0, high: 1});
      $("legend").replaceChildren();
    }
    const size = N < 200 ? 10 : N < 2000 ? 7 : N < 12000 ? 5 : 3.5;
    glyphs.points.data_source.data = {x, y, colour: colours, marker: markers, size: new Float64Array(N).fill(size)};
  }
  const SHAPES = ['<circle cx="6" cy="6" r="5"/>', '<rect x="1" y="1" width="10" height="10"/>', '<path d="M6 1 11 11H1z"/>', '<path d="M6 0 11 6 6 12 1 6z"/>', '<path d="M6 11 11 1H1z"/>'];
  function classLegend(classes, values) {
    const counts = new Array(classes.length).fill(0);
    values.forEach((v) => { if (v >= 0) counts[v]++; });
    $("legend").replaceChildren(...classes.map((name, k) => {
      const button = document.createElement("button"), shape = SHAPES[Math.floor(k / COLOURS.length) % SHAPES.length];
      button.type = "button";
      button.innerHTML = `<svg width="12" height="12" aria-hidden="true" fill="${COLOURS[k % COLOURS.length]}">${shape}</svg>${escaped(name)}`;
      button.title = `Select the ${counts[k]} rows of ${name}`;
      button.setAttribute("aria-label", `${name}: select its ${counts[k]} rows`);
      button.addEventListener("click", () => {
        const rows = [];
        values.forEach((v, i) => { if (v === k) rows.push(i); });
        choose(rows);
      });
      return button;
    }));
  }

  // -- pointing, clicking, choosing --------------------------------------------------------------------------------------
  function nearest(px, py) {
    const sx = plot.inner_width / (plot.x_range.end - plot.x_range.start), sy = plot.inner_height / (plot.y_range.end - plot.y_range.start);
    let best = null, least = Infinity;
    for (let i = 0; i < N; i++) {
      const distance = ((x[i] - px) * sx) ** 2 + ((y[i] - py) * sy) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return {row: best, pixels: Math.sqrt(least)};
  }
  function mark(i) {
    glyphs.ring.data_source.data = i === null ? {x: [], y: []} : {x: [x[i]], y: [y[i]]};
    glyphs.row.data_source.data = ellipse(i === null ? [] : [i]);
  }
  function setCross(px, py) {
    cross = [px, py];
    glyphs.cross.data_source.data = {x: [px], y: [py]};
    showPlace();
  }
  function keep(i) {
    kept = hovered = i;
    if (i === null) return;
    mark(i);
    showRow(i);
  }
  let waiting = null;
  const page = window.bochnerPage = {
    move(px, py) {
      if (waiting === null) requestAnimationFrame(() => {
        const [ax, ay] = waiting, found = nearest(ax, ay);
        waiting = null;
        if (found.pixels > 14) {
          if (hovered !== kept) page.leave();
        } else if (found.row !== hovered) {
          hovered = found.row;
          mark(hovered);
          showRow(hovered);
        }
      });
      waiting = [px, py];
    },
    leave() {
      hovered = kept;
      mark(kept);
      if (kept !== null) showRow(kept);
    },
    tap(px, py) {
      const found = nearest(px, py);
      keep(found.pixels <= 10 ? found.row : null);
      if (kept === null) { hovered = null; mark(null); }
      setCross(...(kept === null ? [px, py] : [x[kept], y[kept]]));
    },
    select(rows) {
      chosen = [...rows];
      $("export").disabled = $("clear").disabled = chosen.length === 0;
      $("export").textContent = chosen.length ? `Export ${chosen.length} rows (csv)` : "Export rows";
    },
    csv() {
      const quoted = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
      const head = ["row", ...(content.names ? ["name"] : [])];
      for (let d = 0; d < D; d++) head.push(`z${d}`);
      for (let d = 0; d < D; d++) head.push(`z${d}_std`);
      head.push(...labels.map((label) => label.name));
      const lines = [...chosen].sort((a, b) => a - b).map((i) => {
        const line = [i, ...(content.names ? [content.names[i]] : [])];
        for (const own of [z, std]) for (let d = 0; d < D; d++) line.push(Number(own.at(i, d).toPrecision(7)));
        return [...line, ...labels.map((label) => exact(label, i))];
      });
      return [head, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
    },
  };
  function exact(label, i) {
    const value = label.values.at(i, 0);
    if (label.classes !== null) return value < 0 ? "" : label.classes[value];
    return Number.isNaN(value) ? "" : Number(value.toPrecision(7));
  }
  function choose(rows) {
    glyphs.points.data_source.selected.indices = rows;
    page.select(rows);
    say(`${rows.length} rows selected`);
  }
  function exportRows() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([page.csv()], {type: "text/csv"}));
    link.download = "rows.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const say = (words) => { $("live").textContent = words; };
  function useTool(name) {
    const tools = plot.toolbar.tools, lasso = tools.find((tool) => tool.type === "LassoSelectTool"), pan = tools.find((tool) => tool.type === "PanTool");
    pan.active = name === "pan";
    lasso.active = name === "lasso";
    for (const own of ["pan", "lasso"]) $(`tool-${own}`).setAttribute("aria-pressed", String(own === name));
  }
  const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
  function key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (name in ARROWS) {
      const step = event.shiftKey ? 0.1 : 0.02, [dx, dy] = ARROWS[name], {x_range: a, y_range: b} = plot;
      setCross(cross[0] + dx * step * (a.end - a.start), cross[1] + dy * step * (b.end - b.start));
      const near = nearest(...cross).row;
      say(`${axis(dims[0])} ${number(cross[0])}, ${axis(dims[1])} ${number(cross[1])}; nearest: ${spoken(near)}`);
    } else if (name === "n" || name === "p") {
      keep(((kept ?? -1) + (name === "n" ? 1 : kept === null ? 0 : -1) + N) % N);
      setCross(x[kept], y[kept]);
      say(spoken(kept));
    } else if (name === "Enter") {
      keep(nearest(...cross).row);
      say(`kept: ${spoken(kept)}`);
    } else if (name === "+" || name === "=") zoom(0.7);
    else if (name === "-") zoom(1 / 0.7);
    else if (name === "0") all();
    else if (name === "Escape") choose([]);
    else return;
    event.preventDefault();
  }
  const spoken = (i) => [nameOf(i), ...labels.map((label) => `${label.name} ${labelOf(label, i)}`)].join(", ");

  // -- light and dark -------------------------------------------------------------------------------------------------------
  const drawn = [];
  function theme() {
    const ink = colourOf("--ink"), quiet = colourOf("--quiet"), line = colourOf("--line");
    for (const own of drawn) {
      own.setv({background_fill_color: null, border_fill_color: null, outline_line_color: line});
      if (own.title) own.title.setv({text_color: ink, text_font: "system-ui, sans-serif", text_font_size: "13px"});
      for (const side of ["below", "left", "right", "center"])
        for (const part of own[side]) {
          if (part.type === "Grid") part.setv({grid_line_color: line, grid_line_alpha: 0.5});
          else if (part.type === "Legend") part.setv({background_fill_alpha: 0, border_line_color: null, label_text_color: ink});
          else if (part.type === "ColorBar") part.setv({background_fill_alpha: 0, major_label_text_color: ink, title_text_color: ink, bar_line_color: line, major_tick_line_color: quiet});
          else if (/Axis$/.test(part.type)) part.setv({axis_label_text_color: ink, major_label_text_color: quiet, axis_line_color: quiet, major_tick_line_color: quiet, minor_tick_line_color: null, axis_label_text_font_style: "normal", axis_label_text_font: "system-ui, sans-serif", major_label_text_font: "system-ui, sans-serif"});
        }
    }
    if (plot) {
      glyphs.deviations.glyph.line_color = ink;
      glyphs.row.glyph.setv({line_color: ink, fill_color: ink});
      glyphs.ring.glyph.line_color = ink;
      glyphs.cross.glyph.line_color = ink;
    }
  }
  async function embed(item, target) {
    const manager = await Bokeh.embed.embed_item({...item, target_id: null}, target);
    const own = manager.roots[0].model;
    drawn.push(own);
    return own;
  }

  // -- tables ---------------------------------------------------------------------------------------------------------------
  const cells = (tag, values) => `<tr>${values.map((v, k) => `<${k && tag === "td" ? "td" : `th scope="${tag === "th" ? "col" : "row"}"`}>${v}</${k && tag === "td" ? "td" : "th"}>`).join("")}</tr>`;
  function facts(id, entries) {
    $(id).innerHTML = Object.entries(entries).map(([key, value]) => cells("td", [escaped(key.replaceAll("_", " ")), escaped(text(value))])).join("");
  }
  function tables() {
    const names = Object.keys(about.views), most = Math.max(...about.relevance.flat(), 1e-9);
    $("relevance").innerHTML = cells("th", ["view", ...about.relevance[0].map((_, d) => `dim ${d}`)]) + names.map((name, v) =>
      `<tr><th scope="row">${escaped(name)}</th>${about.relevance[v].map((share) => `<td style="background:rgba(var(--heat),${(0.55 * share / most).toFixed(3)})">${(100 * share).toFixed(1)} %</td>`).join("")}</tr>`).join("");
    const fields = Object.keys(about.views[names[0]]).filter((field) => field !== "relevance");
    const every = [...new Set(names.flatMap((name) => Object.keys(about.views[name])))].filter((field) => field !== "relevance");
    $("views").innerHTML = cells("th", ["view", ...(every.length ? every : fields).map((f) => f.replaceAll("_", " "))]) + names.map((name) => cells("td", [escaped(name), ...every.map((f) => escaped(text(about.views[name][f] ?? null)))])).join("");
    const best = Math.max(...about.starts.map((start) => start.elbo)), fieldsOf = Object.keys(about.starts[0] ?? {});
    $("starts").innerHTML = cells("th", [...fieldsOf.map((f) => f.replaceAll("_", " ")), "kept"]) + about.starts.map((start) => cells("td", [...fieldsOf.map((f) => escaped(text(start[f]))), start.elbo === best ? "yes" : ""])).join("");
    const state = about.interrupted ? "was interrupted" : about.converged ? "ended when the bound was level" : "stopped before the bound was level";
    $("fit-text").textContent = `Training ${state}, after ${about.n_iter} steps. Evidence lower bound: ${number(about.elbo)} ± ${number(about.elbo_se)} nats.${about.partial ? ` ${about.partial}` : ""} ${about.collapse.advice}`;
    $("bound").setAttribute("aria-label", `Bound of every training step: it ends at ${number(about.elbo)} nats after ${about.n_iter} steps.`);
    calibration(about.calibration);
    const {views: _, starts, parameters, versions, relevance, collapse, partial, calibration: __, ...rest} = about;
    const {advice, ...found} = collapse;
    facts("facts", {...rest, ...found});
    facts("settings", parameters);
    facts("versions", versions);
  }

  function calibration(found) {
    if (!found) return;
    $("calibration-section").hidden = false;
    $("calibration-text").textContent = `Hidden and predicted, in rows that were not in training: ${found.hidden}. Intervals are right where they hold the share of the truth that they are named after.`;
    const sentences = found.problems.length ? found.problems : ["Calibrated, as far as these entries can tell."];
    $("calibration-problems").innerHTML = sentences.map((sentence) => `<li>${escaped(sentence)}</li>`).join("");
    const views = Object.entries(found.views), levels = Object.keys(views[0][1].coverage);
    const share = (own, level) => `${(100 * own.coverage[level]).toFixed(1)} ± ${(100 * own.coverage_se[level]).toFixed(1)} %`;
    $("calibration-table").innerHTML = cells("th", ["view", "entries", ...levels.map((level) => `in ${100 * level} % intervals`), "log-likelihood (nats per entry)"]) +
      views.map(([name, own]) => cells("td", [escaped(name), number(own.n_entries), ...levels.map((level) => share(own, level)), `${number(own.log_likelihood)} ± ${number(own.log_likelihood_se)}`])).join("");
  }

  // -- start -------------------------------------------------------------------------------------------------------------------
  function fill(select, options) {
    const groups = new Map();
    options.forEach(([group, name, value]) => {
      if (!groups.has(group)) groups.set(group, Object.assign(document.createElement("optgroup"), {label: group}));
      groups.get(group).append(new Option(name, value));
    });
    select.replaceChildren(...(groups.size > 1 ? groups.values() : [...groups.values()].flatMap((group) => [...group.children])));
  }
  function controls() {
    const options = colourings();
    fill($("colour-by"), options.map(([group, name], k) => [group, name, k]));
    colouring = options[0][2];
    $("colour-by").addEventListener("change", (event) => { colouring = options[event.target.value][2]; recolour(); });
    fill($("shade-by"), [["", "nothing", ""], ...views.map((view, k) => ["", `decoded deviation of ${view.name}`, k])]);
    $("shade-by").addEventListener("change", shade);
    $("show-deviations").addEventListener("change", showDeviations);
    for (const label of document.querySelectorAll(".dims")) label.hidden = D < 3;
    ["dim-x", "dim-y"].forEach((id, k) => {
      fill($(id), Array.from({length: D}, (_, d) => ["", String(d), d]));
      $(id).value = dims[k];
      $(id).addEventListener("change", () => {
        const own = [Number($("dim-x").value), Number($("dim-y").value)];
        if (own[0] === own[1]) own[1 - k] = dims[k];
        dims = own;
        [$("dim-x").value, $("dim-y").value] = dims;
        place();
      });
    });
    $("tool-pan").addEventListener("click", () => useTool("pan"));
    $("tool-lasso").addEventListener("click", () => useTool("lasso"));
    $("zoom-in").addEventListener("click", () => zoom(0.7));
    $("zoom-out").addEventListener("click", () => zoom(1 / 0.7));
    $("zoom-all").addEventListener("click", all);
    $("clear").addEventListener("click", () => choose([]));
    $("export").addEventListener("click", exportRows);
    $("map").addEventListener("keydown", key);
  }
  async function drawMap() {
    const unpacked = unpackAll();
    plot = await embed(figures.map, $("map"));
    for (const renderer of plot.renderers) glyphs[renderer.name] = renderer;
    performance.mark("bochner:embedded");
    await unpacked;
    performance.mark("bochner:unpacked");
    controls();
    theme();
    place();
  }
  function later() {
    const waiting = new Map([[$("bound"), figures.bound]]);
    for (const id of ["kernels", "spectra", "calibration"])
      for (const item of figures[id]) {
        const target = $(id).appendChild(document.createElement("div"));
        target.setAttribute("role", "img");
        target.setAttribute("aria-label", item.alt);
        waiting.set(target, item);
      }
    const observer = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(async ({target}) => {
      observer.unobserve(target);
      await embed(waiting.get(target), target);
      theme();
    }), {rootMargin: "400px"});
    for (const target of waiting.keys()) observer.observe(target);
  }
  async function start() {
    tables();
    for (const element of document.querySelectorAll("script.library")) {
      const script = document.createElement("script");
      script.textContent = element.textContent;
      document.head.append(script);
    }
    performance.mark("bochner:library");
    await drawMap();
    later();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme(); recolour(); shade(); showPlace(); if (kept !== null) showRow(kept); });
    performance.mark("bochner:ready");
    document.documentElement.dataset.ready = "yes";
  }
  function failed(error) {
    $("failure").hidden = false;
    $("failure").textContent = `The page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`;
    console.error(error);
  }
  // The text is painted first; the library is read after that.
  requestAnimationFrame(() => setTimeout(() => start().catch(failed), 0));
})();

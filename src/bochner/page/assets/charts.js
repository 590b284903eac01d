// The small figures: SVG whose colours are those of the style sheet.
const FRAME = {left: 34, right: 14, top: 30, bottom: 46};

function chart(spec, target) {
  const square = spec.kind !== "lines" || spec.x_range[1] === 1;
  const width = Math.max(target.clientWidth, 240);
  const height = square ? Math.min(0.92 * width, 360) : 300;
  const beside = spec.kind === "matrix" ? ticks(...spec.limits, 5).map(([, label]) => label.length) : [];
  const right = spec.kind === "matrix" ? Math.max(84, 36 + 7 * Math.max(...beside, 0)) : FRAME.right;
  const longest = Math.max(...ticks(...spec.y_range, 6).map(([, label]) => label.length), 0);
  const left = FRAME.left + 7 * longest;
  const top = FRAME.top + (spec.of ? 18 : 0);
  const box = {x: left, y: top, w: width - left - right, h: height - top - FRAME.bottom};
  const along = (range, start, size) => (value) => start + (value - range[0]) / (range[1] - range[0] || 1) * size;
  const sx = along(spec.x_range, box.x, box.w);
  const sy = along(spec.y_range, box.y + box.h, -box.h);
  const svg = shape("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", "aria-hidden": "true"});
  const clip = `clip-${(chart.count = (chart.count ?? 0) + 1)}`;
  svg.append(shape("clipPath", {id: clip}, shape("rect", {x: box.x, y: box.y, width: box.w, height: box.h})));
  const inside = shape("g", {"clip-path": `url(#${clip})`});
  svg.append(...axes(spec, box, sx, sy), inside);
  if (spec.title) svg.append(shape("text", {x: box.x, y: 16, class: "title"}, spec.title));
  if (spec.of) svg.append(shape("text", {x: box.x, y: 34, class: "tick"}, spec.of));
  PAINTERS[spec.kind](spec, {svg, inside, box, sx, sy});
  target.replaceChildren(svg);
}
function axes(spec, box, sx, sy) {
  const bottom = box.y + box.h;
  const parts = [shape("rect", {x: box.x, y: box.y, width: box.w, height: box.h, class: "frame"})];
  const grid = spec.kind !== "matrix";
  for (const [value, label] of ticks(...spec.x_range, Math.max(box.w / 70, 2))) {
    if (grid) parts.push(shape("path", {d: `M${sx(value)} ${box.y}V${bottom}`, class: "grid"}));
    parts.push(shape("text", {x: sx(value), y: bottom + 16, class: "tick middle"}, label));
  }
  for (const [value, label] of ticks(...spec.y_range, Math.max(box.h / 45, 2))) {
    if (grid) parts.push(shape("path", {d: `M${box.x} ${sy(value)}H${box.x + box.w}`, class: "grid"}));
    parts.push(shape("text", {x: box.x - 7, y: sy(value) + 4, class: "tick end"}, label));
  }
  const middle = box.y + box.h / 2;
  parts.push(shape("text", {x: box.x + box.w / 2, y: bottom + 36, class: "label middle"}, spec.x));
  parts.push(shape("text", {x: 13, y: middle, class: "label middle", transform: `rotate(-90 13 ${middle})`}, spec.y));
  return parts;
}
const PAINTERS = {
  lines(spec, {svg, inside, box, sx, sy}) {
    const labels = [];
    spec.lines.forEach((line, k) => {
      const d = line.x.map((value, i) => `${i ? "L" : "M"}${sx(value).toFixed(1)} ${sy(line.y[i]).toFixed(1)}`).join("");
      const kind = `line ${line.quiet ? "quiet-line" : `class-${k % 10}`}${line.dashed ? " dashed" : ""}`;
      inside.append(shape("path", {d, class: kind}));
      if (line.label) labels.push([kind, line.label]);
    });
    const up = spec.x_range[1] === 1;
    labels.forEach(([kind, label], k) => {
      const y = up ? box.y + 16 + 17 * k : box.y + box.h - 12 - 17 * (labels.length - 1 - k);
      const x = up ? box.x + 10 : box.x + box.w - 10;
      const at = up ? x : x - 22;
      svg.append(shape("path", {d: `M${at} ${y - 4}h22`, class: kind}));
      svg.append(shape("text", {x: up ? x + 28 : x - 28, y, class: up ? "tick" : "tick end"}, label));
    });
  },
  ellipses(spec, {inside, sx, sy}) {
    spec.centres.forEach(([a, b], k) => {
      const [ra, rb] = spec.radii[k];
      for (const sign of [1, -1])
        inside.append(shape("ellipse", {
          cx: sx(sign * a), cy: sy(sign * b), rx: Math.abs(sx(ra) - sx(0)), ry: Math.abs(sy(rb) - sy(0)),
          class: `area class-${k % 10}`, "fill-opacity": spec.depths[k],
        }));
    });
  },
  matrix(spec, {svg, inside, box}) {
    const {width: n, at} = spec.values;
    const [low, high] = spec.limits;
    const stops = (low < 0 ? DIVERGING : SEQUENTIAL).map(rgb);
    const paint = (canvas, value) => {
      const context = canvas.getContext("2d");
      const image = context.createImageData(canvas.width, canvas.height);
      for (let i = 0; i < canvas.height; i++)
        for (let j = 0; j < canvas.width; j++)
          image.data.set([...mix(stops, (value(i, j) - low) / (high - low || 1)), 255], 4 * (i * canvas.width + j));
      context.putImageData(image, 0, 0);
      return canvas.toDataURL();
    };
    const place = {preserveAspectRatio: "none", "image-rendering": "pixelated"};
    const matrix = paint(element("canvas", {width: n, height: n}), at);
    inside.append(shape("image", {...place, href: matrix, x: box.x, y: box.y, width: box.w, height: box.h}));
    const x = box.x + box.w + 12;
    const href = paint(element("canvas", {width: 1, height: 64}), (i) => high + (low - high) * i / 63);
    svg.append(shape("image", {...place, href, x, y: box.y, width: 12, height: box.h}));
    for (const [value, label] of ticks(low, high, 5)) {
      const y = box.y + (high - value) / (high - low || 1) * box.h;
      svg.append(shape("text", {x: x + 17, y: y + 4, class: "tick"}, label));
    }
  },
};
const DIVERGING = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"];
const SEQUENTIAL = ["#fff5f0", "#fee0d2", "#fcbba1", "#fc9272", "#fb6a4a", "#ef3b2c", "#cb181d", "#a50f15", "#67000d"];

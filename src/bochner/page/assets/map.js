// The map: points blended into pixels, which stays fast with 100,000 rows and without a graphics processor.
const MARGIN = {left: 58, right: 12, top: 12, bottom: 44};
// Rows outside of a selection keep so much of their colour.
const FADED = 0.22;
// Whether a place, in radii from the point, lies in each marker.
const INSIDE = [
  (u, v) => u * u + v * v <= 1,
  (u, v) => Math.max(Math.abs(u), Math.abs(v)) <= 0.85,
  (u, v) => v <= 0.8 && v >= 2 * Math.abs(u) - 1.1,
  (u, v) => Math.abs(u) + Math.abs(v) <= 1.15,
  (u, v) => v >= -0.8 && v <= 1.1 - 2 * Math.abs(u),
];

// How much of every pixel around a point its marker covers, from 4 x 4 places in the pixel.
function stamp(marker, radius) {
  const reach = Math.ceil(1.15 * radius);
  const found = {reach, dx: [], dy: [], cover: []};
  for (let dy = -reach; dy <= reach; dy++)
    for (let dx = -reach; dx <= reach; dx++) {
      let hits = 0;
      for (let k = 0; k < 16; k++)
        hits += INSIDE[marker]((dx + (k % 4 - 1.5) / 4) / radius, (dy + (Math.floor(k / 4) - 1.5) / 4) / radius);
      if (!hits) continue;
      found.dx.push(dx);
      found.dy.push(dy);
      found.cover.push(hits / 16);
    }
  return found;
}
function blend(image, cx, cy, {dx, dy, cover}, [red, green, blue], alpha) {
  const {data, width, height} = image;
  for (let k = 0; k < dx.length; k++) {
    const px = cx + dx[k];
    const py = cy + dy[k];
    if (px < 0 || py < 0 || px >= width || py >= height) continue;
    const at = 4 * (py * width + px);
    const a = alpha * cover[k];
    data[at] += a * (red - data[at]);
    data[at + 1] += a * (green - data[at + 1]);
    data[at + 2] += a * (blue - data[at + 2]);
  }
}

class LatentMap {
  constructor(target, calls) {
    this.target = target;
    this.calls = calls;
    this.base = element("canvas", {className: "layer"});
    this.over = element("canvas", {className: "layer"});
    target.append(this.base, this.over);
    Object.assign(this, {range: [0, 1, 0, 1], x: [], y: [], ellipses: [], shade: null, mask: null, mark: null, cross: null, lasso: null, tool: "pan"});
    this.listen();
    new ResizeObserver(() => this.resized()).observe(target);
  }
  get size() {
    const n = this.x.length;
    return n < 200 ? 10 : n < 2000 ? 7 : n < 12000 ? 5 : 3.5;
  }
  // None in a frame or a tab that is folded away, until it is opened.
  hasRoom() {
    return this.target.clientWidth > 0 && this.target.clientHeight > 0;
  }
  inner() {
    const {clientWidth: width, clientHeight: height} = this.target;
    const left = (size, ...margins) => Math.max(margins.reduce((rest, margin) => rest - margin, size), 1);
    return {x: MARGIN.left, y: MARGIN.top, w: left(width, MARGIN.left, MARGIN.right), h: left(height, MARGIN.top, MARGIN.bottom)};
  }
  toScreen(x, y) {
    const box = this.inner();
    const [left, right, bottom, top] = this.range;
    return [box.x + (x - left) / (right - left) * box.w, box.y + (top - y) / (top - bottom) * box.h];
  }
  toData(px, py) {
    const box = this.inner();
    const [left, right, bottom, top] = this.range;
    return [left + (px - box.x) / box.w * (right - left), top - (py - box.y) / box.h * (top - bottom)];
  }
  // What was shown fits the new room, unless it was moved or zoomed since.
  resized() {
    if (this.shown && this.hasRoom()) this.show(...this.shown);
    this.redraw();
  }
  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }
  draw() {
    if (!this.x.length || !this.hasRoom()) return;
    const scale = devicePixelRatio;
    for (const canvas of [this.base, this.over]) {
      const width = Math.round(this.target.clientWidth * scale);
      const height = Math.round(this.target.clientHeight * scale);
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
    }
    this.paint(this.base.getContext("2d", {willReadFrequently: true}), scale);
    this.drawOver();
  }
  setRange(left, right, bottom, top) {
    this.range = [left, right, bottom, top];
    this.shown = null;
    this.redraw();
  }
  // One scale for both axes unless one is much longer: the prior is as wide in every direction.
  show([left, right, bottom, top], alike) {
    const box = this.inner();
    const scale = (right - left) / box.w / ((top - bottom) / box.h);
    if (alike && scale > 0.25 && scale < 4) {
      const wider = 0.5 * (right - left) * Math.max(1 / scale - 1, 0);
      const higher = 0.5 * (top - bottom) * Math.max(scale - 1, 0);
      this.setRange(left - wider, right + wider, bottom - higher, top + higher);
    } else this.setRange(left, right, bottom, top);
    this.shown = [[left, right, bottom, top], alike];
  }
  zoom(factor, at = null) {
    const [left, right, bottom, top] = this.range;
    const [cx, cy] = at ?? [(left + right) / 2, (bottom + top) / 2];
    this.setRange(cx + (left - cx) * factor, cx + (right - cx) * factor, cy + (bottom - cy) * factor, cy + (top - cy) * factor);
  }
  nearest(px, py) {
    const [left, right, bottom, top] = this.range;
    const box = this.inner();
    const sx = box.w / (right - left);
    const sy = box.h / (top - bottom);
    const {x, y} = this;
    let row = 0;
    let least = Infinity;
    for (let i = 0; i < x.length; i++) {
      const dx = (x[i] - px) * sx;
      const dy = (y[i] - py) * sy;
      const distance = dx * dx + dy * dy;
      if (distance < least) {
        least = distance;
        row = i;
      }
    }
    return {row, pixels: Math.sqrt(least)};
  }

  // -- drawing ---------------------------------------------------------------------------------------
  paint(context, scale) {
    const {clientWidth: width, clientHeight: height} = this.target;
    const box = this.inner();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colour("--paper");
    context.fillRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(box.x, box.y, box.w, box.h);
    context.clip();
    this.paintShade(context);
    this.paintGrid(context, box);
    this.paintEllipses(context, this.ellipses, 0.35, 0.7);
    context.restore();
    this.paintPoints(context, scale);
    this.paintAxes(context, box, width, height);
  }
  paintShade(context) {
    if (!this.shade) return;
    const {canvas, extent: [left, right, bottom, top]} = this.shade;
    const [x0, y0] = this.toScreen(left, top);
    const [x1, y1] = this.toScreen(right, bottom);
    this.hatch(context);
    context.imageSmoothingEnabled = true;
    context.drawImage(canvas, x0, y0, x1 - x0, y1 - y0);
  }
  // Where nothing was decoded.
  hatch(context) {
    const box = this.inner();
    context.strokeStyle = colour("--line");
    context.lineWidth = 1;
    context.beginPath();
    for (let at = 0; at < box.w + box.h; at += 8) {
      context.moveTo(box.x + at, box.y);
      context.lineTo(box.x + at - box.h, box.y + box.h);
    }
    context.stroke();
  }
  grid(box) {
    const [left, right, bottom, top] = this.range;
    return [ticks(left, right, Math.max(box.w / 85, 2)), ticks(bottom, top, Math.max(box.h / 55, 2))];
  }
  paintGrid(context, box) {
    const [across, up] = this.grid(box);
    context.strokeStyle = colour("--line");
    context.globalAlpha = 0.6;
    context.lineWidth = 1;
    context.beginPath();
    for (const [value] of across) {
      const at = Math.round(this.toScreen(value, 0)[0]) + 0.5;
      context.moveTo(at, box.y);
      context.lineTo(at, box.y + box.h);
    }
    for (const [value] of up) {
      const at = Math.round(this.toScreen(0, value)[1]) + 0.5;
      context.moveTo(box.x, at);
      context.lineTo(box.x + box.w, at);
    }
    context.stroke();
    context.globalAlpha = 1;
  }
  paintAxes(context, box, width, height) {
    const [across, up] = this.grid(box);
    context.strokeStyle = colour("--line");
    context.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = colour("--quiet");
    context.textAlign = "center";
    for (const [value, label] of across) context.fillText(label, this.toScreen(value, 0)[0], box.y + box.h + 16);
    context.textAlign = "right";
    for (const [value, label] of up) context.fillText(label, box.x - 6, this.toScreen(0, value)[1] + 4);
    context.textAlign = "center";
    context.fillStyle = colour("--ink");
    context.font = "13px system-ui, sans-serif";
    context.fillText(this.labels[0], box.x + box.w / 2, height - 8);
    context.save();
    context.translate(14, box.y + box.h / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(this.labels[1], 0, 0);
    context.restore();
  }
  paintEllipses(context, ellipses, alpha, line, fill = 0) {
    const [left, right, bottom, top] = this.range;
    const box = this.inner();
    context.strokeStyle = context.fillStyle = colour("--ink");
    context.lineWidth = line;
    for (const {x, y, rx, ry} of ellipses) {
      const [px, py] = this.toScreen(x, y);
      context.beginPath();
      context.ellipse(px, py, rx * box.w / (right - left), ry * box.h / (top - bottom), 0, 0, 2 * Math.PI);
      context.globalAlpha = fill;
      if (fill) context.fill();
      context.globalAlpha = alpha;
      context.stroke();
    }
    context.globalAlpha = 1;
  }
  paintPoints(context, scale) {
    const box = this.inner();
    const [x0, y0] = [Math.round(box.x * scale), Math.round(box.y * scale)];
    const image = context.getImageData(x0, y0, Math.round(box.w * scale), Math.round(box.h * scale));
    const [left, right, bottom, top] = this.range;
    const sx = image.width / (right - left);
    const sy = image.height / (top - bottom);
    const stamps = INSIDE.map((_, marker) => stamp(marker, 0.5 * this.size * scale));
    const {x, y, codes, markers, palette, mask} = this;
    const paper = rgb(colour("--paper"));
    const faded = palette.map((tone) => mix([paper, tone], FADED));
    for (const chosen of mask ? [0, 1] : [1])
      for (let i = 0; i < x.length; i++) {
        if (mask && mask[i] !== chosen) continue;
        const cx = Math.round((x[i] - left) * sx);
        const cy = Math.round((top - y[i]) * sy);
        const own = stamps[markers ? markers[i] : 0];
        if (cx < -own.reach || cy < -own.reach || cx > image.width + own.reach || cy > image.height + own.reach) continue;
        blend(image, cx, cy, own, (chosen ? palette : faded)[codes[i]], mask ? 1 : 0.88);
      }
    context.putImageData(image, x0, y0);
  }
  drawOver() {
    const context = this.over.getContext("2d");
    const scale = devicePixelRatio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.over.width, this.over.height);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const box = this.inner();
    context.save();
    context.beginPath();
    context.rect(box.x, box.y, box.w, box.h);
    context.clip();
    if (this.mark) {
      this.paintEllipses(context, [this.mark], 1, 1.5, 0.15);
      context.beginPath();
      context.arc(...this.toScreen(this.mark.x, this.mark.y), 8, 0, 2 * Math.PI);
      this.strokeTwice(context);
    }
    if (this.cross) {
      const [px, py] = this.toScreen(...this.cross);
      context.beginPath();
      context.moveTo(px - 13, py);
      context.lineTo(px + 13, py);
      context.moveTo(px, py - 13);
      context.lineTo(px, py + 13);
      this.strokeTwice(context);
    }
    if (this.lasso) this.paintLasso(context);
    context.restore();
  }
  // In ink on paper: visible on points of any colour.
  strokeTwice(context) {
    for (const [tone, width] of [["--paper", 5.5], ["--ink", 2.5]]) {
      context.strokeStyle = colour(tone);
      context.lineWidth = width;
      context.stroke();
    }
  }
  paintLasso(context) {
    context.beginPath();
    for (const point of this.lasso) context.lineTo(...point);
    context.closePath();
    context.fillStyle = colour("--accent");
    context.globalAlpha = 0.15;
    context.fill();
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.strokeStyle = colour("--ink");
    context.stroke();
  }
}

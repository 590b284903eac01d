// What the pointer does on the map: it points, moves, lassoes; Ctrl and the wheel zoom.
const STILL = 4;

LatentMap.prototype.listen = function () {
  const {over} = this;
  const at = (event) => {
    const box = over.getBoundingClientRect();
    return [event.clientX - box.x, event.clientY - box.y];
  };
  let down = null;
  let pointed = null;
  over.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    over.setPointerCapture(event.pointerId);
    down = {start: at(event), range: this.range, moved: false};
    if (this.tool === "lasso") this.lasso = [down.start];
  });
  over.addEventListener("pointermove", (event) => {
    const place = at(event);
    if (down) {
      down.moved ||= Math.hypot(place[0] - down.start[0], place[1] - down.start[1]) > STILL;
      if (down.moved) this.drag(down, place);
      return;
    }
    if (!pointed) requestAnimationFrame(() => {
      const last = pointed;
      pointed = null;
      this.calls.point(...this.toData(...last));
    });
    pointed = place;
  });
  over.addEventListener("pointerup", (event) => {
    if (!down) return;
    const {moved} = down;
    const lasso = this.lasso;
    down = this.lasso = null;
    if (!moved) this.calls.tap(...this.toData(...at(event)));
    else if (lasso) this.calls.choose(this.rowsInside(lasso));
    this.drawOver();
  });
  over.addEventListener("pointercancel", () => {
    down = this.lasso = null;
    this.drawOver();
  });
  over.addEventListener("pointerleave", () => this.calls.leave());
  over.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(1.0015 ** event.deltaY, this.toData(...at(event)));
  }, {passive: false});
};

LatentMap.prototype.drag = function ({start, range}, place) {
  if (this.lasso) {
    this.lasso.push(place);
    this.drawOver();
    return;
  }
  const box = this.inner();
  const [left, right, bottom, top] = range;
  const across = (start[0] - place[0]) / box.w * (right - left);
  const up = (place[1] - start[1]) / box.h * (top - bottom);
  this.setRange(left + across, right + across, bottom + up, top + up);
};

// Rows inside a polygon on the screen: a line from the row to the right crosses its sides an odd number of times.
LatentMap.prototype.rowsInside = function (polygon) {
  const corners = polygon.map((point) => this.toData(...point));
  const [left, right] = extremes(corners.map((corner) => corner[0]));
  const [bottom, top] = extremes(corners.map((corner) => corner[1]));
  const rows = [];
  for (let i = 0; i < this.x.length; i++) {
    const x = this.x[i];
    const y = this.y[i];
    if (x < left || x > right || y < bottom || y > top) continue;
    let inside = false;
    corners.forEach(([ax, ay], k) => {
      const [bx, by] = corners[(k + 1) % corners.length];
      if ((ay > y) !== (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)) inside = !inside;
    });
    if (inside) rows.push(i);
  }
  return rows;
};

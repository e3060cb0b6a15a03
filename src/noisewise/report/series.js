"use strict";
(() => {
  const page = JSON.parse(document.getElementById("series-data").textContent);
  const all = page.span;
  const least = Math.max((all[1] - all[0]) / 1e6, page.dates ? 1 : 1e-9);
  const view = { from: all[0], to: all[1] };
  const list = document.getElementById("series-list");
  const near = new Set();  // charts that are in sight, or nearly
  const colour = {};

  // What was read and filled is stored as whole numbers: bytes in base64.
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const grids = page.times.map((one) => ({ one, time: null }));
  function times(number) {
    const grid = grids[number];
    if (!grid.time) {
      const { start, step, n, raw, skips } = grid.one;
      let at = 0;
      grid.time = raw ? new Float64Array(bytes(raw).buffer)
        : skips ? Float64Array.from(new Uint16Array(bytes(skips).buffer), (k) => start + (at += k) * step)
        : Float64Array.from({ length: n }, (_, k) => start + k * step);
    }
    return grid.time;
  }
  function decoded(entry) {
    const time = times(entry.t), n = time.length, code = new Uint16Array(bytes(entry.v).buffer);
    const hole = bytes(entry.f), below = bytes(entry.b), above = bytes(entry.a);
    const size = entry.hi - entry.lo, one = { time, n };
    for (const name of ["value", "low", "high"]) one[name] = new Float64Array(n).fill(NaN);
    one.filled = new Uint8Array(n);
    for (let k = 0, hidden = 0; k < n; k++) {
      if (!code[k]) continue;
      one.value[k] = entry.lo + size * (code[k] - 1) / 65534;
      if (hole[k >> 3] >> (k & 7) & 1) {
        one.filled[k] = 1;
        one.low[k] = one.value[k] - size * (below[hidden] / 255) ** 2;
        one.high[k] = one.value[k] + size * (above[hidden] / 255) ** 2;
        hidden++;
      }
    }
    return one;
  }
  function first(time, moment) {  // of all that are not before a moment
    let low = 0, high = time.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] < moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Words of times and numbers
  const two = (n) => String(n).padStart(2, "0");
  const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  function moment(t, span) {
    if (!page.dates) return String(+t.toPrecision(8));
    const d = new Date(t * 1000);
    const day = `${d.getUTCDate()} ${months[d.getUTCMonth()]} ${d.getUTCFullYear()}`;
    const clock = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
    if (span > 200 * 86400) return day;
    return span < 600 ? `${day}, ${clock}:${two(d.getUTCSeconds())}` : `${day}, ${clock}`;
  }
  const number = (v) => {
    const size = Math.abs(v);
    return size && (size >= 1e6 || size < 1e-3) ? v.toExponential(2) : String(+v.toPrecision(4));
  };
  function nice(span, most) {
    const raw = span / most, ten = 10 ** Math.floor(Math.log10(raw));
    return ten * ([1, 2, 5].find((m) => m * ten >= raw) || 10);
  }
  const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
    172800, 604800, 1209600];
  function ticks(from, to, most) {
    const span = to - from, found = [];
    if (!page.dates) {
      const step = nice(span, most);
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        found.push([t, String(+t.toPrecision(6))]);
      }
      return found;
    }
    const step = STEPS.find((s) => span / s <= most);
    if (step) {
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        const d = new Date(t * 1000), clock = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`;
        const day = `${d.getUTCDate()} ${months[d.getUTCMonth()]}`;
        const midnight = t % 86400 === 0;
        found.push([t, midnight ? day : step < 60 ? `${clock}:${two(d.getUTCSeconds())}` : clock]);
      }
      return found;
    }
    const each = [1, 2, 3, 6, 12, 24, 60, 120].find((m) => span / (m * 2629800) <= most) || 240;
    const d = new Date(from * 1000);
    let month = Math.ceil((d.getUTCFullYear() * 12 + d.getUTCMonth() + 0.001) / each) * each;
    for (; ; month += each) {
      const year = Math.floor(month / 12), t = Date.UTC(year, month % 12, 1) / 1000;
      if (t > to) return found;
      found.push([t, month % 12 && each < 12 ? months[month % 12] : String(year)]);
    }
  }

  // One chart
  class Chart {
    constructor(entry) {
      this.entry = entry;
      this.card = document.createElement("article");
      this.card.className = "chart";
      this.card.id = `series-${entry.i}`;
      const head = document.createElement("h3");
      head.textContent = entry.n;
      head.title = entry.n;
      const words = document.createElement("p");
      words.textContent = entry.w;
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", `${entry.n}: ${entry.w}`);
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      const frame = document.createElement("div");
      frame.className = "frame";
      frame.append(this.canvas, this.tip);
      this.card.append(head, words, frame);
      this.listen();
    }
    get data() { return this.own || (this.own = decoded(this.entry)); }
    x(t) { return this.left + (t - view.from) / (view.to - view.from) * this.inner; }
    t(x) { return view.from + (x - this.left) / this.inner * (view.to - view.from); }
    y(v) {
      const y = this.top + (this.most - v) / (this.most - this.least) * this.tall;
      return Math.max(this.top - 2, Math.min(this.top + this.tall + 2, y));
    }

    columns() {  // what lies in each column of pixels, as far as it is in sight
      const { time, n, value, low, high, filled } = this.data, many = Math.ceil(this.inner) + 1;
      const from = Math.max(first(time, view.from) - 1, 0);
      const to = Math.min(first(time, view.to) + 1, n);
      const make = (v) => new Float64Array(many).fill(v);
      const col = { from, to, least: make(Infinity), most: make(-Infinity), sum: make(0),
        count: make(0), low: make(Infinity), high: make(-Infinity) };
      for (let k = from; k < to; k++) {
        if (Number.isNaN(value[k])) continue;
        const c = Math.max(0, Math.min(many - 1, Math.round(this.x(time[k]) - this.left)));
        if (filled[k]) {
          col.sum[c] += value[k];
          col.count[c]++;
          col.low[c] = Math.min(col.low[c], low[k]);
          col.high[c] = Math.max(col.high[c], high[k]);
        } else {
          col.least[c] = Math.min(col.least[c], value[k]);
          col.most[c] = Math.max(col.most[c], value[k]);
        }
      }
      return col;
    }
    range(col) {  // of the readings in sight; spikes do not count
      const { value, filled, low, high } = this.data;
      const spikes = new Set(this.entry.o.filter((o) => o.k === "spike").map((o) => o.p));
      let least = Infinity, most = -Infinity;
      for (let k = col.from; k < col.to; k++) {
        if (Number.isNaN(value[k]) || spikes.has(k)) continue;
        least = Math.min(least, filled[k] ? low[k] : value[k]);
        most = Math.max(most, filled[k] ? high[k] : value[k]);
      }
      if (!(least <= most)) [least, most] = [this.entry.lo, this.entry.hi];
      const pad = (most - least) * 0.07 || Math.abs(most) * 0.05 || 1;
      this.least = least - pad;
      this.most = most + pad;
    }

    draw() {
      const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
      if (!width) return;
      const dots = window.devicePixelRatio || 1, pen = this.canvas.getContext("2d");
      this.canvas.width = width * dots;
      this.canvas.height = height * dots;
      pen.scale(dots, dots);
      Object.assign(this, { left: 46, top: 8, inner: width - 54, tall: height - 32 });
      const col = this.columns();
      this.range(col);
      this.axes(pen);
      pen.save();
      pen.beginPath();
      pen.rect(this.left - 1, 0, this.inner + 2, height);
      pen.clip();
      this.spans(pen);
      if (col.to - col.from > this.inner / 3) this.dense(pen, col); else this.sparse(pen, col);
      this.spikes(pen);
      if (this.drag) {
        pen.fillStyle = colour.blue;
        pen.globalAlpha = 0.15;
        pen.fillRect(this.drag[0], this.top, this.drag[1] - this.drag[0], this.tall);
      }
      pen.restore();
    }
    axes(pen) {
      pen.font = "11px system-ui, sans-serif";
      pen.fillStyle = colour.quiet;
      pen.strokeStyle = colour.line;
      pen.lineWidth = 1;
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      const step = nice(this.most - this.least, 4);
      for (let v = Math.ceil(this.least / step) * step; v <= this.most; v += step) {
        const y = Math.round(this.y(v)) + 0.5;
        pen.beginPath();
        pen.moveTo(this.left, y);
        pen.lineTo(this.left + this.inner, y);
        pen.stroke();
        pen.fillText(number(Math.abs(v) < step / 1e6 ? 0 : v), this.left - 6, y);
      }
      pen.textAlign = "center";
      pen.textBaseline = "top";
      for (const [t, words] of ticks(view.from, view.to, this.inner / 80)) {
        const x = this.x(t), half = pen.measureText(words).width / 2;
        if (x - half < this.left - 20 || x + half > this.left + this.inner + 8) continue;
        pen.fillText(words, x, this.top + this.tall + 8);
      }
    }
    spans(pen) {  // what is odd for a while
      for (const odd of this.entry.o) {
        if (odd.k === "spike") continue;
        const from = Math.max(this.x(odd.s), this.left);
        const to = Math.min(this.x(odd.e), this.left + this.inner);
        if (to < this.left || from > this.left + this.inner) continue;
        const wide = Math.max(to - from, 2);
        pen.fillStyle = colour.orange;
        pen.globalAlpha = 0.12;
        pen.fillRect(from, this.top, wide, this.tall);
        pen.globalAlpha = 1;
        pen.fillRect(from, this.top, wide, 2.5);
        pen.textAlign = "left";
        pen.textBaseline = "top";
        if (wide > pen.measureText(odd.k).width + 8) pen.fillText(odd.k, from + 4, this.top + 5);
      }
    }
    dense(pen, col) {
      const many = col.sum.length;
      pen.fillStyle = colour.blue;
      for (let c = 0; c < many; c++) {
        if (!col.count[c]) continue;
        const x = this.left + c, high = this.y(col.high[c]), mean = this.y(col.sum[c] / col.count[c]);
        pen.globalAlpha = 0.22;
        pen.fillRect(x, high, 1, this.y(col.low[c]) - high);
        pen.globalAlpha = 1;
        pen.fillRect(x, mean - 0.7, 1, 1.6);
      }
      pen.fillStyle = colour.ink;
      let last = null;
      for (let c = 0; c < many; c++) {
        if (col.least[c] > col.most[c]) { last = null; continue; }
        let high = this.y(col.most[c]), low = this.y(col.least[c]);
        if (last) {  // so that neighbours touch
          if (high > last[1]) high = last[1];
          if (low < last[0]) low = last[0];
        }
        pen.fillRect(this.left + c, high - 0.5, 1, Math.max(low - high, 0) + 1);
        last = [this.y(col.most[c]), this.y(col.least[c])];
      }
    }
    sparse(pen, { from, to }) {
      const { time, value, low, high, filled } = this.data, here = [];
      for (let k = from; k < to; k++) if (!Number.isNaN(value[k])) here.push(k);
      pen.lineJoin = "round";
      for (let a = 0; a < here.length;) {
        if (!filled[here[a]]) { a++; continue; }
        let b = a;
        while (b + 1 < here.length && filled[here[b + 1]]) b++;
        const run = here.slice(a, b + 1), ends = [here[a - 1], here[b + 1]];
        const points = run.map((k) => [this.x(time[k]), this.y(low[k]), this.y(high[k]), this.y(value[k])]);
        for (const [side, k] of ends.entries()) {
          if (k === undefined) continue;
          const y = this.y(value[k]), point = [this.x(time[k]), y, y, y];
          if (side) points.push(point); else points.unshift(point);
        }
        pen.fillStyle = pen.strokeStyle = colour.blue;
        pen.globalAlpha = 0.2;
        pen.beginPath();
        for (const [x, , y] of points) pen.lineTo(x, y);
        for (const [x, y] of points.slice().reverse()) pen.lineTo(x, y);
        pen.fill();
        pen.globalAlpha = 1;
        pen.lineWidth = 1.6;
        pen.beginPath();
        for (const [x, , , y] of points) pen.lineTo(x, y);
        pen.stroke();
        for (const k of run) this.dot(pen, time[k], value[k], 1.8);
        a = b + 1;
      }
      pen.fillStyle = pen.strokeStyle = colour.ink;
      pen.lineWidth = 1.2;
      pen.beginPath();
      let joined = false;
      for (const k of here) {
        if (filled[k]) { joined = false; continue; }
        if (joined) pen.lineTo(this.x(time[k]), this.y(value[k]));
        else pen.moveTo(this.x(time[k]), this.y(value[k]));
        joined = true;
      }
      pen.stroke();
      for (const k of here) if (!filled[k]) this.dot(pen, time[k], value[k], 1.7);
    }
    dot(pen, t, v, radius) {
      pen.beginPath();
      pen.arc(this.x(t), this.y(v), radius, 0, 7);
      pen.fill();
    }
    spikes(pen) {
      pen.strokeStyle = pen.fillStyle = colour.orange;
      pen.lineWidth = 1.6;
      for (const odd of this.entry.o) {
        if (odd.k !== "spike") continue;
        const x = this.x(odd.s), y = this.y(odd.v);
        pen.beginPath();
        pen.arc(x, Math.max(this.top + 5, Math.min(this.top + this.tall - 5, y)), 4, 0, 7);
        pen.stroke();
      }
    }

    hover(x) {
      const { time, n, value, low, high, filled } = this.data, t = this.t(x);
      let k = first(time, t);
      if (k === n || (k > 0 && t - time[k - 1] < time[k] - t)) k--;
      if (x < this.left || x > this.left + this.inner || Math.abs(this.x(time[k]) - x) > 30) {
        this.leave();
        return;
      }
      const span = view.to - view.from, near = 6 / this.inner * span;
      const odd = this.entry.o.filter((o) => o.k === "spike" ? Math.abs(o.s - t) <= near
        : t >= o.s - near && t <= o.e + near);
      const read = Number.isNaN(value[k]) ? "nothing"
        : filled[k] ? `filled ${number(value[k])}, ${page.coverage} % in ${number(low[k])} to ${number(high[k])}`
        : `read ${number(value[k])}`;
      this.tip.textContent = "";
      for (const [kind, words] of [["b", moment(time[k], Math.min(span, 1e7))], ["span", read],
        ...odd.slice(0, 3).map((o) => ["em", o.w])]) {
        const part = document.createElement(kind);
        part.textContent = words;
        this.tip.append(part);
      }
      this.tip.hidden = false;
      const at = this.x(time[k]), wide = this.tip.offsetWidth, width = this.canvas.clientWidth;
      this.tip.style.left = `${Math.max(0, Math.min(width - wide, at > width / 2 ? at - wide - 12 : at + 12))}px`;
      this.draw();
      const pen = this.canvas.getContext("2d");
      pen.fillStyle = colour.quiet;
      pen.fillRect(at - 0.5, this.top, 1, this.tall);
      if (!Number.isNaN(value[k])) {
        pen.fillStyle = filled[k] ? colour.blue : colour.ink;
        this.dot(pen, time[k], value[k], 3.5);
      }
    }
    leave() {
      if (this.tip.hidden) return;
      this.tip.hidden = true;
      this.draw();
    }

    listen() {
      const canvas = this.canvas, down = new Map();
      const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
      canvas.addEventListener("pointerdown", (event) => {
        down.set(event.pointerId, at(event));
        canvas.setPointerCapture(event.pointerId);
        if (event.pointerType === "mouse") this.drag = [at(event), at(event)];
      });
      canvas.addEventListener("pointermove", (event) => {
        const x = at(event), before = down.get(event.pointerId);
        if (before === undefined) { this.hover(x); return; }
        down.set(event.pointerId, x);
        if (this.drag) {
          this.drag[1] = x;
          this.tip.hidden = true;
          this.draw();
        } else if (down.size === 2) {
          const other = [...down].find(([id]) => id !== event.pointerId)[1];
          const factor = Math.abs(before - other) / Math.max(Math.abs(x - other), 4);
          zoom(factor, this.t((x + other) / 2));
        } else {
          if (Math.abs(x - before) > 0.5) pan((before - x) / this.inner);
          this.hover(x);
        }
      });
      const up = (event) => {
        down.delete(event.pointerId);
        const drag = this.drag;
        this.drag = null;
        if (drag && Math.abs(drag[1] - drag[0]) > 6) {
          const ends = drag.map((x) => this.t(x)).sort((a, b) => a - b);
          show(ends[0], ends[1]);
        } else this.draw();
      };
      canvas.addEventListener("pointerup", up);
      canvas.addEventListener("pointercancel", up);
      canvas.addEventListener("pointerleave", () => { if (!down.size) this.leave(); });
      canvas.addEventListener("dblclick", () => show(all[0], all[1]));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;  // else the page scrolls
        event.preventDefault();
        zoom(Math.exp(event.deltaY / 300), this.t(at(event)));
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        const move = { ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6),
          "-": () => zoom(1 / 0.6), "0": () => show(all[0], all[1]),
          Escape: () => show(all[0], all[1]) }[event.key];
        if (!move) return;
        event.preventDefault();
        move();
      });
    }
  }

  // All charts show the same stretch of time.
  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      for (const chart of near) chart.draw();
      const span = view.to - view.from, whole = view.from === all[0] && view.to === all[1];
      document.getElementById("shown").textContent =
        `${moment(view.from, span)} to ${moment(view.to, span)}`;
      document.getElementById("whole").disabled = whole;
    });
  }
  function show(from, to) {
    const span = Math.min(Math.max(to - from, least), all[1] - all[0]);
    view.from = Math.min(Math.max(from, all[0]), all[1] - span);
    view.to = view.from + span;
    if (span >= all[1] - all[0]) [view.from, view.to] = all;
    redraw();
  }
  function zoom(factor, around = (view.from + view.to) / 2) {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }
  function pan(share) {
    const by = share * (view.to - view.from);
    show(view.from + by, view.to + by);
  }

  // The list: sorted, searched, drawn when in sight
  const charts = page.series.map((entry) => new Chart(entry));
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const chart = target.chart;
      if (isIntersecting) near.add(chart); else near.delete(chart);
    }
    redraw();
  }, { rootMargin: "400px" });
  for (const chart of charts) chart.card.chart = chart;
  const orders = {
    gap: (a, b) => b.entry.g - a.entry.g || a.entry.i - b.entry.i,
    odd: (a, b) => b.entry.o.length - a.entry.o.length || a.entry.i - b.entry.i,
    noise: (a, b) => b.entry.z - a.entry.z || a.entry.i - b.entry.i,
    name: (a, b) => a.entry.n.localeCompare(b.entry.n, undefined, { numeric: true }),
  };
  function arrange() {
    const wanted = document.getElementById("search").value.trim().toLowerCase();
    const shown = charts.filter((chart) => chart.entry.n.toLowerCase().includes(wanted));
    shown.sort(orders[document.getElementById("order").value]);
    watch.disconnect();
    near.clear();
    list.replaceChildren(...shown.map((chart) => chart.card));
    for (const chart of shown) watch.observe(chart.card);
    document.getElementById("none").hidden = shown.length > 0;
  }
  function paint() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "quiet", "line", "blue", "orange"]) {
      colour[name] = style.getPropertyValue(`--${name}`).trim();
    }
    redraw();
  }
  for (const [id, act] of Object.entries({
    nearer: () => zoom(0.5), farther: () => zoom(2), earlier: () => pan(-0.3),
    later: () => pan(0.3), whole: () => show(all[0], all[1]),
  })) document.getElementById(id).addEventListener("click", act);
  document.getElementById("order").addEventListener("change", arrange);
  document.getElementById("search").addEventListener("input", arrange);
  document.addEventListener("click", (event) => {  // of a gap, or of what is odd: go there
    const link = event.target.closest("a[data-from]");
    if (!link) return;
    const from = +link.dataset.from, to = +link.dataset.to, room = (to - from) || (all[1] - all[0]) / 50;
    document.getElementById("search").value = "";
    arrange();
    show(from - room, to + room);
  });
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  document.getElementById("charts").hidden = false;
  arrange();
  paint();
})();

// The picture of a planar complex: pan, zoom, ask, mark a neuron, choose colours, move through frames and along a fiber.
//
// A live page (live.js) hands in `data.live`, functions that are told when a line or a corner is dragged.

const HEAVY = { WebGL: 12000, canvas: 1500 };  // regions above which a moving picture is a moved bitmap, drawn anew at rest
const REST = 140;  // milliseconds
const CORNER = 52;  // pixels of an image at a corner

const number = (v) => (Number.isFinite(v) ? Number(v.toPrecision(5)).toString() : String(v)).replace("-", "−");

function make(tag, settings = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(settings))
    if (key in node && key !== "list") node[key] = value; else node.setAttribute(key, value);
  node.append(...children);
  return node;
}

class Widget {
  constructor(root, data, frames) {
    Object.assign(this, { root, data, frames, at: 0, hover: -1, edge: -1, neuron: -1, how: data.colour || "mosaic", output: 0 });
    this.frame = frames[0];
    this.shown = this.frame.layers.map(() => true);
    this.build();
    this.painter = (data.plain ? null : glPainter(this.canvas)) || flatPainter(this.canvas);
    root.dataset.painter = this.painter.kind;
    if (this.painter.kind !== "WebGL") this.bar.after(make("p", { className: "fx-note" }, "Drawn without WebGL, which this browser does not offer: large pictures are slower."));
    this.listen();
    this.show();
    this.home();
    root.dataset.ready = "yes";
    root.explorer = this;
  }

  build() {
    const id = `fx${Math.random().toString(36).slice(2, 8)}`;
    this.canvas = make("canvas", { className: "fx-base", "aria-hidden": "true" });
    this.top = make("canvas", { className: "fx-top", tabIndex: 0, role: "img",
      "aria-label": `${this.frame.title}. Drag or use the arrow keys to move, the wheel or plus and minus to zoom, ` +
        "zero for the whole picture; the panel describes the region under the pointer." });
    this.stage = make("div", { className: "fx-stage" }, this.canvas, this.top);
    this.panel = make("div", { className: "fx-panel", "aria-live": "polite" });
    const option = (value, text) => make("option", { value }, text);
    this.colour = make("select", { id: `${id}c` }, option("mosaic", "activation pattern"), option("value", "output"),
      option("slope", "slope"), option("class", "largest output"), option("active", "neurons that are on"));
    if (this.frame.out_size < 2) this.colour.querySelector("[value=class]").remove();
    this.colour.value = this.how;
    this.which = make("select", { id: `${id}o` }, ...Array.from({ length: this.frame.outputs }, (_, k) => option(k, `${k}`)));
    this.pick = make("select", { id: `${id}n` }, option(-1, "none"));
    const bars = this.frame.layers.map((layer, k) => {
      const box = make("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => { this.shown[k] = box.checked; this.draw(); });
      return make("label", { className: "fx-layer" }, box, make("span", { className: "fx-key", style: `--k:${LAYERS[k % 8]};--kd:${LAYERS_DARK[k % 8]}` }), layer.name);
    });
    this.reset = make("button", { type: "button" }, "Whole picture");
    this.bar = make("div", { className: "fx-bar" },
      make("label", {}, "Colour ", this.colour), this.whichLabel = make("label", {}, "of output ", this.which),
      make("label", {}, "Neuron ", this.pick), ...bars, this.reset);
    this.legend = make("div", { className: "fx-legend" });
    const [wide, tall] = [0, 1].map((i) => this.frame.high[i] - this.frame.low[i]);
    this.stage.style.aspectRatio = Math.min(2, Math.max(0.75, wide / tall || 1));
    this.root.append(this.bar, make("div", { className: "fx-row" }, this.stage, make("div", { className: "fx-side" }, this.legend, this.panel)));
    if (this.data.frames.length > 1) this.slider(this.data.slider || "frame", this.data.frames.length, (k) => this.go(k), (k) => this.data.labels[k]);
    if (this.data.walk) this.fiberWalk(this.data.walk);
  }

  slider(name, count, change, label) {
    const input = make("input", { type: "range", min: 0, max: count - 1, value: 0, "aria-label": name });
    const output = make("output", {}, label(0));
    input.addEventListener("input", () => { output.textContent = label(+input.value); change(+input.value); });
    const play = make("button", { type: "button", "aria-label": `play: ${name}` }, "Play");
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
    const step = () => {
      input.value = +input.value + 1;
      input.dispatchEvent(new Event("input"));
      if (+input.value >= count - 1) stop();
    };
    play.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (+input.value >= count - 1) input.value = -1;
      play.textContent = "Pause";
      timer = setInterval(step, Math.max(60, Math.min(600, 6000 / count)));
    });
    const row = make("div", { className: "fx-slider" }, play, make("label", {}, `${name} `, input), output);
    this.root.append(row);
    return row;
  }

  fiberWalk(walk) {
    const bars = make("canvas", { className: "fx-walk", width: 900, height: 120, role: "img",
      "aria-label": "The parameters along the fiber: they move while the picture above stands still." });
    const paint = (k) => {
      const pen = bars.getContext("2d"), row = walk.values[k], reach = Math.max(...walk.values.flat().map(Math.abs)) || 1;
      const wide = bars.width / row.length, dark = this.dark();
      pen.clearRect(0, 0, bars.width, bars.height);
      row.forEach((v, i) => {
        pen.fillStyle = v === walk.values[0][i] ? (dark ? "#6b7280" : "#b8b2a6") : (dark ? "#f28482" : "#d1495b");
        const tall = Math.sign(v) * Math.sqrt(Math.abs(v) / reach) * (bars.height / 2 - 2);
        pen.fillRect(i * wide, bars.height / 2 - Math.max(tall, 0), Math.max(1, wide - 1), Math.max(1, Math.abs(tall)));
      });
    };
    this.slider("along the fiber", walk.values.length, paint, (k) => walk.labels[k]).after(bars);
    this.root.append(make("p", { className: "fx-note" }, walk.caption));
    paint(0);
  }

  async go(k) {
    this.at = k;
    if (this.frames[k] === undefined) this.frames[k] = await decode(this.data.frames[k]);
    if (this.at === k) this.set(this.frames[k]);
  }

  // Another complex in the same picture; the window stays.
  set(frame) {
    this.frame = frame;
    this.hover = this.edge = -1;
    if (this.shown.length !== frame.layers.length) this.shown = frame.layers.map(() => true);
    this.show();
    this.size();
    this.draw();
  }

  dark() { return matchMedia("screen and (prefers-color-scheme: dark)").matches; }

  show() {
    const frame = this.frame;
    this.pick.replaceChildren(make("option", { value: -1 }, "none"), ...frame.layers.flatMap((layer) =>
      layer.visible.map((n) => make("option", { value: n }, `${layer.name}, ${n - layer.first}`))));
    if (![...this.pick.options].some((o) => +o.value === this.neuron)) this.neuron = -1;
    this.pick.value = this.neuron;
    this.painter.shape(frame);
    this.heavy = frame.starts.length - 1 > HEAVY[this.painter.kind];
    this.recolour();
    this.relines();
    this.tell();
  }

  recolour() {
    const { live } = this.data, shared = live && live.reach ? (own) => live.reach(this, own) : null;
    const { rgba, legend } = colours(this.frame, this.how, this.output, shared);
    const exact = this.frame.outputs === this.frame.out_size;
    this.painter.paint(rgba);
    this.painter.over(this.how === "class" ? parts(this.frame) : { places: new Float32Array(0), tints: new Uint8Array(0) });
    this.whichLabel.hidden = !(this.how === "value" || this.how === "slope") || this.frame.outputs < 2;
    this.legend.replaceChildren();
    if (legend) this.legend.append(make("span", {}, number(legend[0])), make("span", { className: "fx-ramp" }), make("span", {}, number(legend[1])));
    this.root.classList.toggle("fx-white", this.how === "mosaic");
    if (this.how === "mosaic") this.legend.append("One colour for every activation pattern; which colour has no meaning.");
    if (this.how === "class") for (const k of [...new Set(this.frame.classes)].sort((a, b) => a - b))
      this.legend.append(make("span", { className: "fx-class", style: `--k:rgb(${pale(k)})` }, String(k)), " ");
    if (this.how === "class") this.legend.append(exact ? "the largest output" : "the largest output at the middle of each region");
  }

  relines() { this.painter.lines(this.frame, (this.dark() && this.how !== "mosaic" ? LAYERS : this.how === "mosaic" ? LAYERS.map(() => "#fbfaf7") : LAYERS).map(rgb)); }

  home() {
    this.away = false;
    this.size();
    const { low, high } = this.frame;
    this.view.x = (low[0] + high[0]) / 2; this.view.y = (low[1] + high[1]) / 2;
    this.view.scale = 0.97 * Math.min(this.view.width / (high[0] - low[0]), this.view.height / (high[1] - low[1]));
    this.draw();
  }

  size() {
    const box = this.stage.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    this.view = { ...(this.view || { x: 0, y: 0, scale: 1 }), width: box.width || 600, height: box.height || 600 };
    this.pad = this.heavy ? 0.2 : 0;  // beyond the window, so that a moved bitmap has no blank border at once
    const grown = 1 + 2 * this.pad, style = { left: `${-100 * this.pad}%`, top: `${-100 * this.pad}%`, width: `${100 * grown}%`, height: `${100 * grown}%` };
    for (const [canvas, times] of [[this.canvas, grown], [this.top, 1]]) {
      const [wide, tall] = [this.view.width, this.view.height].map((n) => Math.round(n * ratio * times));
      if (canvas.width !== wide || canvas.height !== tall) { canvas.width = wide; canvas.height = tall; }
    }
    Object.assign(this.canvas.style, style);
  }

  screen(x, y) {
    return [this.view.width / 2 + (x - this.view.x) * this.view.scale, this.view.height / 2 - (y - this.view.y) * this.view.scale];
  }

  world(px, py) {
    return [this.view.x + (px - this.view.width / 2) / this.view.scale, this.view.y - (py - this.view.height / 2) / this.view.scale];
  }

  listen() {
    const pointers = new Map();
    const place = (e) => { const box = this.top.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    const live = this.data.live || {};
    let moved = 0, held = null;
    const hold = (here) => {  // a corner's image, or a line, that a live page lets be dragged
      const corner = live.corner ? this.cornerAt(...here) : -1;
      if (corner >= 0) return (at, done) => live.corner(corner, here, at, done);
      if (!live.line || this.edge < 0) return null;
      const neuron = this.frame.edge_neuron[this.edge], from = this.pointer;
      return (at, done, turn) => live.line(neuron, from, this.world(...at), done, turn);
    };
    this.top.addEventListener("pointerdown", (e) => {
      this.top.setPointerCapture(e.pointerId);
      pointers.set(e.pointerId, place(e));
      moved = 0;
      if (pointers.size === 1) { this.look(...place(e)); held = hold(place(e)); } else held = null;
    });
    this.top.addEventListener("pointermove", (e) => {
      const here = place(e), before = pointers.get(e.pointerId);
      if (!before) { this.look(...here); return; }
      const others = [...pointers].filter(([id]) => id !== e.pointerId).map(([, p]) => p);
      moved += Math.hypot(here[0] - before[0], here[1] - before[1]);
      if (held && moved >= 4) held(here, false, e.shiftKey);
      else if (held) { /* a click so far */ } else if (others.length) {
        const far = (p) => Math.hypot(p[0] - others[0][0], p[1] - others[0][1]) || 1;
        this.zoom(far(here) / far(before), ...others[0]);
      } else { this.view.x -= (here[0] - before[0]) / this.view.scale; this.view.y += (here[1] - before[1]) / this.view.scale; this.moved(); }
      pointers.set(e.pointerId, here);
    });
    const up = (e) => { pointers.delete(e.pointerId); };
    this.top.addEventListener("pointerup", (e) => { up(e); if (held && moved >= 4) held(place(e), true, e.shiftKey); held = null; if (moved < 4) { this.look(...place(e)); this.choose(this.edge >= 0 ? this.frame.edge_neuron[this.edge] : -1); } });
    this.top.addEventListener("pointercancel", up);
    this.top.addEventListener("pointerleave", () => { this.hover = this.edge = -1; this.overlay(); this.tell(); });
    this.top.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(Math.exp(-e.deltaY / 400), ...place(e)); }, { passive: false });
    this.top.addEventListener("keydown", (e) => {
      const step = 0.1 * this.view.width / this.view.scale, centre = [this.view.width / 2, this.view.height / 2];
      const keys = { ArrowLeft: () => { this.view.x -= step; }, ArrowRight: () => { this.view.x += step; }, ArrowUp: () => { this.view.y += step; },
        ArrowDown: () => { this.view.y -= step; }, "+": () => this.zoom(1.25, ...centre), "=": () => this.zoom(1.25, ...centre), "-": () => this.zoom(0.8, ...centre), 0: () => this.home() };
      if (!keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
      this.moved();
      this.look(...centre);
    });
    this.colour.addEventListener("change", () => { this.how = this.colour.value; this.recolour(); this.relines(); this.draw(); });
    this.which.addEventListener("change", () => { this.output = +this.which.value; this.recolour(); this.draw(); this.tell(); });
    this.pick.addEventListener("change", () => this.choose(+this.pick.value));
    this.reset.addEventListener("click", () => this.home());
    new ResizeObserver(() => {
      const { width } = this.view;
      if (!this.away) { this.home(); return; }
      this.size();
      this.view.scale *= this.view.width / width || 1;
      this.draw();
    }).observe(this.stage);
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => { this.relines(); this.draw(); });
  }

  cornerAt(px, py) {
    return (this.frame.pictures || []).findIndex(({ at }) => this.screen(...at).every((v, i) => Math.abs(v - [px, py][i]) <= CORNER / 2));
  }

  zoom(factor, px, py) {
    const [x, y] = this.world(px, py);
    this.view.scale = Math.min(Math.max(this.view.scale * factor, 1e-6), 1e9);
    const [nx, ny] = this.world(px, py);
    this.view.x += x - nx; this.view.y += y - ny;
    this.moved();
  }

  look(px, py) {
    const [x, y] = this.world(px, py), hover = regionAt(this.frame, x, y);
    const edge = hover < 0 ? -1 : edgeNear(this.frame, hover, x, y, 6 / this.view.scale);
    this.pointer = [x, y];
    this.hover = hover; this.edge = edge;
    this.overlay();
    this.tell();
  }

  choose(neuron) {
    this.neuron = neuron;
    this.pick.value = neuron;
    this.overlay();
    this.tell();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const paper = this.dark() ? [23, 26, 33] : [251, 250, 247], grown = 1 + 2 * this.pad, { x, y, scale } = this.view;
    const lines = this.painter.draw({ ...this.view, width: this.view.width * grown, height: this.view.height * grown }, paper, this.shown);
    this.canvas.style.transform = "";
    this.drawn = { x, y, scale };
    this.root.classList.toggle("fx-close", !lines && this.shown.some(Boolean));
    this.overlay();
  }

  // The window has moved: a light picture is drawn anew, a heavy one is moved as it is and drawn when it rests.
  moved() {
    this.away = true;
    if (this.data.live && this.data.live.viewed) this.data.live.viewed(this);
    if (!this.heavy || !this.drawn) { this.draw(); return; }
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.draw(), REST);
    if (this.sliding) return;
    this.sliding = true;
    requestAnimationFrame(() => {
      this.sliding = false;
      const { x, y, scale } = this.drawn, now = this.view;
      this.canvas.style.transform = `translate(${(x - now.x) * now.scale}px, ${(now.y - y) * now.scale}px) scale(${now.scale / scale})`;
      this.overlay();
    });
  }

  overlay() {
    const pen = this.top.getContext("2d"), ratio = this.top.width / this.view.width, { vertices, starts, corners, edges } = this.frame;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.view.width, this.view.height);
    const trace = (list) => { pen.beginPath(); for (const v of list) pen.lineTo(...this.screen(vertices[2 * v], vertices[2 * v + 1])); };
    const strokes = [["#ffffff", 5], ["#111318", 2.4]];
    if (this.neuron >= 0) {
      pen.beginPath();
      this.frame.edge_neuron.forEach((n, e) => {
        if (n !== this.neuron) return;
        pen.moveTo(...this.screen(vertices[2 * edges[2 * e]], vertices[2 * edges[2 * e] + 1]));
        pen.lineTo(...this.screen(vertices[2 * edges[2 * e + 1]], vertices[2 * edges[2 * e + 1] + 1]));
      });
      pen.lineCap = pen.lineJoin = "round";
      for (const [style, width] of strokes) { pen.strokeStyle = style; pen.lineWidth = width; pen.stroke(); }
    }
    if (this.hover >= 0) {
      trace(corners.subarray(starts[this.hover], starts[this.hover + 1]));
      pen.closePath();
      for (const [style, width] of [["#ffffff", 3], ["#111318", 1.4]]) { pen.strokeStyle = style; pen.lineWidth = width; pen.stroke(); }
    }
    if (this.edge >= 0) {
      trace([edges[2 * this.edge], edges[2 * this.edge + 1]]);
      for (const [style, width] of [["#ffffff", 6], ["#d1495b", 3.5]]) { pen.strokeStyle = style; pen.lineWidth = width; pen.stroke(); }
    }
    this.marks(pen);
  }

  marks(pen) {
    const { points, labels_of_points } = this.frame;
    if (points) for (let k = 0; 2 * k < points.length; k++) {
      const [px, py] = this.screen(points[2 * k], points[2 * k + 1]);
      pen.beginPath();
      pen.arc(px, py, 3, 0, 7);
      pen.fillStyle = labels_of_points && labels_of_points.length ? `rgb(${CLASSES[labels_of_points[k] % 10]})` : "#111318";
      pen.strokeStyle = "#ffffff";
      pen.lineWidth = 1;
      pen.fill();
      pen.stroke();
    }
    for (const picture of this.frame.pictures || []) {
      const image = (this.images ||= {})[picture.png] ||= Object.assign(new Image(), { src: `data:image/png;base64,${picture.png}`, onload: () => this.overlay() });
      const [px, py] = this.screen(...picture.at), side = CORNER;
      pen.imageSmoothingEnabled = false;
      if (image.complete) pen.drawImage(image, px - side / 2, py - side / 2, side, side);
      pen.strokeStyle = "#ffffff"; pen.lineWidth = 3; pen.strokeRect(px - side / 2, py - side / 2, side, side);
      pen.strokeStyle = "#111318"; pen.lineWidth = 1; pen.strokeRect(px - side / 2, py - side / 2, side, side);
    }
  }

  tell() {
    const frame = this.frame, lines = [], row = (name, ...what) => lines.push(make("div", { className: "fx-line" }, make("b", {}, name), " ", ...what));
    if (this.hover >= 0) {
      const r = this.hover, K = frame.outputs, [xa, xb] = frame.axes;
      row("Region", `${frame.names ? frame.names[r] : r}, area ${number(frame.areas[r])}`);
      row("At", `${xa} = ${number(this.pointer[0])}, ${xb} = ${number(this.pointer[1])}`);
      for (let k = 0; k < Math.min(K, 10); k++) {
        const [a, b, c] = [0, 1, 2].map((i) => frame.maps[3 * (r * K + k) + i]);
        row(`f${frame.out_size > 1 ? k : ""}`, `= ${number(a)} ${xa} + ${number(b)} ${xb} + ${number(c)}`.replaceAll("+ −", "− "));
      }
      if (K < frame.out_size) row("", `the first ${K} of ${frame.out_size} outputs`);
      const signs = signsOf(frame, r);
      for (const layer of frame.layers) {
        const own = signs.subarray(layer.first, layer.first + layer.size), on = own.filter((s) => s > 0).length;
        const text = own.length <= 96 ? Array.from(own, (s) => SIGN[s + 1]).join("") : "";
        row(layer.name, `${on} of ${own.length} on`, make("span", { className: "fx-signs" }, text));
      }
    }
    if (this.edge >= 0) {
      const e = this.edge, n = frame.edge_neuron[e], layer = frame.layers[frame.edge_layer[e]];
      row("Line", `neuron ${n - layer.first} of ${layer.name}, ` +
        (frame.edge_visible[e] ? `the gradient jumps by ${number(frame.edge_weight[e])}` : "no bend of the function here"));
    }
    if (this.neuron >= 0) {
      const layer = frame.layers.find((l) => this.neuron >= l.first && this.neuron < l.first + l.size);
      row("Marked", `where neuron ${this.neuron - layer.first} of ${layer.name} vanishes`);
    }
    if (!lines.length && this.data.live && this.data.live.hint) row(`${frame.regions.toLocaleString("en")} regions`, frame.note || "", make("p", { className: "fx-note" }, this.data.live.hint));
    if (!lines.length) row(`${frame.regions.toLocaleString("en")} regions`, frame.note || "", make("p", { className: "fx-note" }, "Point at a region; click a line to mark its neuron through all layers."));
    this.panel.replaceChildren(...lines);
  }
}

// The explorer: a planar complex that can be panned, zoomed and asked. Plain JavaScript, no server, nothing fetched.
//
// A frame is one complex as a deflated block: four bytes of length, a JSON header, then the arrays that the header lists
// in order (see payload.py, which writes it). Regions are convex, so a fan from the first corner fills each of them.
(() => {
  "use strict";

  const LAYERS = ["#1b4965", "#ca6702", "#2a9d8f", "#a43fd0", "#cdb800", "#522914", "#5fd3d8", "#9d7cde"];
  const LAYERS_DARK = ["#8ecae6", "#ffb703", "#64dfc8", "#f28bb3", "#b5d99c", "#d6a4e0", "#a9c1e8", "#ff9a8b"];
  const FUNCTION = ["#22577a", "#38a3a5", "#c7e9b0", "#f6f1d1", "#f4a261", "#d1495b", "#7a1f3d"].map(rgb);
  const MOSAIC = ["#22577a", "#2f8f9d", "#57cc99", "#c7e9b0", "#f6f1d1", "#f2cc8f", "#f4a261", "#e07a5f", "#d1495b",
    "#8f2d56"].map(rgb);
  const CLASSES = ["#4e79a7", "#f28e2b", "#76b7b2", "#e15759", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f",
    "#bab0ac"].map(rgb);
  const TYPES = { f4: Float32Array, u4: Uint32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };
  const SIGN = ["−", "0", "+"];

  function rgb(hex) {
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function ramp(stops, t) {
    const x = Math.min(Math.max(t, 0), 1) * (stops.length - 1), k = Math.min(Math.floor(x), stops.length - 2);
    return stops[k].map((c, i) => c + (x - k) * (stops[k + 1][i] - c));
  }

  // -- frames

  async function decode(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const size = new DataView(buffer).getUint32(0, true);
    const frame = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    let at = 4 + size;
    for (const [name, type, length] of frame.arrays) {
      const bytes = length * TYPES[type].BYTES_PER_ELEMENT;
      frame[name] = new TYPES[type](buffer.slice(at, at + bytes));
      at += bytes;
    }
    return prepare(frame);
  }

  function prepare(frame) {
    const { starts, corners, vertices } = frame, count = starts.length - 1;
    frame.middles = new Float32Array(2 * count);
    for (let r = 0; r < count; r++) {
      const n = starts[r + 1] - starts[r];
      for (let k = starts[r]; k < starts[r + 1]; k++) {
        frame.middles[2 * r] += vertices[2 * corners[k]] / n;
        frame.middles[2 * r + 1] += vertices[2 * corners[k] + 1] / n;
      }
    }
    frame.grid = grid(frame);
    return frame;
  }

  // Regions by square: those whose bounding box meets it.
  function grid(frame) {
    const { starts, corners, vertices, low, high } = frame, count = starts.length - 1;
    const side = Math.max(1, Math.min(256, Math.ceil(Math.sqrt(count / 2))));
    const scale = [0, 1].map((i) => side / (high[i] - low[i]));
    const cell = (v, i) => Math.min(side - 1, Math.max(0, Math.floor((v - low[i]) * scale[i])));
    const boxes = new Uint16Array(4 * count), sizes = new Uint32Array(side * side + 1);
    for (let r = 0; r < count; r++) {
      const box = [Infinity, Infinity, -Infinity, -Infinity];
      for (let k = starts[r]; k < starts[r + 1]; k++) {
        const x = vertices[2 * corners[k]], y = vertices[2 * corners[k] + 1];
        box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y);
        box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
      }
      box.forEach((v, i) => { boxes[4 * r + i] = cell(v, i % 2); });
      for (let j = boxes[4 * r + 1]; j <= boxes[4 * r + 3]; j++)
        for (let i = boxes[4 * r]; i <= boxes[4 * r + 2]; i++) sizes[j * side + i + 1]++;
    }
    for (let k = 1; k < sizes.length; k++) sizes[k] += sizes[k - 1];
    const members = new Uint32Array(sizes[sizes.length - 1]), next = sizes.slice();
    for (let r = 0; r < count; r++)
      for (let j = boxes[4 * r + 1]; j <= boxes[4 * r + 3]; j++)
        for (let i = boxes[4 * r]; i <= boxes[4 * r + 2]; i++) members[next[j * side + i]++] = r;
    return { side, cell, sizes, members };
  }

  function regionAt(frame, x, y) {
    const { side, cell, sizes, members } = frame.grid;
    if (!(x >= frame.low[0] && x <= frame.high[0] && y >= frame.low[1] && y <= frame.high[1])) return -1;
    const square = cell(y, 1) * side + cell(x, 0);
    for (let k = sizes[square]; k < sizes[square + 1]; k++) if (inside(frame, members[k], x, y)) return members[k];
    return -1;
  }

  function inside(frame, region, x, y) {
    const { starts, corners, vertices } = frame;
    let side = 0;
    for (let k = starts[region], last = starts[region + 1] - 1; k <= last; k++) {
      const a = corners[k], b = corners[k === last ? starts[region] : k + 1];
      const ax = vertices[2 * a], ay = vertices[2 * a + 1];
      const cross = (vertices[2 * b] - ax) * (y - ay) - (vertices[2 * b + 1] - ay) * (x - ax);
      if (cross !== 0) {
        if (side * cross < 0) return false;
        side = Math.sign(cross);
      }
    }
    return true;
  }

  function edgeNear(frame, region, x, y, reach) {
    let best = -1, least = reach * reach;
    for (let k = frame.edge_starts[region]; k < frame.edge_starts[region + 1]; k++) {
      const e = frame.edge_list[k], a = frame.edges[2 * e], b = frame.edges[2 * e + 1];
      const ax = frame.vertices[2 * a], ay = frame.vertices[2 * a + 1];
      const dx = frame.vertices[2 * b] - ax, dy = frame.vertices[2 * b + 1] - ay, long = dx * dx + dy * dy;
      const t = long > 0 ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / long)) : 0;
      const d = (ax + t * dx - x) ** 2 + (ay + t * dy - y) ** 2;
      if (d <= least) { least = d; best = e; }
    }
    return best;
  }

  function signsOf(frame, region) {
    const signs = Int8Array.from(frame.constant_signs, (s) => s - 1), width = Math.ceil(frame.varying.length / 4);
    for (let k = 0; k < frame.varying.length; k++) {  // every row but the first is stored as its difference to the first
      const byte = frame.signs[region * width + (k >> 2)] ^ (region ? frame.signs[k >> 2] : 0);
      signs[frame.varying[k]] = ((byte >> (2 * (k & 3))) & 3) - 1;
    }
    return signs;
  }

  // -- colours

  function values(frame, output, slope) {
    const count = frame.starts.length - 1, K = frame.outputs, out = new Float64Array(count);
    for (let r = 0; r < count; r++) {
      const k = 3 * (r * K + output), a = frame.maps[k], b = frame.maps[k + 1];
      out[r] = slope ? Math.hypot(a, b) : a * frame.middles[2 * r] + b * frame.middles[2 * r + 1] + frame.maps[k + 2];
    }
    return out;
  }

  function colours(frame, how, output) {
    const count = frame.starts.length - 1, rgba = new Uint8Array(4 * count).fill(255);
    const put = (r, c) => { for (let i = 0; i < 3; i++) rgba[4 * r + i] = c[i]; };
    let legend = "";
    if (how === "value" || how === "slope") {
      const v = values(frame, output, how === "slope");
      const finite = Array.from(v).filter(Number.isFinite).map(how === "value" ? Math.abs : Number).sort((a, b) => a - b);
      const reach = finite.length ? finite[Math.floor(0.98 * (finite.length - 1))] || 1 : 1;
      for (let r = 0; r < count; r++) put(r, ramp(FUNCTION, how === "value" ? 0.5 + v[r] / (2 * reach) : v[r] / reach));
      legend = how === "value" ? [-reach, reach] : [0, reach];
    } else if (how === "class") {
      for (let r = 0; r < count; r++) put(r, CLASSES[frame.classes[r] % CLASSES.length]);
    } else if (how === "active") {
      const on = frame.active, most = Math.max(...frame.span);
      const least = Math.min(...frame.span);
      for (let r = 0; r < count; r++) put(r, ramp(FUNCTION, most > least ? (on[r] - least) / (most - least) : 0.5));
      legend = [least, most];
    } else {
      for (let r = 0; r < count; r++) {
        let h = Math.imul(r + 1, 2654435761) >>> 0;
        h = Math.imul(h ^ (h >>> 15), 2246822519) >>> 0;
        const shade = ((h >>> 8) & 255) / 255 * 0.24 - 0.12, c = MOSAIC[(h >>> 16) % MOSAIC.length];
        put(r, c.map((v) => (shade > 0 ? v + shade * (255 - v) : v * (1 + shade))));
      }
    }
    return { rgba, legend };
  }

  // -- painting

  const VERTEX = `attribute vec2 position; attribute vec4 colour; uniform vec4 window; varying vec4 shade;
    void main() { gl_Position = vec4((position - window.xy) * window.zw, 0.0, 1.0); shade = colour; }`;
  const FRAGMENT = "precision mediump float; varying vec4 shade; void main() { gl_FragColor = shade; }";

  function glPainter(canvas) {
    const gl = canvas.getContext("webgl", { antialias: true, alpha: false, preserveDrawingBuffer: true });
    if (!gl) return null;
    const program = gl.createProgram();
    for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    const place = gl.getAttribLocation(program, "position"), tint = gl.getAttribLocation(program, "colour");
    const window_ = gl.getUniformLocation(program, "window");
    const buffers = Object.fromEntries(["fans", "fills", "ends", "inks"].map((name) => [name, gl.createBuffer()]));
    gl.enableVertexAttribArray(place);
    gl.enableVertexAttribArray(tint);
    const fill = (buffer, data) => { gl.bindBuffer(gl.ARRAY_BUFFER, buffer); gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW); };
    const use = (points, tints) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, points); gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 0, 0);
      gl.bindBuffer(gl.ARRAY_BUFFER, tints); gl.vertexAttribPointer(tint, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    };
    let owner = new Uint32Array(0), ranges = [];
    return {
      kind: "WebGL",
      shape(frame) {
        const { starts, corners, vertices } = frame, count = starts.length - 1, total = 3 * (corners.length - 2 * count);
        const fans = new Float32Array(2 * total);
        owner = new Uint32Array(total);
        let at = 0;
        for (let r = 0; r < count; r++)
          for (let k = starts[r] + 1; k + 1 < starts[r + 1]; k++)
            for (const c of [starts[r], k, k + 1]) {
              fans[2 * at] = vertices[2 * corners[c]]; fans[2 * at + 1] = vertices[2 * corners[c] + 1];
              owner[at++] = r;
            }
        fill(buffers.fans, fans);
      },
      paint(rgba) {
        const fills = new Uint8Array(4 * owner.length), from = new Uint32Array(rgba.buffer), to = new Uint32Array(fills.buffer);
        for (let k = 0; k < owner.length; k++) to[k] = from[owner[k]];
        fill(buffers.fills, fills);
      },
      lines(frame, inks) {
        const ends = new Float32Array(4 * frame.edge_order.length), tints = new Uint8Array(8 * frame.edge_order.length);
        frame.edge_order.forEach((e, k) => {
          const c = inks[frame.edge_layer[e] % inks.length];
          for (let i = 0; i < 2; i++) {
            ends[4 * k + 2 * i] = frame.vertices[2 * frame.edges[2 * e + i]];
            ends[4 * k + 2 * i + 1] = frame.vertices[2 * frame.edges[2 * e + i] + 1];
            tints.set([...c, 210], 8 * k + 4 * i);
          }
        });
        fill(buffers.ends, ends);
        fill(buffers.inks, tints);
        ranges = frame.layer_ranges;
      },
      draw(view, paper, shown) {
        gl.viewport(0, 0, canvas.width, canvas.height);
        gl.clearColor(paper[0] / 255, paper[1] / 255, paper[2] / 255, 1);
        gl.clear(gl.COLOR_BUFFER_BIT);
        gl.uniform4f(window_, view.x, view.y, 2 * view.scale / view.width, 2 * view.scale / view.height);
        use(buffers.fans, buffers.fills);
        gl.drawArrays(gl.TRIANGLES, 0, owner.length);
        use(buffers.ends, buffers.inks);
        ranges.forEach(([from, to], k) => { if (shown[k]) gl.drawArrays(gl.LINES, 2 * from, 2 * (to - from)); });
      },
    };
  }

  // Where there is no WebGL: the same picture on a plain canvas, slower.
  function flatPainter(canvas) {
    const pen = canvas.getContext("2d");
    let frame = null, rgba = null, inks = [];
    return {
      kind: "canvas",
      shape(found) { frame = found; },
      paint(found) { rgba = found; },
      lines(_, found) { inks = found; },
      draw(view, paper, shown) {
        const { starts, corners, vertices, edges } = frame, ratio = canvas.width / view.width;
        const at = (v) => [ratio * (view.width / 2 + (vertices[2 * v] - view.x) * view.scale),
          ratio * (view.height / 2 - (vertices[2 * v + 1] - view.y) * view.scale)];
        pen.fillStyle = `rgb(${paper})`;
        pen.fillRect(0, 0, canvas.width, canvas.height);
        for (let r = 0; r + 1 < starts.length; r++) {
          pen.beginPath();
          for (let k = starts[r]; k < starts[r + 1]; k++) pen.lineTo(...at(corners[k]));
          pen.fillStyle = pen.strokeStyle = `rgb(${rgba[4 * r]},${rgba[4 * r + 1]},${rgba[4 * r + 2]})`;
          pen.fill();
        }
        frame.layer_ranges.forEach(([from, to], layer) => {
          if (!shown[layer]) return;
          pen.strokeStyle = `rgba(${inks[layer % inks.length]},0.82)`;
          pen.lineWidth = ratio;
          pen.beginPath();
          for (let k = from; k < to; k++) {
            const e = frame.edge_order[k];
            pen.moveTo(...at(edges[2 * e]));
            pen.lineTo(...at(edges[2 * e + 1]));
          }
          pen.stroke();
        });
      },
    };
  }

  // -- the widget

  const number = (v) => (Number.isFinite(v) ? Number(v.toPrecision(5)).toString() : String(v)).replace("-", "−");

  function make(tag, settings = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(settings))
      if (key in node && key !== "list") node[key] = value; else node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  async function start(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    if (typeof DecompressionStream === "undefined") {
      root.append(make("p", {}, "This browser cannot unpack the picture (DecompressionStream is missing)."));
      return;
    }
    const frames = [await decode(data.frames[0])];
    new Widget(root, data, frames);
  }

  class Widget {
    constructor(root, data, frames) {
      Object.assign(this, { root, data, frames, at: 0, hover: -1, edge: -1, neuron: -1, how: "mosaic", output: 0 });
      this.frame = frames[0];
      this.shown = this.frame.layers.map(() => true);
      this.build();
      this.painter = (data.plain ? null : glPainter(this.canvas)) || flatPainter(this.canvas);
      root.dataset.painter = this.painter.kind;
      this.listen();
      this.show();
      this.home();
      root.dataset.ready = "yes";
      root.explorer = this;
    }

    build() {
      const id = `fx${Math.random().toString(36).slice(2, 8)}`;
      this.canvas = make("canvas", { className: "fx-base" });
      this.top = make("canvas", { className: "fx-top", tabIndex: 0, role: "img",
        "aria-label": `${this.frame.title}. Drag or use the arrow keys to move, the wheel or plus and minus to zoom, ` +
          "zero for the whole picture; the panel describes the region under the pointer." });
      this.stage = make("div", { className: "fx-stage" }, this.canvas, this.top);
      this.panel = make("div", { className: "fx-panel", "aria-live": "polite" });
      const option = (value, text) => make("option", { value }, text);
      this.colour = make("select", { id: `${id}c` }, option("mosaic", "region (no meaning)"), option("value", "output"),
        option("slope", "slope"), option("class", "largest output"), option("active", "neurons that are on"));
      if (this.frame.out_size < 2) this.colour.querySelector("[value=class]").remove();
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
      this.root.append(this.bar, make("div", { className: "fx-row" }, this.stage, make("div", { className: "fx-side" }, this.legend, this.panel)));
      if (this.data.frames.length > 1) this.slider(this.data.slider || "frame", this.data.frames.length, (k) => this.go(k), (k) => this.data.labels[k]);
      if (this.data.walk) this.fiberWalk(this.data.walk);
    }

    slider(name, count, change, label) {
      const input = make("input", { type: "range", min: 0, max: count - 1, value: 0, "aria-label": name });
      const output = make("output", {}, label(0));
      input.addEventListener("input", () => { output.textContent = label(+input.value); change(+input.value); });
      const row = make("div", { className: "fx-slider" }, make("label", {}, `${name} `, input), output);
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
          const tall = (v / reach) * (bars.height / 2 - 2);
          pen.fillRect(i * wide, bars.height / 2 - Math.max(tall, 0), Math.max(1, wide - 1), Math.max(1, Math.abs(tall)));
        });
      };
      this.slider("along the fiber", walk.values.length, paint, (k) => walk.labels[k]).after(bars);
      this.root.append(make("p", { className: "fx-note" }, walk.caption));
      paint(0);
    }

    async go(k) {
      if (this.frames[k] === undefined) this.frames[k] = await decode(this.data.frames[k]);
      this.frame = this.frames[k];
      this.hover = this.edge = -1;
      this.show();
      this.draw();
    }

    dark() { return matchMedia("(prefers-color-scheme: dark)").matches; }

    show() {
      const frame = this.frame;
      this.pick.replaceChildren(make("option", { value: -1 }, "none"), ...frame.layers.flatMap((layer) =>
        layer.visible.map((n) => make("option", { value: n }, `${layer.name}, ${n - layer.first}`))));
      if (![...this.pick.options].some((o) => +o.value === this.neuron)) this.neuron = -1;
      this.pick.value = this.neuron;
      this.painter.shape(frame);
      this.recolour();
      this.relines();
      this.tell();
    }

    recolour() {
      const { rgba, legend } = colours(this.frame, this.how, this.output);
      this.painter.paint(rgba);
      this.whichLabel.hidden = !(this.how === "value" || this.how === "slope") || this.frame.outputs < 2;
      this.legend.replaceChildren();
      if (legend) this.legend.append(make("span", {}, number(legend[0])), make("span", { className: "fx-ramp" }), make("span", {}, number(legend[1])));
      if (this.how === "mosaic") this.legend.append("Every region has a colour of its own; the colours mean nothing else.");
      if (this.how === "class") for (const k of new Set(this.frame.classes))
        this.legend.append(make("span", { className: "fx-class", style: `--k:rgb(${CLASSES[k % 10]})` }, String(k)), " ");
      if (this.how === "class") this.legend.append("at the middle of each region");
    }

    relines() { this.painter.lines(this.frame, (this.dark() && this.how !== "mosaic" ? LAYERS : this.how === "mosaic" ? LAYERS.map(() => "#fbfaf7") : LAYERS).map(rgb)); }

    home() {
      this.size();
      const { low, high } = this.frame;
      this.view.x = (low[0] + high[0]) / 2; this.view.y = (low[1] + high[1]) / 2;
      this.view.scale = 0.97 * Math.min(this.view.width / (high[0] - low[0]), this.view.height / (high[1] - low[1]));
      this.draw();
    }

    size() {
      const box = this.stage.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
      this.view = { ...(this.view || { x: 0, y: 0, scale: 1 }), width: box.width || 600, height: box.height || 600 };
      for (const canvas of [this.canvas, this.top]) {
        canvas.width = Math.round(this.view.width * ratio); canvas.height = Math.round(this.view.height * ratio);
      }
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
      let moved = 0;
      this.top.addEventListener("pointerdown", (e) => { this.top.setPointerCapture(e.pointerId); pointers.set(e.pointerId, place(e)); moved = 0; });
      this.top.addEventListener("pointermove", (e) => {
        const here = place(e), before = pointers.get(e.pointerId);
        if (!before) { this.look(...here); return; }
        const others = [...pointers].filter(([id]) => id !== e.pointerId).map(([, p]) => p);
        moved += Math.hypot(here[0] - before[0], here[1] - before[1]);
        if (others.length) {
          const far = (p) => Math.hypot(p[0] - others[0][0], p[1] - others[0][1]) || 1;
          this.zoom(far(here) / far(before), ...others[0]);
        } else { this.view.x -= (here[0] - before[0]) / this.view.scale; this.view.y += (here[1] - before[1]) / this.view.scale; this.draw(); }
        pointers.set(e.pointerId, here);
      });
      const up = (e) => { pointers.delete(e.pointerId); };
      this.top.addEventListener("pointerup", (e) => { up(e); if (moved < 4) { this.look(...place(e)); this.choose(this.edge >= 0 ? this.frame.edge_neuron[this.edge] : -1); } });
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
        this.draw();
        this.look(...centre);
      });
      this.colour.addEventListener("change", () => { this.how = this.colour.value; this.recolour(); this.relines(); this.draw(); });
      this.which.addEventListener("change", () => { this.output = +this.which.value; this.recolour(); this.draw(); this.tell(); });
      this.pick.addEventListener("change", () => this.choose(+this.pick.value));
      this.reset.addEventListener("click", () => this.home());
      new ResizeObserver(() => { this.size(); this.draw(); }).observe(this.stage);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.relines(); this.draw(); });
    }

    zoom(factor, px, py) {
      const [x, y] = this.world(px, py);
      this.view.scale = Math.min(Math.max(this.view.scale * factor, 1e-6), 1e9);
      const [nx, ny] = this.world(px, py);
      this.view.x += x - nx; this.view.y += y - ny;
      this.draw();
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
      const paper = this.dark() ? [23, 26, 33] : [251, 250, 247];
      this.painter.draw(this.view, paper, this.shown);
      this.overlay();
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
        pen.arc(px, py, 2.6, 0, 7);
        pen.fillStyle = labels_of_points && labels_of_points.length ? `rgb(${CLASSES[labels_of_points[k] % 10]})` : "#111318";
        pen.strokeStyle = "#ffffff";
        pen.lineWidth = 1;
        pen.fill();
        pen.stroke();
      }
      for (const picture of this.frame.pictures || []) {
        const image = (this.images ||= {})[picture.png] ||= Object.assign(new Image(), { src: `data:image/png;base64,${picture.png}`, onload: () => this.overlay() });
        const [px, py] = this.screen(...picture.at), side = 52;
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
      if (!lines.length) row(`${frame.regions.toLocaleString("en")} regions`, frame.note || "", make("p", { className: "fx-note" }, "Point at a region; click a line to mark its neuron through all layers."));
      this.panel.replaceChildren(...lines);
    }
  }

  for (const root of document.querySelectorAll(".fx:not([data-ready])")) {
    root.dataset.ready = "starting";
    start(root).catch((error) => { root.dataset.ready = "failed"; root.append(make("p", {}, `The picture could not be shown: ${error.message}`)); });
  }
})();

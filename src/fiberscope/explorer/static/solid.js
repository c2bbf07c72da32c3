// The picture of a complex in space: turn, zoom, pull the regions apart, cut, ask. WebGL, or a plain canvas without it.

const SOLID_VERTEX = `attribute vec3 position; attribute vec3 middle; attribute vec3 normal; attribute vec4 colour;
  uniform mat3 turn; uniform vec4 window; uniform vec3 centre; uniform float apart; uniform float ink; varying vec4 shade;
  void main() {
    vec3 p = turn * (position - centre + apart * (middle - centre)), n = turn * normal;
    gl_Position = vec4(p.xy * window.xy, -p.z * window.z + ink * 0.0008 * -1.0, 1.0);
    float light = 0.62 + 0.38 * abs(dot(n, vec3(0.35, 0.5, 0.79)));
    shade = vec4(colour.rgb * (ink > 0.0 ? 1.0 : light), ink > 0.0 ? ink : 1.0);
  }`;

class Solid {
  constructor(root, data, frame) {
    Object.assign(this, { root, data, frame, how: "mosaic", output: 0, neuron: -1, face: -1, apart: 0.25, cut: 1, pointer: null });
    this.turn = product(turning(0, -1.15), turning(2, 0.6));
    this.shown = frame.layers.map(() => true);
    this.reach = Math.hypot(...[0, 1, 2].map((i) => frame.high[i] - frame.low[i])) / 2;
    this.zoomed = 1;
    this.build();
    this.gl = data.plain ? null : this.startGl();
    if (!this.gl) this.pen = this.canvas.getContext("2d");
    root.dataset.painter = this.gl ? "WebGL" : "canvas";
    if (!this.gl) this.bar.after(make("p", { className: "fx-note" }, "Drawn without WebGL, which this browser does not offer: large pictures are slower."));
    this.listen();
    this.recolour();
    this.tell();
    this.draw();
    root.dataset.ready = "yes";
    root.explorer = this;
  }

  build() {
    const option = (value, text) => make("option", { value }, text), { frame } = this;
    this.canvas = make("canvas", { className: "fx-base", "aria-hidden": "true" });
    this.top = make("canvas", { className: "fx-top", tabIndex: 0, role: "img", "aria-label": `${frame.title}. Drag or use ` +
      "the arrow keys to turn, the wheel or plus and minus to zoom, zero to begin again; the panel describes the face under the pointer." });
    this.stage = make("div", { className: "fx-stage" }, this.canvas, this.top);
    this.panel = make("div", { className: "fx-panel", "aria-live": "polite" });
    this.legend = make("div", { className: "fx-legend" });
    this.colour = make("select", {}, option("mosaic", "activation pattern"), option("value", "output"), option("slope", "slope"),
      ...(frame.out_size > 1 ? [option("class", "largest output")] : []), option("active", "neurons that are on"), option("layer", "layer of the face"));
    this.which = make("select", {}, ...Array.from({ length: frame.outputs }, (_, k) => option(k, `${k}`)));
    this.pick = make("select", {}, option(-1, "all faces"), ...frame.layers.flatMap((layer) => layer.visible.map((n) => option(n, `${layer.name}, ${n - layer.first}`))));
    const range = (name, value, change) => {
      const input = make("input", { type: "range", min: 0, max: 100, value: 100 * value, "aria-label": name });
      input.addEventListener("input", () => { change(input.value / 100); this.draw(); });
      return make("label", { className: "fx-range" }, name, input);
    };
    const bars = frame.layers.map((layer, k) => {
      const box = make("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => { this.shown[k] = box.checked; this.reshape(); this.draw(); });
      return make("label", { className: "fx-layer" }, box, make("span", { className: "fx-key", style: `--k:${LAYERS[k % 8]}` }), layer.name);
    });
    this.reset = make("button", { type: "button" }, "Begin again");
    this.bar = make("div", { className: "fx-bar" }, make("label", {}, "Colour ", this.colour),
      this.whichLabel = make("label", {}, "of output ", this.which), make("label", {}, "Neuron ", this.pick), ...bars,
      range("Apart", this.apart, (v) => { this.apart = v; }), range("Cut", 1, (v) => { this.cut = v; this.reshape(); }), this.reset);
    this.root.classList.add("fx-solid");
    this.root.append(this.bar, make("div", { className: "fx-row" }, this.stage, make("div", { className: "fx-side" }, this.legend, this.panel)));
  }

  // Which faces are drawn, once for every region they bound: [face, region].
  faces() {
    const { frame } = this, found = [], most = frame.low[0] + this.cut * (frame.high[0] - frame.low[0]) * 1.0001;
    const regionShown = (r) => r >= 0 && frame.middles[3 * r] <= most;
    for (let f = 0; f + 1 < frame.starts.length; f++) {
      const neuron = frame.face_neuron[f];
      if (this.neuron >= 0 && neuron !== this.neuron) continue;
      if (neuron >= 0 && !this.shown[frame.face_layer[f]]) continue;
      for (const r of [frame.face_regions[2 * f], frame.face_regions[2 * f + 1]]) if (regionShown(r)) found.push([f, r]);
    }
    return found;
  }

  recolour() {
    const { frame } = this, count = frame.areas.length, K = frame.outputs, rgba = new Uint8Array(3 * count);
    this.legend.replaceChildren();
    this.whichLabel.hidden = !(this.how === "value" || this.how === "slope") || K < 2;
    const scaled = (v, low, high) => {
      v.forEach((x, r) => rgba.set(ramp(FUNCTION, high > low ? (x - low) / (high - low) : 0.5), 3 * r));
      this.legend.append(make("span", {}, number(low)), make("span", { className: "fx-ramp" }), make("span", {}, number(high)));
    };
    const map = (r, i) => frame.maps[4 * (r * K + this.output) + i], middle = (r, i) => frame.middles[3 * r + i];
    const each = (f) => Array.from({ length: count }, (_, r) => f(r));
    if (this.how === "value") {
      const v = each((r) => map(r, 0) * middle(r, 0) + map(r, 1) * middle(r, 1) + map(r, 2) * middle(r, 2) + map(r, 3));
      const most = Math.max(...v.map(Math.abs)) || 1;
      scaled(v, -most, most);
    } else if (this.how === "slope") {
      const v = each((r) => Math.hypot(map(r, 0), map(r, 1), map(r, 2)));
      scaled(v, 0, Math.max(...v) || 1);
    } else if (this.how === "active") scaled(Array.from(frame.active), ...frame.span);
    else if (this.how === "class") {
      frame.classes.forEach((c, r) => rgba.set(pale(c), 3 * r));
      for (const k of new Set(frame.classes)) this.legend.append(make("span", { className: "fx-class", style: `--k:rgb(${pale(k)})` }, String(k)), " ");
      this.legend.append("at the middle of each region");
    } else {
      patterns({ ...frame, starts: { length: count + 1 } }).forEach((h, r) => rgba.set(tint(h), 3 * r));
      this.legend.append(this.how === "layer" ? "A face has the colour of the layer whose neuron makes it; the border of the domain is grey."
        : "One colour for every activation pattern; which colour has no meaning.");
    }
    this.rgba = rgba;
    this.reshape();
  }

  tintOf(face, region) {
    if (this.how !== "layer") return this.rgba.subarray(3 * region, 3 * region + 3);
    return this.frame.face_neuron[face] < 0 ? [200, 196, 188] : rgb(LAYERS[this.frame.face_layer[face] % 8]);
  }

  startGl() {
    const gl = this.canvas.getContext("webgl", { antialias: true, alpha: false, preserveDrawingBuffer: true });
    const program = gl && glProgram(gl, SOLID_VERTEX, FRAGMENT);
    if (!program) return null;
    this.places = Object.fromEntries(["position", "middle", "normal", "colour"].map((n) => [n, gl.getAttribLocation(program, n)]));
    this.uniforms = Object.fromEntries(["turn", "window", "centre", "apart", "ink"].map((n) => [n, gl.getUniformLocation(program, n)]));
    this.buffers = { fans: gl.createBuffer(), lines: gl.createBuffer() };
    Object.values(this.places).forEach((p) => gl.enableVertexAttribArray(p));
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    return gl;
  }

  reshape() {
    this.drawnFaces = this.faces();
    if (!this.gl) return;
    const { frame, gl } = this, STEP = 40, sizes = { fans: 0, lines: 0 };
    for (const [f] of this.drawnFaces) { const n = frame.starts[f + 1] - frame.starts[f]; sizes.fans += 3 * (n - 2); sizes.lines += 2 * n; }
    for (const kind of ["fans", "lines"]) {
      const block = new ArrayBuffer(STEP * sizes[kind]), floats = new Float32Array(block), bytes = new Uint8Array(block);
      let at = 0;
      const put = (vertex, region, normal, colour) => {
        for (let i = 0; i < 3; i++) {
          floats[10 * at + i] = frame.vertices[3 * vertex + i]; floats[10 * at + 3 + i] = frame.middles[3 * region + i];
          floats[10 * at + 6 + i] = normal[i]; bytes[40 * at + 36 + i] = colour[i];
        }
        bytes[40 * at + 39] = 255;
        at++;
      };
      for (const [f, r] of this.drawnFaces) {
        const from = frame.starts[f], n = frame.starts[f + 1] - from, normal = frame.normals.subarray(3 * f, 3 * f + 3), c = (k) => frame.corners[from + k % n];
        if (kind === "fans") { const colour = this.tintOf(f, r); for (let k = 1; k + 1 < n; k++) for (const j of [0, k, k + 1]) put(c(j), r, normal, colour); }
        else for (let k = 0; k < n; k++) { put(c(k), r, normal, [24, 27, 34]); put(c(k + 1), r, normal, [24, 27, 34]); }
      }
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[kind]);
      gl.bufferData(gl.ARRAY_BUFFER, block, gl.STATIC_DRAW);
    }
    this.sizes = sizes;
  }

  scale() { return 0.46 * this.zoomed * Math.min(this.width, this.height) / (this.reach * (1 + this.apart)); }

  centre() { return [0, 1, 2].map((i) => (this.frame.low[i] + this.frame.high[i]) / 2); }

  // A vertex of a region on the screen: x, y and nearness.
  project(vertex, region) {
    const { frame, turn: m } = this, mid = this.mid, s = this.scale();
    const p = [0, 1, 2].map((i) => frame.vertices[3 * vertex + i] - mid[i] + this.apart * (frame.middles[3 * region + i] - mid[i]));
    const q = [0, 1, 2].map((i) => m[3 * i] * p[0] + m[3 * i + 1] * p[1] + m[3 * i + 2] * p[2]);
    return [this.width / 2 + s * q[0], this.height / 2 - s * q[1], q[2]];
  }

  polygon(f, r) {
    return Array.from(this.frame.corners.subarray(this.frame.starts[f], this.frame.starts[f + 1]), (v) => this.project(v, r));
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const box = this.stage.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    this.width = box.width || 600; this.height = box.height || 600; this.mid = this.centre();
    for (const canvas of [this.canvas, this.top]) {
      const [w, h] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
      if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    }
    const paper = matchMedia("screen and (prefers-color-scheme: dark)").matches ? [23, 26, 33] : [251, 250, 247];
    if (this.gl) this.paintGl(paper); else this.paintFlat(paper, ratio);
    this.overlay(ratio);
  }

  paintGl(paper) {
    const { gl, uniforms: u, places } = this, s = this.scale();
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...paper.map((c) => c / 255), 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const m = this.turn;
    gl.uniformMatrix3fv(u.turn, false, new Float32Array([0, 3, 6, 1, 4, 7, 2, 5, 8].map((k) => m[k])));
    gl.uniform4f(u.window, 2 * s / this.width, 2 * s / this.height, 0.5 / (this.reach * (1 + this.apart)), 0);
    gl.uniform3f(u.centre, ...this.mid);
    gl.uniform1f(u.apart, this.apart);
    for (const [kind, mode, ink] of [["fans", gl.TRIANGLES, 0], ["lines", gl.LINES, 0.5]]) {
      gl.uniform1f(u.ink, ink);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[kind]);
      ["position", "middle", "normal"].forEach((name, i) => gl.vertexAttribPointer(places[name], 3, gl.FLOAT, false, 40, 12 * i));
      gl.vertexAttribPointer(places.colour, 4, gl.UNSIGNED_BYTE, true, 40, 36);
      gl.drawArrays(mode, 0, this.sizes[kind]);
    }
  }

  paintFlat(paper, ratio) {
    const pen = this.pen, m = this.turn;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = `rgb(${paper})`;
    pen.fillRect(0, 0, this.width, this.height);
    const faces = this.drawnFaces.map(([f, r]) => { const points = this.polygon(f, r); return { f, r, points, z: points.reduce((a, p) => a + p[2], 0) / points.length }; });
    for (const { f, r, points } of faces.sort((a, b) => a.z - b.z)) {
      const n = this.frame.normals.subarray(3 * f, 3 * f + 3), t = [0, 1, 2].map((i) => m[3 * i] * n[0] + m[3 * i + 1] * n[1] + m[3 * i + 2] * n[2]);
      const light = 0.62 + 0.38 * Math.abs(0.35 * t[0] + 0.5 * t[1] + 0.79 * t[2]);
      pen.beginPath();
      points.forEach(([x, y]) => pen.lineTo(x, y));
      pen.closePath();
      pen.fillStyle = `rgb(${Array.from(this.tintOf(f, r), (c) => Math.round(c * light))})`;
      pen.strokeStyle = "rgba(24,27,34,.5)";
      pen.lineWidth = 0.7;
      pen.fill();
      pen.stroke();
    }
  }

  overlay(ratio) {
    const pen = this.top.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    const m = this.turn, from = [46, this.height - 46];  // the axes in a corner
    pen.font = "600 13px ui-sans-serif, system-ui, sans-serif";
    pen.textAlign = "center"; pen.textBaseline = "middle";
    this.frame.axes.forEach((name, i) => {
      const to = [from[0] + 28 * m[i], from[1] - 28 * m[3 + i]];
      pen.strokeStyle = pen.fillStyle = getComputedStyle(this.root).color;
      pen.lineWidth = 1.6;
      pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke();
      pen.fillText(name, from[0] + 40 * m[i], from[1] - 40 * m[3 + i]);
    });
    if (this.face < 0) return;
    pen.beginPath();
    this.polygon(...this.drawnFaces[this.face]).forEach(([x, y]) => pen.lineTo(x, y));
    pen.closePath();
    for (const [style, width] of [["#ffffff", 5], ["#d1495b", 2.5]]) { pen.strokeStyle = style; pen.lineWidth = width; pen.stroke(); }
  }

  look(px, py) {
    let best = -1, nearest = -Infinity;
    this.drawnFaces.forEach(([f, r], k) => {
      const points = this.polygon(f, r);
      let inside = false;
      for (let i = 0, j = points.length - 1; i < points.length; j = i++) {
        const [a, b] = [points[i], points[j]];
        if ((a[1] > py) !== (b[1] > py) && px < (b[0] - a[0]) * (py - a[1]) / (b[1] - a[1]) + a[0]) inside = !inside;
      }
      const z = points.reduce((sum, p) => sum + p[2], 0) / points.length;
      if (inside && z > nearest) { best = k; nearest = z; }
    });
    if (best === this.face) return;
    this.face = best;
    this.overlay(this.top.width / this.width);
    this.tell();
  }

  spin(dx, dy) { this.turn = product(product(turning(1, dx), turning(0, dy)), this.turn); this.face = -1; this.draw(); }

  listen() {
    const pointers = new Map(), place = (e) => { const box = this.top.getBoundingClientRect(); return [e.clientX - box.left, e.clientY - box.top]; };
    const zoom = (factor) => { this.zoomed = Math.min(40, Math.max(0.2, this.zoomed * factor)); this.face = -1; this.draw(); };
    const begin = () => { this.turn = product(turning(0, -1.15), turning(2, 0.6)); this.zoomed = 1; this.face = -1; this.draw(); };
    this.top.addEventListener("pointerdown", (e) => { this.top.setPointerCapture(e.pointerId); pointers.set(e.pointerId, place(e)); });
    this.top.addEventListener("pointermove", (e) => {
      const here = place(e), before = pointers.get(e.pointerId);
      if (!before) { this.look(...here); return; }
      const other = [...pointers].find(([id]) => id !== e.pointerId);
      if (other) { const far = (p) => Math.hypot(p[0] - other[1][0], p[1] - other[1][1]) || 1; zoom(far(here) / far(before)); }
      else this.spin((here[0] - before[0]) / 140, (here[1] - before[1]) / 140);
      pointers.set(e.pointerId, here);
    });
    for (const kind of ["pointerup", "pointercancel"]) this.top.addEventListener(kind, (e) => pointers.delete(e.pointerId));
    this.top.addEventListener("pointerleave", () => { this.face = -1; this.draw(); this.tell(); });
    this.top.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(-e.deltaY / 400)); }, { passive: false });
    this.top.addEventListener("keydown", (e) => {
      const keys = { ArrowLeft: () => this.spin(-0.15, 0), ArrowRight: () => this.spin(0.15, 0), ArrowUp: () => this.spin(0, -0.15), ArrowDown: () => this.spin(0, 0.15),
        "+": () => zoom(1.2), "=": () => zoom(1.2), "-": () => zoom(1 / 1.2), 0: begin };
      if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
    });
    this.colour.addEventListener("change", () => { this.how = this.colour.value; this.recolour(); this.draw(); });
    this.which.addEventListener("change", () => { this.output = +this.which.value; this.recolour(); this.draw(); this.tell(); });
    this.pick.addEventListener("change", () => { this.neuron = +this.pick.value; this.face = -1; this.reshape(); this.draw(); this.tell(); });
    this.reset.addEventListener("click", begin);
    new ResizeObserver(() => this.draw()).observe(this.stage);
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  tell() {
    const { frame } = this, lines = [], row = (name, ...what) => lines.push(make("div", { className: "fx-line" }, make("b", {}, name), " ", ...what));
    if (this.face >= 0) {
      const [f, r] = this.drawnFaces[this.face], K = frame.outputs, n = frame.face_neuron[f];
      row("Region", `${r}, volume ${number(frame.areas[r])}`);
      for (let k = 0; k < Math.min(K, 10); k++)
        row(`f${frame.out_size > 1 ? k : ""}`, `= ${frame.axes.map((x, i) => `${number(frame.maps[4 * (r * K + k) + i])} ${x}`).join(" + ")} + ${number(frame.maps[4 * (r * K + k) + 3])}`.replaceAll("+ −", "− "));
      if (n < 0) row("Face", "the border of the domain");
      else {
        const layer = frame.layers[frame.face_layer[f]];
        row("Face", `neuron ${n - layer.first} of ${layer.name}, ` + (frame.face_visible[f] ? `the gradient jumps by ${number(frame.face_weight[f])}` : "no bend of the function here"));
      }
      const signs = signsOf(frame, r);
      for (const layer of frame.layers) {
        const own = signs.subarray(layer.first, layer.first + layer.size);
        row(layer.name, `${own.filter((s) => s > 0).length} of ${own.length} on`, make("span", { className: "fx-signs" }, own.length <= 96 ? Array.from(own, (s) => SIGN[s + 1]).join("") : ""));
      }
    } else row(`${frame.regions.toLocaleString("en")} regions`, frame.note || "", make("p", { className: "fx-note" }, "Drag to turn, pull the regions apart, cut along the first axis; choose a neuron to see its bent plane alone."));
    this.panel.replaceChildren(...lines);
  }
}

function turning(axis, angle) {  // rows of a rotation
  const [c, s] = [Math.cos(angle), Math.sin(angle)], [a, b] = [[1, 2], [2, 0], [0, 1]][axis], m = [1, 0, 0, 0, 1, 0, 0, 0, 1];
  m[3 * a + a] = c; m[3 * b + b] = c; m[3 * a + b] = -s; m[3 * b + a] = s;
  return m;
}

function product(p, q) {
  return Array.from({ length: 9 }, (_, k) => [0, 1, 2].reduce((sum, j) => sum + p[3 * Math.floor(k / 3) + j] * q[3 * j + k % 3], 0));
}

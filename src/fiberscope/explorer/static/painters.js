// Two painters of one frame: WebGL, and a plain canvas where there is none.
//
// Regions and lines are sorted into tiles, so that only what is in sight is drawn; lines that would lie closer than they
// are wide fade away until one zooms in.

const LINE = 0.82;
const MOST_IN_A_TILE = 160;

function ink(lines, pixels) {  // opacity of so many lines on so many pixels
  const room = pixels / Math.max(1, lines);
  return LINE * Math.min(1, Math.max(0, Math.log2(room / 6) / 3));
}

function tiling(frame) {
  const { low, high } = frame, count = frame.starts.length - 1;
  const side = Math.max(1, Math.min(48, Math.floor(Math.sqrt(count / MOST_IN_A_TILE))));
  const scale = [0, 1].map((i) => side / ((high[i] - low[i]) || 1));
  const cell = (v, i) => Math.min(side - 1, Math.max(0, Math.floor((v - low[i]) * scale[i])));
  return {
    side,
    bucket(x0, y0, x1, y1) {  // 0 for what is larger than a tile: always drawn
      if ((x1 - x0) * scale[0] > 1 || (y1 - y0) * scale[1] > 1) return 0;
      return 1 + cell((y0 + y1) / 2, 1) * side + cell((x0 + x1) / 2, 0);
    },
    // Ranges [from, to) of sorted things that a window may show, from the starts of the buckets.
    ranges(view, starts) {
      const half = [view.width / view.scale / 2, view.height / view.scale / 2];
      const [x0, x1] = [-1, 1].map((s) => Math.min(side - 1, Math.max(0, cell(view.x + s * half[0], 0) + s)));
      const [y0, y1] = [-1, 1].map((s) => Math.min(side - 1, Math.max(0, cell(view.y + s * half[1], 1) + s)));
      if (x0 === 0 && y0 === 0 && x1 === side - 1 && y1 === side - 1) return [[0, starts[starts.length - 1]]];
      const found = [[0, starts[1]]];
      for (let y = y0; y <= y1; y++) found.push([starts[1 + y * side + x0], starts[2 + y * side + x1]]);
      return found;
    },
  };
}

function sorted(count, buckets, bucketOf) {  // counting sort: the order, and where every bucket starts
  const own = new Uint32Array(count), starts = new Uint32Array(buckets + 1), order = new Uint32Array(count);
  for (let k = 0; k < count; k++) starts[(own[k] = bucketOf(k)) + 1]++;
  for (let b = 0; b < buckets; b++) starts[b + 1] += starts[b];
  const next = starts.slice();
  for (let k = 0; k < count; k++) order[next[own[k]]++] = k;
  return { order, starts };
}

function regionTiles(frame, tiles) {
  const { starts, corners, vertices } = frame;
  return sorted(starts.length - 1, tiles.side ** 2 + 1, (r) => {
    let x0 = Infinity, y0 = Infinity, x1 = -Infinity, y1 = -Infinity;
    for (let k = starts[r]; k < starts[r + 1]; k++) {
      const x = vertices[2 * corners[k]], y = vertices[2 * corners[k] + 1];
      if (x < x0) x0 = x;
      if (x > x1) x1 = x;
      if (y < y0) y0 = y;
      if (y > y1) y1 = y;
    }
    return tiles.bucket(x0, y0, x1, y1);
  });
}

function lineTiles(frame, tiles) {  // per layer
  const { vertices, edges, edge_order } = frame;
  return frame.layer_ranges.map(([from, to]) => {
    const own = edge_order.subarray(from, to);
    const found = sorted(own.length, tiles.side ** 2 + 1, (k) => {
      const [a, b] = [2 * edges[2 * own[k]], 2 * edges[2 * own[k] + 1]];
      return tiles.bucket(Math.min(vertices[a], vertices[b]), Math.min(vertices[a + 1], vertices[b + 1]),
        Math.max(vertices[a], vertices[b]), Math.max(vertices[a + 1], vertices[b + 1]));
    });
    return { from, order: found.order.map((k) => own[k]), starts: found.starts };
  });
}

const total = (ranges) => ranges.reduce((sum, [from, to]) => sum + to - from, 0);

const VERTEX = `attribute vec2 position; attribute vec4 colour; uniform vec4 window; uniform float ink; varying vec4 shade;
  void main() { gl_Position = vec4((position - window.xy) * window.zw, 0.0, 1.0); shade = vec4(colour.rgb, ink); }`;
const FRAGMENT = "precision mediump float; varying vec4 shade; void main() { gl_FragColor = shade; }";

function glProgram(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  return program;
}

function glPainter(canvas) {
  const gl = canvas.getContext("webgl", { antialias: true, alpha: false, preserveDrawingBuffer: true });
  const program = gl && glProgram(gl, VERTEX, FRAGMENT);
  if (!program) return null;
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  const place = gl.getAttribLocation(program, "position"), colour = gl.getAttribLocation(program, "colour");
  const window_ = gl.getUniformLocation(program, "window"), ink_ = gl.getUniformLocation(program, "ink");
  const buffers = Object.fromEntries(["fans", "fills", "ends", "inks", "places", "tints"].map((name) => [name, gl.createBuffer()]));
  gl.enableVertexAttribArray(place);
  gl.enableVertexAttribArray(colour);
  const fill = (buffer, data) => { gl.bindBuffer(gl.ARRAY_BUFFER, buffer); gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW); };
  const use = (points, tints) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, points); gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, tints); gl.vertexAttribPointer(colour, 4, gl.UNSIGNED_BYTE, true, 0, 0);
  };
  let owner = new Uint32Array(0), tiles = null, fanStarts = [], layers = [], extra = 0;
  return {
    kind: "WebGL",
    shape(frame) {
      const { starts, corners, vertices } = frame, count = starts.length - 1, all = 3 * (corners.length - 2 * count);
      const fans = new Float32Array(2 * all);
      tiles = tiling(frame);
      const found = regionTiles(frame, tiles);
      owner = new Uint32Array(all);
      fanStarts = new Uint32Array(found.starts.length);
      let at = 0, bucket = 0;
      found.order.forEach((r, k) => {
        while (found.starts[bucket] <= k) fanStarts[bucket++] = at;
        for (let j = starts[r] + 1; j + 1 < starts[r + 1]; j++)
          for (let i = 0; i < 3; i++) {
            const c = corners[i ? j + i - 1 : starts[r]];
            fans[2 * at] = vertices[2 * c]; fans[2 * at + 1] = vertices[2 * c + 1];
            owner[at++] = r;
          }
      });
      fanStarts.fill(at, bucket);
      fill(buffers.fans, fans);
    },
    paint(rgba) {
      const fills = new Uint8Array(4 * owner.length), from = new Uint32Array(rgba.buffer), to = new Uint32Array(fills.buffer);
      for (let k = 0; k < owner.length; k++) to[k] = from[owner[k]];
      fill(buffers.fills, fills);
    },
    over({ places, tints }) { fill(buffers.places, places); fill(buffers.tints, tints); extra = places.length / 2; },
    lines(frame, inks) {
      const ends = new Float32Array(4 * frame.edge_order.length), tints = new Uint8Array(8 * frame.edge_order.length);
      layers = lineTiles(frame, tiles);
      layers.forEach(({ from, order }, layer) => {
        const c = inks[layer % inks.length];
        order.forEach((e, j) => {
          const k = from + j;
          for (let i = 0; i < 2; i++) {
            const v = frame.edges[2 * e + i], t = 8 * k + 4 * i;
            ends[4 * k + 2 * i] = frame.vertices[2 * v]; ends[4 * k + 2 * i + 1] = frame.vertices[2 * v + 1];
            tints[t] = c[0]; tints[t + 1] = c[1]; tints[t + 2] = c[2]; tints[t + 3] = 255;
          }
        });
      });
      fill(buffers.ends, ends);
      fill(buffers.inks, tints);
    },
    draw(view, paper, shown) {
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(paper[0] / 255, paper[1] / 255, paper[2] / 255, 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform4f(window_, view.x, view.y, 2 * view.scale / view.width, 2 * view.scale / view.height);
      gl.uniform1f(ink_, 1);
      use(buffers.fans, buffers.fills);
      for (const [from, to] of tiles.ranges(view, fanStarts)) if (to > from) gl.drawArrays(gl.TRIANGLES, from, to - from);
      if (extra) { use(buffers.places, buffers.tints); gl.drawArrays(gl.TRIANGLES, 0, extra); }
      const ranges = layers.map(({ starts }, k) => (shown[k] ? tiles.ranges(view, starts) : []));
      const opacity = ink(ranges.reduce((sum, r) => sum + total(r), 0), canvas.width * canvas.height);
      if (!(opacity > 0)) return false;
      gl.uniform1f(ink_, opacity);
      use(buffers.ends, buffers.inks);
      layers.forEach(({ from: base }, k) => {
        for (const [from, to] of ranges[k]) if (to > from) gl.drawArrays(gl.LINES, 2 * (base + from), 2 * (to - from));
      });
      return true;
    },
  };
}

// Where there is no WebGL: the same picture on a plain canvas, slower.
function flatPainter(canvas) {
  const pen = canvas.getContext("2d");
  let frame = null, rgba = null, inks = [], tiles = null, regions = null, layers = [], extra = null;
  return {
    kind: "canvas",
    shape(found) { frame = found; tiles = tiling(frame); regions = regionTiles(frame, tiles); },
    paint(found) { rgba = found; },
    over(found) { extra = found; },
    lines(_, found) { inks = found; layers = lineTiles(frame, tiles); },
    draw(view, paper, shown) {
      const { starts, corners, vertices, edges } = frame, ratio = canvas.width / view.width, scale = ratio * view.scale;
      const dx = canvas.width / 2 - view.x * scale, dy = canvas.height / 2 + view.y * scale;
      pen.fillStyle = `rgb(${paper})`;
      pen.fillRect(0, 0, canvas.width, canvas.height);
      for (const [from, to] of tiles.ranges(view, regions.starts))
        for (let k = from; k < to; k++) {
          const r = regions.order[k];
          pen.beginPath();
          for (let j = starts[r]; j < starts[r + 1]; j++) {
            const v = 2 * corners[j];
            pen.lineTo(dx + vertices[v] * scale, dy - vertices[v + 1] * scale);
          }
          pen.fillStyle = `rgb(${rgba[4 * r]},${rgba[4 * r + 1]},${rgba[4 * r + 2]})`;
          pen.fill();
        }
      for (let k = 0; extra && k < extra.places.length; k += 6) {
        pen.beginPath();
        for (let i = k; i < k + 6; i += 2) pen.lineTo(dx + extra.places[i] * scale, dy - extra.places[i + 1] * scale);
        pen.fillStyle = `rgb(${extra.tints.subarray(2 * k, 2 * k + 3)})`;
        pen.fill();
      }
      const ranges = layers.map((layer, k) => (shown[k] ? tiles.ranges(view, layer.starts) : []));
      const opacity = ink(ranges.reduce((sum, r) => sum + total(r), 0), canvas.width * canvas.height);
      if (!(opacity > 0)) return false;
      layers.forEach((layer, k) => {
        pen.strokeStyle = `rgba(${inks[k % inks.length]},${opacity})`;
        pen.lineWidth = ratio;
        pen.beginPath();
        for (const [from, to] of ranges[k])
          for (let j = from; j < to; j++) {
            const a = 2 * edges[2 * layer.order[j]], b = 2 * edges[2 * layer.order[j] + 1];
            pen.moveTo(dx + vertices[a] * scale, dy - vertices[a + 1] * scale);
            pen.lineTo(dx + vertices[b] * scale, dy - vertices[b + 1] * scale);
          }
        pen.stroke();
      });
      return true;
    },
  };
}

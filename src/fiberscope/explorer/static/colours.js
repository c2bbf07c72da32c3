// Colours of layers, regions and functions; the same as in the library's other pictures.

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

function values(frame, output, slope) {
  const count = frame.starts.length - 1, K = frame.outputs, out = new Float64Array(count);
  for (let r = 0; r < count; r++) {
    const k = 3 * (r * K + output), a = frame.maps[k], b = frame.maps[k + 1];
    out[r] = slope ? Math.hypot(a, b) : a * frame.middles[2 * r] + b * frame.middles[2 * r + 1] + frame.maps[k + 2];
  }
  return out;
}

const pale = (k) => CLASSES[k % CLASSES.length].map((c) => Math.round(c + 0.42 * (250 - c)));  // points stand out on it

// Where the largest output changes inside of a region, its parts: triangles and their classes. None where not all outputs
// are told.
function parts(frame) {
  const { starts, corners, vertices, maps, outputs: K, out_size } = frame, places = [], tints = [];
  if (K !== out_size || K < 2) return { places: new Float32Array(0), tints: new Uint8Array(0) };
  const value = (r, k, p) => maps[3 * (r * K + k)] * p[0] + maps[3 * (r * K + k) + 1] * p[1] + maps[3 * (r * K + k) + 2];
  const largest = (r, p) => { let best = 0; for (let k = 1; k < K; k++) if (value(r, k, p) > value(r, best, p)) best = k; return best; };
  for (let r = 0; r + 1 < starts.length; r++) {
    const polygon = Array.from(corners.subarray(starts[r], starts[r + 1]), (v) => [vertices[2 * v], vertices[2 * v + 1]]);
    const there = new Set(polygon.map((p) => largest(r, p)));
    if (there.size < 2) continue;  // one class at all corners is the class of all points between them
    for (let k = 0; k < K; k++) {
      let own = polygon;
      for (let j = 0; j < K && own.length; j++) if (j !== k) own = clipped(own, (p) => value(r, k, p) - value(r, j, p));
      for (let i = 1; i + 1 < own.length; i++) for (const p of [own[0], own[i], own[i + 1]]) { places.push(...p); tints.push(...pale(k), 255); }
    }
  }
  return { places: new Float32Array(places), tints: new Uint8Array(tints) };
}

function clipped(polygon, height) {  // the part of a polygon where an affine function is not negative
  const found = [], h = polygon.map(height);
  polygon.forEach((p, i) => {
    const j = (i + 1) % polygon.length, q = polygon[j];
    if (h[i] >= 0) found.push(p);
    if ((h[i] > 0 && h[j] < 0) || (h[i] < 0 && h[j] > 0)) { const t = h[i] / (h[i] - h[j]); found.push([p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]); }
  });
  return found;
}

function mix(k) {
  const h = Math.imul(k + 1, 2654435761) >>> 0;
  return Math.imul(h ^ (h >>> 15), 2246822519) >>> 0;
}

// One number for every activation pattern: the same neurons on, the same number, in every frame.
function patterns(frame) {
  const count = frame.starts.length - 1, width = Math.ceil(frame.varying.length / 4), marks = new Uint32Array(count);
  let first = 0;
  signsOf(frame, 0).forEach((s, n) => { if (s > 0) first ^= mix(n); });
  for (let r = 0; r < count; r++) {
    let h = first;
    for (let k = 0; r && k < width; k++) {
      const byte = frame.signs[r * width + k];  // its difference to the first region: the upper of two bits is "on"
      for (let i = 0; byte >> (2 * i); i++) if ((byte >> (2 * i)) & 2) h ^= mix(frame.varying[4 * k + i]);
    }
    marks[r] = mix(h >>> 0);
  }
  return marks;
}

function tint(h) {
  const shade = ((h >>> 8) & 255) / 255 * 0.24 - 0.12, c = MOSAIC[(h >>> 16) % MOSAIC.length];
  return c.map((v) => (shade > 0 ? v + shade * (255 - v) : v * (1 + shade)));
}

// Colours of all regions and the ends of the scale; `shared` may widen it, for pictures that are compared.
function colours(frame, how, output, shared) {
  const count = frame.starts.length - 1, rgba = new Uint8Array(4 * count).fill(255);
  const put = (r, c) => { for (let i = 0; i < 3; i++) rgba[4 * r + i] = c[i]; };
  let legend = "";
  if (how === "value" || how === "slope") {
    const v = values(frame, output, how === "slope");
    const finite = Array.from(v).filter(Number.isFinite).map(how === "value" ? Math.abs : Number).sort((a, b) => a - b);
    const own = finite.length ? finite[Math.floor(0.98 * (finite.length - 1))] || 1 : 1, reach = shared ? shared(own) : own;
    for (let r = 0; r < count; r++) put(r, ramp(FUNCTION, how === "value" ? 0.5 + v[r] / (2 * reach) : v[r] / reach));
    legend = how === "value" ? [-reach, reach] : [0, reach];
  } else if (how === "class") {
    for (let r = 0; r < count; r++) put(r, pale(frame.classes[r]));
  } else if (how === "active") {
    const on = frame.active, most = Math.max(...frame.span);
    const least = Math.min(...frame.span);
    for (let r = 0; r < count; r++) put(r, ramp(FUNCTION, most > least ? (on[r] - least) / (most - least) : 0.5));
    legend = [least, most];
  } else {
    const marks = patterns(frame);
    for (let r = 0; r < count; r++) put(r, tint(marks[r]));
  }
  return { rgba, legend };
}

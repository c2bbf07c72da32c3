// Frames: a complex as a block of bytes (payload.py writes it), and what is under the pointer.
//
// Four bytes of length, a JSON header, then the arrays that the header lists in order. Blocks of a page are deflated and
// in base 64; those of a server come as they are.

async function decode(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return unpack(await new Response(stream).arrayBuffer());
}

function unpack(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const frame = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  for (const [name, type, length] of frame.arrays) {
    const bytes = length * TYPES[type].BYTES_PER_ELEMENT;
    frame[name] = new TYPES[type](buffer.slice(at, at + bytes));
    at += bytes;
  }
  return frame.dimension === 3 ? frame : prepare(frame);
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

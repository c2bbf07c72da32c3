// The numbers of a chain as a table per layer: type one, or drag it up and down.

const { make, ramp, FUNCTION } = globalThis.fiberscopeExplorer;

const STEP = 0.01;  // of a value per pixel

export class Numbers {
  constructor(root, change) {
    Object.assign(this, { root, change, cells: new Map(), held: null, key: "" });
    root.addEventListener("input", (e) => this.typed(e.target));
    root.addEventListener("pointerdown", (e) => this.grasp(e));
    root.addEventListener("pointermove", (e) => this.drag(e));
    for (const kind of ["pointerup", "pointercancel"]) root.addEventListener(kind, () => this.release());
  }

  show(weights, biases) {
    if (!weights) { this.key = ""; this.root.replaceChildren(make("p", { className: "note" }, "The numbers are not shown: there are too many, or this is no chain of dense layers. Lines can be dragged all the same.")); return; }
    const key = weights.map((w) => `${w.length}x${w[0].length}`).join();
    if (key !== this.key) this.build(weights, key);
    const reach = Math.max(...weights.flat(2).map(Math.abs), ...biases.flat().map(Math.abs)) || 1;
    weights.forEach((w, l) => w.forEach((row, i) => [...row, biases[l][i]].forEach((v, j) => {
      const cell = this.cells.get(`${l},${i},${j === row.length ? -1 : j}`);
      const colour = ramp(FUNCTION, 0.5 + v / (2 * reach)).map(Math.round);
      cell.style.background = `rgb(${colour})`;
      cell.style.color = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140 ? "#14171d" : "#ffffff";
      if (cell !== document.activeElement || this.held) cell.value = Number(v.toPrecision(3));
    })));
  }

  build(weights, key) {
    this.key = key;
    this.cells.clear();
    this.root.replaceChildren(make("h2", {}, "The numbers"), make("p", { className: "note" }, "Rows are neurons, the last column is the bias. Drag a number up or down, or type."),
      make("div", { className: "layers" }, ...weights.map((w, l) => make("figure", {}, make("figcaption", {}, l + 1 < weights.length ? `layer ${l + 1}` : "output"),
        make("div", { className: "grid", style: `--n:${w[0].length + 1}` }, ...w.flatMap((row, i) => [...row.keys(), -1].map((j) => {
          const cell = make("input", { type: "number", step: 0.05, "aria-label": `${l + 1 < weights.length ? `layer ${l + 1}` : "output"}, neuron ${i}, ${j < 0 ? "bias" : `weight ${j}`}` });
          cell.at = [l, i, j];
          this.cells.set(`${l},${i},${j}`, cell);
          return cell;
        })))))));
  }

  typed(cell) {
    if (cell.at && Number.isFinite(cell.valueAsNumber)) this.tell(cell, cell.valueAsNumber, true);
  }

  grasp(e) {
    if (!e.target.at || e.button || !Number.isFinite(e.target.valueAsNumber)) return;
    this.held = { cell: e.target, y: e.clientY, from: e.target.valueAsNumber, moved: false };
  }

  drag(e) {
    if (!this.held) return;
    const by = this.held.y - e.clientY;
    if (!this.held.moved && Math.abs(by) < 4) return;
    if (!this.held.moved) { this.root.setPointerCapture(e.pointerId); this.held.moved = true; }
    e.preventDefault();
    this.last = this.held.from + STEP * by;
    this.held.cell.value = Number(this.last.toPrecision(3));
    this.tell(this.held.cell, this.last, false);
  }

  release() {
    const held = this.held;
    this.held = null;
    if (held && held.moved) { held.cell.blur(); this.tell(held.cell, this.last, true); }
  }

  tell(cell, value, done) {
    const [layer, row, column] = cell.at;
    this.change({ layer, row, column, value, done });
  }
}

// Cards of the three corners of a slice: what the network says there, another input, a brush for images.

const { make, number } = globalThis.fiberscopeExplorer;

const SIDE = 140;

export class Cards {
  constructor(root, { another, paint, again }) {
    this.cards = [0, 1, 2].map((k) => {
      const canvas = make("canvas", { width: SIDE, height: SIDE, className: "corner" });
      const name = make("b", {}), says = make("span", { className: "note" });
      const button = make("button", { type: "button" }, "Another");
      button.addEventListener("click", () => another(k));
      const card = { canvas, name, says, shape: null, paintable: false };
      this.brush(card, (pixels, ink) => paint(k, pixels, ink));
      root.append(make("div", { className: "corner-card" }, canvas, make("div", {}, name, says, button)));
      return card;
    });
    const button = make("button", { type: "button" }, "Begin again");
    button.addEventListener("click", again);
    root.append(make("p", { className: "note", id: "brush-note" }), button);
  }

  show(frame, answer) {
    answer.corners.forEach((corner, k) => {
      const card = this.cards[k], values = answer.outputs[k];
      Object.assign(card, { shape: corner.shape, paintable: answer.paintable });
      card.canvas.setAttribute("aria-label", `the input at corner ${k + 1}`);
      card.canvas.classList.toggle("paintable", answer.paintable);
      card.name.textContent = `${["lower left", "lower right", "upper left"][k]}: ${corner.name}`;
      card.says.textContent = values.length > 1 ? `largest output ${answer.largest[k]} (${number(values[answer.largest[k]] ?? NaN)})` : `output ${number(values[0])}`;
      const image = new Image();
      image.onload = () => {
        const pen = card.canvas.getContext("2d");
        pen.imageSmoothingEnabled = false;
        pen.drawImage(image, 0, 0, SIDE, SIDE);
      };
      image.src = `data:image/png;base64,${frame.pictures[k].png}`;
    });
    document.getElementById("brush-note").textContent = answer.paintable ? "Draw on an image: it is the corner itself. Shift wipes." : "";
  }

  brush(card, paint) {
    let on = false;
    const dab = (e) => {
      const [, high, wide] = card.shape, box = card.canvas.getBoundingClientRect();
      const x = Math.floor((e.clientX - box.left) / box.width * wide), y = Math.floor((e.clientY - box.top) / box.height * high);
      const near = [[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1]].map(([i, j]) => [x + i, y + j]);
      const pixels = near.filter(([i, j]) => i >= 0 && j >= 0 && i < wide && j < high).map(([i, j]) => j * wide + i);
      if (pixels.length) paint(pixels, e.shiftKey ? 0 : 1);
    };
    card.canvas.addEventListener("pointerdown", (e) => { on = card.paintable; if (on) { card.canvas.setPointerCapture(e.pointerId); dab(e); } });
    card.canvas.addEventListener("pointermove", (e) => { if (on) dab(e); });
    for (const kind of ["pointerup", "pointercancel"]) card.canvas.addEventListener(kind, () => { on = false; });
  }
}

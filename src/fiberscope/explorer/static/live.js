// The live page: tabs, models, and what the server answers put in its place. Plain modules; nothing is built.

import { Cards } from "./corners.js";
import { Numbers } from "./numbers.js";
import { Talk } from "./talk.js";

const { Widget, make, number } = globalThis.fiberscopeExplorer;
const $ = (id) => document.getElementById(id);
const TABS = ["shape", "slice", "train", "compare"];
const PULL = 150;  // pixels that take a corner all the way

const page = { tab: "shape", models: [], model: 0, views: {}, epochs: [], told: {} };
window.fiberscopePage = page;

// -- pictures

function view(place, live, options = {}) {
  return {
    widget: null, key: "",
    show(frame) {
      const key = JSON.stringify([frame.layers.map((l) => l.size), frame.out_size, frame.axes]);
      if (this.widget && key === this.key) { this.widget.set(frame); return; }
      const root = make("div", { className: `fx ${options.compact ? "fx-compact" : ""}` });
      $(place).replaceChildren(root);
      this.key = key;
      this.widget = new Widget(root, { frames: [], labels: [], live, colour: options.colour }, [frame]);
    },
  };
}

const reach = (id) => Number($(id).value);

page.views.shape = view("shape-view", {
  hint: "Drag a line to move its neuron; drag beside the lines to move the picture.",
  line: (neuron, from, to, done, shift) => talk.drag({ do: "line", model: page.model, reach: reach("reach"), neuron, from, to, turn: shift || $("turn").checked, done }),
});
page.views.slice = view("slice-view", {
  hint: "Drag the image at a corner; drag elsewhere to move the picture.",
  corner: (corner, from, to, done) => talk.drag({ do: "corner", model: page.model, corner, move: [(to[0] - from[0]) / PULL, (from[1] - to[1]) / PULL], done }),
});
page.views.train = view("train-view", { hint: "Points have the colour of their class." }, { colour: "class" });
const sides = ["first", "second", "difference"];
const together = (moved) => {
  for (const side of sides) {
    const { widget } = page.views[side];
    if (!widget || widget === moved) continue;
    const { x, y, scale } = moved.view;
    Object.assign(widget.view, { x, y, scale: scale * widget.view.width / moved.view.width });
    widget.draw();
  }
};
// One scale for the two networks, so that equal colours are equal values; their difference has its own.
const scale = (widget, own) => {
  const pair = ["first", "second"].map((side) => page.views[side].widget), other = pair.find((w) => w && w !== widget);
  Object.assign(widget, { own, coloured: `${widget.how} ${widget.output}` });
  if (!other || other.coloured !== widget.coloured) return own;
  const both = Math.max(own, other.own);
  if (other.shared !== both) { other.shared = both; queueMicrotask(() => { other.recolour(); other.draw(); }); }
  return widget.shared = both;
};
for (const side of sides) page.views[side] = view(`view-${side}`, { viewed: together, ...(side === "difference" ? {} : { reach: scale }) }, { compact: true, colour: "value" });

// -- words

function cards(root, rows) {
  root.replaceChildren(...rows.map(([name, value, note, kind]) => make("div", { className: `card ${kind || ""}` }, make("dt", {}, name), make("dd", {}, value, ...(note ? [make("small", {}, note)] : [])))));
}

function tellFacts() {
  const { facts, dimension, identifiable } = page.told;
  if (!facts) return;
  const rows = [["linear regions", facts.regions.toLocaleString("en"), `in ${number(Number(facts.milliseconds.toPrecision(2)))} ms`], ["steepest slope", number(Number(facts.slope.toPrecision(4)))]];
  if (dimension && dimension.value !== null && dimension.value !== undefined)
    rows.push(["functional dimension", `${dimension.exact ? "" : "≥ "}${dimension.value} of ${dimension.parameters}`, dimension.exact ? "exact rank" : "a proven lower bound"]);
  else if (dimension) rows.push(["functional dimension", "…", dimension.later ? "when the hand rests" : dimension.reason || `not asked: ${dimension.parameters.toLocaleString("en")} parameters`]);
  if (identifiable) rows.push(["identifiable", { true: "yes", false: "no", null: "undecided" }[identifiable.value], identifiable.reasons[0] || identifiable.theorem || "", { true: "yes", false: "no", null: "open" }[identifiable.value]]);
  cards($("facts"), rows);
}

function trouble(text) { $("trouble").textContent = text; $("trouble").hidden = !text; }

function state(text) { $("state").textContent = text; }

function shortly(ms) { return `${number(Number(ms.toPrecision(2)))} ms`; }

// -- answers

const talk = new Talk({
  closed() { state("the server has ended"); trouble("The server has ended; start fiberscope explore again."); document.body.dataset.ready = "closed"; },
  trouble(answer) { state(""); trouble(answer.text); page.answered = (page.answered || 0) + 1; },
  done() { state(""); page.answered = (page.answered || 0) + 1; },
  status(answer) { state(answer.text); },
  models(answer) { page.models = answer.models; fillModels(); document.body.dataset.ready = "yes"; },
  frame(frame) {
    trouble("");
    if (frame.view === "compare") { page.views[frame.side].show(frame); return; }
    if (frame.view === "train") { page.epochs[frame.index] = frame; scrubTo(frame.index, true); return; }
    page.lastFrame = frame;
    page.views[frame.view].show(frame);
  },
  facts(answer) { page.told = { ...page.told, facts: answer }; numbers.show(answer.weights, answer.biases); tellFacts(); },
  dimension(answer) { page.told.dimension = answer; tellFacts(); },
  identifiable(answer) { page.told.identifiable = answer; tellFacts(); },
  slice(answer) {
    corners.show(page.lastFrame, answer);
    cards($("slice-facts"), [["linear regions", answer.regions.toLocaleString("en"), `in ${shortly(answer.milliseconds)}${answer.part > 1 ? `; the whole slice has too many: this is its middle, ${answer.part} times smaller` : ""}`], ["steepest slope in the plane", number(Number(answer.slope.toPrecision(4)))]]);
  },
  training(answer) { page.losses = answer.losses; page.epochNames = answer.epochs; page.epochs = []; $("scrub").hidden = false; $("epoch").max = answer.epochs.length - 1; $("keep").disabled = false; state("drawing …"); },
  verdict(answer) {
    $("verdict").hidden = false;
    $("verdict").className = `verdict ${{ true: "yes", false: "no", null: "open" }[answer.equal]}`;
    $("verdict").replaceChildren(make("b", {}, "The same function? "), answer.text, make("p", { className: "note" }, `Asked on ${answer.where}, by ${answer.method}.` + (answer.difference === null ? "" : ` They differ by ${number(answer.difference)} at one input.`)));
  },
});

const numbers = new Numbers($("numbers"), (edit) => talk.drag({ do: "weight", model: page.model, reach: reach("reach"), ...edit }));
const corners = new Cards($("corners"), {
  another: (corner) => talk.drag({ do: "corner", model: page.model, corner, another: true, done: true }),
  paint: (corner, pixels, ink) => talk.send({ do: "paint", model: page.model, corner, pixels, ink }),
  again: () => talk.drag({ do: "slice", model: page.model, again: true, done: true }),
});

// -- asking

function ask() {
  const model = page.models[page.model];
  trouble("");
  if (!model) return;
  if (page.tab === "shape" || page.tab === "slice") state("computing …");
  if (page.tab === "shape") { page.told = {}; talk.drag({ do: "shape", model: page.model, reach: reach("reach"), done: true }); }
  if (page.tab === "slice") talk.drag({ do: "slice", model: page.model, done: true });
}

function go(tab, focus) {
  page.tab = tab;
  for (const name of TABS) {
    const own = $(`tab-${name}`);
    own.setAttribute("aria-selected", String(name === tab));
    own.tabIndex = name === tab ? 0 : -1;
    $(name).hidden = name !== tab;
  }
  if (focus) $(`tab-${tab}`).focus();
  ask();
}

function fillModels() {
  const options = () => page.models.map((m, k) => make("option", { value: k }, `${m.name} (${m.inputs} in, ${m.outputs} out, ${m.parameters.toLocaleString("en")} parameters)`));
  for (const id of ["model", "first", "second"]) { const before = $(id).value; $(id).replaceChildren(...options()); if (before && before < page.models.length) $(id).value = before; }
  if (!page.begun) { page.begun = true; choose(0); if (page.models.length > 1) $("second").value = 1; }
}

function choose(model) {
  page.model = model;
  $("model").value = model;
  const flat = page.models[model].inputs === 2;
  $("tab-shape").disabled = !flat;
  $("tab-slice").disabled = page.models[model].inputs < 3;
  if (page.tab === "shape" || page.tab === "slice") go(flat ? "shape" : "slice");
}

// -- trainings

function scrubTo(index, arriving) {
  if (!page.epochs[index]) return;
  page.at = index;
  $("epoch").value = index;
  $("epoch-name").textContent = `${page.epochNames[index]} of ${page.epochNames.at(-1)}: ${page.epochs[index].regions.toLocaleString("en")} regions, loss ${number(Number((page.losses[Math.max(0, page.epochNames[index] - 1)] ?? NaN).toPrecision(3)))}`;
  page.views.train.show(page.epochs[index]);
  drawLosses();
  if (!arriving) state("");
}

function drawLosses() {
  const canvas = $("losses"), pen = canvas.getContext("2d"), losses = page.losses || [], ink = getComputedStyle(document.body);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  if (!losses.length) return;
  const logs = losses.map((v) => Math.log10(Math.max(v, 1e-12))), low = Math.min(...logs), high = Math.max(...logs);
  const x = (k) => 8 + (canvas.width - 16) * k / Math.max(1, losses.length), y = (v) => 10 + (canvas.height - 20) * (high > low ? (high - v) / (high - low) : 0.5);
  pen.strokeStyle = ink.getPropertyValue("--deep"); pen.lineWidth = 2.5; pen.beginPath();
  logs.forEach((v, k) => pen.lineTo(x(k + 1), y(v)));
  pen.stroke();
  const here = page.epochNames[page.at ?? 0];
  pen.strokeStyle = ink.getPropertyValue("--accent"); pen.lineWidth = 2; pen.beginPath();
  pen.moveTo(x(here), 0); pen.lineTo(x(here), canvas.height); pen.stroke();
}

let playing = 0;
function play() {
  if (playing) { clearInterval(playing); playing = 0; $("play").textContent = "Play"; return; }
  if ((page.at ?? 0) >= page.epochs.length - 1) scrubTo(0);
  $("play").textContent = "Pause";
  playing = setInterval(() => { if ((page.at ?? 0) >= page.epochs.length - 1) play(); else scrubTo(page.at + 1); }, 110);
}

// -- files

async function openFile(file) {
  if (!file) return;
  state(`reading ${file.name} …`);
  trouble("");
  const known = page.models.length;
  try {
    const answer = await fetch(`models?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || `refused (${answer.status})`);
    page.opening = found.model;
    talk.send({ do: "hello" });
    const wait = setInterval(() => { if (page.models.length > known) { clearInterval(wait); state(""); if (TABS.slice(2).includes(page.tab)) go("shape"); choose(found.model); } }, 20);
  } catch (error) {
    state("");
    trouble(error.message);
  }
}

// -- hands

$("model").addEventListener("change", () => choose(Number($("model").value)));
$("reach").addEventListener("change", ask);
$("reset").addEventListener("click", () => talk.drag({ do: "reset", model: page.model, reach: reach("reach"), done: true }));
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { openFile($("file").files[0]); $("file").value = ""; });
TABS.forEach((name, k) => {
  $(`tab-${name}`).addEventListener("click", () => go(name));
  $(`tab-${name}`).addEventListener("keydown", (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const open = TABS.filter((tab) => !$(`tab-${tab}`).disabled);
    go(open[(open.indexOf(TABS[k]) + by + open.length) % open.length], true);
  });
});
$("recipe").addEventListener("submit", (e) => {
  e.preventDefault();
  const form = new FormData(e.target);
  state("training …");
  trouble("");
  talk.send({ do: "train", data: form.get("data"), hidden: form.get("hidden").split(",").map((w) => Number(w)), epochs: Number(form.get("epochs")), lr: Number(form.get("lr")), seed: Number(form.get("seed")) });
});
$("stop").addEventListener("click", () => { talk.send({ do: "stop" }); state("stopped"); });
$("keep").addEventListener("click", () => talk.send({ do: "keep" }));
$("epoch").addEventListener("input", () => scrubTo(Number($("epoch").value)));
$("play").addEventListener("click", play);
$("ask").addEventListener("click", () => { state("computing …"); trouble(""); $("verdict").hidden = true; talk.drag({ do: "compare", first: Number($("first").value), second: Number($("second").value), reach: reach("compare-reach"), done: true }); });
let over = 0;
document.addEventListener("dragenter", (e) => { e.preventDefault(); over++; $("drop").hidden = false; });
document.addEventListener("dragover", (e) => e.preventDefault());
document.addEventListener("dragleave", () => { over = Math.max(0, over - 1); if (!over) $("drop").hidden = true; });
document.addEventListener("drop", (e) => { e.preventDefault(); over = 0; $("drop").hidden = true; openFile(e.dataTransfer.files[0]); });

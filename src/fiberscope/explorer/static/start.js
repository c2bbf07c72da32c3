// Every place of the page that holds data becomes a picture.

async function start(root) {
  if (typeof DecompressionStream === "undefined")
    throw new Error("this browser cannot unpack it (DecompressionStream is missing); a newer one can");
  const data = JSON.parse(root.querySelector("script").textContent), frame = await decode(data.frames[0]);
  if (frame.dimension === 3) new Solid(root, data, frame); else new Widget(root, data, [frame]);
}

globalThis.fiberscopeExplorer = { Widget, Solid, unpack, make, number, ramp, FUNCTION, CLASSES };

for (const root of document.querySelectorAll(".fx:not([data-ready])")) {
  root.dataset.ready = "starting";
  start(root).catch((error) => { root.dataset.ready = "failed"; root.append(make("p", { role: "alert" }, `The picture could not be shown: ${error.message}.`)); });
}

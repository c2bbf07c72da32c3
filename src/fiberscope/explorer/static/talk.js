// The stream to the server: messages out, pictures and facts in. While a hand drags, one message is under way at a time,
// and of those that wait only the newest goes next; the server ends older work when newer comes.

export class Talk {
  constructor(listen) {
    this.listen = listen;
    this.number = 0;
    this.waiting = null;
    this.busy = false;
    const address = new URL("stream", location.href);
    address.protocol = "ws:";
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => this.send({ do: "hello" }));
    this.socket.addEventListener("close", () => listen.closed());
    this.socket.addEventListener("message", ({ data }) => this.take(data));
  }

  take(data) {
    if (typeof data !== "string") {
      listenTo(this.listen, "frame", globalThis.fiberscopeExplorer.unpack(data));
      this.next();
      return;
    }
    const answer = JSON.parse(data);
    if (answer.kind === "trouble" || answer.kind === "done") this.next();
    listenTo(this.listen, answer.kind, answer);
  }

  next() {
    this.busy = false;
    if (this.waiting) { const message = this.waiting; this.waiting = null; this.drag(message); }
  }

  send(message) {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ id: ++this.number, ...message }));
  }

  drag(message) {
    if (message.done) { this.waiting = null; this.busy = true; this.send(message); return; }
    if (this.busy) { this.waiting = message; return; }
    this.busy = true;
    this.send(message);
  }
}

function listenTo(listen, kind, answer) {
  if (listen[kind]) listen[kind](answer);
}

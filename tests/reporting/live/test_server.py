"""The live page's server: what is not the page itself is refused, whatever it asks."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

import fiberscope as fs
from fiberscope.explorer.payload import unpack
from fiberscope.reporting.live import serve
from fiberscope.reporting.live.server import Address, make_app
from fiberscope.reporting.live.shelf import Item, Shelf, small_network

pytest.importorskip("starlette")
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

ADDRESS = Address(8765, "a-token")
HERE = "http://127.0.0.1:8765"
OWN = {"origin": HERE}
HOST = {"host": "127.0.0.1:8765"}


@pytest.fixture
def shelf(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return Shelf(folder, [Item("small", small_network())], most_bytes=200_000)


@pytest.fixture
def client(shelf):
    return TestClient(make_app(shelf, ADDRESS), base_url=HERE)


def onnx_bytes(tmp_path, net=None):
    fs.save(net or fs.Network.random((2, 3, 1), 0), tmp_path / "net.onnx")
    return (tmp_path / "net.onnx").read_bytes()


def test_the_page_and_its_files_come_with_their_guards(client):
    for name, kind in [("", "text/html"), ("live.js", "text/javascript"), ("explorer.js", "text/javascript")]:
        found = client.get(f"/a-token/{name}")
        assert found.status_code == 200
        assert found.headers["content-type"].startswith(kind)
        assert "script-src 'self'" in found.headers["content-security-policy"]
        assert found.headers["referrer-policy"] == "no-referrer"
    page = client.get("/a-token/").text
    assert "http" not in page.replace("http-equiv", "")  # nothing from elsewhere
    assert "<script>" not in page


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/live.js", {}),
        ("/another-token/", {}),
        ("/A-TOKEN/", {}),
        ("/a-token/", {"host": "example.org"}),
        ("/a-token/", {"host": "127.0.0.1:1"}),
        ("/a-token/", {"host": "127.0.0.1.example.org:8765"}),
        ("/a-token/", {"origin": "http://example.org"}),
        ("/a-token/", {"origin": "null"}),
        ("/a-token/", {"sec-fetch-site": "cross-site"}),
    ],
)
def test_other_hosts_origins_and_tokens_are_refused(client, path, headers):
    found = client.get(path, headers=headers)
    assert found.status_code == 403
    assert found.text.startswith("refused: ")
    assert "a-token" not in found.text


@pytest.mark.parametrize(
    "path",
    ["../server.py", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "static/live.js", "live.js/x", "models"],
)
def test_no_path_leads_out_of_the_list(client, path):
    assert client.get(f"/a-token/{path}").status_code in {403, 404, 405}


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/a-token/stream", HOST),
        ("/a-token/stream", {**HOST, "origin": "http://example.org"}),
        ("/a-token/stream", {**HOST, "origin": "http://localhost:8765"}),  # not the host that was asked
        ("/stream", {**HOST, **OWN}),
        ("/a-token/stream", {**OWN, "host": "example.org"}),
    ],
)
def test_the_stream_is_for_the_page_alone(client, path, headers):
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect(path, headers=headers) as stream:
        stream.receive_text()
    assert refused.value.reason.startswith("refused: ")
    with client.websocket_connect("/a-token/stream", headers={**HOST, **OWN}) as stream:  # the same, from the page
        stream.send_text('{"do": "hello"}')
        assert receive(stream)["kind"] == "models"


def test_a_dropped_model_is_opened_and_its_file_removed(client, shelf, tmp_path):
    found = client.post("/a-token/models?name=net.onnx", content=onnx_bytes(tmp_path), headers=OWN)
    assert found.json() == {"model": 1}
    assert shelf.items[1].name == "net.onnx"
    assert shelf.items[1].net.widths == (2, 3, 1)
    assert list(shelf.folder.iterdir()) == []


@pytest.mark.parametrize("headers", [{}, {"origin": "http://example.org"}, {**OWN, "sec-fetch-site": "cross-site"}])
def test_files_of_other_pages_are_refused(client, shelf, tmp_path, headers):
    assert client.post("/a-token/models?name=n.onnx", content=onnx_bytes(tmp_path), headers=headers).status_code == 403
    assert len(shelf.items) == 1


def test_names_do_not_leave_the_folder(client, shelf, tmp_path):
    for name in ("../../escaped.onnx", "/tmp/escaped.onnx", "..\\..\\escaped.onnx", "a%00b.onnx"):
        client.post("/a-token/models", params={"name": name}, content=onnx_bytes(tmp_path), headers=OWN)
    assert not list(tmp_path.rglob("*escaped*"))
    assert list(shelf.folder.iterdir()) == []
    assert all("/" not in item.name and "\\" not in item.name for item in shelf.items)


class Trap:
    """A pickle that would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickles_are_never_opened(client, tmp_path):
    trap = tmp_path / "sprung"
    content = pickle.dumps(Trap(trap))
    array = np.empty(1, dtype=object)
    array[0] = Trap(trap)
    archive = io.BytesIO()
    np.savez(archive, weight=array)
    for name, data in [("a.pt", content), ("a.pkl", content), ("a.npz", content), ("a.onnx", content),
                       ("a.safetensors", content), ("b.npz", archive.getvalue())]:  # fmt: skip
        found = client.post("/a-token/models", params={"name": name}, content=data, headers=OWN)
        assert found.status_code == 400, name
        assert found.json()["error"]
        assert str(tmp_path) not in found.json()["error"]
    assert not trap.exists()


def test_large_and_swollen_files_are_refused(client, shelf):
    in_parts = (b"0" * 50_000 for _ in range(5))  # a body that does not say how long it is
    for content in (b"0" * 200_001, in_parts):
        found = client.post("/a-token/models?name=a.onnx", content=content, headers=OWN)
        assert found.status_code == 413
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weight.npy", b"0" * 5_000_000)
    assert len(bomb.getvalue()) < 20_000
    found = client.post("/a-token/models?name=a.npz", content=bomb.getvalue(), headers=OWN)
    assert (found.status_code, "unpacked" in found.json()["error"]) == (413, True)
    assert list(shelf.folder.iterdir()) == []


def receive(stream):
    """The next answer, with the header of a picture as its words."""
    message = stream.receive()
    return unpack(message["bytes"])[0] if message.get("bytes") else json.loads(message["text"])


def answers(stream):
    found = []
    while not found or found[-1]["kind"] not in {"done", "trouble"}:
        found.append(receive(stream))
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[1]", "expected an object"),
        ('{"do": 3}', "expected an object"),
        ('{"do": "__class__"}', "expected one of"),
        ('{"do": "shape", "model": -1}', "whole number"),
        ('{"do": "shape", "model": true}', "whole number"),
        ('{"do": "shape", "model": 0, "reach": NaN}', "expected a number"),
        ('{"do": "weight", "model": 0, "layer": 0, "row": 0, "column": 0, "value": 1e400}', "expected a number"),
        ('{"do": "weight", "model": 0, "layer": 9, "row": 0, "column": 0, "value": 1}', "layer: expected"),
        ('{"do": "line", "model": 0, "neuron": 0, "from": [0, 0], "to": "x"}', "two numbers"),
        ('{"do": "train", "data": "moons", "hidden": [64, 64, 64, 64, 64], "epochs": 1, "seed": 0, "lr": 1}', "hidden"),
        ('{"do": "paint", "model": 0, "corner": 0, "pixels": [0], "ink": 1}', "three inputs or more"),
        (json.dumps({"do": "x" * 300_000}), "at most"),
    ],
)
def test_bad_messages_are_answered_in_words_and_the_stream_lives(client, text, words):
    with client.websocket_connect("/a-token/stream", headers={**HOST, **OWN}) as stream:
        stream.send_text(text)
        found = receive(stream)
        assert found["kind"] == "trouble"
        assert words in found["text"]
        stream.send_text('{"do": "hello"}')
        assert answers(stream)[0]["models"][0]["name"] == "small"


def test_a_drag_ends_where_the_hand_ended(client):
    """Many edits in a row: none is lost, stale ones are not finished, the last is answered in full."""
    with client.websocket_connect("/a-token/stream", headers={**HOST, **OWN}) as stream:
        for step in range(30):
            edit = {"do": "weight", "model": 0, "layer": 0, "row": step % 2, "column": 0, "value": step / 10}
            stream.send_text(json.dumps({**edit, "done": step == 29, "id": step}))
        found = []
        while not found or found[-1].get("id") != 29:
            found.append(receive(stream))
    facts = [answer for answer in found if answer["kind"] == "facts"][-1]
    assert [row[0] for row in facts["weights"][0]] == [2.8, 2.9]
    assert {answer["kind"] for answer in found} == {"frame", "facts", "dimension", "identifiable", "done"}


def test_words_for_a_port_in_use_and_a_missing_extra(monkeypatch):
    with serve.explore(open_browser=False) as live:
        port = int(live.address.split(":")[2].split("/")[0])
        with pytest.raises(fs.InputError, match=f"port {port}: .*give another one"):
            serve.explore(port=port, open_browser=False)
        token = live.address.split("/")[3]
        assert len(token) >= 32
    with pytest.raises(fs.InputError, match="0 to 65535"):
        serve.explore(port=70_000)
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    with pytest.raises(fs.FiberscopeError, match=r"fs.explore needs uvicorn.*fiberscope\[explore\]"):
        serve.explore(open_browser=False)

"""``fiberscope explore`` prints its address, serves the page there and nowhere else, and ends on Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import fiberscope as fs


def test_the_printed_address_is_the_page_and_ctrl_c_ends_it(tmp_path):
    pytest.importorskip("starlette")
    fs.save(fs.Network.random((2, 3, 1), 0), tmp_path / "net.npz")
    command = [sys.executable, "-m", "fiberscope", "explore", str(tmp_path / "net.npz"), "--port", "0", "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    old = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, and handed on
    with subprocess.Popen(command, **pipes) as process:
        signal.signal(signal.SIGINT, old)
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert b"fiberscope" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(address.rsplit("/", 2)[0], timeout=60)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # or leaving the block would wait for it
    assert process.returncode == 130
    assert "Traceback" not in said

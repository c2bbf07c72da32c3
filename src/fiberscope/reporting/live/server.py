"""The server of the live page: this machine alone, one address with a random token, checked headers.

Every request is looked at before anything else: the token at the front of the path, the ``Host`` it was sent to (so
that no other name can be made to point here), and the ``Origin`` of whatever opens the stream or sends a file (so that
no other page in the same browser can). Files that the page needs are a fixed list; dropped models are read by
:mod:`~fiberscope.reporting.live.shelf`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from fiberscope.errors import FiberscopeError, TooLargeError
from fiberscope.explorer.assets import asset, script
from fiberscope.reporting.live.messages import parse
from fiberscope.reporting.live.shelf import Shelf
from fiberscope.reporting.live.studio import Studio, Superseded, Ticket, Work

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
FILES = ("live.css", "explorer.css", "live.js", "corners.js", "numbers.js", "talk.js")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Address:
    """Where the page is: the token is part of the path."""

    port: int
    token: str

    @classmethod
    def fresh(cls, port: int) -> Address:
        return cls(port, secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.port}", f"localhost:{self.port}"


def make_app(shelf: Shelf, address: Address) -> App:
    """The application, behind its guard."""

    front = f"/{address.token}"
    pages = {"": ("live.html", asset("live.html")), "explorer.js": ("explorer.js", script())}
    pages |= {name: (name, asset(name)) for name in FILES}

    async def page(request: Request) -> Response:
        name, text = pages[request.url.path.removeprefix(f"{front}/")]
        return Response(text, media_type=TYPES[name[name.rindex(".") :]])

    async def models(request: Request) -> Response:
        return await _dropped(shelf, request)

    async def stream(socket: WebSocket) -> None:
        await _talk(shelf, socket)

    routes: list[BaseRoute] = [Route(f"{front}/{name}", page, methods=["GET"]) for name in pages]
    routes += [Route(f"{front}/models", models, methods=["POST"]), WebSocketRoute(f"{front}/stream", stream)]
    return Guard(Starlette(routes=routes), address)


@dataclass(frozen=True)
class Guard:
    """Lets through what comes from the page itself; everything else is refused in a few words."""

    app: App
    address: Address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        reason = self.refuse(scope)
        if reason is None:
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": reason})
        else:
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, _with_headers(send))

    def refuse(self, scope: Any) -> str | None:
        """Why a request is refused, or None."""
        heads: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            heads.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = heads.get("host", [])
        if len(host) != 1 or host[0] not in self.address.hosts:
            return "refused: this server answers to 127.0.0.1 alone"
        token = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(token.encode(), self.address.token.encode()):
            return "refused: the address needs the token that fiberscope explore printed"
        changes = scope["type"] == "websocket" or scope["method"] not in {"GET", "HEAD"}
        origin = heads.get("origin", [])
        if (origin or changes) and origin != [f"http://{host[0]}"]:
            return "refused: another page may not talk to this one"
        if heads.get("sec-fetch-site", ["none"])[0] not in {"same-origin", "none"}:
            return "refused: another page may not talk to this one"
        return None


def _with_headers(send: Any) -> Any:
    async def wrapped(message: Any) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return wrapped


# -- files


async def _dropped(shelf: Shelf, request: Request) -> Response:
    try:
        name = request.query_params.get("name", "")
        shelf.check_name(name)
        content = await _body(request, shelf.most_bytes)
        place = await run_in_threadpool(shelf.drop, name, content)
    except TooLargeError as error:
        return JSONResponse({"error": str(error)}, 413)
    except FiberscopeError as error:
        return JSONResponse({"error": " ".join(str(error).split())}, 400)
    return JSONResponse({"model": place})


async def _body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    large = TooLargeError(
        f"the file: expected at most {most / 2**20:.0f} MB; fiberscope explore FILE opens larger ones"
    )
    told = request.headers.get("content-length", "0")
    if not told.isdigit() or int(told) > most:
        raise large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise large
        parts.append(part)
    return b"".join(parts)


# -- the stream


async def _talk(shelf: Shelf, socket: WebSocket) -> None:
    """One page: messages in, answers out; newer work makes the older stale."""
    await socket.accept()
    studio, loop = Studio(shelf), asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, thread_name_prefix="fiberscope-explore")
    ticket = Ticket()

    async def send(answer: dict[str, Any] | bytes) -> None:
        if isinstance(answer, bytes):
            await socket.send_bytes(answer)
        else:
            await socket.send_text(json.dumps(answer, allow_nan=False))

    def say(answer: dict[str, Any] | bytes, ticket: Ticket) -> None:
        ticket.progress()
        asyncio.run_coroutine_threadsafe(send(answer), loop).result()

    try:
        while True:
            text = await socket.receive_text()
            try:
                message = parse(text)
                work = studio.take(message)
            except FiberscopeError as error:
                await send({"kind": "trouble", "text": " ".join(str(error).split())})
                continue
            ticket.stale.set()
            ticket = Ticket()
            executor.submit(_answer, work, ticket, message.get("id"), say)
    except (WebSocketDisconnect, RuntimeError, KeyError):  # closed, or not a text
        pass
    finally:
        ticket.stale.set()
        executor.shutdown(wait=False, cancel_futures=True)


def _answer(work: Work, ticket: Ticket, number: Any, say: Callable[[dict[str, Any] | bytes, Ticket], None]) -> None:
    """Do the work in its thread; what goes wrong is said in the page, not in a traceback."""
    number = number if isinstance(number, int) else None
    try:
        for answer in work(ticket):
            say(answer, ticket)
        say({"kind": "done", "id": number}, ticket)
    except Superseded:
        pass
    except (FiberscopeError, MemoryError) as error:
        trouble = " ".join(str(error).split()) or "not enough memory"
        _quietly(say, {"kind": "trouble", "text": trouble, "id": number}, ticket)
    except Exception as error:  # a defect: the page stays, and says so
        _quietly(say, {"kind": "trouble", "text": f"unforeseen: {type(error).__name__}: {error}", "id": number}, ticket)


def _quietly(say: Callable[[dict[str, Any] | bytes, Ticket], None], answer: dict[str, Any], ticket: Ticket) -> None:
    try:
        say(answer, ticket)
    except Exception:  # the page has gone
        return

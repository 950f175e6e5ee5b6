"""The live page: static files, and what is new in a directory, pushed to whoever looks.

Nothing is written and nothing is locked. Sources go by names from a list that the server made itself, so no name leads
out of the directory. Beyond this machine a token is needed; on this machine requests for other hosts' names are
refused, so that no web page can reach the server through the reader's browser.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from esper.contracts import EsperError
from esper.dashboard.comparing import compared
from esper.dashboard.run_feed import RunFeed
from esper.dashboard.sources import Sources, UnknownSource
from esper.telemetry import plain

DEFAULT_PORT = 8642
TICK = 0.5
"""Seconds between two looks at a directory."""
HEARTBEAT = 20
"""Ticks without news after which a page is told that the server is there."""
MOST_LIMIT = 100
COOKIE = "esper-token"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"  # fmt: skip
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
STATIC = resources.files("esper.dashboard") / "static"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class PortTaken(EsperError):
    """The server cannot listen there."""


def encoded(value: object) -> bytes:
    """As JSON; numbers that are not finite by name."""
    return msgspec.json.encode(plain(value))


def build_app(root: Path, token: str | None = None, hosts: frozenset[str] | None = None) -> Starlette:
    """The server of a directory. Requests that name another host are refused, and those without the token."""
    sources = Sources(root)

    async def answer(make: Callable[[], Any]) -> Response:
        try:
            body = await run_in_threadpool(lambda: encoded(make()))
        except UnknownSource as error:
            return Response(encoded({"error": str(error)}), 404, media_type="application/json")
        except EsperError as error:
            return Response(encoded({"error": str(error)}), 422, media_type="application/json")
        return Response(body, media_type="application/json")

    async def listed(request: Request) -> Response:
        return await answer(lambda: {"directory": str(root), "sources": sources.listed()})

    async def snapshot(request: Request) -> Response:
        name = request.query_params.get("source", "")
        return await answer(lambda: sources.news(name, "")[1])

    async def episodes(request: Request) -> Response:
        asked = request.query_params
        name, before = asked.get("source", ""), _number(asked.get("before"))
        limit = min(MOST_LIMIT, _number(asked.get("limit")) or 40)
        purpose = asked.get("purpose", "")
        return await answer(lambda: sources.ask([name], lambda run: run.episodes(before, limit, purpose)))

    async def episode(request: Request) -> Response:
        name, number = request.query_params.get("source", ""), request.query_params.get("number", "")
        return await answer(lambda: sources.ask([name], lambda run: _episode(run, number)))

    async def comparison(request: Request) -> Response:
        names = [request.query_params.get(each, "") for each in ("first", "second")]

        def make() -> Any:
            for name in names:
                sources.refreshed(name)
            return sources.ask(names, compared)

        return await answer(make)

    async def stream(request: Request) -> Response:
        name = request.query_params.get("source", "")
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        try:
            await run_in_threadpool(sources.refreshed, name)
        except EsperError as error:
            return Response(encoded({"error": str(error)}), 404, media_type="application/json")
        return StreamingResponse(_events(sources, name, cursor, request), media_type="text/event-stream")

    async def static(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        known = {each.name for each in STATIC.iterdir()}
        if name not in known or Path(name).suffix not in KINDS:
            return Response("there is no such file", 404, media_type="text/plain")
        return Response((STATIC / name).read_bytes(), media_type=KINDS[Path(name).suffix])

    routes = [
        Route("/", static),
        Route("/static/{name}", static),
        Route("/api/sources", listed),
        Route("/api/snapshot", snapshot),
        Route("/api/episodes", episodes),
        Route("/api/episode", episode),
        Route("/api/compare", comparison),
        Route("/api/stream", stream),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(Doorkeeper, token=token, hosts=hosts)
    return app


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 16 else None


def _episode(run: RunFeed, number: str) -> Any:
    counted = _number(number)
    story = run.live_story(number) if counted is None else run.episode(counted)
    if story is None:
        raise UnknownSource(f"there is no episode '{number[:40]}' any more")
    return story


async def _events(sources: Sources, name: str, cursor: str, request: Request) -> AsyncIterator[bytes]:
    """What is new, whenever something is; the id of a message is the cursor from which a page goes on."""
    quiet = 0
    while not await request.is_disconnected():
        try:
            after, news = await run_in_threadpool(sources.news, name, cursor)
        except EsperError as error:
            yield b"event: gone\ndata: " + encoded({"error": str(error)}) + b"\n\n"
            return
        if news:
            cursor, quiet = after, 0
            yield f"id: {cursor}\ndata: ".encode() + await run_in_threadpool(encoded, news) + b"\n\n"
        elif (quiet := quiet + 1) % HEARTBEAT == 0:
            yield b": nothing new\n\n"
        await asyncio.sleep(0 if news.get("state", {}).get("reading") else TICK)


class Doorkeeper:
    """Refuses strangers, and puts the headers on every answer that tell a browser what a page may do."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: frozenset[str] | None) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = message | {"headers": [*message.get("headers", []), *own]}
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """What a stranger gets; a newcomer with the right token gets a cookie instead of it in the address."""
        if request.method not in {"GET", "HEAD"}:
            return Response("this server only shows", 405, media_type="text/plain")
        host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
        if self.hosts is not None and host.strip("[]") not in self.hosts:
            return Response("this server has another name", 421, media_type="text/plain")
        if self.token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and _same(given, self.token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return answer
        if _same(request.cookies.get(COOKIE, ""), self.token):
            return None
        return Response("open the address with the token that 'esper watch' printed", 401, media_type="text/plain")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(root: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Show a directory until Ctrl-C; `say` is told the address, with a token if other machines can reach it."""
    local = is_loopback(host)
    token = None if local else secrets.token_urlsafe(18)
    app = build_app(root, token, frozenset({"localhost", "127.0.0.1", "::1", host}) if local else None)
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off"
    )
    try:
        socket = config.bind_socket()
    except SystemExit:
        raise PortTaken(f"{host}:{port} cannot be listened on; give another --port, or 0 for any") from None
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{socket.getsockname()[1]}/"
    say(address if token is None else f"{address}?token={token}")
    uvicorn.Server(config).run(sockets=[socket])

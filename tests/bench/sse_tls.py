"""Viewers by SSE over TLS for the figures of HTTP/2: as cheap as Python can make them, in HTTP/1.1 or in HTTP/2.

They read, count comments and give windows back. Nothing else is understood: no table of headers, no padding.
"""

from __future__ import annotations

import asyncio
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = 1
END_STREAM_AND_HEADERS = 5
INITIAL_WINDOW_SIZE = 4
WINDOW = 1 << 20
COMMENT, HELLO = b"event: comment", b"event: hello\ni"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


class Viewers(asyncio.Protocol):
    """One connection and the streams on it."""

    def __init__(self, path: str, authority: str, http2: bool, streams: int) -> None:
        self.path, self.authority, self.http2, self.streams = path, authority, http2, streams
        self.comments = 0
        self.hellos = 0
        self.rest = b""
        self.taken = 0
        self.lost: str | None = None
        self.last_word = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self.http2:
            transport.write(f"GET {self.path} HTTP/1.1\r\nHost: {self.authority}\r\n\r\n".encode())
            return
        out = [PREFACE, frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, WINDOW * 64)), frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW))]
        pairs = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", self.authority.encode()), (b":path", self.path.encode())]
        block = b"".join(literal(name, value) for name, value in pairs)
        out += [frame(HEADERS, END_STREAM_AND_HEADERS, 1 + 2 * n, block) for n in range(self.streams)]
        transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        # A name that two reads share is found in the next: the rest is shorter than either.
        seen = self.rest + data
        self.comments += seen.count(COMMENT)
        self.hellos += seen.count(HELLO)
        if not self.http2:
            self.rest = seen[1 - len(COMMENT) :]
            return
        at = 0
        while len(seen) - at >= 9:
            length = int.from_bytes(seen[at : at + 3], "big")
            if len(seen) - at < 9 + length:
                break
            kind, flags = seen[at + 3], seen[at + 4]
            if kind == SETTINGS and not flags & ACK:
                self.transport.write(frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                self.transport.write(frame(PING, ACK, 0, seen[at + 9 : at + 17]))
            elif kind == DATA:
                self.taken += length
            elif kind in (RST_STREAM, GOAWAY):
                self.last_word = f"frame {kind}: {seen[at + 9 : at + 9 + length]!r}"
            at += 9 + length
        # Frames that are not whole are counted when they are.
        self.rest = seen[at:]
        self.comments -= self.rest.count(COMMENT)
        self.hellos -= self.rest.count(HELLO)
        if self.taken > WINDOW // 2:
            self.transport.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self.taken)))
            self.taken = 0

    def connection_lost(self, fault: Exception | None) -> None:
        self.lost = f"{fault}, after {self.hellos} hellos and {self.comments} comments; {self.last_word}"


class Audience:
    """Viewers of one room on as many connections, all greeted."""

    def __init__(self, url: str, certificate: str, room: str, http2: bool) -> None:
        self.host, port = url.removeprefix("https://").rsplit(":", 1)
        self.port = int(port)
        self.path, self.http2 = f"/v1/rooms/{room}/sse", http2
        self.trust = ssl.create_default_context(cafile=certificate)
        self.trust.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
        self.connections: list[Viewers] = []

    async def enter(self, connections: int, streams: int = 1) -> None:
        loop = asyncio.get_running_loop()

        async def one() -> None:
            made = lambda: Viewers(self.path, f"localhost:{self.port}", self.http2, streams)  # noqa: E731
            _, viewers = await loop.create_connection(made, self.host, self.port, ssl=self.trust, server_hostname="localhost", ssl_handshake_timeout=60)
            self.connections.append(viewers)

        for start in range(0, connections, 50):
            await asyncio.gather(*(one() for _ in range(min(50, connections - start))))
        await self.until(lambda: self.hellos() >= len(self.connections) * streams)

    def hellos(self) -> int:
        return sum(c.hellos for c in self.connections)

    def comments(self) -> int:
        return sum(c.comments for c in self.connections)

    async def until(self, done, seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                lost = next((c.lost for c in self.connections if c.lost), None)
                assert lost is None, f"a viewer lost its connection: {lost}"
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        for connection in self.connections:
            connection.transport.abort()
        await asyncio.sleep(0)

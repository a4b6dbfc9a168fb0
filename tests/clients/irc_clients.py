"""IRC with clients nobody here wrote: npm tmi.js and dank-twitch-irc, PyPI irc, Debian's irssi."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import irc.client

from server import Server

HERE = Path(__file__).parent
LIMIT = 30.0  # seconds any single wait may take before the test fails


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serving(plain: Server, **ports: int) -> Server:
    args = [word for by, port in ports.items() for word in ("--set", f"irc.{by}.listen=127.0.0.1:{port}")]
    return Server(plain.binary, args=args)


def mod_token(server: Server, room: str) -> str:
    command = [server.binary, "token", "--data", str(server.data), "--sub", "mod", "--role", "room-mod", "--rooms", room]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


async def bots_of_twitch_read_write_and_moderate(plain: Server) -> None:
    """npm tmi.js (WebSocket) and dank-twitch-irc (TCP), unmodified, through a restart of the server."""
    tcp, websocket = free_port(), free_port()
    with serving(plain, tcp=tcp, websocket=websocket) as server:
        shop = server.token("shop", "backend")
        arguments = [str(tcp), str(websocket), mod_token(server, "irc_room"), server.token("ann", "publisher")]
        node = await asyncio.create_subprocess_exec(
            "node", str(HERE / "irc_client.cjs"), *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert node.stdin and node.stdout
        async with asyncio.timeout(4 * LIMIT):
            while line := (await node.stdout.readline()).decode().strip():
                print(f"     {line}", flush=True)
                if line == "gift":
                    gift = {"gift_id": "g1", "user": {"id": "ann"}, "item": "rose", "count": 1, "amount_micros": 100_000, "currency": "EUR"}
                    status, answer = await asyncio.to_thread(server.post, "/v1/rooms/irc_room/gifts", gift, shop)
                    assert status == 200, answer
                if line == "restart":
                    assert await asyncio.to_thread(server.stop) == 0
                    await asyncio.to_thread(server.start)
                    node.stdin.write(b"\n")
            assert await node.wait() == 0, "tmi.js or dank-twitch-irc failed"


def python_irc_joins_reads_and_talks(plain: Server) -> None:
    """PyPI irc: a bot in twenty lines."""
    port = free_port()
    with serving(plain, tcp=port) as server:
        heard: list[tuple[str, str]] = []
        reactor = irc.client.Reactor()
        bot = reactor.server().connect("127.0.0.1", port, "whoever", password=f"oauth:{server.token('bot', 'publisher')}")
        bot.add_global_handler("welcome", lambda connection, event: connection.join("#py"))
        bot.add_global_handler("join", lambda connection, event: heard.append(("join", event.source.nick)))
        bot.add_global_handler("pubmsg", lambda connection, event: heard.append((event.source.nick, event.arguments[0])))

        def until(wanted: tuple[str, str]) -> None:
            end = time.monotonic() + LIMIT
            while wanted not in heard:
                assert time.monotonic() < end, (wanted, heard)
                reactor.process_once(0.2)

        until(("join", "bot"))
        server.publish("py", "hello bot 🏟️", server.token("fan", "publisher"), "k1")
        until(("fan", "hello bot 🏟️"))
        bot.privmsg("#py", "hello fan")
        end = time.monotonic() + LIMIT
        while not any(c["body"] == "hello fan" for c in server.get("/v1/rooms/py/snapshot")["recent_comments"]):
            assert time.monotonic() < end, "the bot was not heard"
            reactor.process_once(0.05)
        bot.disconnect("bye")


def irssi_joins_reads_and_talks(plain: Server) -> None:
    """Debian's irssi in a terminal, as a person uses it."""
    port = free_port()
    with serving(plain, tcp=port) as server, tempfile.TemporaryDirectory(prefix="irssi-") as home:
        token = server.token("reader", "publisher")
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="vt100", LANG="C.UTF-8", COLUMNS="200", LINES="50")
            os.execvp("irssi", ["irssi", f"--home={home}", "-c", "127.0.0.1", "-p", str(port), "-w", f"oauth:{token}", "-n", "whoever"])
        shown = bytearray()

        def until(what: str) -> None:
            end = time.monotonic() + LIMIT
            while what.encode() not in shown:
                assert time.monotonic() < end, f"irssi did not show {what!r}: {shown.decode(errors='replace')[-2000:]}"
                if select.select([terminal], [], [], 0.2)[0]:
                    shown.extend(os.read(terminal, 65_536))

        try:
            until("GLHF")
            os.write(terminal, b"/join #pub\n")
            until("reader")
            until("#pub")
            fan = server.token("fan", "publisher")
            # Joined when it is shown a line of the room.
            n, end = 0, time.monotonic() + LIMIT
            while b"good evening" not in shown:
                assert time.monotonic() < end, shown.decode(errors="replace")[-2000:]
                n += 1
                server.publish("pub", f"good evening {n}", fan, f"k{n}")
                if select.select([terminal], [], [], 0.5)[0]:
                    shown.extend(os.read(terminal, 65_536))
            os.write(terminal, b"hello from irssi\n")
            end = time.monotonic() + LIMIT
            while not any(c["body"] == "hello from irssi" for c in server.get("/v1/rooms/pub/snapshot")["recent_comments"]):
                assert time.monotonic() < end, "irssi was not heard"
                if select.select([terminal], [], [], 0.05)[0]:
                    shown.extend(os.read(terminal, 65_536))
            os.write(terminal, b"/quit\n")
        finally:
            # It ends with its terminal.
            os.close(terminal)
            os.waitpid(pid, 0)


IRC_TESTS = [
    bots_of_twitch_read_write_and_moderate,
    python_irc_joins_reads_and_talks,
    irssi_joins_reads_and_talks,
]

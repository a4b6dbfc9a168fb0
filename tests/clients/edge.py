"""The proxies people put in front, from Debian, with the example files of deploy/, before the real binary.

What must hold behind nginx (buffering and gzip as they come, event streams among the types it may compress) and HAProxy: the
first byte within a second, every event promptly and in order on every transport, no cut while nothing happens, and the last
words of a server that goes away. With GRANDSTAND_LONG nothing happens for more than three minutes instead of half of one; the
word `idle` runs that part alone. Prometheus' own tool reads the alert rules and what the server exports.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import websockets

from server import Server

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
N_EVENTS = 50
FIRST_BYTE = 1.0  # seconds to the first byte of a stream
PROMPT = 1.0  # seconds from the answer of a publish to the event; a poll is answered once a second
# More than two keepalives of SSE, one ping of WebSocket and one whole poll; at length, more than three minutes.
IDLE = 185.0 if os.environ.get("GRANDSTAND_LONG") else 35.0
LIMIT = 30.0  # seconds any other wait may take before the test fails


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """A proxy before `server`, made from its example file with other addresses."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"grandstand-{name}-"))
        # Its workers may run as another user.
        self.folder.chmod(0o755)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.ws = f"ws://127.0.0.1:{port}"
        upstream = server.url.removeprefix("http://")
        example = DEPLOY / {"nginx": "nginx/grandstand.conf", "haproxy": "haproxy/haproxy.cfg"}[name]
        text = example.read_text()
        assert text.count("127.0.0.1:8080") == 1, "the example names the server once"
        text = text.replace("127.0.0.1:8080", upstream)
        if name == "nginx":
            text, n = re.subn(r"listen 80;", f"listen 127.0.0.1:{port};", text)
            (self.folder / "site.conf").write_text(text)
            temp = "".join(f"    {kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            # As Debian's nginx.conf has it, and compression of all that a viewer reads.
            main = (
                f"daemon off;\nmaster_process on;\nworker_processes 1;\npid {self.folder}/nginx.pid;\nerror_log stderr warn;\n"
                "events { worker_connections 512; }\n"
                f"http {{\n    access_log off;\n    gzip on;\n    gzip_min_length 1;\n    gzip_types text/event-stream application/json;\n{temp}"
                f"    include {self.folder}/site.conf;\n}}\n"
            )
            config = self.folder / "nginx.conf"
            config.write_text(main)
            command = ["nginx", "-p", str(self.folder), "-e", "stderr", "-c", str(config)]
        else:
            text, n = re.subn(r"bind 0\.0\.0\.0:80\n", f"bind 127.0.0.1:{port}\n", text)
            text = re.sub(r"maxconn 100000", "maxconn 500", text)
            config = self.folder / "haproxy.cfg"
            config.write_text(text)
            command = ["haproxy", "-db", "-f", str(config)]
        assert n == 1, "the example listens once"
        self.log = open(self.folder / "log.txt", "w+")
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, "PATH": path})
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError(f"{name} does not accept:\n{self.said()}") from None
                time.sleep(0.02)

    def said(self) -> str:
        self.log.flush()
        return (self.folder / "log.txt").read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sse:
    """One event stream read by line, comments and retry: too."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.lines = response.aiter_lines()
        self.n_comments = 0
        self.retry: int | None = None

    async def next(self) -> tuple[str, dict] | None:
        """The next event's kind and body; None at the end of the stream."""
        kind, data = "message", []
        async for line in self.lines:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "" and data:
                return kind, json.loads("\n".join(data))
            if line.startswith(":"):
                self.n_comments += 1
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
            elif field == "retry":
                self.retry = int(value)
        return None


@asynccontextmanager
async def sse(proxy: Proxy, room: str, gzip: bool):
    headers = {"accept-encoding": "gzip" if gzip else "identity"}
    async with httpx.AsyncClient(timeout=httpx.Timeout(LIMIT + IDLE)) as client:
        began = time.monotonic()
        async with client.stream("GET", f"{proxy.url}/v1/rooms/{room}/sse", headers=headers) as response:
            stream = Sse(response)
            assert response.status_code == 200, response.status_code
            kind, _ = await stream.next() or ("nothing", {})
            took = time.monotonic() - began
            assert kind == "hello" and took < FIRST_BYTE, (kind, took)
            yield stream


def flat(frame: str) -> list[dict]:
    parsed = json.loads(frame)
    return parsed if isinstance(parsed, list) else [parsed]


async def publish(proxy: Proxy, client: httpx.AsyncClient, room: str, token: str, n: int) -> int:
    answer = await client.post(
        f"{proxy.url}/v1/rooms/{room}/comments",
        json={"client_msg_id": f"{room}-{n}", "body": f"event {n}"},
        headers={"authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 200, (answer.status_code, answer.text)
    return answer.json()["event_id"]


async def every_event_comes_promptly_and_in_order(proxy: Proxy, server: Server) -> None:
    room, token = f"events-{proxy.name}", server.token(f"author-{proxy.name}", "backend", "publisher")
    heard: dict[str, dict[int, float]] = {"websocket": {}, "sse": {}, "sse gzip": {}, "poll": {}}
    ready = {name: asyncio.Event() for name in heard}

    def hear(name: str, event: dict) -> bool:
        if event["type"] == "comment":
            heard[name][event["event_id"]] = time.monotonic()
        return len(heard[name]) == N_EVENTS

    async def by_websocket() -> None:
        began = time.monotonic()
        async with websockets.connect(f"{proxy.ws}/v1/rooms/{room}/stream") as viewer:
            assert flat(await viewer.recv())[0]["type"] == "hello"
            assert time.monotonic() - began < FIRST_BYTE
            ready["websocket"].set()
            while not any([hear("websocket", event) for event in flat(await viewer.recv())]):
                pass

    async def by_sse(name: str) -> None:
        async with sse(proxy, room, gzip=name == "sse gzip") as stream:
            ready[name].set()
            while True:
                event = await stream.next()
                assert event, "the stream ended"
                if hear(name, event[1]):
                    return

    async def by_poll() -> None:
        async with httpx.AsyncClient(timeout=LIMIT) as client:
            body = (await client.get(f"{proxy.url}/v1/rooms/{room}/poll")).json()
            ready["poll"].set()
            while not any([hear("poll", event) for event in body["events"]]):
                params = {"since": body["next_since"], "timeout": 5}
                answer = await client.get(f"{proxy.url}/v1/rooms/{room}/poll", params=params)
                assert answer.status_code == 200, answer.status_code
                body = answer.json()

    tasks = [asyncio.create_task(t) for t in (by_websocket(), by_sse("sse"), by_sse("sse gzip"), by_poll())]
    async with asyncio.timeout(LIMIT):
        for event in ready.values():
            waiting = asyncio.create_task(event.wait())
            done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    published: dict[int, float] = {}
    async with httpx.AsyncClient(timeout=LIMIT) as client:
        for n in range(N_EVENTS):
            event_id = await publish(proxy, client, room, token, n)
            published[event_id] = time.monotonic()
            # A pace at which a buffer would hold something back.
            await asyncio.sleep(0.02)
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*tasks)
    for name, times in heard.items():
        assert list(times) == list(published), (proxy.name, name, list(times), list(published))
        late = max(times[event_id] - published[event_id] for event_id in published)
        allowed = PROMPT + (1.0 if name == "poll" else 0.0)
        assert late < allowed, f"{name}: an event came {late:.2f} s after its publish was answered"
        print(f"   {proxy.name:8} {name:10} {N_EVENTS} events in order, the latest {max(late, 0) * 1000:.0f} ms after its answer")


class Pings(logging.Handler):
    """Counts the pings a client's library was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.n += "< PING" in record.getMessage()


async def nothing_is_cut_while_nothing_happens(proxy: Proxy, server: Server) -> None:
    room, token = f"idle-{proxy.name}", server.token(f"idle-author-{proxy.name}", "publisher")
    pings = Pings()
    logger = logging.Logger(f"pings-{proxy.name}", logging.DEBUG)
    logger.addHandler(pings)

    async def polls(client: httpx.AsyncClient) -> int:
        """Polls one after another for as long as nothing happens; how many."""
        since = (await client.get(f"{proxy.url}/v1/rooms/{room}/poll")).json()["next_since"]
        until = time.monotonic() + IDLE - 30
        n = 0
        while n == 0 or time.monotonic() < until:
            began = time.monotonic()
            # With nothing to say it is held to its end; that others came to watch rides in the answer and does not hasten it.
            answer = await client.get(f"{proxy.url}/v1/rooms/{room}/poll", params={"since": since, "timeout": 30})
            held = time.monotonic() - began
            # 204 where there is nothing at all to tell.
            assert answer.status_code in (200, 204), (answer.status_code, answer.text)
            if answer.status_code == 200:
                body = answer.json()
                assert {event["type"] for event in body["events"]} <= {"counters"}, answer.text
                since = body["next_since"]
            assert held > 25, f"the poll was answered after {held:.1f} s"
            n += 1
        return n

    # The client's own pings are off: the connection lives by the server's.
    async with (
        websockets.connect(f"{proxy.ws}/v1/rooms/{room}/stream", ping_interval=None, logger=logger) as viewer,
        sse(proxy, room, gzip=False) as stream,
        httpx.AsyncClient(timeout=LIMIT + IDLE) as client,
    ):
        held = asyncio.create_task(polls(client))
        comments_before = stream.n_comments

        async def comment_on_sse() -> None:
            while True:
                event = await stream.next()
                assert event, "the event stream was cut"
                if event[0] == "comment":
                    return

        async def comment_on_websocket() -> None:
            while True:
                if any(event["type"] == "comment" for event in flat(await viewer.recv())):
                    return

        reading = [asyncio.create_task(comment_on_sse()), asyncio.create_task(comment_on_websocket())]
        done, _ = await asyncio.wait(reading, timeout=IDLE, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        assert not done, "a comment nobody wrote"
        n_polls = await held
        # A keepalive every 15 s, a ping after at most 25 s and its pong.
        assert stream.n_comments - comments_before >= IDLE // 16, f"{stream.n_comments} keepalives in {IDLE:.0f} s"
        assert pings.n >= IDLE // 26, f"{pings.n} pings in {IDLE:.0f} s"
        async with asyncio.timeout(FIRST_BYTE):
            await publish(proxy, client, room, token, 0)
            await asyncio.gather(*reading)
        print(f"   {proxy.name:8} idle for {IDLE:.0f} s: {stream.n_comments} keepalives, {pings.n} pings, {n_polls} whole polls, then an event")


async def the_last_words_come_through(proxies: list[Proxy], server: Server) -> None:
    """A drain: WebSocket and SSE hear when to come back, a poll is answered, and all ends."""

    async def by_websocket(proxy: Proxy, ready: asyncio.Event) -> None:
        async with websockets.connect(f"{proxy.ws}/v1/rooms/last/stream") as viewer:
            await viewer.recv()
            ready.set()
            words = []
            try:
                while True:
                    words += flat(await viewer.recv())
            except websockets.ConnectionClosed as closed:
                assert closed.rcvd and closed.rcvd.code == 4112, closed
            assert words[-1]["type"] == "close" and words[-1]["code"] == 4112 and words[-1]["spread_ms"] > 0, words

    async def by_sse(proxy: Proxy, ready: asyncio.Event) -> None:
        async with sse(proxy, "last", gzip=False) as stream:
            ready.set()
            words = []
            while event := await stream.next():
                words.append(event)
            kind, body = words[-1]
            assert kind == "close" and body["code"] == 4112, words
            assert stream.retry is not None and stream.retry >= 500, stream.retry

    async def by_poll(proxy: Proxy, ready: asyncio.Event) -> None:
        async with httpx.AsyncClient(timeout=LIMIT) as client:
            since = (await client.get(f"{proxy.url}/v1/rooms/last/poll")).json()["next_since"]
            call = asyncio.create_task(client.get(f"{proxy.url}/v1/rooms/last/poll", params={"since": since, "timeout": 25}))
            # It is held when the server counts it.
            async with asyncio.timeout(LIMIT):
                while server_polls(server) < 1:
                    await asyncio.sleep(0.02)
            ready.set()
            answer = await call
            assert answer.status_code == 503 and answer.json()["code"] == 4112, (answer.status_code, answer.text)
            assert int(answer.headers["retry-after"]) >= 1, answer.headers

    tasks, waits = [], []
    for proxy in proxies:
        for viewer in (by_websocket, by_sse, by_poll):
            ready = asyncio.Event()
            tasks.append(asyncio.create_task(viewer(proxy, ready)))
            waits.append(asyncio.create_task(ready.wait()))
    async with asyncio.timeout(LIMIT):
        for waiting in waits:
            done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        # Both polls, one behind each proxy.
        while server_polls(server) < len(proxies):
            await asyncio.sleep(0.02)
        code = await asyncio.to_thread(server.stop)
        assert code == 0, code
        await asyncio.gather(*tasks)
    print("   a drain is told through " + " and ".join(p.name for p in proxies))


def metrics(server: Server) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        return answer.read().decode()


def server_polls(server: Server) -> float:
    found = re.search(r'^grandstand_gateway_streams\{transport="poll"\} (\S+)$', metrics(server), re.M)
    assert found, "polls are not counted"
    return float(found[1])


def prometheus_reads_what_we_wrote(server: Server) -> None:
    subprocess.run(["promtool", "check", "rules", str(DEPLOY / "prometheus/alerts.yml")], check=True, stdout=subprocess.DEVNULL)
    # What pages at which figures, and what does not.
    tried = subprocess.run(["promtool", "test", "rules", str(DEPLOY / "prometheus/alerts_test.yml")], text=True, capture_output=True)
    assert tried.returncode == 0, tried.stdout + tried.stderr
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics(server), text=True, capture_output=True)
    assert checked.returncode == 0 and not checked.stderr.strip(), checked.stdout + checked.stderr
    print("   promtool: the rules page when they should, and the metrics are as they should be")


async def run(binary: str, only_idle: bool) -> None:
    with Server(binary) as server:
        proxies: list[Proxy] = []
        try:
            proxies = [Proxy(name, server) for name in ("nginx", "haproxy")]
            if not only_idle:
                prometheus_reads_what_we_wrote(server)
                for proxy in proxies:
                    await every_event_comes_promptly_and_in_order(proxy, server)
            await asyncio.gather(*(nothing_is_cut_while_nothing_happens(proxy, server) for proxy in proxies))
            if not only_idle:
                await the_last_words_come_through(proxies, server)
        except BaseException:
            for proxy in proxies:
                print(f"--- {proxy.name} said:\n{proxy.said()}", file=sys.stderr)
            raise
        finally:
            for proxy in proxies:
                proxy.stop()


def main() -> int:
    began = time.monotonic()
    try:
        asyncio.run(run(sys.argv[1], "idle" in sys.argv[2:]))
    except Exception:
        traceback.print_exc()
        return 1
    print(f"edge: passed in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What other servers spend on the same: the same audience, the same pace, one after the other in each pair.

Beside ours and the bare `send` loop: uWebSockets (by PyPI's socketify), Nchan (an nginx module of Debian) and Centrifugo (from the Go
module proxy, memory engine). Each is fetched into the target folder on first use; one that cannot be had is named, never left
out silently. The audience is crates/load/examples/crowd.rs, which counts bodies and parses no protocol. CPU is
/proc/PID/stat of all of a server's processes, memory RssAnon and RssShmem.

What is not the same: ours has each comment on the disk before it is shown (fsync) and sends it with id, author and time;
the others keep nothing and send the body as it is.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

from server import Server  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = str(TARGET / "release/grandstand")
FETCHED = TARGET / "peers"
PAIRS = int(os.environ.get("BENCH_PAIRS", "5"))
SECONDS = 8
# Comments that come at once in the bursts.
BURST = 40
BODY = "#!" + "x" * 98
CENTRIFUGO = "v6.9.1"
SOCKETIFY = "socketify==0.0.31"
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")

WS = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


class Absent(Exception):
    """A peer cannot be had here."""


def run(*words: str, **more: object) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise Absent(f"{' '.join(words)}: {done.stdout.strip()[-600:]}")


def free_port() -> int:
    """Below the ports that the audience's own connections take and leave in TIME_WAIT."""
    while True:
        with socket.socket() as one:
            port = random.randrange(20_000, 32_000)
            try:
                one.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Absent(f"it does not accept: {log.read_text()[-600:]}")


def get(path: str, port: int, more: str = "") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n"


def post(path: str, port: int, more: str = "") -> str:
    return f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}"


class Peer:
    """One server: fetched once, started for each run."""

    name = ""
    transports = ("ws",)

    @classmethod
    def fetch(cls) -> str:
        """Makes it available; its version."""
        return ""

    def __init__(self, merged: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="grandstand-peer-"))
        self.log = self.folder / "log.txt"
        self.merged = merged
        self.port = free_port()
        self.process: subprocess.Popen | None = None

    def begin(self, *words: str, **env: str) -> None:
        out = open(self.log, "w")
        self.process = subprocess.Popen(words, stdout=out, stderr=out, cwd=self.folder, env={**os.environ, **env})
        wait_for(self.port, self.process, self.log)

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pids(self) -> list[int]:
        assert self.process
        own = self.process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return [own, *map(int, children)]

    def settings(self, transport: str) -> dict:
        raise NotImplementedError


class Ours(Peer):
    name = "Grandstand"
    transports = ("ws", "sse")

    def __init__(self, merged: bool) -> None:
        self.server = Server(BINARY)
        self.merged = merged

    def __enter__(self) -> "Ours":
        self.server.start()
        self.port = int(self.server.listen.rsplit(":", 1)[1])
        status, answer = self.server.post(
            "/admin/rooms/bench", {"merge_ms": 100 if self.merged else 0, "justification": "bench"}, self.server.token("ops", "admin"), "PUT")
        assert status in (200, 201), answer
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def pids(self) -> list[int]:
        assert self.server.process
        return [self.server.process.pid]

    def settings(self, transport: str) -> dict:
        path = "/v1/rooms/bench/" + ("stream" if transport == "ws" else "sse")
        bearer = f"Authorization: Bearer {self.server.token('backend', 'backend')}\r\nContent-Type: application/json\r\n"
        return {
            "request": get(path, self.port, WS if transport == "ws" else ""), "greeting": '"hello"',
            "publish_head": post("/v1/rooms/bench/comments", self.port, bearer),
            "publish_body": json.dumps({"client_msg_id": "c{n}", "body": BODY}),
        }


APP = """
import sys
from socketify import App, OpCode
app = App()
app.ws("/*", {"open": lambda ws: ws.subscribe("r"), "idle_timeout": 0, "max_backpressure": 64 << 20})
waiting, together = [], int(sys.argv[2])
def publish(res, req):
    waiting.append(req.get_header("x-body"))
    res.end("ok")
    if len(waiting) == together:
        for body in waiting:
            app.publish("r", body, OpCode.TEXT)
        waiting.clear()
app.post("/pub", publish)
app.listen(int(sys.argv[1]), lambda _: None)
app.run()
"""


class UWebSockets(Peer):
    name = "uWebSockets (socketify)"

    @classmethod
    def fetch(cls) -> str:
        python = FETCHED / "venv/bin/python"
        if not (FETCHED / "venv/complete").exists():
            run(sys.executable, "-m", "venv", str(FETCHED / "venv"))
            run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", SOCKETIFY)
            (FETCHED / "venv/complete").touch()
        try:
            run(str(python), "-c", "import socketify")
        except Absent:
            apt("libuv1")
            run(str(python), "-c", "import socketify")
        return SOCKETIFY.split("==")[1]

    def __enter__(self) -> "UWebSockets":
        (self.folder / "app.py").write_text(APP)
        # What is published in one turn of its loop leaves as one frame's worth: a burst is held until it is whole, as ours has its window.
        self.begin(str(FETCHED / "venv/bin/python"), "app.py", str(self.port), str(BURST if self.merged else 1))
        return self

    def settings(self, transport: str) -> dict:
        return {
            "request": get("/", self.port, WS), "greeting": "\r\n\r\n",
            # In a header: the wrapper awaits a body, and ends by an abort when forty come at once.
            "publish_head": post("/pub", self.port, f"X-Body: {BODY}\r\n"), "publish_body": "",
        }


NCHAN_MODULE = "/usr/lib/nginx/modules/ngx_nchan_module.so"
NCHAN = """
load_module {module};
daemon off; pid nginx.pid; error_log stderr warn; {user}
worker_processes {cores}; worker_rlimit_nofile 100000;
events {{ worker_connections 50000; }}
http {{
  access_log off; keepalive_requests 1000000; nchan_shared_memory_size 512m;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /sub {{ nchan_subscriber websocket eventsource; nchan_channel_id r; nchan_subscriber_first_message newest; }}
    location = /pub {{ nchan_publisher http; nchan_channel_id r; nchan_message_buffer_length 10000; nchan_message_timeout 5m; }}
  }}
}}
"""


class Nchan(Peer):
    name = "Nchan (nginx)"
    transports = ("ws", "sse")

    @classmethod
    def fetch(cls) -> str:
        if not os.path.exists(NCHAN_MODULE):
            apt("libnginx-mod-nchan")
        if not os.path.exists(NCHAN_MODULE):
            raise Absent(f"{NCHAN_MODULE} is missing (Debian: libnginx-mod-nchan)")
        said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libnginx-mod-nchan"], capture_output=True, text=True)
        return said.stdout.strip() or "unknown"

    def __enter__(self) -> "Nchan":
        user = "user root;" if os.geteuid() == 0 else ""
        text = NCHAN.format(module=NCHAN_MODULE, user=user, cores=os.cpu_count(), port=self.port)
        (self.folder / "nginx.conf").write_text(text)
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.begin(nginx, "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-e", "stderr")
        return self

    def settings(self, transport: str) -> dict:
        more = WS if transport == "ws" else "Accept: text/event-stream\r\n"
        return {
            "request": get("/sub", self.port, more), "greeting": "\r\n\r\n",
            "publish_head": post("/pub", self.port, "Content-Type: text/plain\r\n"), "publish_body": BODY,
        }


class Centrifugo(Peer):
    name = "Centrifugo"
    transports = ("ws", "sse")

    @classmethod
    def fetch(cls) -> str:
        if not (FETCHED / "centrifugo").exists():
            if not shutil.which("go"):
                raise Absent("go is missing: it is built from the Go module proxy")
            env = {**os.environ, "GOBIN": str(FETCHED), "GOFLAGS": ""}
            run("go", "install", f"github.com/centrifugal/centrifugo/v6@{CENTRIFUGO}", env=env)
        return CENTRIFUGO

    def __enter__(self) -> "Centrifugo":
        config = {
            "http_server": {"address": "127.0.0.1", "port": str(self.port)}, "log": {"level": "error"},
            "client": {"insecure": True, "allowed_origins": ["*"], "queue_max_size": 64 << 20}, "http_api": {"insecure": True},
            "uni_sse": {"enabled": True}, "channel": {"without_namespace": {"allow_subscribe_for_client": True}},
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        self.begin(str(FETCHED / "centrifugo"), "-c", "config.json")
        return self

    def settings(self, transport: str) -> dict:
        publish = {
            "publish_head": post("/api/publish", self.port, "Content-Type: application/json\r\n"),
            "publish_body": json.dumps({"channel": "r", "data": {"b": BODY}}),
        }
        if transport == "sse":
            path = "/connection/uni_sse?cf_connect=" + "%7B%22subs%22%3A%7B%22r%22%3A%7B%7D%7D%7D"
            return {"request": get(path, self.port, "Accept: text/event-stream\r\n"), "greeting": '"connect"', **publish}
        then = '{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"r"}}'
        return {"request": get("/connection/websocket", self.port, WS), "then": then, "greeting": '"subscribe"', **publish}


def apt(package: str) -> None:
    """Tries a Debian package; who needs it looks again."""
    if shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
            subprocess.run(["apt-get", *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


class Crowd:
    """The audience of one server."""

    def __init__(self, port: int, settings: dict) -> None:
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(settings, self.file)
        self.file.flush()
        program = str(TARGET / "release/examples/crowd")
        self.process = subprocess.Popen([program, f"127.0.0.1:{port}", self.file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.file.close()

    def ask(self, command: str) -> dict:
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in and pipe_out
        pipe_in.write(command + "\n")
        pipe_in.flush()
        line = pipe_out.readline()
        assert line, f"the audience ended at: {command}"
        return json.loads(line)


def cpu_us(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total * TICK_US


def memory_kb(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem")))
    return total


def idle(peer: type[Peer]) -> dict[str, float]:
    """KB a connection from 5 000 to 15 000, and CPU of connecting them all."""
    with peer(False) as server, Crowd(server.port, server.settings("ws")) as crowd:  # type: ignore[attr-defined]
        cpu, kb = cpu_us(server.pids()), {}
        for n in (5_000, 15_000):
            crowd.ask(f"connect {n}")
            crowd.ask("listen 2")
            kb[n] = memory_kb(server.pids())
        return {"idle_kb": (kb[15_000] - kb[5_000]) / 10_000, "connect_us": (cpu_us(server.pids()) - cpu) / 15_000}


def deliver(peer: type[Peer], transport: str, viewers: int, rate: int, burst: int) -> dict[str, float]:
    with peer(burst > 1) as server, Crowd(server.port, server.settings(transport)) as crowd:  # type: ignore[attr-defined]
        crowd.ask(f"connect {viewers}")
        crowd.ask("listen 1")
        cpu = cpu_us(server.pids())
        said = crowd.ask(f"publish {rate} {burst} {SECONDS}")
        cpu = cpu_us(server.pids()) - cpu
        assert said["failed"] == 0 and said["delivered"] > 0, said
        share = said["delivered"] / (said["published"] * viewers)
        return {"us": cpu / said["delivered"], "share": share, "bytes": said["bytes"] / said["reads"], "a_read": said["delivered"] / said["reads"],
                "reads_a_second": said["reads"] / viewers / said["seconds"]}


def bare(transport: str, viewers: int, ours: dict[str, float]) -> dict[str, float]:
    """The `send` loop: as many bytes a frame, comments a frame and frames a second as ours had."""
    a_frame = max(1, round(ours["a_read"]))
    program = str(TARGET / "release/examples/bare_send")
    words = [program, transport, str(viewers), f"{ours['reads_a_second']:.2f}", str(SECONDS), str(round(ours["bytes"])), str(a_frame)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    # Its clock starts with the request that sets a room up.
    room = http.client.HTTPConnection("127.0.0.1", port)
    room.request("PUT", "/admin/rooms/bench", "{}")
    room.getresponse().read()
    settings = {"request": get("/", port, WS if transport == "ws" else ""), "greeting": '"hello"'}
    try:
        with Crowd(port, settings) as crowd:
            crowd.ask(f"connect {viewers}")
            line = process.stdout.readline()
            assert line, f"it ended early, with {process.wait()}"
            figures = json.loads(line)
    finally:
        process.kill()
        process.wait()
    assert figures["full"] <= figures["sends"] / 100, f"the audience did not keep up: {figures}"
    return {"us": figures["cpu_us_per_send"] / a_frame, "connect_us": figures["cpu_us_per_connection"], "share": 1.0}


FIGURES: list[tuple[str, str, tuple[str, int, int, int]]] = [
    ("unmerged", "µs a delivery, WebSocket, 5 000 viewers, 10/s", ("ws", 5_000, 10, 1)),
    ("burst", "µs a delivery, WebSocket, 2 000 viewers, 400/s in bursts of 40", ("ws", 2_000, 400, BURST)),
    ("sse", "µs a delivery, SSE, 5 000 viewers, 10/s", ("sse", 5_000, 10, 1)),
]
TITLES = {"idle_kb": "KB an idle WebSocket", "connect_us": "µs a connection", **{key: title for key, title, _ in FIGURES}}


def peers(say: Callable[..., None]) -> None:
    """Ours, a bare `send` loop and other servers, interleaved in each pair; medians and spreads, and a table of them."""
    # Beside the binary's package, so that what both depend on is built once.
    examples = ["cargo", "build", "--release", "-q", "-p", "grandstand", "-p", "grandstand-load", "--example", "bare_send", "--example", "crowd"]
    subprocess.run(examples, cwd=ROOT, check=True)
    FETCHED.mkdir(parents=True, exist_ok=True)
    here: list[type[Peer]] = [Ours]
    absent: list[str] = []
    for peer in (UWebSockets, Nchan, Centrifugo):
        try:
            say("peer", peer=peer.name, version=peer.fetch())
            here.append(peer)
        except Absent as why:
            say("peer", peer=peer.name, ABSENT=str(why))
            absent.append(peer.name)
    got: dict[tuple[str, str], list[float]] = {}
    lost: dict[tuple[str, str], float] = {}

    def keep(name: str, key: str, value: float) -> None:
        got.setdefault((name, key), []).append(value)
        print(f"  {name}: {value:.3f} {TITLES[key]}", file=sys.stderr, flush=True)

    def attempt(peer: type[Peer] | None, what: Callable[[], dict[str, float]]) -> dict[str, float]:
        """A peer that breaks is named, and has no value; ours breaks the run."""
        try:
            return what()
        except (AssertionError, Absent, OSError) as why:
            if peer is Ours:
                raise
            say("peers-broken", peer=peer.name if peer else "bare send loop", BROKEN=str(why)[-600:])
            return {}

    for _ in range(PAIRS):
        for peer in here:
            for key, value in attempt(peer, lambda peer=peer: idle(peer)).items():
                keep(peer.name, key, value)
        for key, _, (transport, viewers, rate, burst) in FIGURES:
            for peer in here:
                if transport in peer.transports:
                    one = attempt(peer, lambda peer=peer: deliver(peer, transport, viewers, rate, burst))
                    if not one:
                        continue
                    keep(peer.name, key, one["us"])
                    if one["share"] < 0.9999:
                        lost[peer.name, key] = min(lost.get((peer.name, key), 1), one["share"])
                    if peer is Ours:
                        floor = attempt(None, lambda one=one: bare(transport, viewers, one))
                        if floor:
                            keep("bare send loop", key, floor["us"])
                        if floor and key == "unmerged":
                            keep("bare send loop", "connect_us", floor["connect_us"])
    names = ["bare send loop", *(peer.name for peer in here)]
    for name in names:
        for key in TITLES:
            if (name, key) in got:
                values = got[name, key]
                more = {"delivered_share": lost[name, key]} if (name, key) in lost else {}
                say(f"peers-{key}", peer=name, pairs=len(values), median=statistics.median(values), low=min(values), high=max(values), **more)
    print(f"\n| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for key, title in TITLES.items():
        cells = []
        for name in names:
            values = got.get((name, key))
            cell = f"{statistics.median(values):.2f} ({min(values):.2f} – {max(values):.2f})" if values else "–"
            if (name, key) in lost:
                cell += f", {lost[name, key]:.1%} delivered"
            cells.append(cell)
        print(f"| {title} | {' | '.join(cells)} |")
    for name in absent:
        print(f"ABSENT: {name} could not be had and was not measured; the reason stands above")
    sys.stdout.flush()

"""Clients nobody here wrote, against the real binary: PyPI websockets and httpx-sse, npm ws and eventsource, curl -N; IRC clients, standardwebhooks."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import httpx
import websockets
from httpx_sse import aconnect_sse

from irc_clients import IRC_TESTS
from server import Server
from webhook_clients import WEBHOOK_TESTS

HERE = Path(__file__).parent
LIMIT = 30.0  # seconds any single wait may take before the test fails


def flat(frame: str) -> list[dict]:
    parsed = json.loads(frame)
    return parsed if isinstance(parsed, list) else [parsed]


async def until(socket: websockets.ClientConnection, wanted) -> list[dict]:
    """Every event up to and with the first that `wanted` accepts."""
    seen: list[dict] = []
    async with asyncio.timeout(LIMIT):
        while True:
            for event in flat(await socket.recv()):
                seen.append(event)
                if wanted(event):
                    return seen


async def websocket_publish_reaches_every_transport(server: Server) -> None:
    token = server.token("alice", "publisher")
    watcher = await websockets.connect(f"{server.ws}/v1/rooms/all/stream")
    hello = (await until(watcher, lambda e: e["type"] == "hello"))[0]
    assert hello["room_id"] == "all" and hello["resumed"] is False, hello

    heard: dict[str, dict] = {}
    streaming = asyncio.Event()

    async def sse() -> None:
        async with httpx.AsyncClient(timeout=LIMIT) as client:
            async with aconnect_sse(client, "GET", f"{server.url}/v1/rooms/all/sse") as source:
                assert source.response.headers["content-type"].startswith("text/event-stream")
                async for event in source.aiter_sse():
                    if event.event == "hello":
                        streaming.set()
                    if event.event == "comment":
                        assert event.id == str(event.json()["event_id"])
                        heard["sse"] = event.json()
                        return

    async def poll() -> None:
        async with httpx.AsyncClient(timeout=LIMIT) as client:
            first = (await client.get(f"{server.url}/v1/rooms/all/poll")).json()
            since = first["next_since"]
            while True:
                answer = await client.get(f"{server.url}/v1/rooms/all/poll", params={"since": since, "timeout": 5})
                assert answer.headers["cache-control"] == "no-store"
                body = answer.json()
                assert body["next_since"] >= since
                since = body["next_since"]
                for event in body["events"]:
                    if event["type"] == "comment":
                        heard["poll"] = event
                        return

    tasks = [asyncio.create_task(sse()), asyncio.create_task(poll())]
    async with asyncio.timeout(LIMIT):
        await streaming.wait()
    author = await websockets.connect(
        f"{server.ws}/v1/rooms/all/stream", subprotocols=["grandstand.v1", f"bearer.{token}"]
    )
    assert author.subprotocol == "grandstand.v1"
    await author.send(json.dumps({"op": "publish", "client_msg_id": "k1", "body": "to the whole stand 🏟️"}))
    own = await until(author, lambda e: e["type"] == "publish_ack")
    ack = own[-1]
    shown = (await until(watcher, lambda e: e["type"] == "comment"))[-1]
    assert ack["client_msg_id"] == "k1" and ack["event_id"] == shown["event_id"], (ack, shown)
    assert shown["body"] == "to the whole stand 🏟️" and "client_msg_id" not in shown
    copy = next((e for e in own if e["type"] == "comment"), None) or (await until(author, lambda e: e["type"] == "comment"))[-1]
    assert copy["client_msg_id"] == "k1", copy
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*tasks)
    assert heard["sse"]["event_id"] == heard["poll"]["event_id"] == shown["event_id"], heard

    # The same key again is the same answer; the same key with other text is refused.
    await author.send(json.dumps({"op": "publish", "client_msg_id": "k1", "body": "to the whole stand 🏟️"}))
    again = (await until(author, lambda e: e["type"] == "publish_ack"))[-1]
    assert again["event_id"] == ack["event_id"] and again["duplicate"] is True, again
    await author.send(json.dumps({"op": "publish", "client_msg_id": "k1", "body": "something else"}))
    refused = (await until(author, lambda e: e["type"] == "error"))[-1]
    assert refused["code"] == "idempotency_conflict" and refused["client_msg_id"] == "k1", refused
    for bad in ("nonsense", '{"op":"dance"}', '{"op":"publish","client_msg_id":"k2","body":"x\\u0007"}'):
        await author.send(bad)
    codes = []
    while len(codes) < 3:
        codes += [e["code"] for e in await until(author, lambda e: e["type"] == "error") if e["type"] == "error"]
    assert codes == ["bad_json", "bad_op", "bad_text"], codes
    await asyncio.gather(watcher.close(), author.close())


async def websocket_resumes_where_it_was(server: Server) -> None:
    token = server.token("bob", "backend")
    reader = await websockets.connect(f"{server.ws}/v1/rooms/resume/stream")
    await until(reader, lambda e: e["type"] == "hello")
    cursor = server.publish("resume", "seen", token, "r0")
    await until(reader, lambda e: e.get("event_id") == cursor)
    await reader.close()
    missed = [server.publish("resume", f"missed {n}", token, f"r{n}") for n in range(1, 31)]
    for how in ("header", "query", "hello"):
        url = f"{server.ws}/v1/rooms/resume/stream"
        options: dict = {}
        if how == "header":
            options["additional_headers"] = {"Last-Event-ID": str(cursor)}
        if how == "query":
            url += f"?last_event_id={cursor}"
        if how == "hello":
            options["subprotocols"] = ["grandstand.v1"]
        async with websockets.connect(url, **options) as back:
            if how == "hello":
                await back.send(json.dumps({"op": "hello", "last_event_id": cursor}))
            got = await until(back, lambda e: e.get("event_id") == missed[-1])
            assert got[0]["type"] == "hello" and got[0]["resumed"] is True and got[0]["cursor"] == cursor, (how, got[0])
            assert [e["event_id"] for e in got if e["type"] == "comment"] == missed, how


async def tokens_are_taken_every_way_and_bad_ones_refused(server: Server) -> None:
    token = server.token("carol", "publisher")
    url = f"{server.ws}/v1/rooms/auth/stream"

    async def publishes(socket: websockets.ClientConnection, key: str) -> None:
        await socket.send(json.dumps({"op": "publish", "client_msg_id": key, "body": "hello"}))
        event = (await until(socket, lambda e: e["type"] in ("publish_ack", "error")))[-1]
        assert event["type"] == "publish_ack", event

    async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        await publishes(socket, "a1")
    async with websockets.connect(url, subprotocols=["grandstand.v1", f"bearer.{token}"]) as socket:
        await publishes(socket, "a2")
    async with websockets.connect(url, subprotocols=["grandstand.v1"]) as socket:
        await socket.send(json.dumps({"op": "hello", "token": token}))
        await publishes(socket, "a3")
    status, ticket = server.post("/v1/ticket", {"room_id": "auth"}, token)
    assert status == 200, ticket
    async with websockets.connect(f"{url}?ticket={ticket['ticket']}") as socket:
        await publishes(socket, "a4")
    async with websockets.connect(url) as socket:
        await until(socket, lambda e: e["type"] == "hello")
        await socket.send(json.dumps({"op": "publish", "client_msg_id": "a5", "body": "anonymous"}))
        event = (await until(socket, lambda e: e["type"] == "error"))[-1]
        assert event["code"] == "not_allowed", event
    status, guest = server.post("/v1/guest", {"name": "Terrace", "room_id": "auth"})
    assert status == 200, guest
    async with websockets.connect(url, subprotocols=["grandstand.v1", f"bearer.{guest['token']}"]) as socket:
        await publishes(socket, "a6")

    for options in ({"additional_headers": {"Authorization": "Bearer nonsense"}}, {"origin": "https://evil.example"}, {"origin": "null"}):
        try:
            async with websockets.connect(url, **options) as socket:
                event = (await until(socket, lambda e: e["type"] in ("close", "hello")))[-1]
                assert event["type"] == "close" and event["code"] // 100 == 40, (options, event)
        except websockets.InvalidStatus as refused:
            assert refused.response.status_code in (401, 403), (options, refused)
    try:
        async with websockets.connect(f"{url}?token={token}"):
            raise AssertionError("a token in the URL was accepted")
    except websockets.InvalidStatus as refused:
        assert refused.response.status_code == 400, refused


async def one_connection_serves_page_then_stream(server: Server) -> None:
    """A keep-alive connection that fetched a page and a snapshot then asks for SSE."""
    reader, writer = await asyncio.open_connection(*server.listen.split(":"))
    host = server.listen

    async def answer() -> tuple[str, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        low = head.lower()
        if "content-length:" in low:
            return head, await reader.readexactly(int(low.split("content-length:")[1].split("\r\n")[0]))
        body = b""
        while True:
            size = int(await reader.readline(), 16)
            body += await reader.readexactly(size)
            await reader.readexactly(2)
            if size == 0:
                return head, body

    async with asyncio.timeout(LIMIT):
        for path in ("/", "/v1/rooms", "/rooms/keep", "/healthz/live"):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head, body = await answer()
            assert " 200 " in head.split("\r\n")[0] and body, (path, head)
        writer.write(f"GET /v1/rooms/keep/sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert "text/event-stream" in head and "no-cache" in head, head
        first = await reader.readuntil(b"\n\n")
        assert b"event: hello" in first, first
    writer.close()


def curl_streams_and_resumes(server: Server) -> None:
    token = server.token("dave", "backend")
    cursor = server.publish("curl", "before", token, "c0")
    process = subprocess.Popen(
        ["curl", "-sN", "-H", f"Last-Event-ID: {cursor}", f"{server.url}/v1/rooms/curl/sse"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    lines: list[str] = []
    published: list[int] = []
    started = time.monotonic()
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("event: hello"):
            published = [server.publish("curl", f"line {n}", token, f"c{n}") for n in range(1, 6)]
        ids = [int(text[4:]) for text in lines if text.startswith("id: ")]
        if published and ids and ids[-1] == published[-1]:
            break
        assert time.monotonic() - started < LIMIT, lines
    process.kill()
    process.wait()
    assert ids[0] == cursor and ids[1:] == published, (ids, published)


def node_clients(server: Server) -> None:
    """npm ws and eventsource: follow, server restart, resume without loss."""
    token = server.token("erin", "backend")
    script = subprocess.Popen(
        ["node", str(HERE / "node_clients.cjs"), server.url, token], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert script.stdout and script.stdin
    for line in script.stdout:
        if line.strip() == "restart":
            assert server.stop() == 0
            server.start()
            script.stdin.write("restarted\n")
            script.stdin.flush()
        else:
            print("   ", line.rstrip())
    assert script.wait() == 0, "the node clients failed"


def self_signed(folder: str) -> tuple[Path, Path]:
    """A certificate for localhost that vouches for itself, and its key."""
    certificate, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def clients_that_check_certificates_are_served_by_tls(plain: Server) -> None:
    """A self-signed certificate that websockets, httpx-sse and curl are told to trust, in a server of its own."""
    with tempfile.TemporaryDirectory(prefix="grandstand-tls-") as folder:
        certificate, key = self_signed(folder)
        trust = ssl.create_default_context(cafile=str(certificate))
        with Server(plain.binary, args=["--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}"]) as server:
            assert server.url.startswith("https://"), server.url
            token = server.token("frank", "publisher")
            writer = await websockets.connect(
                f"{server.ws}/v1/rooms/tls/stream", ssl=trust, additional_headers={"Authorization": f"Bearer {token}"}
            )
            await until(writer, lambda e: e["type"] == "hello")
            curl = subprocess.Popen(
                ["curl", "-sN", "--cacert", str(certificate), f"{server.url}/v1/rooms/tls/sse"], stdout=subprocess.PIPE, text=True
            )
            assert curl.stdout and curl.stdout.readline().startswith(("event: hello", "retry:", ":")), "curl was not let in"
            async with httpx.AsyncClient(timeout=LIMIT, verify=trust) as client:
                async with aconnect_sse(client, "GET", f"{server.url}/v1/rooms/tls/sse") as source:
                    async for event in source.aiter_sse():
                        if event.event == "hello":
                            await writer.send(json.dumps({"op": "publish", "room_id": "tls", "client_msg_id": "t1", "body": "sealed"}))
                        if event.event == "comment":
                            assert event.json()["body"] == "sealed", event.data
                            break
            for line in curl.stdout:
                if "sealed" in line:
                    break
            else:
                raise AssertionError("curl did not hear the comment")
            curl.kill()
            curl.wait()
            await writer.close()
            try:
                await websockets.connect(f"{server.ws}/v1/rooms/tls/stream", ssl=ssl.create_default_context())
                raise AssertionError("a client that does not trust the certificate was let in")
            except ssl.SSLCertVerificationError:
                pass


async def clients_of_http2_share_one_connection(plain: Server) -> None:
    """httpx (h2) and Node's http2: streams, polls and publishes beside each other, WebSockets on the same port, a drain."""
    with tempfile.TemporaryDirectory(prefix="grandstand-http2-") as folder:
        certificate, key = self_signed(folder)
        trust = ssl.create_default_context(cafile=str(certificate))
        with Server(plain.binary, args=["--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}", "--set", "http2=true"]) as server:
            token = server.token("gina", "publisher")
            bearer = {"Authorization": f"Bearer {token}"}
            socket = await websockets.connect(f"{server.ws}/v1/rooms/two/stream", ssl=trust)
            await until(socket, lambda e: e["type"] == "hello")
            heard: dict[str, list[int]] = {"a": [], "b": []}
            async with httpx.AsyncClient(timeout=LIMIT, verify=trust, http1=False, http2=True, limits=httpx.Limits(max_connections=1)) as client:
                ready = {name: asyncio.Event() for name in heard}

                async def watch(name: str) -> None:
                    async with aconnect_sse(client, "GET", f"{server.url}/v1/rooms/two/sse") as source:
                        assert source.response.http_version == "HTTP/2"
                        async for event in source.aiter_sse():
                            if event.event == "hello":
                                ready[name].set()
                            if event.event == "comment":
                                heard[name].append(event.json()["event_id"])
                                if len(heard[name]) == 30:
                                    return

                watching = [asyncio.create_task(watch(name)) for name in heard]
                async with asyncio.timeout(LIMIT):
                    await asyncio.gather(*(event.wait() for event in ready.values()))
                since = (await client.get(f"{server.url}/v1/rooms/two/poll")).json()["next_since"]
                ids = []
                for n in range(30):
                    answer = await client.post(
                        f"{server.url}/v1/rooms/two/comments", json={"client_msg_id": f"h{n}", "body": f"line {n}"}, headers=bearer
                    )
                    assert answer.status_code == 200 and answer.http_version == "HTTP/2", answer.text
                    ids.append(answer.json()["event_id"])
                async with asyncio.timeout(LIMIT):
                    await asyncio.gather(*watching)
                assert heard == {"a": ids, "b": ids}, heard
                polled = (await client.get(f"{server.url}/v1/rooms/two/poll", params={"since": since, "timeout": 1})).json()
                assert [e["event_id"] for e in polled["events"] if e["type"] == "comment"] == ids, polled
                resume = {"Last-Event-ID": str(ids[9])}
                async with aconnect_sse(client, "GET", f"{server.url}/v1/rooms/two/sse", headers=resume) as source:
                    again = []
                    async for event in source.aiter_sse():
                        if event.event == "comment":
                            again.append(event.json()["event_id"])
                        if len(again) == 20:
                            break
                assert again == ids[10:], again
                metrics = (await client.get(f"{server.url}/metrics")).text
                assert 'grandstand_gateway_protocol_connections{protocol="http2"} 1\n' in metrics, "one connection carries all"
            await until(socket, lambda e: e.get("event_id") == ids[-1])
            await socket.close()
            command = ["node", str(HERE / "http2_client.cjs"), server.url, token, str(certificate)]
            node = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert node.stdout
            async with asyncio.timeout(LIMIT):
                while line := (await node.stdout.readline()).decode().strip():
                    print(f"     {line}", flush=True)
                    if line == "drain":
                        assert await asyncio.to_thread(server.stop) == 0
                assert await node.wait() == 0, "node's http2 failed"


def the_follower_of_the_docs_misses_nothing(plain: Server) -> None:
    """docs/embed.md's forty lines, as they stand there: over a server that stops and starts, each comment once."""
    page = (HERE.parent.parent / "docs/embed.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 40, f"{len(code.splitlines())} lines"
    with tempfile.TemporaryDirectory(prefix="grandstand-follower-") as folder, Server(plain.binary) as server:
        script = Path(folder, "follower.py")
        script.write_text(code)
        token = server.token("writer", "publisher")
        first = server.publish("followed", "before", token, "f0")
        follower = subprocess.Popen([sys.executable, str(script), server.url, "followed"], stdout=subprocess.PIPE, text=True)
        assert follower.stdout
        # A line that never comes ends the wait for it.
        watchdog = threading.Timer(4 * LIMIT, follower.kill)
        watchdog.start()
        # It begins at the head: what it hears of first was said after it was there.
        deadline, n = time.monotonic() + LIMIT, 0
        while 'streams{transport="sse"} 1' not in server.text("/metrics"):
            assert time.monotonic() < deadline, "the follower does not come"
        wanted = []
        for how in ("stop", "kill"):
            for _ in range(3):
                n += 1
                wanted.append(f"writer: line {n}")
                assert server.publish("followed", f"line {n}", token, f"f{n}") > first
            assert [follower.stdout.readline().strip() for _ in range(3)] == wanted[-3:], how
            server.stop() if how == "stop" else server.kill()
            server.start()
        n += 1
        server.publish("followed", f"line {n}", token, f"f{n}")
        assert follower.stdout.readline().strip() == f"writer: line {n}"
        watchdog.cancel()
        follower.kill()
        follower.wait()


async def main(binary: str) -> int:
    tests = [
        websocket_publish_reaches_every_transport,
        websocket_resumes_where_it_was,
        tokens_are_taken_every_way_and_bad_ones_refused,
        one_connection_serves_page_then_stream,
        curl_streams_and_resumes,
        the_follower_of_the_docs_misses_nothing,
        clients_that_check_certificates_are_served_by_tls,
        clients_of_http2_share_one_connection,
        node_clients,
        *IRC_TESTS,
        *WEBHOOK_TESTS,
    ]
    failed = 0
    with Server(binary) as server:
        for test in tests:
            start = time.monotonic()
            try:
                if asyncio.iscoroutinefunction(test):
                    await test(server)
                else:
                    await asyncio.to_thread(test, server)
                print(f"ok   {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {test.__name__}\n{traceback.format_exc()}", flush=True)
        if failed:
            print((server.data / "stderr.txt").read_text()[-4000:])
        assert server.stop() == 0, "SIGTERM did not end with exit code 0"
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(asyncio.run(main(sys.argv[1])))

"""One user publishes as fast as the server answers; what it costs the others.

Starts nothing: give it a server of yours, e.g. `grandstand serve --data D --listen 127.0.0.1:8080`, and its binary for tokens.

    python3 tests/bench/flood.py --binary target/ci/grandstand --data D --address 127.0.0.1:8080

Twenty users publish twice a second each over WebSocket, and the time to each one's ack is taken, first alone, then while one more
user sends comments by POST over many connections. The promise: the others' p99 moves by less than 25 % or 20 ms.
Exit code 1: the promise is broken, or the flood was none.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import time

import websockets

OTHERS = 20


def token(args, sub, role="publisher"):
    done = subprocess.run(
        [args.binary, "token", "--data", args.data, "--sub", sub, "--role", role, "--ttl", "1h"],
        capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def publisher(args, n, seconds, took):
    """Publishes twice a second and takes the time to each ack."""
    head = {"Authorization": f"Bearer {token(args, f'other-{n}')}"}
    async with websockets.connect(f"ws://{args.address}/v1/rooms/{args.room}/stream", additional_headers=head) as ws:
        await asyncio.sleep(n / OTHERS / 2)
        sent, end = {}, time.monotonic() + seconds

        async def read():
            async for frame in ws:
                events = json.loads(frame)
                for event in events if isinstance(events, list) else [events]:
                    at = sent.pop(event.get("client_msg_id"), None) if event["type"] == "publish_ack" else None
                    if at is not None:
                        took.append(time.monotonic() - at)

        reader = asyncio.create_task(read())
        for key in itertools.count():
            if time.monotonic() > end:
                break
            name = f"{time.time_ns()}-{key}"
            sent[name] = time.monotonic()
            await ws.send(json.dumps({"op": "publish", "client_msg_id": name, "body": f"hello {name}"}))
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        reader.cancel()
        if sent:
            print(f"other-{n}: {len(sent)} publishes were not acked", file=sys.stderr)


def p(q, took):
    return sorted(took)[min(len(took) - 1, int(q * len(took)))] * 1000 if took else float("nan")


async def measure(args, seconds):
    took = []
    await asyncio.gather(*(publisher(args, n, seconds, took) for n in range(OTHERS)))
    return took


def flood(address, room, bearer, seconds, paced, out):
    """One process of the flood: posts over a few sockets, as fast as answered, `paced` a second at most."""
    import socket
    host, port = address.split(":")
    head = (f"POST /v1/rooms/{room}/comments HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\n"
            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s")
    sockets = [socket.create_connection((host, int(port))) for _ in range(8)]
    answers, start = {}, time.monotonic()
    for n in itertools.count():
        if time.monotonic() - start > seconds:
            break
        late = n * len(sockets) / paced - (time.monotonic() - start)
        if late > 0:
            time.sleep(late)
        for i, s in enumerate(sockets):
            body = json.dumps({"client_msg_id": f"{time.time_ns()}-{i}", "body": "buy this"})
            s.sendall((head % (len(body), body)).encode())
        for s in sockets:
            status = s.recv(65536)[9:12].decode()
            answers[status] = answers.get(status, 0) + 1
    out.put(answers)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--address", default="127.0.0.1:8080")
    parser.add_argument("--room", default="flood")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=10_000)
    args = parser.parse_args()
    import multiprocessing
    await measure(args, 2)
    alone = await measure(args, args.seconds)
    out, bearer = multiprocessing.Queue(), token(args, "eve")
    processes = [multiprocessing.Process(target=flood, args=(args.address, args.room, bearer, args.seconds + 2,
                                                             args.rate / 2, out)) for _ in range(2)]
    for process in processes:
        process.start()
    await asyncio.sleep(0.5)
    flooded = await measure(args, args.seconds)
    answers = {}
    for process in processes:
        for status, n in out.get().items():
            answers[status] = answers.get(status, 0) + n
        process.join()
    sent = sum(answers.values()) / (args.seconds + 2)
    before, after = p(0.99, alone), p(0.99, flooded)
    print(f"alone:   {len(alone)} acks, p50 {p(0.5, alone):.1f} ms, p99 {before:.1f} ms")
    print(f"flooded: {len(flooded)} acks, p50 {p(0.5, flooded):.1f} ms, p99 {after:.1f} ms")
    print(f"the flood: {sent:.0f} publishes a second, answers {answers}")
    kept = after - before < max(0.25 * before, 20)
    print("kept" if kept else "BROKEN", f"(p99 moved by {after - before:.1f} ms)")
    return 0 if kept and answers.get("429", 0) > 0 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

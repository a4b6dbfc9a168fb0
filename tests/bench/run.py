"""The figures of docs/benchmarks.md. Each is a function; names on the command line choose, none means all.

Every run starts a release server of its own on a temporary folder and prints what it measured as a line of JSON, so that a
table can be made from it and two commits can be compared.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import resource
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))

import peers as beside  # noqa: E402
from server import Server  # noqa: E402
from sse_tls import Audience  # noqa: E402

# Figures are of a release build. Another profile shows that one runs, as BENCH_SCALE does, and compares with nothing.
PROFILE = os.environ.get("BENCH_PROFILE", "release")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BUILT = TARGET / {"dev": "debug"}.get(PROFILE, PROFILE)
BINARY = str(BUILT / "grandstand")


def begin_load(server: Server, *args: str, books: bool = True, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """`books`: what viewers saw is held against what the server counted."""
    assert server.process
    asked = ["--pid", str(server.process.pid)] if books else []
    command = [*prefix, BINARY, "load", "--url", server.url, *server.ca, "--data", str(server.data), *asked, "--json", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_load(run: subprocess.Popen[str], within: float | None = None, excused: dict[str, int] | None = None) -> dict:
    """`excused`: checks that may fail by so much, where the run itself makes that so."""
    try:
        out, err = run.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        run.kill()
        raise AssertionError(f"{' '.join(map(str, run.args))}\nwas not over within {within} s") from None
    report = json.loads(out) if out else {"checks": []}
    failed = [check for check in report["checks"] if check["failed"] > (excused or {}).get(check["name"], 0)]
    # A run ends with 1 for a check that failed, and is heard to its end then.
    excuses = bool(report.get("viewers")) and bool(excused) and not failed
    assert run.returncode == 0 or excuses, f"{' '.join(map(str, run.args))}\n{failed}\n{err[-3000:]}"
    return report


def load(server: Server, *args: str, within: float | None = None) -> dict:
    return end_load(begin_load(server, *args), within)


def say(name: str, **figures: object) -> None:
    print(json.dumps({"figure": name, **{k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}}), flush=True)


def memory() -> None:
    """Slope of anonymous resident memory from 5 000 to 15 000 idle viewers, each a user of its own, plain and over TLS."""
    for transport, secure in (("ws", False), ("sse", False), ("ws", True), ("sse", True)):
        at = {}
        for viewers in (5000, 15000):
            with Server(BINARY, secure=secure) as server:
                report = load(server, "--idle", "--distinct-users", "--viewers", str(viewers), "--seconds", "3", "--transport", transport)
                at[viewers] = report["server"]["connected"]
        slope = (at[15000]["rss_anon_kb"] - at[5000]["rss_anon_kb"]) / 10_000
        total = (at[15000]["rss_kb"] - at[5000]["rss_kb"]) / 10_000
        say(f"memory-{transport}{'-tls' if secure else ''}", anon_kb_per_viewer=slope, rss_kb_per_viewer=total)


FAILED: list[str] = []


def verdict(held: bool, name: str, figures: object) -> None:
    """A goal that is not met is told at the end, too, and is the exit code."""
    if not held:
        FAILED.append(f"{name}: {figures}")


def scaled(viewers: int) -> int:
    """So many viewers, or a share of them where BENCH_SCALE says so: to see that a figure runs, not to compare it."""
    return max(100, round(viewers * float(os.environ.get("BENCH_SCALE", "1"))))


# New streams a second that the storms' server takes: 14 250 in 8.3 s less the jar. A storm is to be felt, not to be waited out.
STORM_RATE = int(os.environ.get("BENCH_STORM_RATE", "1500"))


def delivery() -> None:
    """Server CPU per delivery: 5 000 viewers at 10 msg/s without merging, 2 000 viewers at 400 msg/s with the room's window; plain and over TLS."""
    for transport, secure in (("ws", False), ("sse", False), ("ws", True), ("sse", True)):
        over = "-tls" if secure else ""
        with Server(BINARY, secure=secure) as server:
            report = load(server, "--viewers", "5000", "--rate", "10", "--seconds", "20", "--transport", transport, "--merge-ms", "0")
            say(f"unmerged-{transport}{over}", cpu_us_per_delivery=report["server"]["cpu_us_per_delivery"], comments=report["comments"])
        with Server(BINARY, secure=secure) as server:
            report = load(server, "--viewers", "2000", "--rate", "400", "--seconds", "20", "--transport", transport, "--merge-ms", "100")
            say(f"merged-{transport}{over}", cpu_us_per_delivery=report["server"]["cpu_us_per_delivery"], comments=report["comments"])


class Bare:
    """A bare `send` loop with as many sockets, at the same pace, with the same bytes; see crates/load/examples/bare_send.rs."""

    def __init__(self, transport: str, viewers: int, per_second: float, seconds: float, size: int, comments: int = 1) -> None:
        program = str(BUILT / "examples/bare_send")
        words = [program, transport, str(viewers), str(per_second), str(seconds), str(size), str(comments)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        url = self.process.stdout.readline().split()[1]
        audience = [BINARY, "load", "--url", url, "--token", "none", "--idle", "--json", "--transport", transport]
        audience += ["--viewers", str(viewers), "--seconds", str(seconds + 120)]
        reader = subprocess.Popen(audience, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # An audience that cannot begin must not be waited for without end.
        threading.Thread(target=lambda: (reader.wait(), self.process.kill()), daemon=True).start()
        line = self.process.stdout.readline()
        assert line, f"the audience of {words[1]} ended before it was sent anything"
        self.figures = json.loads(line)
        self.process.wait()
        # The audience has seen what it came for; its checks are of a server's promises, which this is not.
        reader.kill()
        assert self.figures["full"] <= self.figures["sends"] / 100, f"the audience did not keep up: {self.figures}"


PAIRS = int(os.environ.get("BENCH_PAIRS", "5"))


def spread(values: list[float]) -> dict:
    return {"median": round(statistics.median(values), 3), "from": round(min(values), 3), "to": round(max(values), 3)}


def say_pairs(name: str, ours: list[float], bare: list[float], **figures: object) -> None:
    """Median and spread of the ratios of the pairs, and of both sides."""
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    say(name, pairs=len(ratios), ratio=spread(ratios), server=spread(ours), bare=spread(bare), **figures)


def build_bare() -> None:
    command = ["cargo", "build", "--profile", PROFILE, "-q", "-p", "grandstand-load", "--example", "bare_send"]
    subprocess.run(command, cwd=ROOT, check=True)


def fanout() -> None:
    """CPU of the server a frame against that of a bare `send` of the same bytes at the same pace, in interleaved pairs."""
    build_bare()
    seconds = 8
    for transport in ("ws", "sse"):
        ours, bare = [], []
        for _ in range(PAIRS):
            with Server(BINARY) as server:
                words = ["--viewers", "5000", "--rate", "10", "--merge-ms", "0", "--seconds", str(seconds)]
                report = load(server, *words, "--transport", transport)
            ours.append(report["server"]["cpu_us_per_delivery"])
            size = report["bytes"] // report["frames"]
            bare.append(Bare(transport, 5000, 10, seconds, size).figures["cpu_us_per_send"])
        say_pairs(f"fanout-unmerged-{transport}", ours, bare, frame_bytes=size)
    ours, bare, per_delivery = [], [], []
    for _ in range(PAIRS):
        with Server(BINARY) as server:
            words = ["--viewers", "2000", "--rate", "400", "--burst", "40", "--merge-ms", "100", "--seconds", str(seconds)]
            report = load(server, *words, "--transport", "ws")
        frames = report["delivered"] / report["frames"]
        ours.append(report["server"]["cpu_us_per_delivery"] * frames)
        per_delivery.append(report["server"]["cpu_us_per_delivery"])
        size = report["bytes"] // report["frames"]
        pace = report["frames"] / 2000 / report["seconds"]
        bare.append(Bare("ws", 2000, round(pace, 2), seconds, size, max(1, round(frames))).figures["cpu_us_per_send"])
    say_pairs("fanout-merged-ws", ours, bare, frame_bytes=size, comments_a_frame=frames, cpu_us_per_delivery=spread(per_delivery))


def deflate() -> None:
    """Egress and CPU of the server with permessage-deflate agreed on and without, in interleaved pairs: merged frames and single comments."""
    shapes = {
        "merged": ["--viewers", "2000", "--rate", "400", "--burst", "40", "--merge-ms", "100"],
        "unmerged": ["--viewers", "2000", "--rate", "20", "--merge-ms", "0", "--body-bytes", "100"],
        "small-rooms": ["--viewers", "200", "--rooms", "20", "--rate", "100", "--burst", "40", "--merge-ms", "100"],
    }
    for shape, words in shapes.items():
        cpu: dict[bool, list[float]] = {True: [], False: []}
        size: dict[bool, float] = {}
        packing = []
        for _ in range(PAIRS):
            for on in (True, False):
                with Server(BINARY) as server:
                    report = load(server, *words, "--seconds", "8", *(["--deflate"] if on else []))
                    page = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
                metric = {k: float(v) for k, v in (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))}
                frames = metric['grandstand_gateway_frames_total{transport="websocket"}']
                size[on] = metric['grandstand_gateway_frame_bytes_total{transport="websocket"}'] / frames
                cpu[on].append(report["server"]["cpu_us_per_delivery"])
                if on:
                    packing.append(metric["grandstand_gateway_deflate_seconds_total"] * 1e6 / frames)
        ratios = [a / b for a, b in zip(cpu[True], cpu[False], strict=True)]
        say(
            f"deflate-{shape}", pairs=PAIRS, frame_bytes_on=size[True], frame_bytes_off=size[False], cpu_ratio=spread(ratios),
            cpu_us_per_delivery_on=spread(cpu[True]), cpu_us_per_delivery_off=spread(cpu[False]), compress_us_per_frame_sent=spread(packing),
        )


def accept() -> None:
    """CPU of the server to accept, authenticate with a token it has verified before, join and greet, against accept, read and write."""
    build_bare()
    viewers = 10_000
    ours, bare = [], []
    words = ["--idle", "--distinct-users", "--viewers", str(viewers), "--seconds", "1"]
    for _ in range(PAIRS):
        with Server(BINARY) as server:
            load(server, *words)
            all_left(server)
            usage = load(server, *words)["server"]
        ours.append((usage["connected"]["cpu_us"] - usage["before"]["cpu_us"]) / viewers)
        bare.append(Bare("ws", viewers, 1, 1, 200).figures["cpu_us_per_connection"])
    say_pairs("accept", ours, bare)


def all_left(server: Server) -> None:
    """Waits until the server has closed what its last crowd left open, so that this is not counted with what comes next."""
    assert server.process
    descriptors = Path(f"/proc/{server.process.pid}/fd")
    deadline = time.monotonic() + 60
    while len(list(descriptors.iterdir())) > 200:
        assert time.monotonic() < deadline, "the last crowd's connections are still open"
        time.sleep(0.05)


def slow() -> None:
    """5 000 viewers at 10 msg/s with two score events a second, one in ten of them slow: the others' latency against runs without.

    Rounds of four runs in turn, each its own server. The load generator fails when a victim lacks a priority event or a comment
    that it was not told of. Verdict: the others' p99, as the median over the rounds, rises by less than a quarter or 20 ms.
    """
    # Long comments, so that a victim feels its slowness: the kernel holds some 64 KB for everyone.
    words = ["--viewers", str(scaled(5_000)), "--rate", "10", "--score-rate", "2", "--seconds", "30", "--body-bytes", "500"]
    kinds = (None, "none", "1", "1024")
    rounds = []
    for n in range(PAIRS):
        at = {}
        for kind in kinds:
            with Server(BINARY) as server:
                slow = ["--slow-share", "0.1", "--slow-kind", kind] if kind else []
                report = load(server, *words, *slow)
            figures = {k: report[k] for k in ("comments", "scores", "slow", "closes", "reconnects")}
            say(f"slow-{kind or 'nobody'}", round=n, **figures, rss_anon_kb=report["server"]["after"]["rss_anon_kb"])
            at[kind] = report
        rounds.append(at)
    verdicts = {}
    for kind in kinds[1:]:
        rises = {}
        for what in ("comments", "scores"):
            pairs = [(at[None][what]["p99_ms"], at[kind][what]["p99_ms"]) for at in rounds]
            ratio, more = (statistics.median(f(b, s) for b, s in pairs) for f in (lambda b, s: s / b, lambda b, s: s - b))
            rises[what] = {"without_ms": spread([b for b, _ in pairs]), "with_ms": spread([s for _, s in pairs]), "ratio": round(ratio, 3), "more_ms": round(more, 1)}
        grown = max(at[kind]["server"]["after"]["rss_anon_kb"] - at[None]["server"]["after"]["rss_anon_kb"] for at in rounds)
        held = all(r["ratio"] < 1.25 or r["more_ms"] < 20 for r in rises.values()) and grown < 32 * 1024
        complete, closed, skipped = (sum(at[kind]["slow"][k] for at in rounds) for k in ("complete", "closed", "skipped"))
        assert closed + skipped > 0, f"{kind} was felt by nobody: the run proves nothing"
        say(f"slow-{kind}-verdict", **rises, rss_anon_kb_more=grown, victims_complete=complete, victims_closed=closed, comments_told_as_skipped=skipped, held=held)
        verdicts[kind] = held
    verdict(all(verdicts.values()), "slow", verdicts)


def storms(name: str, viewers: int, n: int, secure: bool, limit_s: float) -> None:
    args = ["--set", f"admission.rate={STORM_RATE}"]
    with Server(BINARY, args=args, secure=secure) as server:
        words = ["--viewers", str(scaled(viewers)), "--distinct-users", "--rate", "1", "--score-rate", "1", "--storm", "--storms", str(n)]
        report = load(server, *words)
    rounds = report["storms"]
    for at, r in enumerate(rounds):
        say(f"{name}-{at + 1}", **{k: r[k] for k in ("dropped", "back", "half_s", "most_s", "all_s", "closes", "broke", "admitted_in_a_second", "told", "usage")}, stayers_score_p99_ms=r["stayers_scores"]["p99_ms"])
    gaps = sum(r["told"]["ring"] + r["told"]["log"] for r in rounds)
    from_ring = sum(r["told"]["ring"] for r in rounds) / gaps
    slowest = max(r["all_s"] for r in rounds)
    # A storm that was over before a score came says nothing about it; at least one has to.
    score_p99 = statistics.median(r["stayers_scores"]["p99_ms"] for r in rounds if r["stayers_scores"]["n"])
    over = max(r["told"]["over_limit"] for r in rounds)
    # Nothing is read for a connection: no key set, no room's settings, and of the log what its cursors outside the ring share.
    reads = {what: max(r["told"][what] for r in rounds) for what in ("key_set_reads", "rooms_asked", "log_reads")}
    unread = reads["key_set_reads"] <= 1 and reads["rooms_asked"] <= 64 and reads["log_reads"] <= max(r["dropped"] for r in rounds) * 0.05 + 64
    held = {"unread": unread, "all_back": slowest <= limit_s, "ring": from_ring >= 0.95, "stayers": score_p99 < 800, "limit": over == 0}
    say(f"{name}-verdict", all_back_s=spread([r["all_s"] for r in rounds]), from_ring=from_ring, stayers_score_p99_ms=score_p99, over_limit=over, **reads, **held)
    verdict(all(held.values()), name, held)


def storm() -> None:
    """15 000 viewers of one room dropped at once, ten times in a row; drift of memory, descriptors and threads fails the run."""
    storms("storm", 15_000, 10, False, 20)


def storm_tls() -> None:
    """The same over TLS, where the limit is 60 s."""
    storms("storm-tls", 15_000, 10, True, 60)


def storm_short() -> None:
    """The same with 3 000 viewers and two storms."""
    storms("storm-short", 3_000, 2, False, 20)
    storms("storm-short-tls", 3_000, 2, True, 60)


def crowd() -> None:
    """10 000 viewers at 5 msg/s: WebSocket alone, then a mix with each transport apart."""
    for transport in ("ws", "mix"):
        with Server(BINARY) as server:
            report = load(server, "--viewers", str(scaled(10_000)), "--rate", "5", "--score-rate", "1", "--seconds", "60", "--transport", transport)
        by = report["comments_by"]
        say(f"crowd-{transport}", comments_by=by, scores_by=report["scores_by"], skipped=report["skipped"], cpu_percent=report["server"]["cpu_percent"])
        # A long-poll is answered at most once a second by contract, so it is told and not judged.
        held = {t: c["p50_ms"] < 200 and c["p99_ms"] < 500 and c["p999_ms"] < 1_200 for t, c in by.items() if t != "poll"}
        verdict(all(held.values()), f"crowd-{transport}", held)


NEIGHBOUR_RATE = float(os.environ.get("BENCH_NEIGHBOUR_RATE", "8"))


def metric(server: Server, name: str, *labels: str) -> int:
    """The sum of a family's lines that have all these labels."""
    page = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
    lines = (line for line in page.splitlines() if line.startswith(name + "{") and all(label in line for label in labels))
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines)


def scores_delivered(server: Server) -> tuple[int, int]:
    """Score events whose walk was over within 50 ms by the server's own clock, and all."""
    family = "grandstand_gateway_delivery_seconds_bucket"
    return metric(server, family, 'lane="priority"', 'le="0.05"'), metric(server, family, 'lane="priority"', 'le="+Inf"')


def neighbours() -> None:
    """A ten-viewer room beside a room of 15 000 at full rate, both on the one worker: score events of the small room.

    The large room's comments are not merged, 8 a second (`BENCH_NEIGHBOUR_RATE`): each is a walk of 15 000 sends. The small room has ten score
    events a second for 20 s, first alone, then within the time in which the large one publishes. Verdict: with the neighbour, p99 below 50 ms as
    the viewers saw it; the share that the server itself saw delivered in time tells a slow server from a load generator without a core.
    """
    viewers = scaled(15_000)
    small = ["--viewers", "10", "--rate", "0", "--score-rate", "10", "--seconds", "20"]
    alone, beside_it = [], []
    for n in range(PAIRS):
        with Server(BINARY, args=["--set", "workers=1"]) as server:
            alone.append(load(server, *small)["scores"])
            words = ["--viewers", str(viewers), "--rate", str(NEIGHBOUR_RATE), "--merge-ms", "0", "--seconds", "40"]
            crowded = begin_load(server, *words)
            deadline = time.monotonic() + 300
            while metric(server, "grandstand_gateway_streams") < viewers:
                assert crowded.poll() is None and time.monotonic() < deadline, "the large room did not fill"
                time.sleep(0.5)
            before = scores_delivered(server)
            neighbour = load(server, *small)
            timely, all_of_them = (b - a for a, b in zip(before, scores_delivered(server), strict=True))
            assert crowded.poll() is None, "the large room fell silent before the small one: the run proves nothing"
            large = end_load(crowded)
        beside_it.append(neighbour["scores"])
        figures = {k: large[k] for k in ("viewers", "acked", "deliveries_per_second", "skipped", "comments", "reconnects")}
        say("neighbours", round=n, small_alone=alone[-1], small=beside_it[-1], server_within_50_ms=timely / all_of_them, large=figures, cpu_percent=large["server"]["cpu_percent"])
        given = large["delivered"] + large["skipped"]
        assert given >= large["acked"] * viewers / 2, f"the large room was not at its rate: {figures}"
    p99 = statistics.median(s["p99_ms"] for s in beside_it)
    held = p99 < 50
    say("neighbours-verdict", alone_p99_ms=spread([s["p99_ms"] for s in alone]), p99_ms=spread([s["p99_ms"] for s in beside_it]), held=held)
    verdict(held, "neighbours", {"score p99 in the small room, ms": p99})


def processes(pid: int) -> list[int]:
    """A process and those it started."""
    children = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text().split()
    return [pid, *(p for child in children for p in processes(int(child)))]


def idle() -> None:
    """100 000 viewers held by six gateway processes; each is then given everything that is published."""
    viewers, gateways, rate = scaled(100_000), 6, 2_500
    with Server(BINARY, args=["--gateways", str(gateways)]) as server:
        assert server.process
        pids = processes(server.process.pid)
        words = [word for pid in pids[1:] for word in ("--pid", str(pid))]
        words += ["--viewers", str(viewers), "--connect-rate", str(rate), "--rate", "0.1", "--score-rate", "0.1", "--seconds", "30"]
        start = time.perf_counter()
        report = load(server, *words)
        took = time.perf_counter() - start
    usage = report["server"]
    growth = (usage["connected"]["rss_anon_kb"] - usage["before"]["rss_anon_kb"]) / viewers
    connect_us = (usage["connected"]["cpu_us"] - usage["before"]["cpu_us"]) / viewers
    say("idle", viewers=report["viewers"], processes=len(pids), seconds=took, anon_kb_per_viewer=growth, cpu_us_per_connection=connect_us,
        rss_kb=usage["connected"]["rss_kb"], rss_anon_kb=usage["connected"]["rss_anon_kb"], comments=report["comments"], scores=report["scores"],
        published=report["acked"], scores_published=report["scores_acked"], reconnects=report["reconnects"])
    verdict(report["viewers"] == viewers, "idle", report["viewers"])


def gateways(server: Server, token: str) -> list[dict]:
    """The gateway processes as operators see them; none while the process that was asked is the one that ends."""
    try:
        return server.get("/admin/gateways", token)["gateways"]
    except OSError:
        return []


def one_of_four(name: str, kills: bool) -> None:
    """One of four gateway processes leaves 10 000 viewers to the others, under load, emptied by an operator or killed by surprise.

    The times are of the processes' own reports, one a second: they are told up to a second late, never early. That nobody misses anything is
    what the load generator checks of every viewer.
    """
    viewers = scaled(10_000)
    with Server(BINARY, args=["--gateways", "4"]) as server:
        token = server.token("ops", "region-ops")
        words = ["--viewers", str(viewers), "--connect-rate", "1500", "--rate", "5", "--score-rate", "1", "--seconds", "60"]
        run = begin_load(server, *words)
        streams = lambda listed: sum(gateway["load"]["streams"] for gateway in listed)  # noqa: E731

        def until(what: str, holds: object, within: float = 60) -> float:
            start = time.monotonic()
            while not holds(gateways(server, token)):  # type: ignore[operator]
                assert run.poll() is None, f"the load ended before {what}: the run proves nothing\n{run.communicate()[1][-2000:]}"
                assert time.monotonic() - start < within, f"never: {what}"
                time.sleep(0.05)
            return time.monotonic()

        until("everybody is there", lambda listed: streams(listed) >= viewers, 120)
        time.sleep(5)
        one = next(gateway for gateway in gateways(server, token) if gateway["id"] == "g1")
        held, pid = one["load"]["streams"], one["pid"]
        assert held > 0, "it holds nobody: the run proves nothing"
        start = time.monotonic()
        if kills:
            os.kill(pid, signal.SIGKILL)
            until("it is missed", lambda listed: listed and streams(listed) < viewers)
        else:
            status, answer = server.post("/admin/gateways/g1/drain", {"seconds": 2, "justification": "a new version"}, token)
            assert status < 300, f"{status} {answer}"
            emptied = lambda listed: any(g["id"] == "g1" and g["load"]["streams"] == 0 for g in listed)  # noqa: E731
            until("it is empty", emptied)
        most = until("95 % are back", lambda listed: streams(listed) >= 0.95 * viewers) - start
        back = until("all are back", lambda listed: streams(listed) >= viewers) - start
        if not kills:
            os.kill(pid, signal.SIGTERM)
        restarted = until("it is there again", lambda listed: len(listed) == 4 and any(g["id"] == "g1" and g["pid"] != pid and g["state"] == "open" for g in listed)) - start
        # What the killed process had given since its last report, one a second, is in nobody's count.
        uncounted = {"events given that the server did not count": held * (5 + 1) * 2} if kills else None
        report = end_load(run, 180, uncounted)
    held_back = (most if kills else back) <= 10
    say(name, viewers=report["viewers"], moved=held, most_back_s=most, all_back_s=back, restarted_s=restarted, reconnects=report["reconnects"],
        comments=report["comments"], scores=report["scores"], skipped=report["skipped"], held=held_back)
    verdict(held_back, name, {"95 % back, s": most, "all back, s": back})


def restart() -> None:
    """A rolling restart of one of four gateway processes: all viewers back within 10 s, nothing lost."""
    one_of_four("restart", False)


def gateway_kill() -> None:
    """kill -9 of one of four gateway processes: 95 % of the viewers back within 10 s, nothing lost."""
    one_of_four("gateway-kill", True)


def vanished() -> None:
    """5 000 viewers by every transport are gone without a word, as when a network fails: the server is rid of all their sockets within 35 s.

    Server and viewers have a network of their own, which is taken down; so it needs root.
    """
    viewers, slack = scaled(5_000), 8
    with tempfile.TemporaryDirectory() as folder:
        apart = Path(folder) / "grandstand"
        apart.write_text(f"#!/bin/sh\nexec unshare -n -- sh -c 'ip link set lo up && exec \"$@\"' sh {BINARY} \"$@\"\n")
        apart.chmod(0o755)
        with Server(str(apart)) as server:
            assert server.process
            within = ("nsenter", "-t", str(server.process.pid), "-n", "--")
            descriptors = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: E731
            before = descriptors()
            words = ["--viewers", str(viewers), "--transport", "mix", "--connect-rate", "1000", "--rate", "1", "--score-rate", "1", "--seconds", "300"]
            run = begin_load(server, *words, books=False, prefix=within)
            start = time.monotonic()
            while descriptors() < before + viewers:
                assert run.poll() is None, f"the load ended: {run.communicate()[1][-2000:]}"
                assert time.monotonic() - start < 120, "the room did not fill"
                time.sleep(0.1)
            # Each is greeted, and given something.
            time.sleep(5)
            subprocess.run([*within, "ip", "link", "set", "lo", "down"], check=True)
            start = time.monotonic()
            run.kill()
            run.communicate()
            while descriptors() > before + slack and time.monotonic() - start < 120:
                time.sleep(0.1)
            took, left = time.monotonic() - start, descriptors() - before
            subprocess.run([*within, "ip", "link", "set", "lo", "up"], check=True)
    held = took <= 35 and left <= slack
    say("vanished", viewers=viewers, seconds=took, left=left, held=held)
    verdict(held, "vanished", {"rid of all after, s": took, "left": left})


class Starved:
    """The process runs for a share of the time alone, in slices of 20 ms: by the kernel's quota where a control group can be made, else by signals."""

    SLICE = 0.02

    def __init__(self, pid: int, share: float) -> None:
        self.pid, self.share, self.over = pid, share, threading.Event()
        self.group = Path("/sys/fs/cgroup/cpu/grandstand-bench")
        try:
            if os.environ.get("BENCH_STARVED_BY") == "signals":
                raise OSError
            self.group.mkdir(exist_ok=True)
            (self.group / "cpu.cfs_period_us").write_text("20000")
            (self.group / "cpu.cfs_quota_us").write_text(str(round(share * 20_000 * (os.cpu_count() or 1))))
            (self.group / "cgroup.procs").write_text(str(pid))
            self.how = "quota"
        except OSError:
            self.how = "signals"
            self.thread = threading.Thread(target=self.stop_and_go)
            self.thread.start()

    def stop_and_go(self) -> None:
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(self.SLICE * (1 - self.share))
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(self.SLICE * self.share)

    def end(self) -> None:
        self.over.set()
        if self.how == "signals":
            self.thread.join()
        else:
            (self.group.parent / "cgroup.procs").write_text(str(self.pid))
            self.group.rmdir()


def starved() -> None:
    """A server that is given half, then a tenth of the machine: scores p99 < 800 ms, and nothing is shed while no walk is late.

    `BENCH_STARVED_BY=signals` stops and continues the process even where a quota can be had.
    """
    for share in (0.5, 0.1):
        with Server(BINARY) as server:
            assert server.process
            run = begin_load(server, "--viewers", str(scaled(1_000)), "--rate", "10", "--score-rate", "2", "--seconds", "20")
            until = time.monotonic() + 60
            while metric(server, "grandstand_gateway_streams") < scaled(1_000):
                assert run.poll() is None and time.monotonic() < until, "the room did not fill"
                time.sleep(0.1)
            starving = Starved(server.process.pid, share)
            shed = False
            while run.poll() is None:
                shed |= metric(server, "grandstand_gateway_shedding", 'by="shedder"') > 0
                time.sleep(0.5)
            starving.end()
            report = end_load(run)
        late = report["scores"]["p99_ms"]
        figures = {"by": starving.how, "share": share, "scores": report["scores"], "comments": report["comments"], "skipped": report["skipped"], "shed": shed}
        held, name = late < 800 and not shed, f"starved-{round(100 * (1 - share))}"
        say(name, **figures, held=held)
        verdict(held, name, {"score p99, ms": late, "shed": shed})


def publish() -> None:
    """Acked durable publishes a second from 200 publishers, and what one waits."""
    for inflight in (1, 4, 8):
        with Server(BINARY) as server:
            report = load(server, "--publish-only", "--publishers", "200", "--inflight", str(inflight), "--seconds", "10", "--viewers", "0")
            say(f"publish-inflight-{inflight}", acks_per_second=report["acks_per_second"], acks=report["acks"], cpu_percent=report["server"]["cpu_percent"])


def latency() -> None:
    """1 000 viewers at 20 msg/s, with two score events a second."""
    with Server(BINARY) as server:
        report = load(server, "--viewers", "1000", "--rate", "20", "--seconds", "30", "--transport", "mix", "--score-rate", "2")
        say("latency-mix", comments=report["comments"], scores=report["scores"], skipped=report["skipped"])
    with Server(BINARY) as server:
        report = load(server, "--viewers", "1000", "--rate", "20", "--seconds", "30", "--transport", "ws", "--score-rate", "2")
        say("latency-ws", comments=report["comments"], scores=report["scores"], skipped=report["skipped"])


def snapshot() -> None:
    """Snapshot of a room with fifty comments and ten scores, over one keep-alive connection, while comments arrive."""
    with Server(BINARY) as server:
        token = server.token("backend", "backend")
        for n in range(60):
            server.publish("snap", f"comment {n} " + "x" * 80, token, f"k{n}")
        connection = http.client.HTTPConnection(server.listen)
        times = []
        for n in range(3000):
            if n % 100 == 0:
                server.publish("snap", f"another {n}", token, f"n{n}")
            start = time.perf_counter()
            connection.request("GET", "/v1/rooms/snap/snapshot")
            answer = connection.getresponse()
            body = answer.read()
            times.append((time.perf_counter() - start) * 1000)
            assert answer.status == 200 and len(body) > 5000
        times.sort()
        say("snapshot", p50_ms=times[len(times) // 2], p99_ms=times[len(times) * 99 // 100], max_ms=times[-1], bytes=len(body))


def moderated() -> None:
    """A post-moderated room: from a blocked comment's delivery to its retract, at each of 200 SSE viewers, p99 below 500 ms."""
    viewers, seconds = scaled(200), 30
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "block"
        listed.write_text("idiot\n")
        with Server(BINARY, args=["--set", f"moderation.block_file={listed}"]) as server:
            room = {"moderation_policy": "post-moderate-fast", "justification": "bench"}
            status, answer = server.post("/admin/rooms/stand", room, server.token("ops", "admin"), "PUT")
            assert status in (200, 201), answer
            backend = server.token("backend", "backend")
            server.publish("stand", "hello", backend, "k")
            waits, unseen = asyncio.run(retracts(server, backend, viewers, seconds))
    waits.sort()
    figures = {"p50_ms": waits[len(waits) // 2], "p99_ms": waits[len(waits) * 99 // 100], "max_ms": waits[-1]}
    held = figures["p99_ms"] < 500 and len(waits) + unseen == viewers * seconds * 10
    say("moderated", viewers=viewers, retracts=len(waits), retracted_before_shown=unseen, **figures, held=held)
    verdict(held, "moderated", figures)


async def retracts(server: Server, backend: str, viewers: int, seconds: int) -> tuple[list[float], int]:
    """Says ten comments a second that are blocked, and twenty that are not. Waits in ms, and retracts of what a viewer had not been given."""
    host, port = server.listen.rsplit(":", 1)
    waits: list[float] = []
    unseen = 0
    left = viewers * seconds * 10
    over = asyncio.Event()

    async def watch(ready: asyncio.Event) -> None:
        nonlocal unseen, left
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        writer.write(f"GET /v1/rooms/stand/sse HTTP/1.1\r\nHost: {server.listen}\r\n\r\n".encode())
        given: dict[int, float] = {}
        async for line in reader:
            if not line.startswith(b"data: "):
                continue
            now = time.perf_counter()
            told = json.loads(line[6:])
            for event in told if isinstance(told, list) else [told]:
                if event["type"] == "hello":
                    ready.set()
                elif event["type"] == "comment":
                    given[event["event_id"]] = now
                elif event["type"] == "retract":
                    at = given.get(event["target_event_id"])
                    if at is None:
                        unseen += 1
                    else:
                        waits.append((now - at) * 1000)
                    left -= 1
                    if left == 0:
                        over.set()

    def speak() -> None:
        connection = http.client.HTTPConnection(server.listen)
        headers = {"content-type": "application/json", "authorization": f"Bearer {backend}"}
        begun = time.monotonic()
        for n in range(seconds * 30):
            time.sleep(max(0.0, begun + n / 30 - time.monotonic()))
            text = f"what an idiot {n}" if n % 3 == 0 else f"what a goal {n}"
            said = {"client_msg_id": f"m{n}", "body": text, "as": {"id": f"user-{n}", "name": "Ann"}}
            connection.request("POST", "/v1/rooms/stand/comments", json.dumps(said), headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body

    ready = [asyncio.Event() for _ in range(viewers)]
    tasks = [asyncio.create_task(watch(event)) for event in ready]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in ready)), 30)
    await asyncio.to_thread(speak)
    await asyncio.wait_for(over.wait(), 30)
    for task in tasks:
        task.cancel()
    return waits, unseen


def example(package: str, name: str, *args: str) -> str:
    """What an example of a package says."""
    subprocess.run(["cargo", "build", "--profile", PROFILE, "-q", "-p", package, "--example", name], cwd=ROOT, check=True)
    return subprocess.run([str(BUILT / "examples" / name), *args], check=True, capture_output=True, text=True).stdout


def recovery() -> None:
    """From start to ready on a log of 1 GB, after a kill."""
    server = Server(BINARY)
    inside = example("grandstand-store", "recover_rate", str(server.data), str(1 << 30))
    size = sum(f.stat().st_size for f in server.data.rglob("*") if f.is_file())
    times = []
    for _ in range(3):
        start = time.perf_counter()
        server.start()
        times.append(time.perf_counter() - start)
        server.kill()
    server.__exit__()
    say("recovery", log_mb=size >> 20, start_to_ready_s=times, inside=inside.strip())


def erase() -> None:
    """From DELETE to done on a log of a million comments, one in two hundred of them the user's, and what acks take meanwhile."""
    server = Server(BINARY)
    size = round((256 << 20) * float(os.environ.get("BENCH_SCALE", "1")))
    written = example("grandstand-store", "recover_rate", str(server.data), str(size)).split()[0]
    with server:
        admin, backend = server.token("ops", "admin"), server.token("shop", "backend")
        acks, start = [], time.perf_counter()
        status, answer = server.post("/admin/users/user-7", {"justification": "a request of the person"}, admin, "DELETE")
        assert status == 202, (status, answer)
        while server.get("/admin/erasures", admin)["pending"]:
            begun = time.perf_counter()
            server.publish("room-0", "meanwhile", backend, f"k{len(acks)}")
            acks.append((time.perf_counter() - begun) * 1000)
        took = time.perf_counter() - start
        # Not the users whose names begin alike.
        named = [f.name for f in server.data.rglob("*") if f.is_file() and re.search(rb"user-7(?![0-9])", f.read_bytes())]
    acks.sort()
    meanwhile = {"acks": len(acks), "ack_p99_ms": acks[len(acks) * 99 // 100], "ack_max_ms": acks[-1]} if acks else {}
    say("erase", records=int(written), log_mb=size >> 20, seconds=took, named_in=named, **meanwhile)
    verdict(took <= 60 and not named, "erase", [took, named])


def admission() -> None:
    """Nanoseconds of a publish at the owner's door by what becomes of it, and the memory of a million users that are known."""
    users = round(1_000_000 * float(os.environ.get("BENCH_SCALE", "1")))
    say("admission", **json.loads(example("grandstand-core", "admission_rate", str(users))))


def classifier() -> None:
    """Nanoseconds of a comment in the built-in classifier with a list of five thousand entries."""
    say("classifier", **json.loads(example("grandstand-classifier", "judge_rate")))


def build() -> None:
    """Cold and warm build of the main job, and the binary's size."""
    target = TARGET / "cold"
    env = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    subprocess.run(["rm", "-rf", str(target)], check=True)
    command = ["cargo", "build", "--release", "-q", "-p", "grandstand"]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=env, check=True)
    cold = time.perf_counter() - start
    (ROOT / "crates/server/src/lib.rs").touch()
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=env, check=True)
    say("build", cold_s=cold, warm_s=time.perf_counter() - start, binary_mb=(target / "release/grandstand").stat().st_size / 1e6)
    subprocess.run(["rm", "-rf", str(target)], check=True)


def usage(server: Server) -> tuple[float, float]:
    """CPU seconds of the server so far, and its anonymous resident memory in KB."""
    assert server.process
    pid = server.process.pid
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon"))
    return cpu, float(line.split()[1])


def publish_steadily(server: Server, room: str, n: int, every: float) -> None:
    """Comments one after another, by one connection of HTTP/1.1."""
    token = server.token("backend", "backend")
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", int(server.url.rsplit(":", 1)[1]), context=context)
    start = time.monotonic()
    for i in range(n):
        time.sleep(max(0.0, start + i * every - time.monotonic()))
        body = json.dumps({"client_msg_id": f"b{time.monotonic_ns()}", "body": "x" * 100})
        connection.request("POST", f"/v1/rooms/{room}/comments", body, {"Content-Type": "application/json", "Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status


def http2() -> None:
    """SSE over TLS in HTTP/2 beside HTTP/1.1: memory a viewer, CPU to enter and CPU a delivery, one and eight streams a connection.

    The two are interleaved; the CPU of publishing is in both. Rooms do not merge, comments come one by one.
    """
    few, many, comments = 200, 1000, 50

    async def measured(server: Server, certificate: str, speaks_http2: bool, streams: int) -> dict:
        audience = Audience(server.url, certificate, "bench", speaks_http2)
        await audience.enter(few // streams, streams)
        await asyncio.sleep(1)
        cpu_few, kb_few = usage(server)
        await audience.enter((many - few) // streams, streams)
        await asyncio.sleep(1)
        cpu_many, kb_many = usage(server)
        publisher = threading.Thread(target=publish_steadily, args=(server, "bench", comments, 0.1))
        publisher.start()
        await audience.until(lambda: audience.comments() >= comments * many)
        publisher.join()
        cpu_end, _ = usage(server)
        await audience.leave()
        return {
            "kb_per_viewer": (kb_many - kb_few) / (many - few),
            "cpu_us_to_enter": (cpu_many - cpu_few) / (many - few) * 1e6,
            "cpu_us_per_delivery": (cpu_end - cpu_many) / (comments * many) * 1e6,
        }

    with tempfile.TemporaryDirectory(prefix="grandstand-bench-") as folder:
        certificate, key = Path(folder, "cert.pem"), Path(folder, "key.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        words = ["--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}", "--set", "http2=true"]
        runs: dict[str, list[dict]] = {}
        for _ in range(PAIRS):
            for name, speaks_http2, streams in (("http1", False, 1), ("http2", True, 1), ("http2-of-eight", True, 8)):
                with Server(BINARY, args=words) as server:
                    put_unmerged(server, "bench")
                    runs.setdefault(name, []).append(asyncio.run(measured(server, str(certificate), speaks_http2, streams)))
        for name, figures in runs.items():
            say(f"sse-tls-{name}", pairs=len(figures), **{k: spread([f[k] for f in figures]) for k in figures[0]})


def put_unmerged(server: Server, room: str) -> None:
    """A room whose comments go out one by one."""
    connection = http.client.HTTPSConnection("127.0.0.1", int(server.url.rsplit(":", 1)[1]), context=ssl._create_unverified_context())
    body = json.dumps({"merge_ms": 0, "justification": "benchmark"})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.token('operator', 'admin')}"}
    connection.request("PUT", f"/admin/rooms/{room}", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status in (200, 201), f"{answer.status} {text!r}"


# Increments a second, as the write path of a counter that fans each of them out was measured by others at its best.
LIKE_RATE = int(os.environ.get("BENCH_LIKE_RATE", "23000"))
# From a like to the total that shows it: a tick of the gateway, one of the owner, the pace of a room of that size, and a walk.
LIKE_STALE_MS = {5_000: 350, 15_000: 600, 60_000: 2_500}


# Everyone in within two minutes, the likes, and the last totals.
LIKES_WITHIN_S = 300


def liked(viewers: int, *args: str, seconds: int = 15) -> dict:
    """Ten rooms, 500 users who like, so many viewers by SSE."""
    with Server(BINARY, args=list(args)) as server:
        assert server.process
        pid = server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids = [word for child in children for word in ("--pid", child)]
        words = ["--rooms", "10", "--viewers", str(viewers), "--transport", "sse", "--rate", "0", "--seconds", str(seconds)]
        return load(server, *words, "--like-rate", str(LIKE_RATE), "--likers", "500", *pids, within=LIKES_WITHIN_S)


def say_likes(name: str, report: dict, **more: object) -> None:
    likes = report["likes"]
    say(
        name, viewers=report["viewers"], accepted_per_second=likes["per_second"], dropped=likes["dropped"], told=likes["told"], likes_per_telling=likes["per_telling"],
        staleness=likes["staleness"], cpu_percent=report["server"]["cpu_percent"], rss_kb=report["server"]["after"]["rss_kb"], **more,
    )


def likes() -> None:
    """Likes a second of 500 users in ten rooms while 5 000 and 15 000 viewers are told the totals, none dropped, beside none watching; how old
    the totals are; and what a loop that writes each like to each viewer of its room takes for one of them."""
    build_bare()
    alone = liked(0)["likes"]["per_second"]
    for full in (5_000, 15_000):
        viewers = scaled(full)
        report = liked(viewers)
        # One room of the ten: each of its likes is one write to each of its viewers.
        a_room = max(1, viewers // 10)
        each = Bare("sse", a_room, min(100, 50_000 / a_room), 5, 150).figures["cpu_us_per_send"] * a_room
        ours = report["server"]["cpu_us"] / report["likes"]["given"]
        say_likes(
            f"likes-{full}", report, accepted_of_unwatched=report["likes"]["per_second"] / alone, cpu_us_per_like=ours,
            cpu_us_per_like_fanned_out=each, gain=each / ours,
        )
        figures = report["likes"]
        verdict(figures["per_second"] >= 0.95 * alone, f"likes-{full}", f"{figures['per_second']:.0f} a second of {alone:.0f}")
        verdict(figures["staleness"]["p99_ms"] < LIKE_STALE_MS[full], f"likes-{full}", figures["staleness"])


def likes_processes() -> None:
    """60 000 viewers by SSE over gateway processes, told the totals of ten rooms for ten seconds."""
    viewers = scaled(60_000)
    # Each holds a descriptor a viewer, and the kernel spreads them about evenly.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    gateways = max(2, os.cpu_count() or 2, -(-4 * viewers // (3 * files)))
    report = liked(viewers, "--gateways", str(gateways), seconds=10)
    say_likes("likes-processes", report, gateways=gateways)
    verdict(report["likes"]["staleness"]["p99_ms"] < LIKE_STALE_MS[60_000], "likes-processes", report["likes"]["staleness"])


def peers() -> None:
    """The same figures of other servers, side by side: see peers.py."""
    beside.peers(say)


def scenario(name: str) -> None:
    """An evening of `grandstand load --scenario` at full size (or BENCH_SCALE, where times are told and not judged)."""
    with Server(BINARY) as server:
        run = begin_load(server, "--scenario", name, "--scale", os.environ.get("BENCH_SCALE", "1"))
        out, err = run.communicate()
        assert out, f"{name}: {err[-3000:]}"
        report = json.loads(out)
        kept = {"viewers", "rooms", "acked", "deliveries_per_second", "skipped", "comments_by", "scores_by", "acks", "entered", "rooms_put_s", "reconnects", "likes", "gifts_by", "banners_by", "comments_least", "comments_most"}
        server_says = {k: report["server"][k] for k in ("cpu_percent", "cpu_us_per_delivery", "rss_anon_per_room")}
        say(name, **{k: v for k, v in report.items() if k in kept}, **server_says)
        for promise in report["evening"]["promises"]:
            say(f"{name}-promise", **promise)
        failed = [c for c in report["checks"] if c["failed"]]
        broken = [p for p in report["evening"]["promises"] if p["verdict"] == "broken"]
        verdict(run.returncode == 0 and report["passed"], name, failed + broken)
        if name == "long-tail":
            say("long-tail-recovery", **checkpoints(server), **recovered(server))


def checkpoints(server: Server) -> dict:
    """What checkpoints took so far: the owner's copy holds up its rooms, the save does not."""
    page = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("grandstand_checkpoint"))
    longest = {part: float(lines[f'grandstand_checkpoint_longest_seconds{{part="{part}"}}']) for part in ("copy", "save")}
    return {
        "checkpoints": int(lines["grandstand_checkpoints_total"]),
        "checkpoint_rooms": int(lines["grandstand_checkpoint_rooms_total"]),
        "copy_longest_s": longest["copy"],
        "save_longest_s": longest["save"],
    }


def recovered(server: Server) -> dict:
    """What the log holds, and from start to ready after a kill."""
    server.kill()
    size = sum(f.stat().st_size for f in server.data.rglob("*") if f.is_file())
    start = time.perf_counter()
    server.start()
    return {"data_mb": size >> 20, "start_to_ready_s": time.perf_counter() - start}


SCENARIOS = ["quiet", "match-night", "barrage", "brim", "busy-room", "likes", "banner-storm", "raid", "long-tail", "scores"]


def scenarios() -> None:
    """All evenings, one after the other; each can be asked for by its name, too."""
    for name in SCENARIOS:
        scenario(name)


FIGURES = [memory, delivery, fanout, deflate, accept, slow, storm_short, storm, storm_tls, crowd, neighbours, idle, restart, gateway_kill, vanished, starved, publish, latency, snapshot, moderated, recovery, erase, admission, classifier, http2, likes, likes_processes, peers, scenarios, build]


def main(only: list[str]) -> None:
    unknown = set(only) - {f.__name__ for f in FIGURES} - set(SCENARIOS)
    assert not unknown, f"no figure is called {unknown}"
    with open("/proc/cpuinfo") as info:
        model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    say("machine", cpu=model, cores=os.cpu_count(), kernel=os.uname().release, commit=commit)
    for figure in FIGURES:
        if not only or figure.__name__ in only:
            figure()
    for name in SCENARIOS:
        if name in only:
            scenario(name)
    assert not FAILED, "goals that were not met:\n" + "\n".join(FAILED)


main(sys.argv[1:])

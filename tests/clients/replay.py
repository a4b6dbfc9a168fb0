"""`grandstand replay` of every sample and, where the real traces lie, of every chat file and football season at full speed.

Recordings with moderation are played once more into rooms that judge and hold, with a list that flags what the recordings say was
held: what was taken back, held and decided about must be in the room's log as often as it was asked for, and in nobody's sight.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Server

ROOT = Path(__file__).parents[2]
ACKED_MIN = 0.99
# Rows of purchases, and purchases among them: what the manifest of the traces says.
GIFTS = {"07_youtube_superchat_2020-09-17.jsonl": (125, 68), "13_bilibili_live_recorder_sample.xml": (30, 30), "16_tiktok_event_samples.jsonl": (1, 1)}
# What the recordings say was held, and the phrase that stands for it where they do not say what it was.
FLAGGED = ["held for review", "rude word", "ass", "*blockedterm*", "cmonbruh", "penis"]
# Entries; held, approved and denied; deletions that were done or met nothing; deletions of what the recording does not have.
MODERATED = {
    "twitch_eventsub.jsonl": (13, (1, 1, 0), 1, 1),
    "youtube.jsonl": (12, (1, 0, 0), 1, 0),
    "03_twitch_eventsub_moderation.jsonl": (100, (8, 1, 1), 1, 4),
    "06_youtube_live_moderation_2020-12-04.jsonl": (1773, (0, 0, 0), 47, 25),
    "08_youtube_live_ticker_delete_2020-12-06.jsonl": (484, (84, 0, 0), 6, 2),
}
NOT_HELD = "a deletion of what the recording does not hold"


def traces() -> list[Path]:
    samples = sorted((ROOT / "crates/grandstand/samples").iterdir())
    assert samples, "the samples of the repository are gone"
    folder = os.environ.get("GRANDSTAND_TRACES")
    if not folder:
        print("GRANDSTAND_TRACES is not set: the samples alone are replayed")
        return samples
    real = Path(folder)
    chat = sorted(p for p in (real / "chat").iterdir() if p.name[:2] in {"01", "02", "03", "04", "05", "06", "07", "08", "11", "12", "13", "14", "15", "16"})
    football = sorted((real / "sports").glob("openfootball_*.json"))
    assert len(chat) == 14 and len(football) == 3, f"traces are missing in {folder}"
    return samples + chat + football


def replay(server: Server, file: Path, room: str) -> tuple[dict | None, subprocess.CompletedProcess[str]]:
    """The account; `None` when there is none."""
    command = [server.binary, "replay", str(file), "--room", room, "--url", server.url, "--data", str(server.data), "--speed", "max", "--json"]
    run = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(run.stdout), run
    except json.JSONDecodeError:
        return None, run


def judged(good: bool, what: str, account: dict | None, run: subprocess.CompletedProcess[str]) -> int:
    """Says how a replay went; 1 when it failed."""
    print(f"{'ok  ' if good else 'FAIL'} {what}: {json.dumps(account) if account else f'exit {run.returncode} {run.stdout[-500:]}'}")
    if not good:
        print(run.stderr[-2000:])
    return int(not good)


def plain(files: list[Path], binary: str) -> int:
    failed = 0
    with Server(binary) as server:
        for n, file in enumerate(files):
            account, run = replay(server, file, f"replay-{n}")
            if account is None:
                failed += judged(False, file.name, account, run)
                continue
            valid, acked = account["published"], account["acked"]
            # Who is banned in a recording of moderation is refused here too.
            least = 0 if "eventsub" in file.name else ACKED_MIN * valid
            good = run.returncode == 0 and valid > 0 and acked >= least
            if file.name in GIFTS:
                gifts = account.get("gifts") or {}
                good = good and GIFTS[file.name] == (gifts.get("posted"), gifts.get("logged"))
                good = good and gifts["logged"] == gifts["shown"] == gifts["counted"]
            failed += judged(good, file.name, account, run)
        assert server.stop() == 0
    return failed


def moderated(files: list[Path], binary: str) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="grandstand-lists-") as folder:
        flagged = Path(folder) / "flag.txt"
        flagged.write_text("\n".join(FLAGGED) + "\n")
        with Server(binary, args=["--set", f"moderation.flag_file={flagged}"]) as server:
            admin = server.token("ops", "region-ops")
            for n, file in enumerate(files):
                settings = {"moderation_policy": "pre-moderate", "hold_flagged": True, "justification": "a recording with moderation"}
                status, answer = server.post(f"/admin/rooms/moderated-{n}", settings, admin, "PUT")
                assert status == 200, (status, answer)
                account, run = replay(server, file, f"moderated-{n}")
                told = (account or {}).get("moderation") or {}
                entries, (held, approved, denied), deletions, unknown = MODERATED[file.name]
                done = told.get("asked", {}).get("retract", 0) + told.get("met_nothing", {}).get("its comment is not shown", 0)
                found = (told.get("held"), told.get("approved"), told.get("denied"))
                good = run.returncode == 0 and account is not None and account["closes"] and account["read"] == entries
                good = good and found == (held, approved, denied) and done == deletions
                good = good and account["not_published"].get(NOT_HELD, 0) == unknown
                good = good and told["waiting"] == held - approved - denied
                good = good and told["visible"] == told["shown"] - told["taken_back"]
                failed += judged(good, f"{file.name} moderated", account, run)
            assert server.stop() == 0
    return failed


def main(binary: str) -> int:
    files = traces()
    with_moderation = [file for file in files if file.name in MODERATED]
    failed = plain(files, binary) + moderated(with_moderation, binary)
    print(f"{len(files) + len(with_moderation) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))

"""`grandstand replay` of every sample and, where the real traces lie, of every chat file and football season at full speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from server import Server

ROOT = Path(__file__).parents[2]
ACKED_MIN = 0.99
# Rows of purchases, and purchases among them: what the manifest of the traces says.
GIFTS = {"07_youtube_superchat_2020-09-17.jsonl": (125, 68), "13_bilibili_live_recorder_sample.xml": (30, 30), "16_tiktok_event_samples.jsonl": (1, 1)}


def traces() -> list[Path]:
    samples = sorted((ROOT / "crates/grandstand/samples").iterdir())
    assert samples, "the samples of the repository are gone"
    folder = os.environ.get("GRANDSTAND_TRACES")
    if not folder:
        print("GRANDSTAND_TRACES is not set: the samples alone are replayed")
        return samples
    real = Path(folder)
    chat = sorted(p for p in (real / "chat").iterdir() if p.name[:2] in {"01", "02", "04", "05", "06", "07", "08", "11", "12", "13", "14", "15", "16"})
    football = sorted((real / "sports").glob("openfootball_*.json"))
    assert len(chat) == 13 and len(football) == 3, f"traces are missing in {folder}"
    return samples + chat + football


def main(binary: str) -> int:
    failed = 0
    files = traces()
    with Server(binary) as server:
        for n, file in enumerate(files):
            command = [binary, "replay", str(file), "--room", f"replay-{n}", "--url", server.url, "--data", str(server.data), "--speed", "max", "--json"]
            run = subprocess.run(command, capture_output=True, text=True)
            try:
                account = json.loads(run.stdout)
            except json.JSONDecodeError:
                print(f"FAIL {file.name}: exit {run.returncode}\n{run.stdout[-500:]}\n{run.stderr[-2000:]}")
                failed += 1
                continue
            valid, acked = account["published"], account["acked"]
            good = run.returncode == 0 and valid > 0 and acked >= ACKED_MIN * valid
            if file.name in GIFTS:
                gifts = account.get("gifts") or {}
                good = good and GIFTS[file.name] == (gifts.get("posted"), gifts.get("logged"))
                good = good and gifts["logged"] == gifts["shown"] == gifts["counted"]
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {file.name}: {json.dumps(account)}")
            if not good:
                print(run.stderr[-1500:])
        assert server.stop() == 0
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))

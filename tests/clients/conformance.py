"""WebSocket conformance: the Autobahn cases 1-7, 10 and a part of 12 and 13 as run by PyPI kosoku, no failure allowed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

from kosoku import FailureError, run_fuzzingclient

from server import Server

CASES = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"]
# Compression, each case a thousand messages: of every content 256 bytes, 4 KiB, and 16 KiB in fragments; of every kind of
# offer (context takeover or none, windows of 9 and 15 bits, several at once) 16 bytes, 4 KiB, 16 KiB in fragments.
CASES += [f"12.{content}.{size}" for content in range(1, 6) for size in (3, 5, 12)]
CASES += [f"13.{offer}.{size}" for offer in range(1, 8) for size in (1, 5, 12)]
CASES_MIN = 276  # a run of fewer has lost cases on the way


async def main(binary: str) -> int:
    # The echo route exists for this test alone: the same frame reader and writer, with a limit the cases fit in.
    with Server(binary, env={"GRANDSTAND_TEST_ECHO": "1"}) as server:
        try:
            results = await run_fuzzingclient(f"{server.ws}/v1/test/echo", CASES, [])
        except FailureError as failure:
            results = failure.results
    counts = Counter(result.behavior.value for result in results)
    closes = Counter(result.behavior_close.value for result in results)
    bad = [r for r in results if r.behavior.value in ("FAILED", "ERROR", "UNIMPLEMENTED") or r.behavior_close.value in ("FAILED", "UNCLEAN", "WRONG_CODE", "FAILED BY CLIENT")]
    for result in bad:
        print(f"FAIL {result}")
    print(f"behaviour {dict(counts)}, close {dict(closes)}")
    if len(results) < CASES_MIN:
        print(f"FAIL only {len(results)} cases ran")
        return 1
    print(f"{len(results) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


sys.exit(asyncio.run(main(sys.argv[1])))

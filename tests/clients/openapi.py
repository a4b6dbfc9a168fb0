"""The API against its own description: what PyPI schemathesis makes of /openapi.json, from one seed, within a minute.

Every operation of the document is called with what it allows and with what it does not, and each answer is held against it: no
server fault, no status, content type, header or body that it does not describe, nothing taken that it forbids, nothing refused that
it allows. What is left out is named with its reason; a new operation is in by itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server import Server

SECONDS_MAX = 60
EXAMPLES = 6
SEED = 20260611
# Operations that do not answer like a call, each tested with clients of its kind.
LEFT_OUT = {
    "/v1/rooms/{room}/stream": "a WebSocket: it answers an upgrade",
    "/v1/rooms/{room}/sse": "a stream without an end",
    "/v1/rooms/{room}/poll": "it waits for news up to 25 s",
}
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
]
# The one answer of 5xx that is no fault: somebody was told to drain.
CONFIG = """
[[operations]]
include-path = "/healthz/ready"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""
# So many operations there are at least: a run of fewer has lost some on the way.
OPERATIONS_MIN = 60


def main(binary: str) -> int:
    schemathesis = Path(sys.executable).with_name("schemathesis")
    with Server(binary) as server, tempfile.TemporaryDirectory(prefix="grandstand-openapi-") as folder:
        document = server.get("/openapi.json")
        methods = {"get", "put", "post", "delete", "patch", "head", "options", "trace"}
        operations = [(method, path) for path, item in document["paths"].items() for method in item if method in methods]
        unknown = set(LEFT_OUT) - set(document["paths"])
        assert not unknown, f"left out and not there: {unknown}"
        asked = [(method, path) for method, path in operations if path not in LEFT_OUT]
        assert len(asked) >= OPERATIONS_MIN, f"only {len(asked)} operations are described"
        for path, why in LEFT_OUT.items():
            print(f"   left out: {path}, {why}")
        token = server.token("ops", "admin", "region-ops", "backend", "publisher")
        server.publish("stadium", "kick-off", token, "k1")
        report, described = Path(folder) / "report.json", Path(folder) / "openapi.json"
        # As a file: of a description that it is given by address, the address itself is not called.
        described.write_text(json.dumps(document))
        config = Path(folder) / "schemathesis.toml"
        config.write_text(CONFIG)
        command = [str(schemathesis), "--no-color", "--config-file", str(config), "run", str(described), "--url", server.url]
        command += ["-H", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS)]
        # Threads of CPython before 3.13 share the depth of ast.parse, which hypothesis calls (python/cpython#106905).
        command += ["--workers", "1"]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", str(SEED)]
        command += ["--generation-deterministic", "--request-timeout", "10", "--continue-on-failure"]
        command += ["--suppress-health-check", "all", "--report", "json", "--report-json-path", str(report)]
        for path in LEFT_OUT:
            command += ["--exclude-path", path]
        start = time.monotonic()
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=folder)
        except subprocess.TimeoutExpired as late:
            print((late.stdout or b"").decode(errors="replace")[-3000:])
            print(f"FAIL not over within {SECONDS_MAX} s")
            return 1
        took = time.monotonic() - start
        if run.returncode != 0:
            print(run.stdout[-20_000:])
            print(run.stderr[-2_000:])
        assert server.stop() == 0
        told = json.loads(report.read_text())
        called, cases = told["operations"], told["test_cases"]
        print(f"{called['tested']} of {len(operations)} operations, {cases['generated']} calls, {took:.0f} s, exit {run.returncode}")
        whole = told["complete"] and called["tested"] == called["selected"] == len(asked) and not called["skipped"] and not called["errored"]
        if not whole:
            print(f"FAIL {len(asked)} operations were to be called: {json.dumps(called)}, {told['stop_reason']}")
        return run.returncode or int(not whole)


sys.exit(main(sys.argv[1]))

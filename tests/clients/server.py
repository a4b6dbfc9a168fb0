"""Starts the real binary for a test and stops it again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path


class Server:
    """`grandstand serve` on a free loopback port with a data folder of its own."""

    def __init__(self, binary: str, env: dict[str, str] | None = None, args: list[str] | None = None, secure: bool = False) -> None:
        self.binary = binary
        self.env = {**os.environ, **(env or {})}
        self.args = list(args or [])
        # What a tool of the binary needs to believe this server.
        self.ca: list[str] = []
        self.data = Path(tempfile.mkdtemp(prefix="grandstand-test-"))
        self.listen = "127.0.0.1:0"
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        if secure:
            self.args += self.certificate()

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        for suffix in (".pem", ".key"):
            self.data.with_suffix(suffix).unlink(missing_ok=True)

    def start(self) -> None:
        log = open(self.data / "stderr.txt", "a")
        self.process = subprocess.Popen(
            [self.binary, "serve", "--data", str(self.data), "--listen", self.listen, *self.args],
            stdout=subprocess.PIPE, stderr=log, text=True, env=self.env,
        )
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("ready "):
                self.url = line.split()[1].strip()
                break
        else:
            raise AssertionError(f"the server did not become ready:\n{(self.data / 'stderr.txt').read_text()}")
        # A restart keeps the port, as a supervised server does.
        self.listen = self.url.split("//")[1]

    def certificate(self) -> list[str]:
        """A certificate for 127.0.0.1 that vouches for itself; the settings that show it."""
        pem, key = self.data.with_suffix(".pem"), self.data.with_suffix(".key")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
        command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run([*command, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
        self.ca = ["--ca", str(pem)]
        return ["--set", f"tls.certificate={pem}", "--set", f"tls.key={key}"]

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 10) -> int:
        """SIGTERM; the exit code. A server that needs more than `timeout` seconds fails the test."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server did not stop within {timeout} s") from None

    def token(self, sub: str, *roles: str) -> str:
        command = [self.binary, "token", "--data", str(self.data), "--sub", sub]
        for role in roles:
            command += ["--role", role]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.env).stdout.strip()

    def post(self, path: str, body: object, token: str | None = None, method: str = "POST") -> tuple[int, dict]:
        headers = {"content-type": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as fault:
            return fault.code, json.loads(fault.read() or b"{}")

    def get(self, path: str, token: str | None = None) -> dict:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=20) as answer:
            return json.loads(answer.read())

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return answer.read().decode()

    def publish(self, room: str, text: str, token: str, key: str) -> int:
        """Publishes over HTTP; the event id."""
        status, answer = self.post(f"/v1/rooms/{room}/comments", {"client_msg_id": key, "body": text}, token)
        assert status == 200, (status, answer)
        return answer["event_id"]

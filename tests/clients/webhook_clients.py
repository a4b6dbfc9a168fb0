"""Outgoing webhooks, verified by PyPI standardwebhooks: what a receiver that knows the standard alone makes of ours."""

from __future__ import annotations

import http.server
import threading
import time

import httpx
from standardwebhooks import Webhook, WebhookVerificationError

from server import Server

LIMIT = 30.0  # seconds any single wait may take before the test fails


def receivers_verify_webhooks_with_the_standards_own_library(plain: Server) -> None:
    heard: list[tuple[bytes, dict[str, str]]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.rfile.read(int(self.headers["content-length"])), dict(self.headers)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with Server(plain.binary, {"GRANDSTAND_WEBHOOKS_ALLOW": "127.0.0.1"}) as server:
        admin = {"Authorization": f"Bearer {server.token('op', 'admin')}"}
        url = f"http://127.0.0.1:{receiver.server_address[1]}/hook"
        put = httpx.post(f"{server.url}/admin/webhooks", json={"url": url, "justification": "a test"}, headers=admin)
        assert put.status_code == 200, put.text
        backend = {"Authorization": f"Bearer {server.token('shop', 'backend')}"}
        gift = {"gift_id": "g-1", "user": {"id": "mia", "name": "Mia 👩‍👩‍👧"}, "item": "rose", "count": 2, "amount_micros": 5_000_000, "currency": "EUR"}
        given = httpx.post(f"{server.url}/v1/rooms/derby/gifts", json=gift, headers=backend)
        assert given.status_code == 200, given.text

        webhook = Webhook(put.json()["secret"])
        found = None
        end = time.monotonic() + LIMIT
        while found is None:
            assert time.monotonic() < end, f"no gift among {len(heard)}"
            for body, headers in list(heard):
                event = webhook.verify(body, headers)
                if event["type"] == "gift":
                    found = event
        assert found["data"]["gift_id"] == "g-1" and found["data"]["user"]["display"] == "Mia 👩‍👩‍👧", found
        body, headers = heard[0]
        for broken in [(body + b" ", headers), (body, {**headers, "webhook-id": "evt_1"}), (body, {**headers, "webhook-timestamp": "1"})]:
            try:
                webhook.verify(*broken)
            except WebhookVerificationError:
                continue
            raise AssertionError(f"{broken} holds")
        assert server.stop() == 0
    receiver.shutdown()


WEBHOOK_TESTS = [receivers_verify_webhooks_with_the_standards_own_library]

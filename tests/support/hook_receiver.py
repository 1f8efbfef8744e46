"""
A receiver of webhooks that is as bad as it may be: it refuses, hangs, loses its answers, and is killed by who drives it.

    python hook_receiver.py PORT FILE SECRET [SEED]

Each delivery with a good signature is a line of ``FILE`` before it is answered, as a receiver has to do it; the file is
what counts, and goes on when the process is started again. Lines of refused ones are there too, with ``taken`` false.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

from rollcall_ha.hooks.webhook import signature

REFUSES, HANGS, LOSES = 0.10, 0.01, 0.01
"""Shares of deliveries: an answer of 500 without taking it, no answer without taking it, no answer after taking it."""
STALE_S = 300


def main(port: int, file: Path, secret: bytes, seed: int) -> None:
    """Serve until it is killed."""
    draw = random.Random(seed + os.getpid())
    output = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            identity, stamp = self.headers["webhook-id"], int(self.headers["webhook-timestamp"])
            is_good = (
                signature(identity, stamp, body, (secret,)) == self.headers["webhook-signature"]
                and abs(time.time() - stamp) < STALE_S
            )
            luck = draw.random()
            is_taken = is_good and (luck < LOSES or luck >= LOSES + REFUSES + HANGS)
            event = json.loads(body)
            line = {
                "id": identity,
                "taken": is_taken,
                "good": is_good,
                "set": event["setKey"]["name"],
                "type": event["type"],
            }
            os.write(
                output,
                json.dumps({**line, "at": [event["event"]["index"], event["event"]["ordinal"]]}).encode() + b"\n",
            )
            if luck < LOSES or LOSES + REFUSES <= luck < LOSES + REFUSES + HANGS:
                # For longer than any timeout of a hook: the caller hangs up.
                Event().wait(30)
                self.close_connection = True
                return
            self.send_response(204 if is_taken else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), bytes.fromhex(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 0)

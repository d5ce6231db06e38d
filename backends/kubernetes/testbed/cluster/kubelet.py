#!/usr/bin/env python3
"""Serves the logs of simulated containers as a kubelet does: what lies in LOGS/NAMESPACE/POD/CONTAINER, where a test puts
it. Nodes name this port, and the API server asks here for `kubectl logs`; a log that is followed goes on until its file is
gone. CONTAINER.requests has a line for each request.

kubelet.py PORT CERTIFICATE KEY LOGS
"""

import http.server
import pathlib
import ssl
import sys
import time
import urllib.parse

PORT, CERTIFICATE, KEY, LOGS = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = url.path.strip("/").split("/")
        file = pathlib.Path(LOGS, *parts[1:]) if len(parts) == 4 and ".." not in parts else None
        if parts[0] != "containerLogs" or file is None or not file.is_file():
            self.send_error(404)
            return
        with open(f"{file}.requests", "a") as requests:
            requests.write(f"{url.query}\n")
        if query.get("follow") == "true":
            self.follow(file, int(query.get("limitBytes", 1 << 40)))
            return
        log = file.read_bytes()
        if "tailLines" in query:
            log = b"".join(log.splitlines(keepends=True)[-int(query["tailLines"]) :])
        if "limitBytes" in query:
            log = log[: int(query["limitBytes"])]
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(log)))
        self.end_headers()
        self.wfile.write(log)

    def follow(self, file, left):
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        with open(file, "rb") as log:
            while left > 0 and file.is_file():
                part = log.read(min(left, 65536))
                left -= len(part)
                self.wfile.write(part)
                if not part:
                    time.sleep(0.05)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(CERTIFICATE, KEY)
server = Server(("127.0.0.1", int(PORT)), Handler)
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()

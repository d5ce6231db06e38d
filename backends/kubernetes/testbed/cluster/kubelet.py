#!/usr/bin/env python3
"""Serves the logs of simulated containers as a kubelet does: what lies in LOGS/NAMESPACE/POD/CONTAINER, where a test puts
it. Nodes name this port, and the API server asks here for `kubectl logs`.

kubelet.py PORT CERTIFICATE KEY LOGS
"""

import http.server
import pathlib
import ssl
import sys
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

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(CERTIFICATE, KEY)
server = Server(("127.0.0.1", int(PORT)), Handler)
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()

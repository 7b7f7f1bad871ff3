"""A program of protocol none: a server of its own on $PORT, or on $TEMPOOL_SOCKET if $LISTEN is socket."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingUnixStreamServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/crash":
            os._exit(3)
        if self.path == "/link":  # to the socket of another program, in the place of its own
            os.remove(os.environ["TEMPOOL_SOCKET"])
            os.symlink(body, os.environ["TEMPOOL_SOCKET"])
            self.close_connection = True
        status = 503 if self.path == "/fail" else 200
        answer = b"%s %s auth=%s" % (self.path.encode(), body, str(self.headers.get("Authorization")).encode())
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        if self.path == "/upgrade":
            return self.upgrade()
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        answer = b"" if self.command == "HEAD" else self.path.encode()
        if self.path == "/traceparent":
            answer = str(self.headers["traceparent"]).encode()
        if self.path == "/large":
            answer = b"x" * (32 << 20)
        self.send_response(200)
        if self.path == "/page":
            for key, value in (
                ("Content-Type", "text/html"),
                ("Content-Security-Policy", "default-src 'self'"),
                ("Service-Worker-Allowed", "/"),
                ("Clear-Site-Data", '"cookies"'),
                ("Set-Cookie", "mine=1; Path=/"),
                ("Set-Cookie", "tempool_ui_7460=stolen; Path=/ui"),
                ("Set-Cookie", " =tempool_ui_7460=stolen; Path=/ui"),
            ):
                self.send_header(key, value)
        self.send_header("X-Method", self.command)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PROPFIND = do_HEAD = do_GET

    def upgrade(self):
        """Answers each line in upper case, until the client leaves."""
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.end_headers()
        self.close_connection = True
        for line in self.rfile:
            self.wfile.write(line.upper())

    def log_message(self, *_):
        pass


if os.environ.get("LISTEN") == "socket":
    ThreadingUnixStreamServer(os.environ["TEMPOOL_SOCKET"], Handler).serve_forever()
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()

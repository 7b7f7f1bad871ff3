"""A gateway that answers what a test wants, and remembers what it was asked."""

import itertools
import json
import os
import socketserver
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tls")
TIMEOUT = 120  # seconds any single step may take on a slow machine


class Asked:
    def __init__(self, handler):
        self.method = handler.command
        self.path = handler.path
        self.headers = handler.headers
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.connection = handler.number

    def json(self):
        return json.loads(self.body)


class Answered:
    """status, body and headers of an answer; pieces are sent chunked, and cut breaks the connection off after them or before anything."""

    def __init__(self, body=b"", status=200, headers=None, pieces=None, cut=False, hang_up=False):
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.headers, self.pieces, self.cut, self.hang_up = status, headers or {}, pieces, cut, hang_up


def problem(code, status, started=False, **more):
    headers = {"Content-Type": "application/problem+json"}
    return Answered(dict({"title": "t", "status": status, "detail": "about " + code, "code": code, "started": started}, **more), status, headers)


class FakeGateway:
    """answer(asked) returns what to answer with. Use as a context manager."""

    def __init__(self, answer, unix=False, tls=None):
        self.asked = []
        self.answer = answer
        self.folder = tempfile.TemporaryDirectory()
        server, numbers = self, itertools.count()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = TIMEOUT

            def setup(self):
                super().setup()
                self.number = next(numbers)

            def respond(self):
                asked = Asked(self)
                server.asked.append(asked)
                server.write(self, server.answer(asked))

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = respond

            def log_message(self, *_):
                pass

        if unix:
            path = os.path.join(self.folder.name, "gateway.sock")
            self.server = _UnixServer(path, Handler)
            self.endpoint = "unix:" + path
        else:
            self.server = _Server(("127.0.0.1", 0), Handler)
            self.endpoint = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.server.server_address[1])
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def write(self, handler, answered):
        if answered.cut and answered.pieces is None:
            handler.close_connection = True
            return
        handler.send_response(answered.status)
        for key, value in dict({"Tempool-Worker": "python/0", "Tempool-Incarnation": "3"}, **answered.headers).items():
            handler.send_header(key, value.encode().decode("latin-1"))
        if answered.pieces is None:
            handler.send_header("Content-Length", str(len(answered.body)))
            handler.end_headers()
            handler.wfile.write(answered.body)
        else:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            try:
                for piece in answered.pieces:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if not answered.cut:
                    handler.wfile.write(b"0\r\n\r\n")
            except OSError:
                answered.cut = True  # the client reads no more
        handler.close_connection = answered.cut or answered.hang_up

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.folder.cleanup()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client that breaks off is part of the tests


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    handle_error = _Server.handle_error

    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("unix", 0)


def server_tls(client_certificates=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(TLS, "server.pem"))
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(os.path.join(TLS, "authority.pem"))
    return context

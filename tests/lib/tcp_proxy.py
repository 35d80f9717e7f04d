"""A TCP proxy on 127.0.0.1, between a client and a server that other tests use too: makes outages for one client.

    proxy = TcpProxy(8000, listen=9000)
    proxy.refuse()    nobody listens, and open connections are closed
    proxy.cut()       open connections are closed, new ones are accepted and reset
    proxy.hang()      connections are accepted and stay open, and no byte passes, either way
    proxy.pass_on()   all is well again; what hung is closed
"""

import socket
import struct
import threading

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class TcpProxy:
    def __init__(self, target, listen=0):
        self.target = target
        self.lock = threading.Lock()
        self.open = set()  # sockets of both sides
        self.cutting = False
        self.passing = threading.Event()
        self.passing.set()
        self.listener = None
        self.port = listen
        self._listen()

    def refuse(self):
        self._close_listener()
        self._close_all()

    def cut(self):
        self.cutting = True
        self._close_all()

    def hang(self):
        self.passing.clear()

    def pass_on(self):
        if not self.passing.is_set():
            self._close_all()  # before the event, so that nothing that was held back passes
        self.cutting = False
        self.passing.set()
        if self.listener is None:
            self._listen()

    def close(self):
        self._close_listener()
        self._close_all()
        self.passing.set()

    # --- inside ---

    def _listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _close_listener(self):
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listener.close()

    def _close_all(self):
        with self.lock:
            open_now, self.open = self.open, set()
        for sock in open_now:
            end(sock)

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.cutting:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
            else:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        pair = {client, server}
        for sock in pair:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.lock:
            self.open |= pair
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        with self.lock:
            self.open -= pair
        for sock in pair:
            sock.close()

    def _pump(self, source, sink):
        try:
            while data := source.recv(CHUNK):
                self.passing.wait()
                sink.sendall(data)
            self.passing.wait()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            end(source)
            end(sink)


def end(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads it; close() alone does not
    except OSError:
        pass
    sock.close()

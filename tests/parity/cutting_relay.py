"""Somebody on the way between a client and its server, who cuts what both say into pieces of a few
bytes: a segment each, as no side delays them.

python cutting_relay.py PORT_OF_THE_SERVER

Prints its own port, and when stdin ends how many pieces there were.
"""

import os
import random
import socket
import sys
import threading

n_pieces = 0


def cut(source, sink):
    global n_pieces
    random_sizes = random.Random(1)
    while data := source.recv(65536):
        while data:
            n_bytes = random_sizes.randint(1, 9)
            sink.sendall(data[:n_bytes])
            n_pieces += 1
            data = data[n_bytes:]
    sink.shutdown(socket.SHUT_WR)


def serve(listener, target):
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", target))
        for source, sink in ((client, server), (server, client)):
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=cut, args=(source, sink), daemon=True).start()


def main():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener, int(sys.argv[1])), daemon=True).start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        print(n_pieces, flush=True)
        # Threads that still wait for bytes must not print errors during the exit.
        os._exit(0)


if __name__ == "__main__":
    main()

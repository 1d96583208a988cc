"""A client that is killed: dying_client.py PORT SECRET REQUEST.

It sends the first bytes of the request, another number of them on each of many connections, and all
of it where that waits for something. Then it says so, and waits for its end.
"""

import signal
import sys

import wire

WAITING = {"wait", "queue_pop", "barrier", "watch"}


def main() -> None:
    port, secret, name = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
    request = wire.requests()[name]
    clients = []
    for n_bytes in range(len(request) + (name in WAITING)):
        client = wire.Stranger(port)
        assert client.say_hello(secret)[0] == 0
        client.send(request[:n_bytes])
        clients.append(client)
    print("sent", flush=True)
    signal.pause()


main()

"""A program in a network namespace: one end of the traffic of a test.

usage: peer.py serve NAME PORT…   answers HTTP with the name, until the standard input ends
       peer.py get URL COUNT      asks over new connections; prints how often each name answered
"""

import collections
import http.client
import http.server
import json
import sys
import threading
import urllib.parse

# Longest wait for an answer: the first packet waits for ARP and for a flow of Open vSwitch.
SECONDS = 3
# After so many requests without an answer no more are sent.
UNANSWERED_MAX = 3


def serve(name, ports):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(name)))
            self.end_headers()
            self.wfile.write(name.encode())

        def log_message(self, *_):
            pass

    for port in ports:
        server = http.server.ThreadingHTTPServer(("", int(port)), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("serving", flush=True)
    sys.stdin.read()


def name_of_the_server(url):
    """Each connection has a source port of its own, by which OVN chooses the member."""
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=SECONDS)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    except OSError:
        return None
    finally:
        connection.close()


def get(url, count):
    names = collections.Counter()
    for _ in range(int(count)):
        names[name_of_the_server(urllib.parse.urlsplit(url))] += 1
        if names[None] == UNANSWERED_MAX:
            break
    unanswered = names.pop(None, 0)
    print(json.dumps({"answers": names, "unanswered": unanswered}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3:])
    else:
        get(*sys.argv[2:])

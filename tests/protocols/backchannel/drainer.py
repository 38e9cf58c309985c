"""Process that drains an agent's inbox, in a race with others: `python -m …backchannel.drainer SEED`.

It uses the relay API. It reads address, name and token, prints `ready`, and waits for a line. Then it reads the inbox
and takes each message, like a real drain but in a random order, again until the inbox is empty. It prints the ids of
the messages that it took.
"""

import json
import random
import sys
from http.client import HTTPConnection
from typing import Any

ROUND = 200
"""Number of takes before the inbox is read again. Messages that other processes took meanwhile are then not tried."""


def drain(connection: HTTPConnection, name: str, token: str, chance: random.Random) -> tuple[list[str], int]:
    """Take messages in a random order until none is left.

    Return the ids of the taken messages, and the number of takes at which another reader was first.
    """
    shown = {"authorization": f"Bearer {token}"}

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection.request(method, path, json.dumps(body) if body is not None else None, shown)
        response = connection.getresponse()
        assert response.status == 200, response.status
        return json.loads(response.read())

    won: list[str] = []
    lost = 0
    while unread := [message["id"] for message in ask("GET", f"/v1/inbox/{name}")]:
        chance.shuffle(unread)
        for message_id in unread[:ROUND]:
            message = ask("POST", "/v1/take", {"id": message_id, "agent": name})["message"]
            if message is None:
                lost += 1
            else:
                assert message["id"] == message_id
                won.append(message_id)
    return won, lost


def main() -> None:
    """Connect, wait for the start line, take messages in a race with other processes, and print the result."""
    address, name, token = (sys.stdin.readline().strip() for _ in range(3))
    connection = HTTPConnection(address, timeout=60)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(drain(connection, name, token, random.Random(int(sys.argv[1])))) + "\n")


if __name__ == "__main__":
    main()

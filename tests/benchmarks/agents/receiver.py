"""Receives push notifications at the ports that its arguments name, and prints how many there were for each line it reads."""

import asyncio
import sys

received = 0


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global received
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            _, _, length = head.lower().partition(b"content-length:")
            await reader.readexactly(int(length.split(b"\r\n")[0]))
            received += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()


async def main(ports: list[int]) -> None:
    for port in ports:
        await asyncio.start_server(serve, "127.0.0.1", port)
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(received, flush=True)


asyncio.run(main([int(port) for port in sys.argv[1:]]))

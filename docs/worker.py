#!/usr/bin/env python3
"""A worker for Cuelight in Python alone, with one slot. docs/workers.md describes the protocol.

It does the stage of `cuelight conformance`. For a stage of your own, change PIPELINE, STAGE and work().
"""
import hashlib, http.client, json, os, socket, sys, threading, time, urllib.error, urllib.request

SERVER, KEY = os.environ["CUELIGHT_SERVER"].rstrip("/") + "/api/v1/worker", os.environ["CUELIGHT_KEY"]
PIPELINE, STAGE, PIECE = "conformance", "work", 8 << 20


class Refused(Exception):
    def __init__(self, e):
        self.status, self.headers, text = e.code, e.headers, e.read()
        self.kind = json.loads(text)["type"].split(":")[-1] if text.startswith(b"{") else ""
        super().__init__(f"{e.code} {self.kind}: {text.decode()}")


def call(method, path, body=None, headers={}, repeat=True):
    """Sends a request, again and again unless the coordinator answers it."""
    if not isinstance(body, (bytes, type(None))):
        body = json.dumps(body).encode()
    while True:
        try:
            request = urllib.request.Request(SERVER + path, body, headers, method=method)
            request.add_unredirected_header("Authorization", "Bearer " + KEY)  # an input may be at another host
            with urllib.request.urlopen(request, timeout=45) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as e:
            if e.code < 500 and e.code != 429:
                raise Refused(e) from None
            error = OSError(f"status {e.code}")
        except (OSError, http.client.HTTPException) as e:
            error = OSError(str(e))
        if not repeat:
            raise error
        time.sleep(1)


def ask(path, body, repeat=True):
    return json.loads(call("POST", path, body, repeat=repeat)[0])


def work(claim, lost):
    """Delivers the input as output, slowly. lost is set when the claim is lost."""
    files = "/claims/" + claim["token"]
    try:
        data = call("GET", files + "/input/input", repeat=False)[0]
    except (OSError, Refused):  # a redirect led where this host reaches nothing, or to an expired address
        data = call("GET", files + "/input/input?redirect=no")[0]
    lost.wait(claim["params"]["seconds"])
    at, digest = 0, hashlib.sha256(data).hexdigest()
    while at < len(data) and not lost.is_set():
        piece = data[at:at + PIECE]
        headers = {"Content-Range": f"bytes {at}-{at + len(piece) - 1}/{len(data)}", "Content-SHA256": digest}
        try:
            at = int(call("PUT", files + "/output/output", piece, headers)[1]["Upload-Offset"])
        except Refused as e:
            if e.kind != "upload-offset":
                raise
            at = int(e.headers["Upload-Offset"])  # an earlier request arrived, or a part of it
    return {"bytes": len(data)}


def heartbeats(worker, claim, lost, done, controls):
    """Sends heartbeats until the work is done, and stops it when the claim is lost."""
    heard = time.monotonic()
    while not done.wait(worker["heartbeat_s"]):
        try:
            # A stage with a limit of time without progress needs a percent or a note that changes.
            running = [{"token": claim["token"], "started": True, "percent": -1}]
            answer = ask("/heartbeat", {"worker_id": worker["worker_id"], "running": running}, repeat=False)
            heard = time.monotonic()
            controls.update(answer["controls"])
        except Refused:
            lost.set()
        except OSError:
            answer = {"lost": []}
        if answer["lost"] or time.monotonic() - heard > worker["lease_s"] * 5 / 6:
            lost.set()


def report(worker, claim, controls, **outcome):
    """Reports an outcome, again while the files are being checked or the task is locked."""
    while True:
        answer = ask("/exchange", {"worker_id": worker["worker_id"], "reports": [{"token": claim["token"], **outcome}]})
        controls.update(answer["controls"])
        for refused in answer.get("refused", []):
            print(refused["error"], file=sys.stderr)
        if not answer.get("checking") and not answer.get("retry"):
            return
        time.sleep(2)


def attempt(worker, claim, controls):
    lost, done = threading.Event(), threading.Event()
    beat = threading.Thread(target=heartbeats, args=(worker, claim, lost, done, controls), daemon=True)
    beat.start()
    try:
        result = work(claim, lost)
        if not lost.is_set():
            report(worker, claim, controls, outcome="completed", result=result)
    except Refused:
        raise
    except Exception as e:
        report(worker, claim, controls, outcome="failed", error=repr(e))
    finally:
        done.set()
        beat.join()


def register():
    version = json.loads(call("GET", "/pipeline")[0])["protocol"]
    if version != 1:
        sys.exit(f"the coordinator speaks version {version} of the protocol, and this worker version 1")
    return ask("/register", {"protocol": 1, "pipeline": PIPELINE, "host": socket.gethostname(), "pid": os.getpid()})


def main():
    worker, controls = register(), {"drain": False}
    while not controls["drain"]:
        me = {"worker_id": worker["worker_id"]}
        try:
            # No claim is held: if an answer with one was lost, the next answer has it.
            answer = ask("/exchange", {**me, "held": [], "free_slots": {STAGE: 1}, "wait_s": 30}, repeat=False)
            controls.update(answer["controls"])
            for claim in answer["claims"]:
                attempt(worker, claim, controls)
        except OSError as e:
            print(e, file=sys.stderr)
            time.sleep(1)
        except Refused as e:
            if e.kind == "worker-unknown":
                worker = register()
            elif e.kind != "claim-lost":
                sys.exit(str(e))
    call("POST", "/deregister", me)


main()

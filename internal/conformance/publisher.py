"""Publish load with the engine's own code, as told over standard input.

    python publisher.py --sglang DIR

DIR holds an unpacked `sglang` package. Its modules are loaded from their files,
and none of its packages' own code (__init__.py) runs, which would import a GPU
stack. Loaded as they are: load_publisher, load_snapshot, kv_events,
runtime_context, utils.network, environ and what these import. Replaced:

  get_parallel             which rank this is; the real one is filled in by the
                           process groups of a running engine
  arg_groups.overrides     needs torch. Of the two functions that are wanted,
                           kv_event_block_size_of is taken out of its file, and
                           resolving_view returns the arguments as they are: the
                           real one adds what the model says about them
  the interface            sockets are bound to loopback where the engine would
                           bind them to all interfaces

One command per line, as JSON, and one answer per command, {"error": ...} if it
could not be done. The process ends with its standard input.

  {"op": "start", "wire": "LoadStat" | "LoadSnapshot", "args": ARGS}
      opens the sockets; -> {"base": PORT, "bound": [bool...]}
  {"op": "publish", "loads": [{field: value}, ...]}
      publishes one LoadSnapshot's values per rank at once, and then again at the
      pace of an idle engine
  {"op": "restart"}
      closes the sockets and opens them again, as "start" does
  {"op": "serve", "host": HOST, "port": PORT, "args": ARGS}
      answers /server_info for ARGS, and /v1/loads; where it does so already, only
      the answer changes; -> {"port": PORT, "kv_events": BLOCK | null}
  {"op": "resolve", "args": ARGS}
      -> {"range": [host, base] | null, "reason": str | null}

ARGS are the server arguments that matter: kv_events_config, dp_size,
attn_dp_size, page_size, dcp_size, load_publish_endpoint.
"""

import argparse
import ast
import http.server
import itertools
import json
import logging
import os
import pathlib
import select
import socket
import sys
import threading
import time
import types
from datetime import datetime, timezone

import msgspec

PACKAGES = (
    "sglang",
    "sglang.srt",
    "sglang.srt.arg_groups",
    "sglang.srt.disaggregation",
    "sglang.srt.managers",
    "sglang.srt.managers.scheduler_components",
    "sglang.srt.utils",
)
SNAPSHOT_INTERVAL = 0.1  # of the LoadSnapshot wire
LOOP_INTERVAL = 0.02  # of the scheduler loop, which calls the publisher each time


def function_from(path, name):
    """Take one function out of a module that cannot be loaded."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            module = ast.Module([node], type_ignores=[])
            names = {"Any": object}
            exec(compile(module, str(path), "exec"), names)
            return names[name]
    raise SystemExit(f"{path} has no function {name}")


class Engine:
    """The engine's modules."""

    def __init__(self, root):
        for name in PACKAGES:
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")))]
            sys.modules[name] = package
        overrides = types.ModuleType("sglang.srt.arg_groups.overrides")
        overrides.resolving_view = lambda args: args
        overrides.kv_event_block_size_of = function_from(
            root / "sglang/srt/arg_groups/overrides.py", "kv_event_block_size_of"
        )
        sys.modules[overrides.__name__] = overrides

        import sglang.srt.runtime_context as context

        self.parallel = None
        context.get_parallel = lambda: self.parallel
        # These take get_parallel by value, so they come after it was replaced.
        import sglang.srt.disaggregation.kv_events as kv_events
        import sglang.srt.managers.load_snapshot as load_snapshot
        import sglang.srt.managers.scheduler_components.load_publisher as load_publisher

        self.context, self.kv_events = context, kv_events
        self.load_snapshot, self.load_publisher = load_snapshot, load_publisher
        self._open = load_publisher._open_pub_socket
        load_publisher._open_pub_socket = self.open_on_loopback

    def open_on_loopback(self, endpoint):
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        loopback = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
        return self._open(f"tcp://{loopback[host]}:{port}")

    def set_rank(self, args, rank):
        """Make this the process of one rank, as far as the modules can tell."""
        attention_dp = args.attn_dp_size > 1
        self.parallel = types.SimpleNamespace(
            num_dp_ranks=self.context.num_dp_ranks_of(args),
            attn_dp_size=args.attn_dp_size,
            attn_dp_rank=rank if attention_dp else 0,
            dp_rank=None if attention_dp else rank,
            pp_rank=0,
            attn_tp_rank=0,
            attn_cp_rank=0,
        )

    def resolve(self, args):
        config = self.kv_events.KVEventsConfig.from_cli(args.kv_events_config)
        return self.kv_events.resolve_load_pub_range(
            kv_endpoint=config.endpoint,
            replay_endpoint=config.replay_endpoint,
            dp_size=self.context.num_dp_ranks_of(args),
            load_publish_endpoint=args.load_publish_endpoint,
        )


class StatPublisher:
    """One rank's LoadStat, by the engine's SchedulerLoadPublisher alone."""

    def __init__(self, engine, args, rank):
        engine.set_rank(args, rank)
        self._publisher = engine.load_publisher.SchedulerLoadPublisher(
            kv_events_config=args.kv_events_config,
            load_publish_endpoint=args.load_publish_endpoint,
        )
        self.bound = self._publisher.enable
        self.close = self._publisher.close

    def publish(self, load):
        # What a scheduler with nothing to do calls in each of its rounds.
        self._publisher.publish_load_stat(lambda: load, force=True)


class SnapshotPublisher:
    """One rank's LoadSnapshot, encoded by the engine.

    This release hands its LoadSnapshots on within the engine only, so that the
    socket and the framing are the ones of its load publisher, and the topic is
    empty.
    """

    def __init__(self, engine, args, rank):
        (host, base), _ = engine.resolve(args)
        address = engine.load_publisher.NetworkAddress(host, base + rank)
        self._encode = engine.load_snapshot.snapshot_encoder.encode
        self._seq = itertools.count()
        self._sent, self._at = None, 0.0
        try:
            self._socket = engine.open_on_loopback(address.to_tcp())
        except engine.load_publisher.zmq.ZMQError:
            self._socket = None
        self.bound = self._socket is not None

    def publish(self, load):
        now = time.monotonic()
        if not self.bound or (load is self._sent and now - self._at < SNAPSHOT_INTERVAL):
            return
        seq = next(self._seq).to_bytes(8, "big", signed=True)
        self._socket.send_multipart((b"", seq, self._encode(load)))
        self._sent, self._at = load, now

    def close(self):
        if self.bound:
            self._socket.close()


WIRES = {"LoadStat": StatPublisher, "LoadSnapshot": SnapshotPublisher}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


class IPv6Server(Server):
    address_family = socket.AF_INET6


class Driver:
    def __init__(self, engine):
        self.engine = engine
        self.publishers, self.loads = [], []
        self.wire = self.args = None
        self.server = None
        self.info = {}  # read by the server's threads

    def server_args(self, given):
        defaults = dict(dp_size=1, attn_dp_size=1, dcp_size=1, page_size=64, load_publish_endpoint="auto")
        args = types.SimpleNamespace(**{**defaults, **given})
        if args.kv_events_config is not None and not isinstance(args.kv_events_config, str):
            args.kv_events_config = json.dumps(args.kv_events_config)
        return args

    def start(self, wire, args):
        self.wire, self.args = WIRES[wire], self.server_args(args)
        return self.restart()

    def restart(self):
        self.close()
        ranks = self.engine.context.num_dp_ranks_of(self.args)
        # libzmq lets go of a port some time after close has returned.
        deadline = time.monotonic() + 5
        while True:
            self.publishers = [self.wire(self.engine, self.args, rank) for rank in range(ranks)]
            bound = [p.bound for p in self.publishers]
            if all(bound) or time.monotonic() > deadline:
                break
            self.close()
            time.sleep(LOOP_INTERVAL)
        (_, base), _ = self.engine.resolve(self.args)
        return {"base": base, "bound": bound}

    def close(self):
        for publisher in self.publishers:
            publisher.close()
        self.publishers = []

    def publish(self, loads):
        # convert refuses what a field of the engine's type cannot hold.
        self.loads = [msgspec.convert(load, self.engine.load_snapshot.LoadSnapshot) for load in loads]
        self.loop()
        return {}

    def loop(self):
        for publisher, load in zip(self.publishers, self.loads):
            publisher.publish(load)

    def serve(self, host, port, args):
        self.info = {
            "kv_events": self.engine.context.describe_kv_events_publisher(self.server_args(args)),
            "version": "conformance",
        }
        if self.server is None:
            driver = self

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    body = {"/server_info": driver.server_info, "/v1/loads": driver.v1_loads}.get(
                        self.path.partition("?")[0]
                    )
                    if body is None:
                        return self.send_error(404)
                    data = json.dumps(body()).encode()
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

                def log_message(self, *args):
                    pass

            self.server = (IPv6Server if ":" in host else Server)((host, port), Handler)
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return {"port": self.server.server_address[1], "kv_events": self.info["kv_events"]}

    def server_info(self):
        return self.info

    def v1_loads(self):
        return {
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "version": "conformance",
            "loads": [load.to_dict() for load in self.loads],
        }

    def resolve(self, args):
        resolved, reason = self.engine.resolve(self.server_args(args))
        return {"range": resolved, "reason": reason}

    def run(self):
        operations = {
            "start": self.start,
            "restart": self.restart,
            "publish": self.publish,
            "serve": self.serve,
            "resolve": self.resolve,
        }
        pending = b""
        while True:
            ready, _, _ = select.select([0], [], [], LOOP_INTERVAL)
            if not ready:
                self.loop()
                continue
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                command = json.loads(line)
                try:
                    answer = operations[command.pop("op")](**command)
                except Exception as e:
                    logging.exception("command failed")
                    answer = {"error": f"{type(e).__name__}: {e}"}
                sys.stdout.write(json.dumps(answer) + "\n")
                sys.stdout.flush()
        self.close()


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--sglang", type=pathlib.Path, required=True)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    Driver(Engine(args.parse_args().sglang)).run()


if __name__ == "__main__":
    main()
